"""The one door to the C library: a system call by name, and an error that quotes the call."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from .syscalls import NUMBERS

__all__ = ["libc", "prctl_function", "sync_file_system", "syscall"]

# PyDLL keeps the interpreter lock: after a raw clone the child must still hold it, and no call made here blocks.
libc = ctypes.PyDLL(None if os.name == "posix" else "msvcrt", use_errno=True)


@functools.lru_cache(maxsize=1)
def prctl_function() -> Any:
    """The C library's prctl(2), which is called some forty times for a box: arguments convert without objects."""
    function = libc.prctl
    function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return function


def sync_file_system(path: str) -> None:
    """Wait until everything that the file system of the directory ``path`` holds is on its disk (syncfs(2)).

    Raises:
        OSError: it cannot be written there.
    """
    blocking = ctypes.CDLL(None, use_errno=True)  # this takes long, so other threads go on meanwhile
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if blocking.syncfs(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        os.close(fd)


@functools.lru_cache(maxsize=1)
def _raw() -> Any:
    """The C library's syscall(2); looked up late, for systems that have none must still be able to import this."""
    function = libc.syscall
    function.restype = ctypes.c_long
    return function


def _word(value: Any) -> Any:
    """``value`` as the 64-bit word that variadic syscall(2) takes."""
    if isinstance(value, int):
        return ctypes.c_long(value)
    if value is None:
        return ctypes.c_long(0)
    return value


def syscall(name: str, *args: Any) -> int:
    """Make the system call ``name`` and return its result.

    Args:
        name: as in the kernel's table, e.g. ``"pivot_root"``.
        args: ints, ``None`` (a null pointer), ``bytes`` (a NUL-terminated string) or ctypes objects.

    Raises:
        OSError: the call failed, or this machine's table does not hold it (ENOSYS); the text quotes the call.
    """
    number = NUMBERS.get(name)
    if number is None:
        raise OSError(38, f"{name}: no such system call on {os.uname().machine}")
    result: int = _raw()(ctypes.c_long(number), *[_word(arg) for arg in args])
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{os.strerror(code)} in {name}({', '.join(map(_quote, args))})")
    return result


def _quote(value: Any) -> str:
    if isinstance(value, (bytes, type(None))):
        return repr(value)
    return hex(value) if isinstance(value, int) and value > 9 else str(value) if isinstance(value, int) else "&"
