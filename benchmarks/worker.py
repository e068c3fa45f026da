"""Calls of one installation of ``kern_sandbox``, timed where they are made; it may be this one or another.

    python worker.py

reads requests, one JSON object a line, and answers each with one. Standard library only: it runs under the
interpreter of the installation that it measures, which may know nothing of this repository.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from typing import Any, Callable

_start = time.perf_counter()
import kern_sandbox as kern  # noqa: E402  # what the import costs is a figure

_ = kern.Sandbox, kern.run_code  # a package may put its own imports off until a name is used
IMPORT_MS = (time.perf_counter() - _start) * 1000
Call = Callable[[], Any]


class Wrong(Exception):
    """A call did not do what it was asked to, so its time means nothing."""


class Desk:
    """Sandboxes and kernels by name, and what is done with them."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, Any] = {}
        self.kernels: dict[str, Any] = {}

    def open(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Make a Sandbox."""
        self.sandboxes[name] = kern.Sandbox(**options).__enter__()
        return {}

    def kernel(self, name: str) -> dict[str, Any]:
        """Start a kernel in the Sandbox of that name."""
        self.kernels[name] = self.sandboxes[name].kernel().__enter__()
        return {}

    def close(self, name: str) -> dict[str, Any]:
        """End the kernel and the Sandbox of that name."""
        for things in (self.kernels, self.sandboxes):
            if name in things:
                things.pop(name).__exit__(None, None, None)
        return {}

    def probe(self, name: str) -> dict[str, Any]:
        """What the engine says on standard error beside a call that works."""
        return {"stderr": self.sandboxes[name].run_code("print(1)").stderr}

    def call(self, how: dict[str, Any], times: int) -> dict[str, Any]:
        """Milliseconds of each of ``times`` calls in a row."""
        once, spent = self._call(how), []
        for _ in range(times):
            start = time.perf_counter()
            result = once()
            spent.append((time.perf_counter() - start) * 1000)
            _check(result)
        return {"ms": spent}

    def at_once(self, name: str, count: int) -> dict[str, Any]:
        """Milliseconds until ``count`` concurrent calls have each given their own number."""
        sandbox = self.sandboxes[name]
        wrong: list[int] = []

        def one(number: int) -> None:
            result = sandbox.run_code(f"print({number})")
            if result.stdout != f"{number}\n":
                wrong.append(number)

        spent = concurrently([functools.partial(one, number) for number in range(count)])
        if wrong:
            raise Wrong(f"{len(wrong)} of {count} concurrent calls gave a wrong answer")
        return {"ms": [spent]}

    def rate(self, how: dict[str, Any], seconds: float, threads: int) -> dict[str, Any]:
        """Calls per second that ``threads`` threads make together."""
        once = self._call(how)
        return {"rate": per_second(lambda: _check(once()), seconds, threads)}

    def _call(self, how: dict[str, Any]) -> Call:
        if "once" in how:
            return lambda: kern.run_code(how["once"], **how["options"])
        if "cell" in how:
            cells = self.kernels[how["name"]]
            return lambda: cells.run_code(how["cell"])
        sandbox = self.sandboxes[how["name"]]
        if "argv" in how:
            return lambda: sandbox.run(how["argv"])
        return lambda: sandbox.run_code(how["code"])


def _check(result: Any) -> None:
    if not result.success:
        said = result.stderr.strip().splitlines() or ["no word"]
        raise Wrong(f"a call ended with exit code {result.exit_code}, fault {result.fault}: {said[-1]}")


def concurrently(calls: list[Callable[[], object]]) -> float:
    """Milliseconds from the first thread's start to the last one's end."""
    threads = [threading.Thread(target=call) for call in calls]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - start) * 1000


def per_second(once: Callable[[], object], seconds: float, threads: int) -> float:
    """How often ``threads`` threads do ``once`` in a second, over about so many seconds."""
    start = time.perf_counter()
    done: list[None] = []
    failed: list[Exception] = []

    def work() -> None:
        try:
            while time.perf_counter() < start + seconds:
                once()
                done.append(None)
        except Exception as error:  # in a thread nobody would hear of it
            failed.append(error)

    spent = concurrently([work] * threads)
    if failed:
        raise failed[0]
    return len(done) / spent * 1000


def main() -> None:
    """Answer until standard input ends. What else writes to standard output is not taken for an answer."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    desk = Desk()
    reply: dict[str, Any] = {"import_ms": IMPORT_MS}
    while True:
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
        line = sys.stdin.readline()
        if not line:
            break
        request = json.loads(line)
        try:
            reply = getattr(desk, request.pop("do"))(**request)
        except Exception as error:  # the harness decides what a failure means
            reply = {"failed": f"{type(error).__name__}: {error}"}
    for name in [*desk.sandboxes]:
        desk.close(name)


if __name__ == "__main__":
    main()
