// The extension: pi's tools and the user's `!` in a box, and nothing in their place where there is no box.

import { existsSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import * as host from "@mariozechner/pi-coding-agent";
import type { ExtensionAPI, ExtensionContext } from "@mariozechner/pi-coding-agent";
import { bashOperations } from "./bash.ts";
import { Box, protectedPaths, words } from "./box.ts";
import { load } from "./config.ts";
import { tools } from "./tools.ts";

const STATUS = "kern-box";
/** How long pi may be idle after a reload before this extension is there again: loading is no idleness. */
const RELOAD_TICK_MS = 100;
const RELOAD_TICKS = 20;
/** The first version of pi that asks extensions about commands that come over RPC. */
const RPC_ASKS = [0, 83];
/** The first version that lets a tool be off until it is asked for. */
const OFF_BY_DEFAULT = [0, 99];

/** What outlives a reload of this module. */
interface Registry {
  generation: number;
  box: Box | null;
}
const KEY = Symbol.for("pi-kern-sandbox");
const registry: Registry = ((globalThis as any)[KEY] ??= { generation: 0, box: null });

function before([major, minor]: number[]): boolean {
  const [ours = 0, second = 0] = host.VERSION.split(".").map(Number);
  return ours < major! || (ours === major && second < minor!);
}

export default function kernBox(pi: ExtensionAPI): void {
  registry.generation++;
  let trouble: string | null = "pi has not started the session yet";
  const box = (): Box => {
    if (trouble !== null || !registry.box) throw new Error(`The box is down, and nothing runs without it: ${trouble}`);
    return registry.box;
  };
  const own = tools(process.cwd(), box);
  for (const definition of Object.values(own)) pi.registerTool(definition);
  /** Names of ours that another extension has taken; the guard blocks those tools. */
  const foreign = () =>
    pi
      .getAllTools()
      .filter((tool) => Object.hasOwn(own, tool.name) && !isOurs(tool.sourceInfo))
      .map((tool) => `the tool ${tool.name} is not the box's (${tool.sourceInfo.path}), and is blocked`);

  pi.registerFlag("kern-box", { type: "boolean", description: "refuse to start without the kern sandbox extension" });
  pi.registerFlag("kern-box-memory", { type: "string", description: "MiB of memory of the box" });
  pi.registerFlag("kern-box-timeout", { type: "string", description: "seconds of a command that names no timeout" });
  pi.registerFlag("kern-box-network", { type: "boolean", description: "share this machine's network with the box" });

  pi.on("session_start", async (_event, ctx) => {
    refuseUnguardedRpc();
    if (before(OFF_BY_DEFAULT) && !process.argv.some((word) => /^(--tools|-t)(=|$)/.test(word))) {
      pi.setActiveTools(pi.getActiveTools().filter((name) => !["grep", "find", "ls"].includes(name)));
    }
    try {
      await settle(pi, ctx);
      trouble = null;
      await registry.box!.start();
      ctx.ui.setStatus(STATUS, summary(registry.box!));
      for (const warning of [...registry.box!.warnings, ...foreign()]) tell(ctx, `kern box: ${warning}`, "error");
    } catch (error) {
      if (!registry.box || trouble !== null) trouble = words(error);
      tell(ctx, `kern box: ${words(error)}`, "error");
      ctx.ui.setStatus(STATUS, "box: DOWN, tools refuse");
    }
  });

  pi.on("session_shutdown", async (event) => {
    const reason = (event as { reason?: string }).reason ?? "quit";
    if (reason === "quit") {
      await registry.box?.close();
      registry.box = null;
    } else {
      watchForReturn();
    }
  });

  pi.on("tool_call", (event) => {
    const known = pi.getAllTools().find((tool) => tool.name === event.toolName);
    if (Object.hasOwn(own, event.toolName) && known && isOurs(known.sourceInfo)) return undefined;
    if (registry.box?.config.allowTools.includes(event.toolName) && !Object.hasOwn(own, event.toolName)) return undefined;
    const reason = `The tool ${event.toolName} would run outside the box. The user can allow it by name (allowTools).`;
    return { block: true, reason };
  });

  // An exception here would make an old pi run the command on the host: what fails, fails in `exec`.
  pi.on("user_bash", () => ({ operations: bashOperations(box) }));

  pi.registerCommand("box", {
    description: "The sandbox that tools run in: status, limits, restart",
    handler: async (args, ctx) => {
      const word = args.trim() || "status";
      if (word === "restart") {
        await registry.box?.close();
        registry.box = null;
        try {
          trouble = "it is starting";
          await settle(pi, ctx);
          trouble = null;
          await registry.box!.start();
        } catch (error) {
          if (!registry.box || trouble !== null) trouble = words(error);
        }
      }
      const answer = word === "limits" ? limits(registry.box) : status(registry.box, trouble);
      tell(ctx, ["status", "limits", "restart"].includes(word) ? answer : `/box knows status, limits and restart`, "info");
      ctx.ui.setStatus(STATUS, registry.box && !registry.box.trouble ? summary(registry.box) : "box: DOWN, tools refuse");
    },
  });
}

/** Make the box that the configuration asks for, unless it is there already. */
async function settle(pi: ExtensionAPI, ctx: ExtensionContext): Promise<void> {
  const configDir = (host as { CONFIG_DIR_NAME?: string }).CONFIG_DIR_NAME ?? ".pi";
  const agentDir = host.getAgentDir();
  const trusted = (ctx as { isProjectTrusted?: () => boolean }).isProjectTrusted?.() ?? true;
  const config = load(agentDir, { dir: join(ctx.cwd, configDir), trusted }, flags(pi));
  const box = new Box({ cwd: ctx.cwd, agentDir, configDir, docs: documents() }, config);
  if (registry.box?.key === box.key) return;
  await registry.box?.close();
  registry.box = box;
}

function flags(pi: ExtensionAPI): Record<string, unknown> {
  const memory = pi.getFlag("kern-box-memory");
  const timeout = pi.getFlag("kern-box-timeout");
  return {
    ...(memory === undefined ? {} : { memoryMb: Number(memory) }),
    ...(timeout === undefined ? {} : { timeoutSeconds: Number(timeout) }),
    ...(pi.getFlag("kern-box-network") === true ? { network: true } : {}),
  };
}

/** pi's own documentation, to which its system prompt refers. */
function documents(): string[] {
  let folder = dirname(realpathSync(process.argv[1] ?? "/"));
  while (folder !== "/") {
    const manifest = join(folder, "package.json");
    if (existsSync(manifest) && /"name":\s*"@[\w-]+\/pi-coding-agent"/.test(readFileSync(manifest, "utf8"))) {
      return ["README.md", "CHANGELOG.md", "docs", "examples"].map((name) => join(folder, name)).filter(existsSync);
    }
    folder = dirname(folder);
  }
  return [];
}

const HERE = realpathSync(new URL(import.meta.url).pathname);

function isOurs(source: { path?: string } | undefined): boolean {
  return source?.path !== undefined && existsSync(source.path) && realpathSync(source.path) === HERE;
}

/** Old versions run what comes over RPC on the host, and ask nobody. */
function refuseUnguardedRpc(): void {
  const words = process.argv.slice(2);
  const rpc = words.some((word, at) => word === "--mode=rpc" || (word === "--mode" && words[at + 1] === "rpc"));
  if (rpc && before(RPC_ASKS)) {
    console.error(`kern box: pi ${host.VERSION} runs RPC's bash on the host, whatever an extension says. Use 0.83 or later.`);
    process.exit(1);
  }
}

/**
 * pi loads extensions anew, and goes on without those that it cannot load. It must not: its own tools would be back.
 * They are out of reach from here by then, so pi itself ends.
 */
function watchForReturn(): void {
  const generation = registry.generation;
  let ticks = 0;
  const timer = setInterval(() => {
    if (registry.generation !== generation) return clearInterval(timer);
    if (++ticks < RELOAD_TICKS) return;
    console.error("kern box: the extension did not come back, so pi ends: its tools would run on the host.");
    process.exit(1);
  }, RELOAD_TICK_MS);
  timer.unref();
}

function tell(ctx: ExtensionContext, text: string, kind: "info" | "error"): void {
  if (ctx.hasUI) ctx.ui.notify(text, kind);
  else console.error(text);
}

function summary({ config }: Box): string {
  const net = config.network ? "host network" : config.egressAllow?.length ? "some network" : "no network";
  return `box: ${config.memoryMb} MiB, ${net}`;
}

function status(box: Box | null, trouble: string | null): string {
  const why = trouble ?? box?.trouble ?? null;
  if (!box || why !== null) return `The box is down, and tools refuse: ${why}`;
  const kept = Object.keys(protectedPaths("", box.place.configDir)).map((path) => path.replace(/^\//, ""));
  return [`The box is up. It may write ${box.place.cwd}, except ${kept.join(", ")}.`, limits(box)].join("\n");
}

function limits(box: Box | null): string {
  if (!box) return "There is no box.";
  const { config } = box;
  return [
    `memory ${config.memoryMb} MiB, ${config.cpus ?? "all"} processors, ${config.pids} processes`,
    `a command may take ${config.timeoutSeconds} s unless it names a timeout`,
    `network: ${config.network ? "that of the host" : config.egressAllow?.join(", ") || "none"}`,
    `environment: ${Object.keys(box.environment()).join(", ")}`,
    `tools allowed outside: ${config.allowTools.join(", ") || "none"}`,
    ...box.hostNotes,
  ].join("\n");
}
