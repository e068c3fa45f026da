"""The physical limit: what Linux alone takes for the namespaces and mounts of a box, by a small C program."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time

from .measure import Missing, Row, stats

_SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "limit.c")
_LABELS = {
    "fork": "a process that is forked and ends",
    "exec": "fork and exec of `true`",
    "user": "clone with a user namespace, ids mapped",
    "most": "… and mount, PID, IPC, UTS",
    "all": "… and network: all namespaces of a box",
    "mounts": "… and a box's 12 fresh mounts, loopback up",
}
RUNNING, GONE = "until it is ready", "until it is waited for"


def linux_alone(rounds: int) -> list[Row]:
    """Compile and run the program.

    Raises:
        Missing: there is no compiler, or this user may not make the namespaces.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Missing("there is no C compiler for limit.c")
    with tempfile.TemporaryDirectory(prefix="kern-bench-") as folder:
        program = f"{folder}/limit"
        for argv in ([compiler, "-O2", "-static", "-o", program, _SOURCE], [program, str(rounds)]):
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Missing(f"{os.path.basename(argv[0])} failed: {done.stderr.strip()}")
    return rows_of(done.stdout)


def rows_of(text: str) -> list[Row]:
    """The table of what the program printed; milliseconds."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in text.splitlines():
        name, running, gone = line.split("\t")
        found.setdefault(name, []).append((float(running) / 1000, float(gone) / 1000))
    return [
        Row(name, _LABELS[name], "ms", {word: stats(column) for word, column in zip((RUNNING, GONE), zip(*values))})
        for name, values in found.items()
    ]


def bare_fork(rounds: int) -> Row:
    """The same for this interpreter, Python and all: what a fork of a booted one takes at least."""
    spent: list[tuple[float, float]] = []
    for _ in range(rounds):
        time.sleep(0.005)
        reader, writer = os.pipe()
        start = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os.write(writer, b"!")
            os._exit(0)
        os.read(reader, 1)
        ready = time.perf_counter()
        os.waitpid(pid, 0)
        spent.append(((ready - start) * 1000, (time.perf_counter() - start) * 1000))
        os.close(reader)
        os.close(writer)
    cells = {word: stats(column) for word, column in zip((RUNNING, GONE), zip(*spent))}
    return Row("python", "a fork of a booted Python that ends", "ms", cells)
