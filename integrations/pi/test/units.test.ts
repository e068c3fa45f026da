// What needs neither pi nor a box.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { Clip } from "../src/clip.ts";
import { checked, DEFAULTS, FILE_NAME, load, tightened } from "../src/config.ts";
import { imageType } from "../src/images.ts";
import { fromTool, HOME, NOWHERE, Paths } from "../src/paths.ts";

describe("the configuration", () => {
  let dir = "";
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), "kern-pi-"));
    mkdirSync(join(dir, "agent"));
    mkdirSync(join(dir, ".pi"));
  });
  afterEach(() => rmSync(dir, { recursive: true }));
  const own = (text: string) => writeFileSync(join(dir, "agent", FILE_NAME), text);
  const theirs = (text: string) => writeFileSync(join(dir, ".pi", FILE_NAME), text);
  const read = (trusted = true, flags = {}) => load(join(dir, "agent"), { dir: join(dir, ".pi"), trusted }, flags);

  test("is the default where there is no file", () => assert.deepEqual(read(), DEFAULTS));

  test("the command line beats the user's file", () => {
    own('{"memoryMb": 100, "pids": 7}');
    assert.deepEqual([read(true, { memoryMb: 200 }).memoryMb, read().memoryMb, read().pids], [200, 100, 7]);
  });

  test("a project's file tightens, and only where the project is trusted", () => {
    theirs('{"memoryMb": 64, "timeoutSeconds": 5}');
    assert.deepEqual([read().memoryMb, read().timeoutSeconds, read(false).memoryMb], [64, 5, DEFAULTS.memoryMb]);
  });

  test("a project's file loosens nothing", () => {
    const mine = { ...DEFAULTS, egressAllow: ["a.example"], env: ["LANG"] };
    const wide = {
      command: ["evil"], memoryMb: 1e6, cpus: 99, pids: 1e6, timeoutSeconds: 1e6, network: true, image: "evil",
      egressAllow: ["a.example", "b.example"], env: ["LANG", "SECRET"], readable: ["/srv"], allowTools: ["powershell"],
    };
    assert.deepEqual(tightened(mine, wide), { ...mine, cpus: 99 });
    assert.deepEqual(tightened({ ...mine, network: true, allowTools: ["a", "b"] }, { network: false, allowTools: ["b"] }), {
      ...mine,
      allowTools: ["b"],
    });
    assert.equal(tightened({ ...mine, egressAllow: null }, wide).egressAllow, null);
  });

  for (const text of ["{", "[]", "3", '{"memory": 1}', '{"memoryMb": "1"}', '{"pids": -1}', '{"env": "A"}', '{"command": []}', '{"__proto__x": 1}']) {
    test(`${text} is refused, not passed over`, () => {
      own(text);
      assert.throws(() => read(), /kern-sandbox\.json/);
    });
  }

  test("a project's file that is a link is not followed", () => {
    own("{}");
    writeFileSync(join(dir, "elsewhere"), '{"memoryMb": 1}');
    symlinkSync(join(dir, "elsewhere"), join(dir, ".pi", FILE_NAME));
    assert.throws(() => read(), /cannot be read/);
  });

  test("an unknown name says what is known", () => assert.throws(() => checked("x", { colour: 1 }), /colour.*memoryMb/));
});

describe("paths", () => {
  const paths = new Paths("/home/u/p", ["/home/u/p", "/home/u/.pi/agent/skills"], "/home/u");

  const cases: [string, string, string][] = [
    ["a/b", "/home/u/p/a/b", "a/b"],
    [".", "/home/u/p", "."],
    ["/home/u/p/a", "/home/u/p/a", `${NOWHERE}/home/u/p/a`],
    ["../x", `${HOME}/x`, `${NOWHERE}${HOME}/x`],
    ["~/x", `${HOME}/x`, `${NOWHERE}${HOME}/x`],
    ["/home/u/x", `${HOME}/x`, `${NOWHERE}${HOME}/x`],
    ["/home/u/.pi/agent/skills/a", "/home/u/.pi/agent/skills/a", `${NOWHERE}/home/u/.pi/agent/skills/a`],
    ["@a", "/home/u/p/a", "a"],
    ["@@a", "/home/u/p/@a", "./@a"],
    ["file:///etc/x", "/etc/x", `${NOWHERE}/etc/x`],
    ["a\u00a0b", "/home/u/p/a b", "a b"],
    ["/home/ux", "/home/ux", `${NOWHERE}/home/ux`],
  ];
  for (const [given, inBox, toTool] of cases) {
    test(`${JSON.stringify(given)} is ${inBox}`, () => {
      assert.equal(paths.inBox(given), inBox);
      assert.equal(paths.toTool(given), toTool);
    });
  }

  test("a path that does not come from nowhere is refused", () => {
    assert.equal(fromTool(`${NOWHERE}/a`), "/a");
    assert.throws(() => fromTool("/a"));
    assert.throws(() => fromTool(`${NOWHERE}x/a`));
  });
});

describe("long output", () => {
  function clip(...pieces: string[]) {
    const shown: string[] = [];
    const it = new Clip((data) => shown.push(data.toString()));
    for (const piece of pieces) it.add(Buffer.from(piece));
    const { tail, left, all } = it.rest();
    return { live: shown.join(""), tail: tail.toString(), left, all: all?.toString() ?? null };
  }

  test("short output is shown as it comes, and that is all", () => {
    assert.deepEqual(clip("a\n", "b"), { live: "a\nb", tail: "", left: 0, all: null });
  });

  for (const [what, line] of [["lines", "x\n"], ["bytes", `${"y".repeat(999)}\n`], ["one line", "z".repeat(1000)]] as const) {
    test(`too many ${what} keep both ends, below the limits of pi`, () => {
      const whole = line.repeat(5000);
      const { live, tail, left, all } = clip(...Array.from({ length: 5000 }, () => line));
      assert.equal(live.length + left + tail.length, whole.length);
      assert.ok(whole.startsWith(live) && whole.endsWith(tail) && live && tail);
      assert.ok(live.length + tail.length < 49 * 1024 && (live + tail).split("\n").length < 1990);
      assert.equal(all, whole);
    });
  }

  test("what is just too long for the beginning is not cut", () => {
    const whole = "l\n".repeat(1500);
    const { live, tail, left, all } = clip(whole);
    assert.deepEqual([live + tail, left, all], [whole, 0, null]);
  });

  test("of a flood the first megabytes are kept", () => {
    const it = new Clip(() => {});
    for (let count = 0; count < 20; count++) it.add(Buffer.alloc(1 << 20, 65 + count));
    const { tail, left, all } = it.rest();
    assert.equal(all?.length, 8 << 20);
    assert.equal(left + tail.length + 24 * 1024, 20 << 20);
    assert.equal(tail.toString("latin1", 0, 1), "T");
  });
});

test("images are known by their first bytes", () => {
  const type = (text: string) => imageType(Buffer.from(text, "latin1"));
  assert.equal(type("\x89PNG\r\n\x1a\n...."), "image/png");
  assert.equal(type("\xff\xd8\xff\xe0"), "image/jpeg");
  assert.equal(type("GIF89a"), "image/gif");
  assert.equal(type("RIFF1234WEBP"), "image/webp");
  assert.deepEqual([type("RIFF1234WAVE"), type(""), type("\x89PNX")], [null, null, null]);
});
