// What the user has configured. The user's own file may say anything; a project's file may only tighten.

import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

export const FILE_NAME = "kern-sandbox.json";
const MOST_BYTES = 64 * 1024;

export interface Config {
  /** How to start the engine. */
  command: string[];
  memoryMb: number;
  cpus: number | null;
  pids: number;
  /** Of a command that names no timeout itself. */
  timeoutSeconds: number;
  network: boolean;
  egressAllow: string[] | null;
  image: string | null;
  /** Names of variables of pi's environment that commands get. */
  env: string[];
  /** Further host paths that the box can read, at their own places. */
  readable: string[];
  /** Tools that are not this extension's and may run on the host. */
  allowTools: string[];
}

export const DEFAULTS: Config = {
  command: ["kern-sandbox", "serve"],
  memoryMb: 2048,
  cpus: null,
  pids: 512,
  timeoutSeconds: 600,
  network: false,
  egressAllow: null,
  image: null,
  env: ["LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR"],
  readable: [],
  allowTools: [],
};

type Given = Partial<Config>;
const isNumber = (value: unknown) => typeof value === "number" && Number.isFinite(value) && value > 0;
const isNames = (value: unknown) => Array.isArray(value) && value.every((one) => typeof one === "string" && one !== "");
const isText = (value: unknown) => typeof value === "string" && value !== "";

const FORMS: Record<keyof Config, [(value: unknown) => boolean, string]> = {
  command: [(value) => isNames(value) && (value as string[]).length > 0, "a list of a program and its arguments"],
  memoryMb: [isNumber, "a number of MiB"],
  cpus: [(value) => value === null || isNumber(value), "a number of processors, or null"],
  pids: [isNumber, "a number of processes"],
  timeoutSeconds: [isNumber, "a number of seconds"],
  network: [(value) => typeof value === "boolean", "true or false"],
  egressAllow: [(value) => value === null || isNames(value), "a list of hosts, or null"],
  image: [(value) => value === null || isText(value), "an image, or null"],
  env: [isNames, "a list of names of variables"],
  readable: [isNames, "a list of absolute paths"],
  allowTools: [isNames, "a list of names of tools"],
};

/** The configuration in force. Throws for a file that is not understood: a box of unknown make is no box. */
export function load(agentDir: string, project: { dir: string; trusted: boolean }, flags: Given): Config {
  const own = checked(join(agentDir, FILE_NAME), read(join(agentDir, FILE_NAME)));
  const mine = { ...DEFAULTS, ...own, ...checked("the command line", flags) };
  const file = join(project.dir, FILE_NAME);
  return project.trusted ? tightened(mine, checked(file, readProject(file))) : mine;
}

/** `mine`, or less of it. */
export function tightened(mine: Config, theirs: Given): Config {
  const least = (ours: number, other = ours) => Math.min(ours, other);
  const both = (ours: string[], other = ours) => ours.filter((one) => other.includes(one));
  return {
    ...mine,
    memoryMb: least(mine.memoryMb, theirs.memoryMb),
    cpus: theirs.cpus == null ? mine.cpus : least(mine.cpus ?? theirs.cpus, theirs.cpus),
    pids: least(mine.pids, theirs.pids),
    timeoutSeconds: least(mine.timeoutSeconds, theirs.timeoutSeconds),
    network: mine.network && theirs.network !== false,
    egressAllow: mine.egressAllow && theirs.egressAllow ? both(mine.egressAllow, theirs.egressAllow) : mine.egressAllow,
    env: both(mine.env, theirs.env),
    readable: both(mine.readable, theirs.readable),
    allowTools: both(mine.allowTools, theirs.allowTools),
  };
}

export function checked(where: string, given: unknown): Given {
  if (given === null || typeof given !== "object" || Array.isArray(given)) throw new Error(`${where} is not an object`);
  for (const [name, value] of Object.entries(given)) {
    const form = Object.hasOwn(FORMS, name) ? FORMS[name as keyof Config] : undefined;
    if (!form) throw new Error(`${where} has ${JSON.stringify(name)}: known are ${Object.keys(FORMS).join(", ")}`);
    if (!form[0](value)) throw new Error(`${where} has a ${name} that is not ${form[1]}`);
  }
  return given as Given;
}

function readProject(file: string): unknown {
  const folder = lstatSync(dirname(file), { throwIfNoEntry: false });
  return folder?.isDirectory() ? read(file, constants.O_NOFOLLOW) : {};
}

function read(file: string, more = 0): unknown {
  let fd: number;
  try {
    fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK | more);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return {};
    throw new Error(`${file} cannot be read: ${(error as Error).message}`);
  }
  try {
    const about = fstatSync(fd);
    if (!about.isFile() || about.size > MOST_BYTES) throw new Error("it is no file, or too large");
    return JSON.parse(readFileSync(fd, "utf8"));
  } catch (error) {
    throw new Error(`${file} is not understood: ${(error as Error).message}`);
  } finally {
    closeSync(fd);
  }
}
