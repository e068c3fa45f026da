"""What is on the host before and after: descriptors, processes, zombies, mounts, cgroups, temporary directories."""

from __future__ import annotations

import os
import tempfile
import time

from .engines import Engine, Worker
from .parts import AT_ONCE
from .processes import descendants

PATIENCE_S = 5.0
_WARM_UP, _CALM_S = 100, 2.0
"""Calls, and seconds, before a first look: what stands ready for a Sandbox depends on what it has done."""


def _descriptors(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return total


def _cgroups(root: int) -> int:
    """Those of boxes whose fork server, which names them, is below ``root``."""
    servers = {f"-{pid}-" for pid, _ in descendants(root)}
    return sum(
        sum(name.startswith("box-") for name in names)
        for place, names, _ in os.walk("/sys/fs/cgroup")
        if any(server in os.path.basename(place) for server in servers)
    )


def look(root: int, temporary: str) -> dict[str, int]:
    """Counts for the process ``root`` and all below it, and for its temporary directory.

    A box and two cgroups stand ready on purpose, before and after.
    """
    children = descendants(root)
    living = [pid for pid, state in children if state != "Z"]
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = len(file.readlines())
    return {
        "descriptors": _descriptors([root, *living]),
        "processes": len(living),
        "zombies": len(children) - len(living),
        "mounts": mounts,
        "cgroups of boxes": _cgroups(root),
        "temporary directories": len(os.listdir(temporary)),
    }


def grown(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """The names of what there is more of."""
    return [name for name in before if after[name] > before[name]]


def table(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """The counts side by side, as Markdown."""
    lines = ["| | before | after |", "|---|---|---|"]
    return lines + [f"| {name} | {before[name]} | {after[name]} |" for name in before]


def count(engine: Engine, calls: int) -> list[str]:
    """Look, make many calls, and look again, as Markdown. Waits a little for what Linux tears down by itself.

    Raises:
        SystemExit: something was left behind.
    """
    with tempfile.TemporaryDirectory(prefix="kern-bench-") as temporary:
        before, after = _counts(engine._replace(env={**engine.env, "TMPDIR": temporary}), temporary, calls)
    if grown(before, after):
        raise SystemExit("\n".join(["something was left behind", *table(before, after)]))
    return [f"By {calls} calls in a row and {AT_ONCE} at once:", "", *table(before, after)]


def _counts(engine: Engine, temporary: str, calls: int) -> tuple[dict[str, int], dict[str, int]]:
    with Worker(engine) as worker:
        worker.open("box")
        looks = []
        for _ in range(2):
            _burst(worker, _WARM_UP)
            time.sleep(_CALM_S)
            looks.append(look(worker.pid, temporary))
        before = {name: max(each[name] for each in looks) for name in looks[0]}
        _burst(worker, calls)
        deadline = time.monotonic() + PATIENCE_S
        while grown(before, after := look(worker.pid, temporary)) and time.monotonic() < deadline:
            time.sleep(0.05)
    return before, after


def _burst(worker: Worker, calls: int) -> None:
    worker.ask("call", how={"name": "box", "argv": ["true"]}, times=calls)
    worker.ask("at_once", name="box", count=AT_ONCE)
