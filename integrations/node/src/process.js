// A live program in a box: its pipes as streams of Node, its end as a promise.

import { Readable, Writable } from "node:stream";
import { SandboxError } from "./errors.js";

export class Process {
  #bridge;
  #name;
  #settle;

  constructor(bridge, name, signal) {
    this.#bridge = bridge;
    this.#name = name;
    this.stdin = new Writable({
      write: (chunk, _, done) => this.#put("process.write", { data_base64: chunk.toString("base64") }, done),
      final: (done) => this.#put("process.close_stdin", {}, () => done()),
    });
    this.stdin.on("error", () => {}); // who writes hears of it; a program that stops reading must not end ours
    this.stdout = new Readable({ read() {} });
    this.stderr = new Readable({ read() {} });
    this.exited = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    this.exited.catch(() => {}); // heard by whoever awaits it
    const abort = () => void this.kill();
    signal?.addEventListener("abort", abort, { once: true });
    const over = () => signal?.removeEventListener("abort", abort);
    this.exited.then(over, over);
    bridge.listen(name, (method, params) => this.#hear(method, params));
    if (signal?.aborted) abort();
  }

  async kill() {
    await this.#tell("process.kill", {});
  }

  async signal(signal) {
    await this.#tell("process.signal", { signal });
  }

  async close() {
    await this.kill();
    await this.exited.catch(() => {});
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }

  #ask(method, params) {
    return this.#bridge.ask(method, { process: this.#name, ...params });
  }

  async #tell(method, params) {
    try {
      await this.#ask(method, params);
    } catch (error) {
      if (error instanceof SandboxError) throw error; // anything else: it has ended, which is what was wanted
    }
  }

  #put(method, params, done) {
    this.#ask(method, params).then(() => done(), done);
  }

  #hear(method, params) {
    if (method === "process.output") {
      this[params.stream].push(Buffer.from(params.data_base64, "base64"));
      return;
    }
    this.stdout.push(null);
    this.stderr.push(null);
    if (params.result) this.#settle.resolve(params.result);
    else this.#settle.reject(params.failure ?? new SandboxError(params.error.message, params.error));
  }
}
