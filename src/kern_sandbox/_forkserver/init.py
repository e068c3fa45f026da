"""A box from its first instruction to its last: PID 1 builds the inside, runs one order, reaps, reports.

``run_box`` is entered in a fresh child that is alone in its namespaces and never returns. It is told which workspace it
shows, then confines itself, and only then learns what it will run: the program is confined from its first instruction,
and init holds no more than the program.
Its report socket is close-on-exec: the program never holds it.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, NoReturn

from .._box.build import build_fresh, protect, show_workspace
from .._box.confine import Confinement, confine, limit_files, prepare
from .._box.plan import CELL, WORKSPACE, Bind, Plan
from .._linux import caps, fds, processes
from .._linux.abi import Clone
from .._linux.libc import syscall
from . import wire
from .doorway import open_doors
from .rehearsal import nobody_calls, rehearse_order, rehearse_report

__all__ = ["GRACE_S", "INNER_ID", "Birth", "GetReady", "Snippet", "run_box"]

GRACE_S = 0.25
"""How long processes that outlive the program may finish their output before the box ends, seconds."""
INNER_ID = 1000
"""The uid and gid of a stem in its own user namespace; a box maps its 0 to it."""
_WORD = 63
"""The descriptor on which a program that was forked ahead says that it has its order."""
_PROGRAM_FIRST = 500
"""Added to the program's oom_score_adj: half of the box's memory counts against it before init is considered."""


GetReady = Callable[[], object]


class Birth(NamedTuple):
    """The descriptors that a box is born with.

    ``groups`` are doors to the box's own cgroups: who writes ``0`` to one moves itself there, because the fork server
    opened it.
    """

    report: int
    groups: list[int]


class Order(NamedTuple):
    """One call: what to run, and its descriptors."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    cell: dict[str, int]
    stdio: list[int]

    @classmethod
    def of(cls, frame: wire.Frame) -> Order:
        """From the fork server's frame; ``roles`` names each descriptor, standard ones first."""
        body = frame.body
        plain = [fd for role, fd in zip(body["roles"], frame.fds) if role != "cell"]
        files = [fd for role, fd in zip(body["roles"], frame.fds) if role == "cell"]
        return cls(body["argv"], body["env"], body["cwd"], dict(zip(body["cell"], files)), plain)


class Snippet(NamedTuple):
    """What a process forked from a template is to run; ``ready`` is what was prepared before that was known."""

    path: str
    results_fd: int
    env: dict[str, str]
    ready: Any


class _Stage:
    """Where the build is, so that a failure can name it."""

    def __init__(self, report: socket.socket) -> None:
        self.report = report
        self.name = "namespaces"

    def fail(self, error: OSError) -> NoReturn:
        words, path = error.strerror or str(error), _text(error.filename)
        body = {"failed": self.name, "errno": error.errno, "text": words, "path": path}
        try:
            wire.send(self.report, body)
        finally:
            os._exit(127)


def _text(path: object) -> str | None:
    return None if path is None else os.fsdecode(path) if isinstance(path, bytes) else str(path)


