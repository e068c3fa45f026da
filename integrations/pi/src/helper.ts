// The host's end of guest/helper.py, which does all file work inside the box.

import type { Process, Result } from "kern-sandbox";

const MOST_ANSWER = 96 * 1024 * 1024;

interface Waiting {
  resolve: (value: any) => void;
  reject: (error: Error) => void;
}

export class FileError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(`${code}: ${message}`);
    this.code = code;
  }
}

export class Helper {
  #process: Process;
  #waiting = new Map<number, Waiting>();
  #last = 0;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #gone: Error | null = null;
  #words = "";
  /** Settles when it serves, with the context files that are links out of the working directory. */
  readonly ready: Promise<{ leaving: string[] }>;

  constructor(process: Process) {
    this.#process = process;
    this.ready = new Promise((resolve, reject) => this.#waiting.set(0, { resolve, reject }));
    process.stdout.on("data", (chunk: Buffer) => this.#take(chunk));
    process.stderr.on("data", (chunk: Buffer) => (this.#words = (this.#words + chunk.toString()).slice(-2000)));
    process.exited.then(
      (result) => this.#end(this.#why(result)),
      (error) => this.#end(error.message),
    );
  }

  get gone(): boolean {
    return this.#gone !== null;
  }

  /** Ask for `op`; aborting ends a search, and the wait for anything else. */
  async ask(op: string, params: Record<string, unknown>, signal?: AbortSignal): Promise<any> {
    signal?.throwIfAborted();
    if (this.#gone) throw this.#gone;
    const id = ++this.#last;
    const answer = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    const abort = () => {
      this.#send({ id, op: "cancel" });
      this.#settle(id)?.reject(new Error("Operation aborted"));
    };
    signal?.addEventListener("abort", abort, { once: true });
    this.#send({ id, op, ...params });
    try {
      return await answer;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  async close(): Promise<void> {
    await this.#process.close();
  }

  #send(request: object): void {
    this.#process.stdin.write(`${JSON.stringify(request)}\n`);
  }

  #settle(id: number): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    return waiting;
  }

  #take(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      this.#held.push(chunk.subarray(start, end));
      const line = Buffer.concat(this.#held).toString("utf8");
      this.#held = [];
      this.#heldBytes = 0;
      start = end + 1;
      this.#hear(line);
    }
    this.#held.push(chunk.subarray(start));
    this.#heldBytes += chunk.length - start;
    if (this.#heldBytes > MOST_ANSWER) void this.close();
  }

  /** The helper shares its box with what a model may have broken: nothing that it says is trusted to have a form. */
  #hear(line: string): void {
    let told: any;
    try {
      told = JSON.parse(line);
    } catch {
      void this.close();
      return;
    }
    const waiting = this.#settle(told?.id);
    if (told?.ok) waiting?.resolve(told.ok);
    else waiting?.reject(new FileError(String(told?.error?.code), String(told?.error?.message)));
  }

  #why(result: Result): string {
    return result.fault?.message ?? (this.#words.trim() || `it ended with ${result.exit_code}`);
  }

  #end(why: string): void {
    this.#gone = new Error(`The file helper in the box has ended: ${why}`);
    for (const { reject } of this.#waiting.values()) reject(this.#gone);
    this.#waiting.clear();
  }
}
