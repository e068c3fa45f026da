"""Verbs on file descriptors and on processes held by one."""

from __future__ import annotations

import ctypes
import os
import select

from .abi import CLOSE_RANGE_CLOEXEC, OpenHow, Resolve
from .libc import syscall

__all__ = [
    "has_ended",
    "heads_namespace_below",
    "inherit_only",
    "memory_file",
    "open_as_root",
    "open_beneath",
    "open_flags",
    "open_inside",
    "open_pid",
    "send_signal",
]

_BENEATH = Resolve.BENEATH | Resolve.NO_SYMLINKS | Resolve.NO_MAGICLINKS
_INSIDE = Resolve.BENEATH | Resolve.NO_MAGICLINKS
_IN_ROOT = Resolve.IN_ROOT | Resolve.NO_MAGICLINKS
_HIGHEST = 0xFFFFFFFF


def open_beneath(dir_fd: int, path: bytes | str, flags: int, mode: int = 0) -> int:
    """Open ``path`` below ``dir_fd`` without following any link or leaving it (openat2(2), Linux 5.6).

    Raises:
        OSError: as openat2; ENOSYS where the kernel lacks it; ELOOP for a link; EXDEV for a way out.
    """
    return _open(dir_fd, path, OpenHow(flags | os.O_CLOEXEC, mode, int(_BENEATH)))


def open_inside(dir_fd: int, path: bytes | str, flags: int) -> int:
    """Open ``path`` below ``dir_fd``; a link is followed where it is relative and stays below (openat2(2)).

    Raises:
        OSError: as openat2; EXDEV for a way out.
    """
    return _open(dir_fd, path, OpenHow(flags | os.O_CLOEXEC, 0, int(_INSIDE)))


def open_as_root(dir_fd: int, path: bytes | str, flags: int) -> int:
    """Open ``path`` as a process whose root is ``dir_fd`` would: no link leads out of it (openat2(2)).

    Raises:
        OSError: as openat2.
    """
    return _open(dir_fd, path, OpenHow(flags | os.O_CLOEXEC, 0, int(_IN_ROOT)))


def _open(dir_fd: int, path: bytes | str, how: OpenHow) -> int:
    return syscall("openat2", dir_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))


def open_pid(pid: int) -> int:
    """A close-on-exec descriptor that names process ``pid`` for good (pidfd_open(2), Linux 5.3)."""
    return syscall("pidfd_open", pid, 0)


def send_signal(pidfd: int, number: int) -> bool:
    """Send a signal to the process behind ``pidfd``; ``False`` if it has ended."""
    try:
        syscall("pidfd_send_signal", pidfd, number, None, 0)
    except ProcessLookupError:
        return False
    return True


def has_ended(pidfd: int, timeout_ms: int = 0) -> bool:
    """Whether the process behind ``pidfd`` has ended, waiting up to ``timeout_ms``."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_ms))


def heads_namespace_below(pidfd: int) -> bool:
    """Whether ``pidfd`` names PID 1 of a PID namespace at least two below ours, or a process that is gone.

    That is what the fdinfo of a pidfd says (``NSpid``, proc_pid_fdinfo(5)); of any other file it says nothing.
    """
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii", errors="replace") as file:
        rows = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    numbers = rows.get("NSpid", "").split("\t")
    return rows.get("Pid") == "-1" or (len(numbers) > 2 and numbers[-1] == "1")


def open_flags(*names: str) -> int:
    """Open flags by name; one that this system lacks (macOS, Windows) is 0, since only the import works there."""
    flags = 0
    for name in names:
        flags |= getattr(os, name, 0)
    return flags


def inherit_only(first: int) -> None:
    """Mark every descriptor from ``first`` on close-on-exec (close_range(2), Linux 5.11)."""
    syscall("close_range", first, _HIGHEST, CLOSE_RANGE_CLOEXEC)


def memory_file(name: str, content: bytes) -> int:
    """A close-on-exec descriptor of an anonymous file that holds ``content``, at offset 0 (memfd_create(2))."""
    fd = syscall("memfd_create", name.encode(), 1)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:  # whatever happened, the descriptor must not outlive it
        os.close(fd)
        raise
    return fd
