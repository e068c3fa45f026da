"""Giving privileges up, for good."""

from __future__ import annotations

import ctypes
import functools

from .abi import CapHeader, Prctl
from .libc import prctl_function, syscall

__all__ = [
    "SYS_ADMIN",
    "drop_capabilities",
    "has",
    "keep_capabilities",
    "last_capability",
    "no_new_privileges",
    "prctl",
    "set_dumpable",
    "set_parent_death",
]

SYS_ADMIN = 21  # linux/capability.h
_VERSION_3 = 0x20080522
# linux/securebits.h: NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock; KEEP_CAPS locked off.
_LOCKED = 0b11101111


def has(capability: int) -> bool:
    """Whether this process may use ``capability`` now."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        effective = next(line for line in file if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> capability & 1)


def prctl(option: Prctl, argument: int = 0, third: int = 0) -> None:
    """Set one attribute of this process, as ``man 2 prctl`` has it; raises ``OSError``."""
    syscall("prctl", int(option), argument, third, 0, 0)


@functools.lru_cache(maxsize=1)
def last_capability() -> int:
    """The highest capability number that the running kernel knows."""
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        return int(file.read())


def drop_capabilities(last: int) -> None:
    """Empty every capability set of this thread (bounding, ambient, inheritable, permitted, effective).

    Locks the secure bits first, so that uid 0 of the user namespace gains nothing by exec or setuid.

    Args:
        last: from ``last_capability()``, read while ``/proc/sys`` was at hand.
    """
    prctl(Prctl.SET_SECUREBITS, _LOCKED)
    keep_capabilities(0, last)


def keep_capabilities(kept: int, last: int) -> None:
    """Drop every capability that is not in the bit set ``kept`` from every set of this thread.

    Nothing stays inheritable, and so nothing ambient (capabilities(7)).
    Without CAP_SETPCAP the bounding set stays as it is, and ``no_new_privileges`` has to stand in for it.
    """
    drop, bounding = prctl_function(), int(Prctl.CAPBSET_DROP)
    for capability in range(last + 1):
        if not kept >> capability & 1:
            drop(bounding, capability, 0, 0, 0)
    header = CapHeader(_VERSION_3, 0)
    words = (kept & 0xFFFFFFFF, kept & 0xFFFFFFFF, 0, kept >> 32, kept >> 32, 0)
    syscall("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)(*words)))


def no_new_privileges() -> None:
    """No exec of this process or a descendant ever raises its privileges."""
    prctl(Prctl.SET_NO_NEW_PRIVS, 1)


def set_dumpable(dumpable: bool) -> None:
    """Whether other processes of this user may look into this one by ``/proc`` and ptrace."""
    prctl(Prctl.SET_DUMPABLE, int(dumpable))


def set_parent_death(signal: int) -> None:
    """Have the kernel send ``signal`` to this process when the thread that made it ends."""
    prctl(Prctl.SET_PDEATHSIG, signal)
