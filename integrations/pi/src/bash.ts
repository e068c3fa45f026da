// pi's bash tool and the user's `!`, with the command in the box.

import { SandboxError, type Process, type Result } from "kern-sandbox";
import type { BashOperations } from "@mariozechner/pi-coding-agent";
import type { Box } from "./box.ts";
import { words } from "./box.ts";
import { Clip } from "./clip.ts";
import { fromTool, NOWHERE, within } from "./paths.ts";

const MOST_SECONDS = 7 * 24 * 3600;
/** A path on which git on the host has just put another file; the next box has it as it is now. */
const ATTEMPTS = 3;

/** `box` gives the box to use; it throws where there is none, and the command then fails. */
export function bashOperations(box: () => Box): BashOperations {
  return {
    async exec(command, cwd, { onData, signal, timeout }) {
      if (signal?.aborted) throw new Error("aborted");
      const it = box();
      const seconds = timeout ?? it.config.timeoutSeconds;
      if (!(seconds > 0 && seconds <= MOST_SECONDS)) throw new Error(`a timeout of ${seconds} seconds is not possible`);
      const clip = new Clip(onData);
      const place = within(cwd, NOWHERE) ? fromTool(cwd) : cwd;
      const result = await finished(() => it.run(command, place, { timeout: seconds, signal }), clip, signal);
      await close(it, clip, onData);
      if (signal?.aborted) throw new Error("aborted");
      if (result.fault?.type === "timeout") throw new Error(`timeout:${seconds}`);
      for (const note of [result.fault?.message, ...it.news(result.runtime_notes)]) {
        if (note) onData(Buffer.from(`\n[sandbox: ${note}]\n`));
      }
      return { exitCode: result.exit_code };
    },
  };
}

async function finished(start: () => Promise<Process>, clip: Clip, signal?: AbortSignal): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    try {
      const process = await start();
      process.stderr.resume();
      for await (const chunk of process.stdout) clip.add(chunk as Buffer);
      return await process.exited;
    } catch (error) {
      if (signal?.aborted) throw new Error("aborted");
      const again = error instanceof SandboxError && error.type === "StartError" && clip.total === 0;
      if (!again || attempt === ATTEMPTS) throw new Error(`The box could not run the command: ${words(error)}`);
    }
  }
}

/** Show the end of the output, and see to what the command has left. */
async function close(box: Box, clip: Clip, onData: (data: Buffer) => void): Promise<void> {
  const { tail, left, all } = clip.rest();
  if (all) {
    const path = await box.keep(all).catch(() => null);
    const where = path ? `${all.length < clip.total ? "the first part of it" : "all of it"} is in ${path}` : "it is lost";
    onData(Buffer.from(`\n[… ${left} bytes are left out here; ${where} …]\n`));
  }
  if (tail.length > 0) onData(tail);
  const { removed } = await (await box.helper()).ask("sweep", {});
  for (const path of removed as string[]) {
    onData(Buffer.from(`\n[sandbox: ${path} was a link out of the working directory, and has been removed]\n`));
  }
}
