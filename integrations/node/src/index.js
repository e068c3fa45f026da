// Sandboxes from Node, through the bridge `kern-sandbox serve`. The types, with what each thing promises, are in
// index.d.ts.

import { Bridge } from "./bridge.js";
import { Process } from "./process.js";

export { BridgeError, SandboxError } from "./errors.js";
export { Process } from "./process.js";

export const PROTOCOL = 1;

export async function connect({ command = ["kern-sandbox", "serve"], env, stderr = "inherit" } = {}) {
  const bridge = new Bridge(command, { env, stderr });
  try {
    const { version, methods } = await bridge.ask("hello", { protocol: PROTOCOL });
    return new Engine(bridge, version, methods);
  } catch (error) {
    await bridge.close();
    throw error;
  }
}

export class Engine {
  #bridge;

  constructor(bridge, version, methods) {
    this.#bridge = bridge;
    this.version = version;
    this.methods = methods;
  }

  async sandbox(options = {}) {
    const { sandbox, workspace } = await this.#bridge.ask("sandbox.open", { options });
    return new Sandbox(this.#bridge, sandbox, workspace);
  }

  async close() {
    await this.#bridge.close();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

export class Sandbox {
  #bridge;
  #name;

  constructor(bridge, name, workspace) {
    this.#bridge = bridge;
    this.#name = name;
    this.workspace = workspace;
  }

  async runCode(code, { language, ...how } = {}) {
    return this.#call("run_code", { code, language }, how);
  }

  async run(argv, { cwd, ...how } = {}) {
    return this.#call("run", { argv, cwd }, how);
  }

  async spawn(argv, { cwd, env, timeout_s, signal } = {}) {
    signal?.throwIfAborted();
    const { process } = await this.#ask("spawn", { argv, cwd, env, timeout_s });
    return new Process(this.#bridge, process, signal);
  }

  async kernel({ timeout_s, env } = {}) {
    const { kernel } = await this.#ask("kernel.open", { timeout_s, env });
    return new Kernel(this.#bridge, kernel);
  }

  async writeFile(path, data) {
    await this.#ask("write_file", { path, ...content("data", data) });
  }

  async readFile(path, { max_bytes } = {}) {
    const { data_base64 } = await this.#ask("read_file", { path, max_bytes });
    return Buffer.from(data_base64, "base64");
  }

  async snapshot(dest) {
    return (await this.#ask("snapshot", { dest })).left_out;
  }

  async restore(src) {
    await this.#ask("restore", { src });
  }

  async listFiles(subdir = "") {
    return (await this.#ask("list_files", { subdir })).files;
  }

  async close() {
    await this.#ask("sandbox.close", {});
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }

  #ask(method, params) {
    return this.#bridge.ask(method, { sandbox: this.#name, ...params });
  }

  #call(method, params, { env, stdin, ...how }) {
    return asked(this.#bridge, method, { sandbox: this.#name, ...params, env, ...content("stdin", stdin) }, how);
  }
}

export class Kernel {
  #bridge;
  #name;

  constructor(bridge, name) {
    this.#bridge = bridge;
    this.#name = name;
  }

  async runCode(code, how = {}) {
    return asked(this.#bridge, "kernel.run", { kernel: this.#name, code }, how);
  }

  async interrupt() {
    await this.#bridge.ask("kernel.interrupt", { kernel: this.#name });
  }

  async close() {
    await this.#bridge.ask("kernel.close", { kernel: this.#name });
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

function asked(bridge, method, params, { timeout_s, signal, onStdout, onStderr }) {
  const stream = onStdout || onStderr ? true : undefined;
  const onOutput = (name, text) => (name === "stdout" ? onStdout : onStderr)?.(text);
  return bridge.ask(method, { ...params, timeout_s, stream }, { signal, onOutput });
}

function content(name, data) {
  if (data === undefined || data === null || typeof data === "string") return { [name]: data };
  return { [`${name}_base64`]: Buffer.from(data).toString("base64") };
}
