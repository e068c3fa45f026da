// Run by node's own runner; KERN_COMMAND names the bridge as a JSON array, `kern-sandbox serve` unless set.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { BridgeError, SandboxError, connect } from "../src/index.js";

const command = JSON.parse(process.env.KERN_COMMAND ?? '["kern-sandbox", "serve"]');
let engine;
let sandbox;

before(async () => {
  engine = await connect({ command });
  sandbox = await engine.sandbox({ timeout_s: 30 });
});
after(() => engine.close());

test("a command that is no bridge is an error of the call, and not the end of this process", async () => {
  for (const said of ["hello", "3", "null"]) {
    await assert.rejects(connect({ command: ["sh", "-c", `echo '${said}'; exec sleep 60`] }), (error) => {
      assert(error instanceof BridgeError);
      assert(error.message.includes(said));
      return true;
    });
  }
});

test("code runs, and its result is plain data", async () => {
  const result = await sandbox.runCode("print(6 * 7)\n{'a': 1}");
  assert.equal(result.stdout, "42\n");
  assert.equal(result.success, true);
  assert.equal(result.results[0].data["text/plain"], "{'a': 1}");
});

test("a fault is data, and a wrong option is an error that says what is accepted", async () => {
  const late = await sandbox.runCode("while True: pass", { timeout_s: 0.3 });
  assert.equal(late.fault.type, "timeout");
  await assert.rejects(engine.sandbox({ memory_mb: 1 }), (error) => {
    assert(error instanceof SandboxError);
    assert.equal(error.type, "SpecError");
    assert.match(error.message, /memory_mb=1 is not accepted/);
    return true;
  });
  await assert.rejects(engine.sandbox({ no_such: 1 }), /unknown option 'no_such'/);
});

test("an engine that is not there is an error that says what to put on PATH", async () => {
  await assert.rejects(connect({ command: ["/no/such/kern-sandbox", "serve"] }), (error) => {
    assert(error instanceof BridgeError);
    assert.match(error.message, /starting \/no\/such\/kern-sandbox: no such command.*Python package.*PATH/);
    return true;
  });
});

test("a program gets arguments, variables, a directory and input, and streams its output", async () => {
  const heard = [];
  const result = await sandbox.run(["sh", "-c", 'cat; echo "$A $PWD $1"; echo no >&2', "sh", "x y"], {
    cwd: "/tmp",
    env: { A: "1" },
    stdin: Buffer.from("in\n"),
    onStdout: (text) => heard.push(text),
    onStderr: (text) => heard.push(text),
  });
  assert.equal(result.stdout, "in\n1 /tmp x y\n");
  assert.equal(heard.join("").length, "in\n1 /tmp x y\nno\n".length);
});

test("calls run side by side", async () => {
  const results = await Promise.all(Array.from({ length: 20 }, (_, n) => sandbox.runCode(`print(${n})`)));
  assert.deepEqual(results.map((result) => Number(result.stdout)), [...Array(20).keys()]);
});

test("a live program answers what is written to it, byte for byte and in order", async () => {
  const all = Buffer.from(Array.from({ length: 100_000 }, (_, n) => n % 256));
  const cat = await sandbox.spawn(["cat"]);
  cat.stdin.end(all);
  const chunks = [];
  for await (const chunk of cat.stdout) chunks.push(chunk);
  assert(Buffer.concat(chunks).equals(all));
  assert.equal((await cat.exited).exit_code, 0);
});

test("a live program takes signals, and a kill ends its box", async () => {
  const polite = await sandbox.spawn(["sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"]);
  await new Promise((resolve) => polite.stdout.once("data", resolve));
  await polite.signal("SIGTERM");
  assert.equal((await polite.exited).exit_code, 7);
  const deaf = await sandbox.spawn(["sleep", "1000"]);
  await deaf.kill();
  assert.equal((await deaf.exited).fault.type, "killed");
  await deaf.kill(); // of what has ended: nothing happens
});

test("a program that is not there is a fault, and one that reads no more fails the write only", async () => {
  const missing = await sandbox.spawn(["no-such-program"]);
  assert.equal((await missing.exited).fault.type, "exec_failed");
  const closed = await sandbox.spawn(["sh", "-c", "exec <&-; echo closed; sleep 0.2"]);
  await new Promise((resolve) => closed.stdout.once("data", resolve));
  const failed = await new Promise((resolve) => closed.stdin.write("x".repeat(1 << 20), resolve));
  assert(failed instanceof BridgeError);
  assert.equal((await closed.exited).exit_code, 0);
});

