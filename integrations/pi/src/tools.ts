// pi's own tools, with everything that they do to files done by the helper in the box.

import * as pi from "@mariozechner/pi-coding-agent";
import { bashOperations } from "./bash.ts";
import type { Box } from "./box.ts";
import { imageType } from "./images.ts";
import { fromTool, NOWHERE } from "./paths.ts";

const MOST_READ = 10 * 1024 * 1024;
const STREAM_PIECE = 1024 * 1024;
const MOST_SECONDS_GREP = 120;
const BASH_RULES = [
  "Each bash command runs in a fresh sandbox: only the working directory and $HOME outlive it; background processes do not.",
];

type Signal = AbortSignal | undefined;
type Answer = { content: { type: "text"; text: string }[]; details: any };

/** Every tool that is ours, by name; `box` throws where none is up. */
export function tools(cwd: string, box: () => Box): Record<string, any> {
  const files = fileOperations(box);
  const at = () => NOWHERE + box().place.cwd;
  const bash = pi.createBashToolDefinition(cwd);
  const edit = pi.createEditToolDefinition(cwd);
  return {
    bash: {
      ...bash,
      promptGuidelines: [...(bash.promptGuidelines ?? []), ...BASH_RULES],
      execute: (id: string, given: any, signal: Signal, update: any) =>
        pi.createBashTool(at(), { operations: bashOperations(box) }).execute(id, given, signal, update),
    },
    read: ours(pi.createReadToolDefinition(cwd), box, () => pi.createReadTool(at(), { operations: files.read })),
    write: ours(pi.createWriteToolDefinition(cwd), box, () => pi.createWriteTool(at(), { operations: files.edit })),
    edit: {
      ...ours(edit, box, () => pi.createEditTool(at(), { operations: files.edit })),
      // While the arguments count as incomplete pi shows no preview, for which it would read the host's file.
      renderCall: (args: any, theme: any, context: any) =>
        (edit.renderCall as any)(args, theme, Object.create(context, { argsComplete: { value: false } })),
    },
    ls: { ...ours(pi.createLsToolDefinition(cwd), box, () => pi.createLsTool(at(), { operations: listing(box) })), ...OFF },
    find: { ...ours(pi.createFindToolDefinition(cwd), box, (signal) => finder(box, at(), signal)), ...OFF },
    grep: {
      ...pi.createGrepToolDefinition(cwd),
      ...OFF,
      execute: (_: string, given: any, signal: Signal) => grep(box(), given, signal),
    },
  };
}

/** New versions of pi leave such a tool off until it is asked for. */
const OFF = { defaultActive: false };

/** One of pi's tools with a path that leads nowhere on the host. */
function ours(definition: any, box: () => Box, make: (signal: Signal) => any): any {
  return {
    ...definition,
    async execute(id: string, given: any, signal: Signal, update: any) {
      const it = box();
      await it.start();
      try {
        const path = given.path === undefined ? {} : { path: it.paths.toTool(given.path) };
        const answer = await make(signal).execute(id, { ...given, ...path }, signal, update);
        return withoutNowhere(answer);
      } catch (error) {
        throw new Error(shown((error as Error).message));
      }
    },
  };
}

const shown = (text: string) => text.replaceAll(NOWHERE, "");

function withoutNowhere(answer: any): any {
  const content = answer.content.map((one: any) => (one.type === "text" ? { ...one, text: shown(one.text) } : one));
  return { ...answer, content };
}

