"""Making processes in new namespaces, and shaping the one that runs."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterable
from typing import Callable, NamedTuple, NoReturn

from .abi import Clone, Prctl
from .libc import syscall

__all__ = [
    "Child",
    "can_map_any_id",
    "clone",
    "close_except",
    "hide_command_line",
    "live",
    "map_ids",
    "reset_signals",
    "set_limit",
    "tell_why",
    "write_text",
]


class Child(NamedTuple):
    """A new process: its number as the parent sees it, and a descriptor that names it for good."""

    pid: int
    pidfd: int


def clone(namespaces: Clone) -> Child:
    """Fork into new namespaces; in the child ``pid`` is 0 and ``pidfd`` is -1.

    Only for a process with one thread: a raw clone(2) copies locks that other threads hold.

    Raises:
        OSError: EPERM where policy forbids the namespaces, ENOSPC where their number is used up.
    """
    pidfd = ctypes.c_int(-1)
    flags = int(namespaces | Clone.PIDFD) | signal.SIGCHLD
    api = ctypes.pythonapi
    api.PyOS_BeforeFork()
    failure: OSError | None = None
    try:
        pid = syscall("clone", flags, None, ctypes.byref(pidfd), None, None)
    except OSError as error:
        failure, pid = error, -1
    (api.PyOS_AfterFork_Parent if pid else api.PyOS_AfterFork_Child)()
    if failure is not None:
        raise failure
    if pid == 0:
        return Child(0, -1)
    return Child(pid, pidfd.value)


def live(body: Callable[[], object]) -> NoReturn:
    """Be a fresh child: run ``body``, and end whatever it does; the parent's frames above are never returned to."""
    try:
        body()
    except BaseException as error:  # nothing of the parent runs here
        tell_why(error)
    finally:
        os._exit(70)


def tell_why(error: BaseException) -> None:
    """Write to the log why this process has to end, unless only because whoever it works for has ended: no fault."""
    if not isinstance(error, (BrokenPipeError, ConnectionResetError)):
        sys.excepthook(type(error), error, error.__traceback__)


def map_ids(process: str, inside: int, outside: tuple[int, int], *, deny_setgroups: bool) -> None:
    """Map the one uid and gid ``inside`` of a process's user namespace to ``outside`` (user_namespaces(7)).

    Args:
        process: a number or ``"self"``.
        inside: uid and gid as the namespace shows them.
        outside: uid and gid in the parent namespace.
        deny_setgroups: needed unless the writer may set groups in the parent namespace.
    """
    uid, gid = outside
    if deny_setgroups:
        write_text(f"/proc/{process}/setgroups", "deny")
    write_text(f"/proc/{process}/gid_map", f"{inside} {gid} 1")
    write_text(f"/proc/{process}/uid_map", f"{inside} {uid} 1")


def can_map_any_id() -> bool:
    """Whether this process is root of a user namespace that has every id, and so may hand out ids of the host."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return [line.split() for line in file] == [["0", "0", "4294967295"]]


def write_text(path: str, text: str) -> None:
    """Write ``text`` to an existing file with one write(2)."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"{os.strerror(error.errno or 0)} in write of {text!r}", path) from None
    finally:
        os.close(fd)


def close_except(keep: Iterable[int]) -> None:
    """Close every descriptor but 0, 1, 2 and those of ``keep``."""
    first = 3
    for fd in sorted(set(keep)):
        if fd > first:
            syscall("close_range", first, fd - 1, 0)
        first = max(first, fd + 1)
    syscall("close_range", first, 0xFFFFFFFF, 0)


def reset_signals() -> None:
    """Give every signal its default action, and block none: what Python changed must not reach a program."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) not in (None, signal.SIG_DFL):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def set_limit(kind: int, value: int) -> None:
    """Lower a resource limit to ``value``; never above what the hard limit allows (setrlimit(2))."""
    _, ceiling = resource.getrlimit(kind)
    top = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
    resource.setrlimit(kind, (top, top))


def hide_command_line(name: str) -> None:
    """Show ``name`` instead of this process's arguments, which hold paths of the host, in ``/proc/*/cmdline``."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, fields 48 and 49 of proc(5)
    text = name.encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
    syscall("prctl", int(Prctl.SET_NAME), text[:15], 0, 0, 0)
