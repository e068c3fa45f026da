import { Readable, Writable } from "node:stream";

/** The version of the bridge's protocol that this client speaks. */
export const PROTOCOL: number;

/**
 * Start the engine. Everything that runs in it ends with it, and it ends with this process, whatever kills that.
 *
 * @throws BridgeError it cannot be started, or speaks another protocol.
 */
export function connect(options?: {
  /** The program and its arguments; `["kern-sandbox", "serve"]` unless given. */
  command?: readonly string[];
  /** Its environment; this process's own unless given. Nothing of it reaches a box. */
  env?: Record<string, string | undefined>;
  /** Where its own complaints go. */
  stderr?: "inherit" | "ignore" | number;
}): Promise<Engine>;

export class Engine {
  /** The version of kern-sandbox. */
  readonly version: string;
  /** The methods of the bridge that it serves. */
  readonly methods: readonly string[];
  /** Open a Sandbox; options as in Python, by the same names. */
  sandbox(options?: SandboxOptions): Promise<Sandbox>;
  /** End every box, and the engine. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The options of `kern_sandbox.Sandbox`; the most used are named. */
export interface SandboxOptions {
  workspace?: string;
  memory_mb?: number | null;
  cpus?: number;
  pids?: number;
  timeout_s?: number;
  network?: boolean;
  tmpfs?: Record<string, string>;
  env?: Record<string, string>;
  mounts?: Record<string, string | [target: string, mode: "ro" | "rw"]>;
  protect?: readonly string[] | Record<string, string | null>;
  max_output_bytes?: number;
  require_limits?: boolean;
  track_files?: boolean;
  security_profile?: "untrusted";
  [option: string]: unknown;
}

/** What a cell says differently from its kernel. */
export interface CellOptions {
  timeout_s?: number;
  /** Aborting ends the box; the call then rejects with the signal's reason. */
  signal?: AbortSignal;
  /** Called with output as it comes; the result has all of it. */
  onStdout?: (text: string) => void;
  onStderr?: (text: string) => void;
}

/** What a call says differently from its Sandbox. */
export interface CallOptions extends CellOptions {
  env?: Record<string, string>;
  /** What the code reads; nothing unless given. */
  stdin?: string | Uint8Array;
}

/** A workspace and the limits of every box that works on it; each call gets a fresh box. Calls run side by side. */
export class Sandbox {
  /** The host directory that boxes see at /workspace. */
  readonly workspace: string;
  runCode(code: string, options?: CallOptions & { language?: "python" | "bash" | "sh" | "node" }): Promise<Result>;
  run(argv: readonly string[], options?: CallOptions & { cwd?: string }): Promise<Result>;
  spawn(
    argv: readonly string[],
    options?: { cwd?: string; env?: Record<string, string>; timeout_s?: number; signal?: AbortSignal },
  ): Promise<Process>;
  /** Start a Python interpreter that keeps its state between cells. */
  kernel(options?: { timeout_s?: number; env?: Record<string, string> }): Promise<Kernel>;
  writeFile(path: string, data: string | Uint8Array): Promise<void>;
  readFile(path: string, options?: { max_bytes?: number }): Promise<Buffer>;
  listFiles(subdir?: string): Promise<string[]>;
  /** Write the workspace into a tar.gz on this machine; resolves with what was left out. */
  snapshot(dest: string): Promise<string[]>;
  /** Replace everything in the workspace by what is in a tar.gz, or change nothing. */
  restore(src: string): Promise<void>;
  /** End every box of this Sandbox and remove a temporary workspace. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A live interpreter in a box; cells take turns. A cell that is aborted is interrupted, and killed if that does not help. */
export class Kernel {
  /** Run a cell; rejects with `SandboxError` of type "SessionClosed" once the kernel has died. */
  runCode(code: string, options?: CellOptions): Promise<Result>;
  /** Interrupt the cell that is running, as Ctrl-C would. */
  interrupt(): Promise<void>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A live program in a box. Output that nobody reads is kept in memory. */
export class Process {
  /** A write is done when the program's pipe has taken it. */
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Resolves when the program has ended and all its output has come; rejects with `SandboxError` where no box could
   * be built. */
  readonly exited: Promise<Result>;
  /** Send a signal to the program, by number or name. */
  signal(signal: number | NodeJS.Signals): Promise<void>;
  /** End its box; `exited` then resolves with the fault `killed`. */
  kill(): Promise<void>;
  /** End its box, and wait until it is gone. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Fault {
  type: "timeout" | "oom" | "killed" | "disk_full" | "escape_blocked" | "exec_failed" | "startup_failed";
  message: string;
  detail: string;
}

/** `ExecutionResult.to_dict()` of Python. */
export interface Result {
  success: boolean;
  stdout: string;
  stderr: string;
  code_stderr: string;
  exit_code: number;
  duration_ms: number;
  /** Set only when the sandbox acted. */
  fault: Fault | null;
  files: { path: string; size: number; change: "created" | "modified" | "deleted" }[];
  /** Rich values: MIME type to text, or to base64 for images. */
  results: { data: Record<string, unknown> }[];
  truncated: boolean;
  runtime_notes: string[];
  usage: { cpu_ms: number | null; max_memory_bytes: number | null; max_pids: number | null };
  /** What the box asked the network for, with `egress_allow`. */
  egress: {
    host: string;
    port: number;
    verdict: "allowed" | "refused";
    reason: string;
    connections: number;
    bytes_up: number;
    bytes_down: number;
  }[];
}

/** The sandbox could not do what was asked; `type` is the class in Python, e.g. "SpecError". */
export class SandboxError extends Error {
  readonly type: string;
  readonly hint: string;
  readonly errno: number | null;
  readonly path: string | null;
  readonly stage: string | null;
}

/** The bridge is gone, or did not understand what it was asked. */
export class BridgeError extends Error {
  readonly code: number | null;
  readonly data: unknown;
}
