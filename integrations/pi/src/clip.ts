// Output of a command for a model: its beginning as it comes, its end when it is known, and all of it for a file.
// It stays below the limits at which pi would write the whole of it to a file on the host.

const LIVE = { bytes: 24 * 1024, lines: 900 };
const LAST = { bytes: 20 * 1024, lines: 900 };
const MOST_KEPT = 8 * 1024 * 1024;
const MOST_HELD = 64 * LAST.bytes;
const NEWLINE = 10;

export class Clip {
  #live = { ...LIVE };
  #all: Buffer[] = [];
  #held: Buffer[] = [];
  #heldBytes = 0;
  #room = MOST_HELD;
  #keptBytes = 0;
  #total = 0;
  #show: (data: Buffer) => void;

  constructor(show: (data: Buffer) => void) {
    this.#show = show;
  }

  add(data: Buffer): void {
    this.#total += data.length;
    if (this.#keptBytes < MOST_KEPT) {
      this.#all.push(data.subarray(0, MOST_KEPT - this.#keptBytes));
      this.#keptBytes += this.#all.at(-1)!.length;
    }
    const shown = this.#heldBytes > 0 ? 0 : fitting(data, this.#live);
    if (shown > 0) {
      this.#show(data.subarray(0, shown));
      this.#live.bytes -= shown;
      this.#live.lines -= newlines(data.subarray(0, shown));
    }
    if (shown < data.length) this.#hold(data.subarray(shown));
  }

  /** What was not shown yet. `all` is everything, as far as it was kept, where something has to be left out. */
  rest(): { tail: Buffer; left: number; all: Buffer | null } {
    const held = Buffer.concat(this.#held);
    const tail = held.subarray(held.length - fromEnd(held, LAST));
    const left = this.#heldBytes - tail.length;
    return { tail, left, all: left > 0 ? Buffer.concat(this.#all) : null };
  }

  get total(): number {
    return this.#total;
  }

  #hold(data: Buffer): void {
    this.#held.push(data);
    this.#heldBytes += data.length;
    this.#room -= data.length;
    if (this.#room >= 0) return;
    this.#held = [Buffer.concat(this.#held).subarray(-2 * LAST.bytes)];
    this.#room = MOST_HELD - this.#held[0]!.length;
  }
}

function newlines(data: Buffer): number {
  let count = 0;
  for (let at = data.indexOf(NEWLINE); at !== -1; at = data.indexOf(NEWLINE, at + 1)) count++;
  return count;
}

/** How many bytes of the beginning of `data` there is room for. */
function fitting(data: Buffer, room: { bytes: number; lines: number }): number {
  let end = Math.min(data.length, Math.max(0, room.bytes));
  let lines = room.lines;
  for (let at = data.indexOf(NEWLINE); at !== -1 && at < end; at = data.indexOf(NEWLINE, at + 1)) {
    if (--lines < 0) end = at;
  }
  return end;
}

/** The same of the end. */
function fromEnd(data: Buffer, room: { bytes: number; lines: number }): number {
  let start = Math.max(0, data.length - room.bytes);
  let lines = room.lines;
  for (let at = data.lastIndexOf(NEWLINE); at >= start && at > 0; at = data.lastIndexOf(NEWLINE, at - 1)) {
    if (--lines < 0) start = at + 1;
  }
  return data.length - start;
}
