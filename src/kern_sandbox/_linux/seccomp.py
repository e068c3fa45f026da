"""seccomp(2): put a filter on this process, and answer the calls that a filter hands over.

A listener is the descriptor on which Linux reports calls that ended in ``SECCOMP_RET_USER_NOTIF``. It becomes readable
when a call waits, and hangs up (``POLLHUP``) when no process with the filter is left: close it then, for it stays
ready for ever. A process can have one listener in its whole chain of filters; another is refused with EBUSY. The
descriptor is close-on-exec, but a fork copies it: a child that runs foreign code without exec must close it first.

The structures are those of ``linux/seccomp.h``. NEW_LISTENER needs Linux 5.0, its use together with TSYNC 5.7.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import select
import struct
from enum import IntFlag
from functools import lru_cache
from typing import NamedTuple

from .bpf import decode
from .libc import syscall

__all__ = ["FilterFlag", "Notification", "hung_up", "install", "receive"]


class FilterFlag(IntFlag):
    """``SECCOMP_FILTER_FLAG_*``."""

    TSYNC = 1
    NEW_LISTENER = 8
    TSYNC_ESRCH = 16


_SET_MODE_FILTER = 1
_GET_NOTIF_SIZES = 3
_NOTIF_RECV = 0xC0502100

_SIZES = struct.Struct("=HHH")
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class Notification(NamedTuple):
    """A system call that waits for an answer.

    ``pid`` is the calling thread as the receiver's PID namespace counts it, 0 where it is not visible there. The thread
    may be gone, and its number reused: nothing is to be looked up by it.
    """

    pid: int
    nr: int
    arch: int
    args: tuple[int, ...]


def install(program: bytes, *, listener: bool = False) -> int | None:
    """Put a filter on every thread of this process, for good.

    Args:
        program: What `bpf.Assembler.assemble` returns.
        listener: Whether calls that end in ``USER_NOTIF`` are to be answered by this process or one that it hands the
            listener to. Without a listener such calls fail with ENOSYS.

    Returns:
        The listener, close-on-exec; ``None`` without one.

    Raises:
        ValueError: Linux would refuse the program.
        OSError: EACCES without no_new_privs (or CAP_SYS_ADMIN); EBUSY where the process has a listener; ESRCH where
            another thread runs under a filter of its own; EINVAL where Linux is older than 5.7 and a listener is
            asked for.
    """
    code = _Program(len(decode(program)), program)
    flags = FilterFlag.TSYNC
    if listener:
        flags |= FilterFlag.NEW_LISTENER | FilterFlag.TSYNC_ESRCH
    result = syscall("seccomp", _SET_MODE_FILTER, int(flags), ctypes.byref(code))
    if listener:
        return result
    if result:
        # Without TSYNC_ESRCH, which Linux has only since 5.7, the thread that stands in the way is the result.
        raise OSError(errno.ESRCH, f"seccomp: thread {result} runs under a filter of its own")
    return None


def receive(listener_fd: int) -> Notification | None:
    """Take the next waiting call, without ever blocking.

    Returns:
        The call, or ``None`` where none waits (any more): the caller may have been killed in the meantime.
    """
    poller = select.poll()
    poller.register(listener_fd, select.POLLIN)
    # The receiving ioctl has no non-blocking form, so it is made only when a call is known to wait.
    if not any(events & select.POLLIN for _, events in poller.poll(0)):
        return None
    buffer = bytearray(_size())
    try:
        fcntl.ioctl(listener_fd, _NOTIF_RECV, buffer)
    except FileNotFoundError:
        return None
    _id, pid, _flags, nr, arch, _ip, *args = _NOTIFICATION.unpack_from(buffer)
    return Notification(pid, nr, arch, tuple(args))


def hung_up(listener_fd: int) -> bool:
    """Whether no process with the filter is left, so that no call will ever wait again."""
    poller = select.poll()
    poller.register(listener_fd, select.POLLIN)
    return any(events & select.POLLHUP for _, events in poller.poll(0))


@lru_cache(maxsize=1)
def _size() -> int:
    """How large Linux and this file take a notification to be, whichever is larger."""
    buffer = ctypes.create_string_buffer(_SIZES.size)
    syscall("seccomp", _GET_NOTIF_SIZES, 0, buffer)
    notification: int = _SIZES.unpack(buffer.raw)[0]
    return max(notification, _NOTIFICATION.size)
