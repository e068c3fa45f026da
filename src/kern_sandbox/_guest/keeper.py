"""The first process of a kernel's box: it never runs the code, and so can tell how the processes end that do.

It forks the session's process, a *branch*, interrupts and ends branches when the host asks, and reaps: every process of
the box that loses its parent becomes its child. For each branch it has a line to the host, the *leash*; when that
ends, so does the branch, and when the host's own line ends, so does the box.
Stdlib only, Python 3.8 or later.
"""

import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Set

SUBREAPER, DUMPABLE = 36, 4  # PR_SET_CHILD_SUBREAPER and PR_SET_DUMPABLE, linux/prctl.h
HIGH = 900  # where the kernel's own descriptors lie: above what code closes that closes "all"; 1024 is the limit
ROUNDS = 200
PAUSE_MS = 10


def keep(fd: int, load: "Callable[[str], ModuleType]") -> "NoReturn":
    """Be the keeper until the host's line ``fd`` ends."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this Linux does not let a process adopt orphans")
    libc.prctl(DUMPABLE, 0, 0, 0, 0)
    frames = load("frames")
    keeper = Keeper(frames, fd)
    repl = load("repl")
    while True:
        streams = keeper.serve()
        if streams is None:
            os._exit(0)
        leash = streams.pop()
        pid = os.fork()
        if pid == 0:
            keeper.leave()
            os.close(leash)
            libc.prctl(DUMPABLE, 1, 0, 0, 0)
            repl.Session(load, frames, libc).run(*streams)
            os._exit(70)
        for each in streams:
            os.close(each)
        keeper.adopt(pid, leash)


class Keeper:
    """The branches, and what the host asks about them."""

    def __init__(self, frames: "Any", fd: int) -> None:
        """Listen on ``fd``; signals that a terminal's user may send do not reach this process."""
        self.frames = frames
        self.host: "Any" = frames.Line(fd)
        self.leashes: "Dict[int, Any]" = {}
        self.copies: "Set[int]" = set()
        self.poller = select.poll()
        self.wakeup, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.writer = writer
        os.set_inheritable(fd, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, ignored)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        for each in (fd, self.wakeup):
            self.poller.register(each, select.POLLIN)

    def leave(self) -> None:
        """In a fork that is to be a branch: let go of everything, and take signals as a fresh process does."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        for each in (self.wakeup, self.writer, self.host.fd, *(leash.fd for leash in self.leashes.values())):
            os.close(each)
        os.setsid()

    def serve(self) -> "Optional[List[int]]":
        """Wait and serve until a branch is asked for (its descriptors come back) or the host is gone (``None``)."""
        while True:
            self.reap()
            ready = [fd for fd, _ in self.poller.poll()]
            for fd in ready:
                if fd == self.wakeup:
                    drain(fd)
                elif fd != self.host.fd:
                    self.obey(fd)
            word = self.host.receive() if self.host.fd in ready else ({}, [])
            if word is None:
                return None
            if "start" in word[0]:
                return list(word[1])
            self.hear(*word)

    def hear(self, body: "Dict[str, Any]", fds: "List[int]") -> None:
        """The host tells of a process that a copy of a branch has forked: a branch with its leash, or a copy."""
        if "adopt" in body:
            self.adopt(body["adopt"], fds[0])
        elif "copy" in body:
            self.copies.add(body["copy"])

    def catch_up(self) -> None:
        """Hear what the host has said so far: a copy that it knows of must not be taken for a stray process."""
        while select.select([self.host.fd], [], [], 0)[0]:
            word = self.host.receive()
            if word is None:
                os._exit(0)
            self.hear(*word)

    def adopt(self, pid: int, leash_fd: int) -> None:
        """Hold ``pid`` by the leash."""
        leash = self.leashes[pid] = self.frames.Line(leash_fd)
        self.poller.register(leash_fd, select.POLLIN)
        tell(leash, adopted=pid)

    def obey(self, fd: int) -> None:
        """The host asks something of one branch."""
        pid = next((pid for pid, leash in self.leashes.items() if leash.fd == fd), 0)
        if not pid:
            return
        leash = self.leashes[pid]
        word = leash.receive()
        if word is None or "end" in word[0]:
            self.end(pid)
        elif "interrupt" in word[0]:
            send(signal.SIGINT, pid, group=True)
            tell(leash, interrupted=pid)
        elif "sweep" in word[0]:
            tick = 1 / os.sysconf("SC_CLK_TCK")  # Linux rounds down when a process has started
            since = word[0]["sweep"] - tick
            self.catch_up()
            clean = self.kill(lambda table: [each for each in self.made_by(table, pid) if each.started >= since])
            tell(leash, swept=clean)

    def reap(self) -> None:
        """Take in every child that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.copies.discard(pid)
            if pid in self.leashes:
                self.ended(pid, status)

    def end(self, pid: int) -> None:
        """Kill a branch; what belongs to it follows when it is reaped."""
        for each in [pid, *(process.pid for process in owned(processes(), pid))]:
            send(signal.SIGKILL, each)
        try:
            _, status = os.waitpid(pid, 0)
        except ChildProcessError:
            status = signal.SIGKILL  # it was never ours, or the code has reaped it
        self.ended(pid, status)

    def ended(self, pid: int, status: int) -> None:
        """A branch has ended: take what it left, and tell the host."""
        leash = self.leashes.pop(pid)
        self.poller.unregister(leash.fd)
        self.catch_up()
        tell(leash, ended=status, clean=self.kill(lambda table: self.left_by(table, pid)))
        leash.close()

    def left_by(self, table: "List[Process]", pid: int) -> "List[Process]":
        """Processes of the ended branch: of its session, or, where no other branch can be their owner, of nobody."""
        if self.leashes:
            return [process for process in table if process.session == pid and process.pid not in self.known()]
        return self.strays(table)

    def made_by(self, table: "List[Process]", pid: int) -> "List[Process]":
        """Processes of the living branch; where it is the only one, also what has left its session and its parent."""
        return owned(table, pid) if len(self.leashes) > 1 else self.strays(table)

    def strays(self, table: "List[Process]") -> "List[Process]":
        """All processes but those that the host knows, and what belongs to a copy."""
        return [each for each in table if each.pid not in self.known() and each.session not in self.copies]

    def known(self) -> "Set[int]":
        """The processes that the host knows."""
        return {os.getpid(), 1, *self.copies, *self.leashes}

    def kill(self, chosen: "Callable[[List[Process]], List[Process]]") -> bool:
        """Kill until nothing is left of ``chosen``; ``False`` if it grows faster than it dies."""
        for _ in range(ROUNDS):
            rest = chosen(processes())
            if not rest:
                return True
            for process in rest:
                send(signal.SIGKILL, process.pid)
            self.reap()
            if select.select([self.wakeup], [], [], PAUSE_MS / 1000)[0]:
                drain(self.wakeup)
            self.reap()
        return False


