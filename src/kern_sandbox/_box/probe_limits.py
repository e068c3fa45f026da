"""Whether limits by cgroup hold here: a child that goes beyond each of them, and what Linux did about it."""

from __future__ import annotations

import mmap
import os
import signal
import time
from typing import Any, Callable, NoReturn

from .._linux import cgroup, cgroup_tree
from .._linux.cgroup import CgroupHost, Group, Limits

__all__ = ["try_limits"]

_MIB = 1 << 20
_LIMITS = Limits(memory_bytes=24 * _MIB, pids=6)
_SHARE = Limits(cpus=0.01)
"""Less than a busy machine leaves to each process by itself: else nothing would have to be held back."""
_TOO_MUCH = 96 * _MIB
_TOO_MANY = 12
_CPU_S = (0.006, 0.012, 0.024)
"""How long a process tries to compute: on a virtual machine that has to wait for its turn, time leaps, and a first try
may be over before the scheduler has looked at it."""
_PATIENCE_S = 3.0


def try_limits() -> dict[str, Any]:
    """The mode, what was seen to hold, and the reasons for what does not.

    The calling process must be one that may be moved to another cgroup, without children.
    """
    host = cgroup.probe()
    try:
        checks: dict[str, Callable[[CgroupHost], str]] = {"memory": _memory, "pids": _pids, "cpu": _cpu}
        held = {name: check(host) for name, check in checks.items() if name in host.enforces}
    finally:
        host.close()
    seen = {name: words for name, words in held.items() if words}
    broken = dict.fromkeys(held.keys() - seen.keys(), f"cgroup {host.mode} took the limit, and it did not hold")
    return {"mode": host.mode, "held": seen, "reasons": {**host.reasons, **broken}}


def _in_group(host: CgroupHost, body: Callable[[], int], limits: Limits = _LIMITS) -> tuple[Group, int]:
    """Run ``body`` in a group of its own; the group, for its counters, and how the process ended."""
    group = host.make(limits)
    doors = group.join_fds()
    pid = os.fork()
    if pid == 0:
        _join_and_run(doors, body)
    for door in doors:
        os.close(door)
    return group, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _join_and_run(doors: list[int], body: Callable[[], int]) -> NoReturn:
    try:
        for door in doors:
            os.write(door, b"0")
        os._exit(body())
    except BaseException:  # a child never returns into its parent's code
        os._exit(99)


def _memory(host: CgroupHost) -> str:
    """With swap on, only a swap limit makes the kill come: the pages would go there instead."""
    group, code = _in_group(host, _touch)
    kills = group.evidence().oom_kills
    _remove(group)
    return "a process beyond the limit was killed" if code == -signal.SIGKILL and kills else ""


def _touch() -> int:
    room = mmap.mmap(-1, _TOO_MUCH)
    for at in range(0, _TOO_MUCH, mmap.PAGESIZE):
        room[at] = 1
    return 0


def _pids(host: CgroupHost) -> str:
    group, refused = _in_group(host, _fork_many)
    group.kill()
    _remove(group)
    return "a fork beyond the limit was refused" if refused == 1 else ""


def _fork_many() -> int:
    """1 where a fork is refused before too many have succeeded."""
    for _ in range(_TOO_MANY):
        try:
            pid = os.fork()
        except BlockingIOError:
            return 1
        if pid == 0:
            signal.pause()
            os._exit(0)
    return 0


def _cpu(host: CgroupHost) -> str:
    return "a process beyond its share was slowed down" if any(_slowed(host, seconds) for seconds in _CPU_S) else ""


def _slowed(host: CgroupHost, seconds: float) -> bool:
    group, _ = _in_group(host, lambda: _burn(seconds), _SHARE)
    throttled = any(
        cgroup_tree.counter(cgroup_tree.read_or_none(f"{directory}/cpu.stat") or "", "nr_throttled")
        for directory in group.directories
    )
    _remove(group)
    return throttled


def _burn(seconds: float) -> int:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return 0


def _remove(group: Group) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not group.remove() and time.monotonic() < deadline:
        time.sleep(0.005)