test("aborting ends the box", async () => {
  const aborts = new AbortController();
  const call = sandbox.runCode("print('on', flush=True)\nwhile True: pass", {
    signal: aborts.signal,
    onStdout: () => aborts.abort(new Error("enough")),
  });
  await assert.rejects(call, /enough/);
  const stops = new AbortController();
  const program = await sandbox.spawn(["sleep", "1000"], { signal: stops.signal });
  stops.abort();
  assert.equal((await program.exited).fault.type, "killed");
});

test("a kernel keeps its state, also past a cell that is aborted or fails", async () => {
  const kernel = await sandbox.kernel();
  await kernel.runCode("x = 6");
  assert.equal((await kernel.runCode("1 / 0")).exit_code, 1);
  const aborts = new AbortController();
  const heard = () => aborts.abort(new Error("enough"));
  const cell = kernel.runCode("print('on', flush=True)\nwhile True: pass", { signal: aborts.signal, onStdout: heard });
  await assert.rejects(cell, /enough/);
  assert.equal((await kernel.runCode("x * 7")).results[0].data["text/plain"], "42");
  assert.equal((await kernel.runCode("import os; os._exit(3)")).exit_code, 3);
  await assert.rejects(kernel.runCode("x"), { type: "SessionClosed" });
  await kernel.close();
});

test("files go in and out as bytes, and a path that leaves the workspace is refused", async () => {
  const bytes = Buffer.from([0, 255, 10, 13]);
  await sandbox.writeFile("a/b.bin", bytes);
  await sandbox.writeFile("c.txt", "naïve");
  assert((await sandbox.readFile("a/b.bin")).equals(bytes));
  assert.equal((await sandbox.readFile("c.txt")).toString(), "naïve");
  assert.deepEqual(await sandbox.listFiles("a"), ["a/b.bin"]);
  await assert.rejects(sandbox.readFile("../x"), { type: "WorkspaceError" });
  await assert.rejects(sandbox.readFile("c.txt", { max_bytes: 1 }), { type: "WorkspaceError" });
});

test("a workspace is kept in a file and brought back", async () => {
  const folder = mkdtempSync(join(tmpdir(), "node-test-"));
  const [first, second] = [await engine.sandbox(), await engine.sandbox()];
  await first.writeFile("kept/a.txt", "A");
  assert.deepEqual(await first.snapshot(join(folder, "a.tar.gz")), []);
  await second.restore(join(folder, "a.tar.gz"));
  assert.deepEqual(await second.listFiles(), ["kept/a.txt"]);
  await assert.rejects(second.restore(join(folder, "missing")), { type: "WorkspaceError" });
  await Promise.all([first.close(), second.close()]);
  rmSync(folder, { recursive: true });
});

test("a closed Sandbox takes its workspace and its programs with it", async () => {
  const short = await engine.sandbox();
  const program = await short.spawn(["sleep", "1000"]);
  await short.close();
  await program.exited.catch((error) => assert(error instanceof SandboxError));
  assert.equal(existsSync(short.workspace), false);
  await assert.rejects(short.runCode("1"), BridgeError);
});

test("what cannot be started is an error", async () => {
  await assert.rejects(connect({ command: ["no-such-bridge"] }), BridgeError);
  await assert.rejects(connect({ command: ["false"] }), BridgeError);
});

test("when the client is killed, everything that ran for it ends", async () => {
  const seconds = `1000.${process.pid}`;
  const code = `
    import { connect } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const engine = await connect({ command: ${JSON.stringify(command)} });
    const sandbox = await engine.sandbox();
    await sandbox.spawn(["sleep", "${seconds}"]);
    console.log(sandbox.workspace);
  `;
  const client = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  const [printed] = await new Promise((resolve) => client.stdout.once("data", (chunk) => resolve([chunk])));
  await until(() => sleeping(seconds));
  client.kill("SIGKILL");
  await until(() => !sleeping(seconds) && !existsSync(printed.toString().trim()));
});

function sleeping(seconds) {
  return readdirSync("/proc").some((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/cmdline`, "latin1") === `sleep\0${seconds}\0`;
    } catch {
      return false;
    }
  });
}

async function until(holds) {
  for (let tries = 0; tries < 2000; tries += 1) {
    if (holds()) return;
    await sleep(10);
  }
  assert.fail(`it did not come true: ${holds}`);
}