def owned(table: "List[Process]", pid: int) -> "List[Process]":
    """The living processes below ``pid``, and those of its session."""
    found: "List[Process]" = []
    above = {pid}
    while above:
        below = [each for each in table if each.parent in above and each not in found]
        found += below
        above = {each.pid for each in below}
    return found + [each for each in table if each.session == pid and each.pid != pid and each not in found]


def processes() -> "List[Process]":
    """Every process of the box that has not ended."""
    found = []
    tick = os.sysconf("SC_CLK_TCK")
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X"):
            found.append(Process(int(name), int(fields[1]), int(fields[3]), int(fields[19]) / tick))
    return found


class Process:
    """One line of the process table; ``started`` counts seconds since boot, to a hundredth."""

    def __init__(self, pid: int, parent: int, session: int, started: float) -> None:
        """As Linux tells it."""
        self.pid, self.parent, self.session, self.started = pid, parent, session, started

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Process) and self.pid == other.pid

    __hash__ = None  # type: ignore[assignment]


def ignored(*_: object) -> None:
    """A signal that only has to wake the loop."""


def drain(fd: int) -> None:
    """Empty a pipe that wakes."""
    try:
        os.read(fd, 4096)
    except BlockingIOError:
        return


def send(number: int, pid: int, group: bool = False) -> None:
    """Send a signal to a process that may be gone."""
    try:
        (os.killpg if group else os.kill)(pid, number)
    except OSError:
        return


def tell(leash: "Any", **body: "Any") -> None:
    """Tell the host, which may be gone."""
    try:
        leash.send(**body)
    except OSError:
        return
