// One box for one working directory: its life, and the two ways into it, a command and the file helper.

import { existsSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { BridgeError, connect, SandboxError, type Engine, type Process, type Sandbox } from "kern-sandbox";
import type { Config } from "./config.ts";
import { Helper } from "./helper.ts";
import { HOME, Paths, within } from "./paths.ts";

const PACKAGE = dirname(dirname(fileURLToPath(import.meta.url)));
const GUEST = "/opt/pi-kern-sandbox";
const HELPER_TIMEOUT_S = 7 * 24 * 3600;
const ENGINE_ENV = /^(PATH|HOME|USER|LOGNAME|LANG|LC_.*|TMPDIR|XDG_.*|KERN_.*|PYTHON.*)$/;
/** What pi reads as instructions in the working directory, on the host and following links. */
const CONTEXT_FILES = ["AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD"];

/**
 * What code in the box must not write, because something on the host would run it or obey it: pi, or git. A
 * `commondir` that leads elsewhere would give git another configuration; one that says `.` changes nothing.
 */
export function protectedPaths(cwd: string, configDir: string): Record<string, string | null> {
  const names: Record<string, string | null> = {
    [configDir]: null,
    ".pi": null,
    ".agents": null,
    ".git/hooks": null,
    ".git/config": "",
    ".git/config.worktree": "",
    ".git/commondir": ".\n",
  };
  return Object.fromEntries(Object.entries(names).map(([name, text]) => [join(cwd, name), text]));
}

export interface Place {
  cwd: string;
  /** pi's directory of the user: its configuration, skills, credentials. */
  agentDir: string;
  /** The name of pi's directory in a project. */
  configDir: string;
  /** What of pi's own package a model may read. */
  docs: string[];
}

export class Box {
  readonly place: Place;
  readonly config: Config;
  readonly paths: Paths;
  #engine: Engine | null = null;
  #sandbox: Sandbox | null = null;
  #helper: Promise<Helper> | null = null;
  #starting: Promise<void> | null = null;
  #optional: string[];
  #required: string[];
  #closed = false;
  #logs = 0;
  /** What this machine cannot enforce, as far as commands have shown it. */
  readonly hostNotes = new Set<string>();
  /** What the user should look at. */
  warnings: string[] = [];
  /** Why it is not up, or null. */
  trouble: string | null = "it has not been started";

  constructor(place: Place, config: Config) {
    this.place = place;
    this.config = config;
    const { agentDir } = place;
    const skills = [join(agentDir, "skills"), join(homedir(), ".agents", "skills"), join(agentDir, "npm"), join(agentDir, "git")];
    this.#required = config.readable;
    this.#optional = [...skills, ...place.docs].filter((path) => existsSync(path) && !within(path, place.cwd));
    this.paths = new Paths(place.cwd, [place.cwd, ...this.#required, ...this.#optional]);
  }

  /** What makes two boxes the same. */
  get key(): string {
    return JSON.stringify([this.place, this.config]);
  }

  /** Bring it up, once; a call after a failure tries again. */
  start(): Promise<void> {
    this.#starting ??= this.#start().then(
      () => void (this.trouble = null),
      async (error) => {
        this.trouble = words(error);
        await this.#stop();
        this.#starting = null;
        throw new Error(`The box is down, and nothing runs without it: ${this.trouble}`);
      },
    );
    return this.#starting;
  }

  /** The file helper; one that has died is started anew. */
  async helper(): Promise<Helper> {
    await this.start();
    if (this.#helper && (await this.#helper.then((one) => one.gone, () => true))) this.#helper = null;
    this.#helper ??= this.#startHelper();
    return this.#helper;
  }

  /** Run a shell command in a fresh box, both its streams as one. */
  async run(command: string, cwd: string, how: { timeout: number; signal?: AbortSignal }): Promise<Process> {
    await this.start();
    how.signal?.throwIfAborted();
    const argv = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", "bash", "-c", command];
    const given = { cwd: this.paths.inBox(cwd), env: this.environment(), timeout_s: how.timeout, signal: how.signal };
    const process = await this.#spawn(argv, given);
    process.stdin.end();
    return process;
  }

  /** Of what the engine remarks on a command, what is about that command; the rest is about this machine. */
  news(notes: string[]): string[] {
    const ofHost = (note: string) => note.includes("not limited for the box as a whole");
    for (const note of notes.filter(ofHost)) this.hostNotes.add(note);
    return notes.filter((note) => !ofHost(note));
  }

  /** Keep a long output where the model can read it; the path in the box. */
  async keep(data: Buffer): Promise<string> {
    const path = `/workspace/output/command-${++this.#logs}.log`;
    const helper = await this.helper();
    await helper.ask("mkdir", { path: dirname(path) });
    await helper.ask("write", { path, data: data.toString("base64") });
    return path;
  }

  /** What commands get of pi's environment. */
  environment(): Record<string, string> {
    const allowed = this.config.env.filter((name) => process.env[name] !== undefined);
    return { ...Object.fromEntries(allowed.map((name) => [name, process.env[name]!])), PI_CODING_AGENT: "true" };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.trouble = "it was closed";
    await this.#stop();
  }

  async #start(): Promise<void> {
    if (this.#closed) throw new Error("it was closed");
    this.#vet();
    const [program, ...rest] = this.config.command;
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => ENGINE_ENV.test(name)));
    this.#engine = await connect({ command: [program!, ...rest], env, stderr: "ignore" }).catch((error) => {
      const hint = "`command` in kern-sandbox.json names the engine; the extension's README says how to install it";
      throw new Error(`${error.message}. ${hint}`);
    });
    this.#sandbox = await this.#open(this.#optional);
    this.#helper = this.#startHelper();
    await this.#helper;
  }

  /** What a box must not be able to write, or the next start of pi would run it on the host. */
  #vet(): void {
    const { cwd, agentDir } = this.place;
    const real = realpathSync(cwd);
    const own = { "pi's user directory": agentDir, "this extension": PACKAGE, "pi itself": process.argv[1] ?? "/" };
    for (const [what, path] of Object.entries(own)) {
      const found = existsSync(path) ? realpathSync(path) : path;
      if (within(found, real)) {
        throw new Error(`${what} (${found}) lies in ${cwd}, which the box may write. Start pi in another directory`);
      }
    }
  }

  /** Open the Sandbox; what is only nice to have is left out where it is refused. */
  async #open(optional: string[]): Promise<Sandbox> {
    try {
      return await this.#engine!.sandbox(this.#options(optional));
    } catch (error) {
      if (!(error instanceof SandboxError) || error.type !== "MountRefused" || optional.length === 0) throw error;
      return this.#open([]);
    }
  }

  #options(optional: string[]): Record<string, unknown> {
    const { config, place } = this;
    const scratch = within(place.cwd, "/tmp") ? "/var/tmp" : "/tmp";
    const mounts: Record<string, string | [string, string]> = { [join(PACKAGE, "guest")]: GUEST };
    for (const path of [...optional, ...this.#required]) mounts[path] = path;
    mounts[place.cwd] = [place.cwd, "rw"];
    return {
      memory_mb: config.memoryMb,
      pids: config.pids,
      timeout_s: config.timeoutSeconds,
      network: config.network,
      track_files: false,
      tmpfs: { [scratch]: `${Math.max(1, Math.floor(Math.min(256, config.memoryMb / 4)))}m` },
      env: { HOME, TMPDIR: scratch, XDG_CACHE_HOME: `${HOME}/.cache` },
      mounts,
      protect: protectedPaths(place.cwd, place.configDir),
      ...(config.cpus === null ? {} : { cpus: config.cpus }),
      ...(config.egressAllow === null ? {} : { egress_allow: config.egressAllow }),
      ...(config.image === null ? {} : { image: config.image }),
    };
  }

  /** Start a program; where the engine turns out to be gone, the next call starts another. */
  async #spawn(argv: string[], how: Parameters<Sandbox["spawn"]>[1]): Promise<Process> {
    try {
      return await this.#sandbox!.spawn(argv, how);
    } catch (error) {
      if (error instanceof BridgeError) {
        this.trouble = words(error);
        this.#starting = null;
        await this.#stop();
      }
      throw error;
    }
  }

  async #startHelper(): Promise<Helper> {
    const { cwd, configDir } = this.place;
    const told = {
      protected: Object.keys(protectedPaths(cwd, configDir)),
      context: CONTEXT_FILES.map((name) => join(cwd, name)),
    };
    const argv = ["python3", "-E", "-s", "-B", `${GUEST}/helper.py`, JSON.stringify(told)];
    const helper = new Helper(await this.#spawn(argv, { timeout_s: HELPER_TIMEOUT_S }));
    const { leaving } = await helper.ready;
    this.warnings = leaving.map((path) => `${path} is a link out of the working directory, and pi reads it on the host`);
    await helper.ask("mkdir", { path: HOME });
    return helper;
  }

  async #stop(): Promise<void> {
    const engine = this.#engine;
    this.#engine = this.#sandbox = this.#helper = null;
    await engine?.close();
  }
}

export function words(error: unknown): string {
  if (error instanceof SandboxError && error.hint) return `${error.message} (${error.hint})`;
  return error instanceof Error ? error.message : String(error);
}
