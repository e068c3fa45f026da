"""``python -m benchmarks [--rounds N] [--json FILE]``: boxes against bubblewrap and against plain processes."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time

import kern_sandbox as kern

from .leftovers import compare, look
from .measure import Row, Subject, by_turns, dump, in_runs, machine, rows, table

PYTHON = os.path.realpath(sys.executable)
BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]


def program(*argv: str) -> Subject:
    """A plain process."""
    name = " ".join(os.path.basename(part) for part in argv)
    return Subject(name, lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL))


def bubbled(*argv: str) -> Subject:
    """The same program in bubblewrap."""
    name = "bwrap --unshare-all " + " ".join(os.path.basename(part) for part in argv)
    return Subject(name, lambda: subprocess.run([*BWRAP, *argv], check=True, stdout=subprocess.DEVNULL))


def in_box(sandbox: kern.Sandbox, name: str, *, code: str | None = None, argv: tuple[str, ...] = ()) -> Subject:
    """A call, which must succeed to count."""

    def once() -> None:
        result = sandbox.run_code(code) if code is not None else sandbox.run(argv)
        if not result.success:
            raise SystemExit(f"{name} failed: {result}")

    return Subject(name, once)


def hundred_at_once(sandbox: kern.Sandbox) -> float:
    """Seconds until 100 concurrent ``print(n)`` calls on one Sandbox have each given their own number."""
    wrong: list[int] = []

    def one(number: int) -> None:
        if sandbox.run_code(f"print({number})").stdout != f"{number}\n":
            wrong.append(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(100)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise SystemExit(f"{len(wrong)} of 100 concurrent calls gave a wrong answer")
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, list[Row]]:
    """Every part; prints each as it is done."""
    parts: dict[str, list[Row]] = {}
    with kern.Sandbox() as sandbox:
        reference = f"{os.path.basename(PYTHON)} -I -c 1"
        bare = program(PYTHON, "-I", "-c", "1")
        subjects = [
            in_box(sandbox, 'run(["true"])', argv=("true",)),
            bubbled("true"),
            in_box(sandbox, 'run_code("print(1)")', code="print(1)"),
            bubbled(PYTHON, "-I", "-c", "print(1)"),
            bare,
            program("true"),
        ]
        if shutil.which("bwrap") is None:
            print("bwrap is not installed: no comparison with it")
            subjects = [subject for subject in subjects if not subject.name.startswith("bwrap")]
        for title, how in (("by turns", by_turns), ("sustained, 20 in a row", in_runs)):
            parts[title] = rows(how(subjects, rounds), reference)
            print(table(title, parts[title], reference))
        alone = next(row.median_ms for row in parts["sustained, 20 in a row"] if row.name.startswith("run_code"))
        seconds = min(hundred_at_once(sandbox) for _ in range(3))
        print(f"100 calls at once: {seconds:.2f} s = {seconds * 1000 / alone:.1f} x one call alone\n")
        parts["at once"] = [Row("100 x run_code", round(seconds * 1000, 1), 0, 0, round(seconds * 1000 / alone, 1))]
    return parts


def main() -> None:
    """Measure, count what is left behind, and write it down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--calls", type=int, default=1000, help="calls in a row for the count of leftovers")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    print(machine(), "\n")
    parts = measure(options.rounds)
    with kern.Sandbox() as sandbox:
        sandbox.run(["true"])
        hundred_at_once(sandbox)
        before = look()
        for _ in range(options.calls):
            sandbox.run(["true"])
        hundred_at_once(sandbox)
        print(compare(before, f"{options.calls} calls in a row and 100 at once"))
    if options.json:
        dump(options.json, parts)


if __name__ == "__main__":
    main()
