// The wire: one JSON-RPC message a line, to and from a child process that ends when we do.

import { spawn } from "node:child_process";
import { BridgeError, errorOf } from "./errors.js";

const PATIENCE_MS = 5000;

function notStarted(error) {
  if (error.code !== "ENOENT") return error.message;
  return "no such command. It comes with the Python package kern-sandbox: put that on PATH, or name its whole path";
}

export class Bridge {
  #child;
  #ended; // settles when the child is gone
  #failure = null; // why nothing can be asked any more
  #pending = new Map(); // id: { resolve, reject, onOutput }
  #listeners = new Map(); // name of a process: what hears its notifications
  #early = new Map(); // name of a process: what came before anybody listened
  #last = 0;
  #held = [];

  constructor([program, ...words], { env, stderr }) {
    this.#child = spawn(program, words, { env, stdio: ["pipe", "pipe", stderr] });
    this.#ended = new Promise((resolve) => {
      this.#child.once("error", (error) => this.#end(`starting ${program}: ${notStarted(error)}`, resolve));
      this.#child.once("close", (code, signal) => this.#end(`${program} has ended (${signal ?? code})`, resolve));
    });
    this.#child.stdin.on("error", () => {}); // its end is what tells
    this.#child.stdout.on("data", (chunk) => this.#take(chunk));
  }

  /** Ask, and wait for the answer; aborting `signal` ends what was asked. */
  async ask(method, params, { signal, onOutput } = {}) {
    signal?.throwIfAborted();
    if (this.#failure) throw this.#failure;
    const id = ++this.#last;
    const abort = () => this.#send({ method: "cancel", params: { id } });
    const answer = new Promise((resolve, reject) => this.#pending.set(id, { resolve, reject, onOutput }));
    this.#send({ id, method, params });
    signal?.addEventListener("abort", abort, { once: true });
    try {
      return await answer;
    } catch (error) {
      throw signal?.aborted ? signal.reason : error;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** `hear(method, params)` is called with each notification about the process, until its exit. */
  listen(process, hear) {
    this.#listeners.set(process, hear);
    const early = this.#early.get(process) ?? [];
    this.#early.delete(process);
    for (const [method, params] of early) this.#notify(method, params);
    if (this.#failure && this.#listeners.has(process)) hear("process.lost", { process, failure: this.#failure });
  }

  /** End the child, and with it everything that runs; returns when it is gone. */
  async close() {
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), PATIENCE_MS);
    await this.#ended;
    clearTimeout(timer);
  }

  #send(message) {
    if (!this.#failure) this.#child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  #take(chunk) {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      this.#held.push(chunk.subarray(start, end));
      const line = Buffer.concat(this.#held).toString("utf8");
      this.#held = [];
      start = end + 1;
      const message = parsed(line);
      if (!message) return this.#giveUp(line);
      this.#hear(message);
    }
    if (start < chunk.length) this.#held.push(chunk.subarray(start));
  }

  /** What speaks to us is no bridge: nothing of it can be trusted to have a form. */
  #giveUp(line) {
    this.#child.stdout.removeAllListeners("data").resume();
    this.#failure = new BridgeError(`the bridge said what is no message: ${line.slice(0, 200)}`);
    this.#child.kill("SIGKILL");
  }

  #hear({ id, method, params, result, error }) {
    if (method === "output") {
      this.#pending.get(params.id)?.onOutput?.(params.stream, params.text);
    } else if (method) {
      this.#notify(method, params);
    } else {
      const waiting = this.#pending.get(id);
      this.#pending.delete(id);
      if (error) waiting?.reject(errorOf(error));
      else waiting?.resolve(result);
    }
  }

  #notify(method, params) {
    const hear = this.#listeners.get(params.process);
    if (!hear) {
      this.#early.set(params.process, [...(this.#early.get(params.process) ?? []), [method, params]]);
      return;
    }
    if (method === "process.exit") this.#listeners.delete(params.process);
    hear(method, params);
  }

  #end(words, resolve) {
    this.#failure ??= new BridgeError(words);
    for (const { reject } of this.#pending.values()) reject(this.#failure);
    for (const [process, hear] of this.#listeners) hear("process.lost", { process, failure: this.#failure });
    this.#pending.clear();
    this.#listeners.clear();
    resolve();
  }
}

function parsed(line) {
  try {
    const message = JSON.parse(line);
    return typeof message === "object" ? message : null;
  } catch {
    return null;
  }
}
