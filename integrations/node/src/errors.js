// What goes wrong: in the sandbox, or between us and it.

export class SandboxError extends Error {
  constructor(message, about = {}) {
    super(message);
    this.name = about.type ?? "SandboxError";
    this.type = about.type ?? "SandboxError";
    this.hint = about.hint ?? "";
    this.errno = about.errno ?? null;
    this.path = about.path ?? null;
    this.stage = about.stage ?? null;
  }
}

export class BridgeError extends Error {
  constructor(message, code = null, data = null) {
    super(message);
    this.name = "BridgeError";
    this.code = code;
    this.data = data;
  }
}

const SANDBOX_ERROR = -32000;

export function errorOf({ code, message, data }) {
  return code === SANDBOX_ERROR ? new SandboxError(message, data) : new BridgeError(message, code, data);
}