def run_box(plan: Plan, part: Confinement, birth: Birth, *, nested: bool, get_ready: GetReady | None) -> Snippet:
    """Be the box; returns only in a process that is to run a snippet.

    Args:
        plan: what the box is.
        part: its computed parts.
        birth: its descriptors.
        nested: this process is in a user namespace of its own and maps itself.
        get_ready: the program is a fork of this interpreter, and calls this while it waits for its order.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    processes.close_except([birth.report, *birth.groups])
    stage = _Stage(socket.socket(fileno=birth.report))
    try:
        if nested:
            processes.map_ids("self", plan.user, (INNER_ID, INNER_ID), deny_setgroups=True)
        stage.name = "mounts"
        build_fresh(plan)
        stage.name = "egress"
        open_doors(plan.doors, stage.report)
        stage.name = "limits"
        prepare(plan, part)
        appetite = _Appetite()
        stage.name = "cgroup"
        _enter_groups(birth.groups)
        stage.name = "mounts"
        _await_workspace(stage.report, plan)
        caps.set_dumpable(False)
        stage.name = "confinement"
        listener = confine(plan, part)
        wire.send(stage.report, {"ready": True}, [] if listener is None else [listener])
        if listener is not None:
            os.close(listener)
        limit_files()
        wakeup = _catch_children()
        pid = _spawn_ordered(stage, plan, appetite) if get_ready is None else _fork_ahead(appetite)
        snippet = None if get_ready is None or pid else _become_snippet(stage, plan, get_ready)
    except OSError as error:
        stage.fail(error)
    if snippet is None:
        processes.close_except([stage.report.fileno(), *wakeup])
        _supervise(pid, stage.report, wakeup[0])
    return snippet


def _await_workspace(report: socket.socket, plan: Plan) -> None:
    """A box is built before it is known whose it will be; all that it learns here is which workspace it shows."""
    frame = wire.receive(report)
    if frame is None:
        os._exit(0)
    show_workspace(frame.fds[0], plan.below)
    protect(plan)


def _check_layers(plan: Plan) -> None:
    """What is mounted in the workspace still is: renaming its place from elsewhere takes a mount away (Linux 3.18)."""
    for step in plan.base:
        if isinstance(step, Bind) and step.target.startswith(f"{WORKSPACE}/") and step.identity is not None:
            about = os.lstat(step.target)
            if (about.st_dev, about.st_ino) != tuple(step.identity):
                words = "another program that uses the workspace has removed or replaced it"
                raise OSError(errno.ESTALE, words, step.target)
    for path in plan.frozen:
        if not os.path.lexists(path) or not os.statvfs(path).f_flag & os.ST_RDONLY:
            words = (
                "another program has just replaced it, so it is not protected in this box; the next will be made anew"
            )
            raise OSError(errno.ESTALE, words, path)


def _enter_groups(doors: Sequence[int]) -> None:
    """Move into the box's own cgroups, and make them the root of a new cgroup namespace.

    Entering may wait for a grace period of Linux (10 to 20 ms with cgroup v2), so it is done once, ahead of the call,
    and init stays inside; ``_Appetite`` keeps the program's hunger from taking it.
    """
    for fd in doors:
        os.write(fd, b"0")
        os.close(fd)
    syscall("unshare", Clone.NEWCGROUP)


class _Appetite:
    """Who goes first when a box is out of memory: the program, never init. Open before ``/proc`` closes to init."""

    def __init__(self) -> None:
        self._fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        self._own = int(os.read(self._fd, 16))  # not 0 below a systemd user manager, and then 0 is refused

    def for_program(self) -> None:
        """What is started from now on is taken first."""
        self._set(min(1000, self._own + _PROGRAM_FIRST))

    def for_init(self) -> None:
        """As it was."""
        self._set(self._own)

    def _set(self, score: int) -> None:
        os.pwrite(self._fd, str(score).encode(), 0)


def _spawn_ordered(stage: _Stage, plan: Plan, appetite: _Appetite) -> int:
    """Wait for the order and start its program."""
    order = _await_order(stage, plan)
    fds.inherit_only(3)
    appetite.for_program()
    wire.send(stage.report, {"started": True})  # said first: if this process is killed, the order is not given again
    try:
        pid = _spawn(order)
    except ValueError as error:
        raise OSError(22, str(error)) from None
    appetite.for_init()
    return pid


def _await_order(stage: _Stage, plan: Plan) -> Order:
    """The one order, after a rehearsal if there is time for one."""
    if nobody_calls(stage.report):
        rehearse_order(plan.env, lambda source: _take_order(source, stage, plan).stdio)
    return _take_order(stage.report, stage, plan)


def _take_order(source: socket.socket, stage: _Stage, plan: Plan) -> Order:
    """An order, with its files and its directory in place; a failure is the order's, not the box's."""
    frame = wire.receive(source)
    if frame is None:
        os._exit(0)
    stage.name = "mounts"
    _check_layers(plan)
    stage.name = "program"
    order = Order.of(frame)
    for name, fd in order.cell.items():
        _copy(fd, f"{CELL}/{name}")
    stage.name = "working directory"
    os.chdir(order.cwd)
    stage.name = "exec"
    return order


def _copy(source: int, path: str) -> None:
    """The whole of a file, into a new one."""
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    rest = os.fstat(source).st_size
    while rest > 0:
        rest -= os.sendfile(target, source, None, rest)
    os.close(target)
    os.close(source)


def _fork_ahead(appetite: _Appetite) -> int:
    """Fork the program before its order comes, and wait until it has it. 0 in the fork, which takes the order."""
    taken, word = os.pipe2(os.O_CLOEXEC)
    appetite.for_program()
    pid = os.fork()
    if pid == 0:
        os.dup2(word, _WORD)
        return 0
    appetite.for_init()
    os.close(word)
    rehearse_report(_last_words(0))
    if not os.read(taken, 1):
        os._exit(0)  # the fork server is gone, or the fork has told it what went wrong
    os.close(taken)
    return pid


def _become_snippet(stage: _Stage, plan: Plan, get_ready: GetReady) -> Snippet:
    """In the forked program: what posix_spawn(3) and exec would have done, most of it before there is an order."""
    signal.set_wakeup_fd(-1)
    processes.reset_signals()
    caps.set_dumpable(True)
    os.setsid()
    ready = get_ready()
    order = _await_order(stage, plan)
    os.write(_WORD, b"1")
    wire.send(stage.report, {"started": True})
    for target, fd in enumerate(order.stdio):
        os.dup2(fd, target, inheritable=True)
    stage.report.detach()
    processes.close_except(range(3, len(order.stdio)))
    return Snippet(order.argv[-2], int(order.argv[-1]), order.env, ready)


def _spawn(order: Order) -> int:
    """posix_spawn(3) along the box's ``PATH``: no copy of init's memory, and exec's own error.

    The child gets default signal actions, an empty mask, a session of its own, and its descriptors 0, 1, 2 and 3.
    """
    actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(order.stdio)]
    everything = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
    refused: OSError | None = None
    for path in _candidates(order.argv[0], order.env.get("PATH", "/usr/bin:/bin")):
        try:
            return os.posix_spawn(
                path, order.argv, order.env, file_actions=actions, setsid=True, setsigmask=[], setsigdef=everything
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            refused = refused or error
        except PermissionError as error:
            refused = error
    assert refused is not None
    raise refused


def _candidates(program: str, path: str) -> list[str]:
    """Where execvp(3) would look, without the places where nothing is: each would cost a process."""
    if "/" in program:
        return [program]
    places = [os.path.join(folder or ".", program) for folder in path.split(":")]
    return [place for place in places if os.path.lexists(place)] or places[-1:]


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
    wire.send(report, _last_words(status))
    os._exit(0)


def _last_words(status: int | None) -> dict[str, int | None]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_ms = round((used.ru_utime + used.ru_stime) * 1000)
    return {"status": status, "cpu_ms": cpu_ms, "max_rss": used.ru_maxrss * 1024}


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
