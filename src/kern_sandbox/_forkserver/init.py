"""A box from its first instruction to its last: PID 1 builds the inside, forks the program, reaps, reports.

``run_box`` is entered in a fresh child that is alone in its namespaces and never returns. Its report socket is
close-on-exec: the program never holds it.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NamedTuple, NoReturn

from .._box.build import build_fresh
from .._box.confine import Confinement, confine, join_groups, prepare
from .._box.plan import CELL, Plan
from .._linux import caps, fds, processes
from . import wire

__all__ = ["GRACE_S", "INNER_ID", "Order", "run_box"]

GRACE_S = 0.25
"""How long processes that outlive the program may finish their output before the box ends, seconds."""
INNER_ID = 1000
"""The uid and gid of a stem in its own user namespace; a box maps its 0 to it."""
_FIRST_FREE = 10


class Order(NamedTuple):
    """One call: what to run, and the descriptors by the role that each plays."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    cell: dict[str, int]
    stdio: list[int]
    results: int | None
    groups: list[int]
    report: int

    @classmethod
    def of(cls, body: dict[str, Any], descriptors: list[int]) -> Order:
        """From a frame of the fork server; ``body["roles"]`` names each descriptor."""
        roles: dict[str, list[int]] = {}
        for role, fd in zip(body["roles"], descriptors):
            roles.setdefault(role, []).append(fd)
        cell = dict(zip(body["cell"], roles.get("cell", [])))
        results = roles.get("results", [None])[0]
        stdio = [roles["stdin"][0], roles["stdout"][0], roles["stderr"][0]]
        groups, report = roles.get("group", []), roles["report"][0]
        return cls(body["argv"], body["env"], body["cwd"], cell, stdio, results, groups, report)


class _Stage:
    """Where the build is, so that a failure can name it."""

    def __init__(self, report: socket.socket) -> None:
        self.report = report
        self.name = "namespaces"

    def fail(self, error: OSError) -> NoReturn:
        body = {"failed": self.name, "errno": error.errno, "text": str(error), "path": _text(error.filename)}
        try:
            wire.send(self.report, body)
        finally:
            os._exit(127)


def _text(path: object) -> str | None:
    return None if path is None else os.fsdecode(path) if isinstance(path, bytes) else str(path)


def run_box(plan: Plan, part: Confinement, order: Order, *, nested: bool) -> NoReturn:
    """Be the box. ``nested``: this process is in a user namespace of its own and maps itself."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    processes.close_except([*order.cell.values(), *order.stdio, *_some(order.results), *order.groups, order.report])
    stage = _Stage(socket.socket(fileno=order.report))
    try:
        if nested:
            processes.map_ids("self", 0, (INNER_ID, INNER_ID), deny_setgroups=True)
        stage.name = "mounts"
        build_fresh(plan)
        _place(order.cell)
        caps.set_dumpable(False)
        stage.name = "processes"
        wakeup = _catch_children()
        pid = os.fork()
        if pid == 0:
            _run_program(plan, part, order, stage)
    except OSError as error:
        stage.fail(error)
    processes.close_except([stage.report.fileno(), *wakeup])
    _supervise(pid, stage.report, wakeup[0])


def _some(fd: int | None) -> list[int]:
    return [] if fd is None else [fd]


def _place(cell: dict[str, int]) -> None:
    """Write the snippet's files where the program finds them."""
    for name, fd in cell.items():
        with open(f"{CELL}/{name}", "xb") as target, open(fd, "rb") as source:
            target.write(source.read())


def _run_program(plan: Plan, part: Confinement, order: Order, stage: _Stage) -> NoReturn:
    try:
        caps.set_dumpable(True)
        processes.reset_signals()
        os.setsid()
        stage.name = "cgroup"
        join_groups(order.groups)
        stage.name = "descriptors"
        _arrange(order, stage)
        stage.name = "limits"
        prepare(plan, part)
        stage.name = "working directory"
        os.chdir(order.cwd)
        stage.name = "confinement"
        listener = confine(plan, part)
        wire.send(stage.report, {"started": True}, _some(listener))
        stage.name = "exec"
        os.execvpe(order.argv[0], order.argv, order.env)
    except OSError as error:
        stage.fail(error)
    except ValueError as error:
        stage.fail(OSError(22, str(error)))


def _arrange(order: Order, stage: _Stage) -> None:
    """Descriptors 0, 1, 2 and, for rich values, 3; everything else is closed at exec."""
    moved = fcntl.fcntl(stage.report.fileno(), fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    stage.report.detach()
    stage.report = socket.socket(fileno=moved)
    for target, source in enumerate([*order.stdio, *_some(order.results)]):
        os.dup2(source, target, inheritable=True)
    fds.inherit_only(3 if order.results is None else 4)


def _catch_children() -> tuple[int, int]:
    """Both ends of a pipe; the first becomes readable whenever a child ends."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader, writer


def _supervise(pid: int, report: socket.socket, wakeup: int) -> NoReturn:
    """Reap until the program has ended, give the rest its grace, and report when nothing but this process is left.

    The report is the end of the call: what the namespaces cost to tear down comes after it.
    """
    poller = select.poll()
    poller.register(wakeup, select.POLLIN)
    poller.register(report.fileno(), select.POLLIN)
    status: int | None = None
    deadline = 0.0
    while True:
        ended, left = _reap(pid)
        if ended is not None:
            status, deadline = ended, time.monotonic() + GRACE_S
        if status is not None and (not left or time.monotonic() >= deadline):
            break
        wait = None if status is None else max(0.0, deadline - time.monotonic()) * 1000
        for fd, _ in poller.poll(wait):
            _attend(fd, wakeup, report, pid)
    if left:
        os.kill(-1, signal.SIGKILL)
        _reap_all()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_ms = round((used.ru_utime + used.ru_stime) * 1000)
    wire.send(report, {"status": status, "cpu_ms": cpu_ms, "max_rss": used.ru_maxrss * 1024})
    os._exit(0)


def _reap_all() -> None:
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _attend(fd: int, wakeup: int, report: socket.socket, pid: int) -> None:
    """A child ended, or the host asks for a signal to the program; a host that is gone ends the box."""
    if fd == wakeup:
        os.read(wakeup, 4096)
        return
    frame = wire.receive(report)
    if frame is None:
        os._exit(1)
    try:
        os.kill(pid, int(frame.body["signal"]))
    except ProcessLookupError:
        return


def _reap(pid: int) -> tuple[int | None, bool]:
    """The program's wait status if it has just ended, and whether any process is left."""
    status = None
    while True:
        try:
            ended, how = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if ended == 0:
            return status, True
        if ended == pid:
            status = how
