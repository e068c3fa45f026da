"""Landlock: the process gives up writing outside the named trees, and reaching processes outside its domain."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

from .abi import LandlockFs, LandlockScope
from .libc import syscall

__all__ = ["abi_version", "restrict_writes"]

_QUERY_VERSION = 1
_RULE_PATH_BENEATH = 1
_WRITES = (
    LandlockFs.WRITE_FILE | LandlockFs.REMOVE_DIR | LandlockFs.REMOVE_FILE | LandlockFs.MAKE_CHAR
    | LandlockFs.MAKE_DIR | LandlockFs.MAKE_REG | LandlockFs.MAKE_SOCK | LandlockFs.MAKE_FIFO
    | LandlockFs.MAKE_BLOCK | LandlockFs.MAKE_SYM | LandlockFs.REFER | LandlockFs.TRUNCATE
)  # fmt: skip


def abi_version() -> int:
    """The Landlock ABI of the running kernel, 0 where it is missing or switched off."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _QUERY_VERSION)
    except OSError:
        return 0


def restrict_writes(paths: Sequence[str], abi: int) -> None:
    """Let this thread and its descendants write only below ``paths``.

    From ABI 6 on they also reach no abstract socket and signal no process of an outer domain. Needs
    ``no_new_privileges()`` and ABI 2 (ABI 1 cannot allow a rename between directories).

    Args:
        paths: existing files or directories; one that is missing is left out.
        abi: from ``abi_version()``.
    """
    rights = _WRITES if abi >= 3 else _WRITES & ~LandlockFs.TRUNCATE
    scope = LandlockScope.ABSTRACT_UNIX_SOCKET | LandlockScope.SIGNAL if abi >= 6 else 0
    attributes = struct.pack("=QQQ", int(rights), 0, int(scope)) if abi >= 6 else struct.pack("=Q", int(rights))
    ruleset = syscall("landlock_create_ruleset", ctypes.c_char_p(attributes), len(attributes), 0)
    try:
        for path in paths:
            _allow_beneath(ruleset, path, rights)
        syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow_beneath(ruleset: int, path: str, rights: LandlockFs) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = struct.pack("=Qi", int(rights), fd)
        syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(fd)
