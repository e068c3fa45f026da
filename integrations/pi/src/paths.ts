// Where a path that a model has named is in the box.

import { homedir } from "node:os";
import { isAbsolute, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * A directory that no host has. pi's own tools are given paths below it: what they look up on the host by themselves
 * (variants of a name, real paths for locks) finds nothing, and nothing that a box has made.
 */
export const NOWHERE = "/.kern-box-nowhere";
/** The home directory in the box; it lasts as long as the box. */
export const HOME = "/workspace/home";

const SPACES = /[\u00A0\u2000-\u200A\u202F\u205F\u3000]/g;

export function within(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith("/") ? folder : `${folder}/`);
}

export class Paths {
  readonly cwd: string;
  #shown: readonly string[];
  #home: string;

  /** @param shown host directories that the box has at their own places, `cwd` among them. */
  constructor(cwd: string, shown: readonly string[], home = homedir()) {
    this.cwd = cwd;
    this.#shown = shown;
    this.#home = home;
  }

  /** The path in the box that a model means. */
  inBox(given: string): string {
    let path = given.replace(SPACES, " ");
    if (path.startsWith("@")) path = path.slice(1);
    if (path.startsWith("file://")) path = fileURLToPath(path);
    if (path === "~" || path.startsWith("~/")) path = HOME + path.slice(1);
    path = resolve(this.cwd, path);
    const host = within(path, this.#home) && !this.#shown.some((folder) => within(path, folder));
    return host ? HOME + path.slice(this.#home.length) : path;
  }

  /** What a tool of pi with the working directory `NOWHERE` + cwd is given for it. */
  toTool(given: string): string {
    const path = this.inBox(given);
    if (isAbsolute(given) || !within(path, this.cwd)) return NOWHERE + path;
    const name = relative(this.cwd, path) || ".";
    return /^[@~]/.test(name) ? `./${name}` : name;
  }
}

/** The path in the box that a tool of pi means by a path below `NOWHERE`. */
export function fromTool(path: string): string {
  if (!within(path, NOWHERE)) throw new Error(`${path} does not lie in the box`);
  return path.slice(NOWHERE.length) || "/";
}
