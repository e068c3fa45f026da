"""What init, and so the program, gives up before it runs anything: one verb a layer, in the only order that works."""

from __future__ import annotations

import math
import os
import resource
from typing import NamedTuple

from .._linux import apparmor, caps, landlock, processes, seccomp
from .plan import Plan

__all__ = ["Confinement", "confine", "limit", "limit_files", "prepare"]

_OPEN_FILES = 1024
_FILE_SIZE = 16 << 30
# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE and SYS_CHROOT
# (linux/capability.h): what cap_drop=() leaves, all of it over the box's own namespaces only.
_OWN_NAMESPACES = 0b1000000010111111011


class Confinement(NamedTuple):
    """The parts that are computed once for a Sandbox, while the host's files are at hand.

    Attributes:
        last_capability: of the running kernel.
        landlock_abi: 0 where Landlock is missing.
        program: the compiled system-call filter.
        listener: whether blocked calls are reported to the supervisor.
        limit_memory: no cgroup enforces memory, so resource limits stand in.
        limit_pids: no cgroup enforces pids, so resource limits stand in.
    """

    last_capability: int
    landlock_abi: int
    program: bytes
    listener: bool
    limit_memory: bool = False
    limit_pids: bool = False


def limit(plan: Plan) -> None:
    """The resource limits that are the same for every box of a Sandbox; a stem sets them, and boxes inherit them."""
    processes.set_limit(resource.RLIMIT_CORE, 0)
    processes.set_limit(resource.RLIMIT_FSIZE, min(_FILE_SIZE, plan.file_bytes or _FILE_SIZE))
    processes.set_limit(resource.RLIMIT_MEMLOCK, 64 << 10)
    processes.set_limit(resource.RLIMIT_MSGQUEUE, 819200)
    processes.set_limit(resource.RLIMIT_SIGPENDING, 1024)  # timers as well
    processes.set_limit(resource.RLIMIT_RTPRIO, 0)
    processes.set_limit(resource.RLIMIT_NICE, 0)
    os.umask(0o022)


def limit_files() -> None:
    """Few descriptors, for the program: init calls this when it has passed its last one on.

    Linux refuses to pass descriptors where a user has more of them in flight than the sender may have open
    (unix(7), ETOOMANYREFS). What one box keeps in flight must not keep the next from being made.
    """
    processes.set_limit(resource.RLIMIT_NOFILE, _OPEN_FILES)


def prepare(plan: Plan, part: Confinement) -> None:
    """What is a box's own of limits and processors."""
    if part.limit_memory and plan.memory_bytes is not None:
        processes.set_limit(resource.RLIMIT_DATA, plan.memory_bytes)
    if part.limit_pids and plan.pids is not None:
        processes.set_limit(resource.RLIMIT_NPROC, plan.pids + 1)  # init counts too
    if plan.cpus is not None:
        _pin(plan.cpus)


def _pin(cpus: float) -> None:
    """Let the program see as many processors as it may use; which ones differs from box to box."""
    usable = sorted(os.sched_getaffinity(0))
    count = min(len(usable), math.ceil(cpus))
    start = os.stat("/proc/self/ns/pid").st_ino % len(usable)
    os.sched_setaffinity(0, {usable[(start + i) % len(usable)] for i in range(count)})


def confine(plan: Plan, part: Confinement) -> int | None:
    """Drop everything, for good: capabilities, new privileges, writes, system calls.

    Returns:
        The listener's descriptor, or ``None`` where the filter kills instead of reporting.
    """
    if plan.apparmor is not None:
        apparmor.enter(plan.apparmor)
    if plan.capabilities:
        caps.keep_capabilities(_OWN_NAMESPACES, part.last_capability)
    else:
        caps.drop_capabilities(part.last_capability)
    caps.no_new_privileges()
    if part.landlock_abi >= 2:
        landlock.restrict_writes(plan.writable, part.landlock_abi)
    return seccomp.install(part.program, listener=part.listener)