function fileOperations(box: () => Box) {
  const ask = async (op: string, path: string, more: object = {}, signal?: Signal) =>
    (await box().helper()).ask(op, { path: fromTool(path), ...more }, signal);
  const piece = async (path: string, offset: number, bytes: number, signal?: Signal) => {
    const { data, size } = await ask("read", path, { offset, bytes }, signal);
    return { data: Buffer.from(String(data), "base64"), size: Number(size) };
  };
  const readFile = async (path: string) => {
    const { data, size } = await piece(path, 0, MOST_READ);
    if (size > MOST_READ) throw new Error(`The file has ${size} bytes, of which at most ${MOST_READ} are read at once`);
    return data;
  };
  const writeFile = async (path: string, text: string) =>
    void (await ask("write", path, { data: Buffer.from(text).toString("base64") }));
  return {
    read: {
      readFile,
      access: async (path: string) => void (await ask("access", path)),
      detectImageMimeType: async (path: string) => imageType((await piece(path, 0, 16)).data),
      async *createReadStream(path: string, { signal }: { signal?: AbortSignal }) {
        for (let offset = 0; ; ) {
          const { data } = await piece(path, offset, STREAM_PIECE, signal);
          if (data.length === 0) return;
          offset += data.length;
          yield data;
        }
      },
    },
    edit: {
      readFile,
      writeFile,
      access: async (path: string) => void (await ask("access", path, { write: true })),
      mkdir: async (path: string) => void (await ask("mkdir", path)),
    },
  };
}

/** One listing serves all that ls asks. */
function listing(box: () => Box) {
  const known = new Map<string, boolean>();
  const ask = async (op: string, path: string) => (await box().helper()).ask(op, { path: fromTool(path) });
  const stat = async (path: string) => {
    if (!known.has(path)) known.set(path, Boolean((await ask("stat", path)).directory));
    return { isDirectory: () => known.get(path)! };
  };
  return {
    exists: async (path: string) =>
      stat(path).then(
        () => true,
        () => false,
      ),
    stat,
    readdir: async (path: string) => {
      const { entries } = await ask("list", path);
      for (const [name, directory] of entries) known.set(`${path.replace(/\/$/, "")}/${name}`, Boolean(directory));
      return entries.map(([name]: [string]) => String(name));
    },
  };
}

function finder(box: () => Box, at: string, signal: Signal) {
  const ask = async (op: string, path: string, more: object = {}) =>
    (await box().helper()).ask(op, { path: fromTool(path), ...more }, limited(signal));
  return pi.createFindTool(at, {
    operations: {
      exists: (path) =>
        ask("stat", path).then(
          () => true,
          () => false,
        ),
      async glob(pattern, path, { limit }) {
        const { paths } = await ask("find", path, { pattern, limit, skip: ["node_modules"] });
        return paths.map((one: string) => `${path.replace(/\/$/, "")}/${one}`);
      },
    },
  });
}

function limited(signal: Signal): AbortSignal {
  const deadline = AbortSignal.timeout(MOST_SECONDS_GREP * 1000);
  return signal ? AbortSignal.any([signal, deadline]) : deadline;
}

async function grep(box: Box, given: any, signal: Signal): Promise<Answer> {
  const path = box.paths.inBox(given.path ?? ".");
  const helper = await box.helper();
  const found = await helper.ask("grep", { ...given, path }, limited(signal)).catch((error) => {
    throw new Error(error.code === "ENOENT" ? `Path not found: ${path}` : error.message);
  });
  const text = String(found.text);
  if (!found.matches) return { content: [{ type: "text", text: "No matches found" }], details: undefined };
  const notices: string[] = [];
  const details: any = {};
  if (found.limitReached) {
    const limit = Number(found.limitReached);
    notices.push(`${limit} matches limit reached. Use limit=${limit * 2} for more, or refine pattern`);
    details.matchLimitReached = limit;
  }
  if (found.bytesReached) {
    notices.push("50.0KB limit reached");
    details.truncation = pi.truncateHead(`${text}\n${" ".repeat(pi.DEFAULT_MAX_BYTES)}`, { maxLines: Number.MAX_SAFE_INTEGER });
  }
  if (found.linesCut) {
    notices.push("Some lines truncated to 500 chars. Use read tool to see full lines");
    details.linesTruncated = true;
  }
  const more = notices.length > 0 ? `\n\n[${notices.join(". ")}]` : "";
  return { content: [{ type: "text", text: text + more }], details: notices.length > 0 ? details : undefined };
}
