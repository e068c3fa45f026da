"""The processes below one, and the memory that they take."""

from __future__ import annotations

import os
import time

from .measure import Missing

PATIENCE_S = 60.0
_CALM_S = 1.0


def descendants(root: int) -> list[tuple[int, str]]:
    """Pid and state of every process below ``root``, zombies too."""
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


def settle(root: int, at_least: int) -> None:
    """Wait until there are ``at_least`` processes below ``root`` and for a second none comes or goes.

    Raises:
        Missing: that does not come about in a minute.
    """
    deadline = time.monotonic() + PATIENCE_S
    seen, since = -1, 0.0
    while time.monotonic() < deadline:
        count = len(descendants(root))
        if count != seen:
            seen, since = count, time.monotonic()
        if count >= at_least and time.monotonic() - since > _CALM_S:
            return
        time.sleep(0.02)
    raise Missing(f"{seen} processes after {PATIENCE_S:.0f} s, where {at_least} were to stand ready")


def proportional_kib(root: int) -> int:
    """Memory of all below ``root``, KiB, where what several share counts once.

    Raises:
        Missing: this user may not look.
    """
    total = 0
    for pid, _ in descendants(root):
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except PermissionError as error:
            raise Missing(f"reading the memory of a box: {error}; it takes root") from error
        except (OSError, StopIteration):
            continue  # it ended meanwhile, or is a zombie, which has no memory
    return total
