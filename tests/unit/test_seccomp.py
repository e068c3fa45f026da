"""The filter of a box under Linux itself, in forked children of this process."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kern_sandbox._box.filter import EXPLANATION, FilterPolicy, compile_filter, describe
from kern_sandbox._linux import seccomp
from kern_sandbox._linux.bpf import Arch
from kern_sandbox._linux.libc import libc, syscall
from kern_sandbox._linux.syscalls import MACHINE, NUMBERS

NATIVE = {"x86_64": Arch.X86_64, "aarch64": Arch.AARCH64}
UPPER = 0xDEADBEEF << 32
NAMES = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP"}

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="runs system calls of Linux")

BAD = 1
"""An address that no process has."""

Body = Callable[[], Any]


def in_child(body: Body) -> tuple[Any, int]:
    """Run ``body`` in a forked child; what it returned (``None`` where it was killed), and how it ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writer, json.dumps(body()).encode())
        except BaseException as error:
            os.write(writer, json.dumps(repr(error)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    return (json.loads(text) if text else None), os.WTERMSIG(status)


def confine(*, listener: bool = False, policy: FilterPolicy = FilterPolicy()) -> int | None:  # noqa: B008 - frozen
    """Put the box's filter on this process."""
    libc.prctl(38, 1, 0, 0, 0)
    return seccomp.install(compile_filter(policy, listener=listener), listener=listener)


def errno_of(name: str, *args: Any) -> str:
    """How a system call fails; ``"0"`` where it does not. Arguments not given are 0."""
    try:
        syscall(name, *args, *[0] * (6 - len(args)))
    except OSError as error:
        return NAMES[error.errno or 0]
    return "0"


PROBES: list[tuple[str, tuple[int, ...], str, str]] = [
    # the call, its arguments, how it fails in a box, how it fails outside of one
    ("openat", (-100, BAD), "EFAULT", "EFAULT"),
    ("execve", (BAD, 0, 0), "EFAULT", "EFAULT"),
    ("newfstatat", (-100, BAD, BAD, 0), "EFAULT", "EFAULT"),
    ("statx", (-100, BAD, 0, 0, BAD), "EFAULT", "EFAULT"),
    ("read", (-1, BAD, 1), "EBADF", "EBADF"),
    ("mknodat", (-100, BAD, 0o010644, 0), "EFAULT", "EFAULT"),
    ("mknodat", (-100, BAD, 0o020644, 0), "EPERM", "EFAULT"),
    ("rt_sigaction", (10, BAD, BAD, 8), "EFAULT", "EFAULT"),
    ("memfd_create", (BAD, 0), "EFAULT", "EFAULT"),
    ("clone3", (BAD, 88), "ENOSYS", "EFAULT"),
    ("io_uring_setup", (1, BAD), "ENOSYS", "EFAULT|EPERM|ENOSYS"),
    ("process_vm_readv", (-1, BAD, 1, BAD, 1, 0), "EPERM", "EFAULT|ESRCH|ENOSYS"),
    ("name_to_handle_at", (-100, BAD, BAD, BAD, 0), "EPERM", "EFAULT"),
    ("clock_settime", (0, BAD), "EPERM", "EFAULT"),
    ("ioctl", (-1, 0x5412), "EPERM", "EBADF"),
    ("ioctl", (-1, 0x5412 | UPPER), "EPERM", "EBADF"),
    ("ioctl", (-1, 0x5401), "EBADF", "EBADF"),
    ("personality", (0x0040000,), "EPERM", "0"),
    ("socket", (38, 5, 0), "EAFNOSUPPORT", "0|EAFNOSUPPORT"),  # AF_ALG
    ("socket", (16, 3, 9), "EPROTONOSUPPORT", "0|EPROTONOSUPPORT"),  # NETLINK_AUDIT
    ("socket", (16, 3, 0), "0", "0"),
    ("unshare", (0x400,), "0", "0"),
]


@on_linux
@pytest.mark.parametrize("confined", [True, False])
def test_linux_gives_the_documented_errno_to_each_probe(confined: bool) -> None:
    """A bad pointer proves that an allowed call arrived; outside of a box every probe arrives."""

    def body() -> list[str]:
        if confined:
            confine()
        return [errno_of(name, *args) for name, args, _, _ in PROBES]

    got, _ = in_child(body)
    for (name, args, inside, outside), result in zip(PROBES, got):
        assert result in (inside if confined else outside).split("|"), (name, args)


@on_linux
@pytest.mark.parametrize("name", sorted(set(EXPLANATION) & set(NUMBERS)))
def test_linux_kills_at_an_escape_where_there_is_no_listener(name: str) -> None:
    """And only there: the same arguments outside of a box are refused as nonsense."""
    args = (-1,) * 6

    def confined() -> str:
        confine()
        return errno_of(name, *args)

    assert in_child(confined) == (None, signal.SIGSYS)
    outside, ended_by = in_child(lambda: errno_of(name, *args))
    assert (outside != "0", ended_by) == (True, 0)


def getpid_by_int_80() -> int:
    """Ask for the process id through the i386 entry: ``mov eax, 20; int 0x80; ret``."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(b"\xb8\x14\0\0\0\xcd\x80\xc3")
        held = ctypes.c_char.from_buffer(page)
        result = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(held))()
        del held
    return int(result)


@pytest.mark.skipif(MACHINE != "x86_64", reason="int 0x80 is an instruction of x86")
def test_linux_kills_at_the_i386_entry() -> None:
    """Outside of a box it works, or is not built into this Linux."""

    def confined() -> int:
        confine()
        return getpid_by_int_80()

    assert in_child(confined) == (None, signal.SIGSYS)
    outside, ended_by = in_child(lambda: getpid_by_int_80() == os.getpid())
    assert outside or ended_by == signal.SIGSEGV


@on_linux
def test_the_filter_holds_for_threads_that_were_there_before_it() -> None:
    def body() -> list[str]:
        ready, done = threading.Event(), threading.Event()

        def linger() -> None:
            ready.set()
            done.wait()

        threading.Thread(target=linger, daemon=True).start()
        ready.wait()
        confine()
        status = [path.read_text() for path in Path("/proc/self/task").glob("*/status")]
        done.set()
        return [line.split()[1] for text in status for line in text.splitlines() if line.startswith("Seccomp:")]

    assert in_child(body)[0] == ["2", "2"]


class Waiting(NamedTuple):
    """A child that made an escape call and waits for the answer."""

    pid: int
    listener: int


def escape(channel: socket.socket) -> None:
    """In a child: hand the listener over, and make an escape call."""
    try:
        listener = confine(listener=True)
        assert listener is not None
        socket.send_fds(channel, [b"x"], [listener])
        os.close(listener)
        errno_of("swapoff", BAD)
    finally:
        os._exit(0)


@contextlib.contextmanager
def waiting() -> Iterator[Waiting]:
    """A child whose escape call has arrived at the listener."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        escape(theirs)
    theirs.close()
    with ours:
        listener = socket.recv_fds(ours, 1, 1)[1][0]
    ready = select.poll()
    ready.register(listener, select.POLLIN)
    assert ready.poll()
    try:
        yield Waiting(pid, listener)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(listener)


def killed(child: Waiting) -> None:
    """Kill the child, and return when it is dead."""
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@on_linux
def test_the_listener_names_the_call_once() -> None:
    with waiting() as child:
        call = seccomp.receive(child.listener)
        assert call is not None
        assert (call.pid, call.nr, call.arch, call.args[0]) == (child.pid, NUMBERS["swapoff"], NATIVE[MACHINE], BAD)
        assert describe(call.nr, call.arch) == "swapoff"
        assert seccomp.receive(child.listener) is None


@on_linux
def test_a_caller_that_is_killed_before_it_is_heard_leaves_nothing_to_receive() -> None:
    with waiting() as child:
        killed(child)
        assert seccomp.receive(child.listener) is None


@on_linux
def test_the_listener_closes_on_exec_and_is_the_only_one() -> None:
    def body() -> list[Any]:
        listener = confine(listener=True)
        assert listener is not None
        try:
            confine(listener=True)
        except OSError as error:
            return [os.get_inheritable(listener), error.errno]
        return []

    assert in_child(body)[0] == [False, errno.EBUSY]
