"""What is on the host before and after: descriptors, processes, zombies, mounts, cgroups, temporary directories."""

from __future__ import annotations

import os
import tempfile
import time

PATIENCE_S = 5.0


def _descendants(root: int) -> list[tuple[int, str]]:
    parents: dict[int, tuple[int, str]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b") ")[2].split()[:2]
        except OSError:
            continue
        parents[int(name)] = (int(parent), state.decode())
    found, front = [], {root}
    while front:
        front = {pid for pid, (parent, _) in parents.items() if parent in front}
        found += [(pid, parents[pid][1]) for pid in front]
    return found


def _descriptors(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return total


def _cgroups() -> int:
    return sum(
        sum(name.startswith("box-") for name in names)
        for _, names, _ in os.walk("/sys/fs/cgroup")
    )  # fmt: skip


def look() -> dict[str, int]:
    """Counts now. The fork server keeps two cgroups and one box ready on purpose, before and after."""
    children = _descendants(os.getpid())
    living = [pid for pid, state in children if state != "Z"]
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = len(file.readlines())
    return {
        "descriptors": _descriptors([os.getpid(), *living]),
        "processes": len(living),
        "zombies": len(children) - len(living),
        "mounts": mounts,
        "cgroups": _cgroups(),
        "temporary directories": sum(name.startswith("kern-") for name in os.listdir(tempfile.gettempdir())),
    }


def compare(before: dict[str, int], what: str) -> str:
    """A table; waits a little for what Linux tears down by itself. Ends the program if anything is left."""
    deadline = time.monotonic() + PATIENCE_S
    while (after := look()) != before and time.monotonic() < deadline:
        time.sleep(0.05)
    lines = [f"left behind by {what}:"]
    lines += [f"  {name:22} {before[name]:4} before, {after[name]:4} after" for name in before]
    if any(after[name] > before[name] for name in before):
        raise SystemExit("\n".join([*lines, "something was left behind"]))
    return "\n".join(lines)
