"""The client's side of the fork server: starting it, noticing its death, and handing it calls.

``current_server`` keeps the package's one piece of module state: the fork server of this process. It is started by
the first Sandbox, shared by all threads, and forgotten after a fork: a child starts its own.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import errno
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Protocol

from .._box.plan import Plan
from .._box.protection import Placeholder
from .._linux.fds import memory_file
from ..errors import HostError, InternalError, SandboxError
from . import wire
from .shortage import SHORTAGES, require_proc, short_of

__all__ = [
    "ForkServer",
    "Opening",
    "Temporary",
    "current_server",
    "discard_owner",
    "existing_server",
    "let_waiting_go",
    "put_waiting",
    "take_waiting",
]

_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from kern_sandbox._forkserver.server import main; main(int(sys.argv[2]))"
)
_EXIT_WAIT_S = 10.0
"""How long it may take to end and tidy up, seconds: one that is killed over it leaves cgroups to its successor."""
_DEATH_WAIT_S = 5.0
"""How long it may take to be gone once its sockets are: a busy machine lets it lie there closed for a while."""
_LOG_TAIL = 4000
_MOST_UNUSED_PLANS = 32
_MOST_WAITING = 4
_WAITING_EACH = 2

Temporary = tuple[str, int, int]
"""A directory to remove if this process dies: its path, and the device and inode that it must still have."""


class Waiting(Protocol):
    """What may wait for its one use."""

    def close(self) -> None:
        """It was not needed."""


class Opening(NamedTuple):
    """What the fork server is told of a Sandbox besides its plan.

    Attributes:
        temporary: directories to remove if this process dies.
        prewarm: how many boxes to keep ready.
        once: it makes one call at most, soon: one box is kept ready for that, and none after it.
        placeholders: what the fork server removes once the last box is gone.
    """

    temporary: list[Temporary]
    prewarm: int = 0
    once: bool = False
    placeholders: Sequence[Placeholder] = ()


class ForkServer:
    """A running fork server. Its methods may be called from many threads."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise HostError(
                f"starting a box on {sys.platform}",
                hint="kern_sandbox needs Linux: use it in a Linux virtual machine, or under WSL2 on Windows.",
            )
        require_proc()
        self._log: int | None
        try:
            self._control, self._log, self._process = _start()
        except OSError as error:
            raise short_of(f"starting the fork server with {sys.executable!r}", error) from error
        self._words = ""
        self._known: dict[str, int] = {}
        self._owners: dict[str, str] = {}
        self._lock = threading.Lock()
        self._reading = threading.Lock()  # of the log: whoever sends holds the other, and may find that it has died

    @property
    def alive(self) -> bool:
        """Whether it is running, as far as can be told now."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def open(self, owner: str, key: str, plan: Plan, how: Opening) -> None:
        """Make a Sandbox known under the name ``owner``: its boxes are of ``plan``, whose key is ``key``."""
        with self._lock:
            if owner in self._owners:
                return
            assert plan.workspace is not None
            body = {"verb": "open", "owner": owner, "key": key, "workspace": list(plan.workspace)}
            known = None if key in self._known else plan.to_wire()
            more = {**how._asdict(), "placeholders": [one.path for one in how.placeholders]}
            self._send({**body, "plan": known, **more}, [one.fd for one in how.placeholders])
            self._owners[owner] = key
            self._known[key] = self._known.get(key, 0) + 1

    def close_owner(self, owner: str) -> None:
        """No more calls by ``owner``; what it has running ends."""
        with self._lock:
            self._close_owner(owner)

    def close_owner_now(self, owner: str) -> bool:
        """As ``close_owner``, but ``False`` where that would mean to wait for a lock."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._close_owner(owner)
        finally:
            self._lock.release()
        return True

    def _close_owner(self, owner: str) -> None:
        if owner not in self._owners or not self.alive:
            return
        self._known[self._owners.pop(owner)] -= 1
        try:
            self._send({"verb": "close", "owner": owner}, ())
            self._forget_unused(_MOST_UNUSED_PLANS)
        except SandboxError:
            return  # it has just died, and everything of the owner's with it

    def forget_unused(self) -> None:
        """Let go of everything that only waits for another Sandbox like those that are closed."""
        with self._lock:
            self._forget_unused(0)

    def _forget_unused(self, keep: int) -> None:
        unused = [key for key, users in self._known.items() if not users]
        for key in unused[: len(unused) - keep] if len(unused) > keep else ():
            del self._known[key]
            self._send({"verb": "forget", "key": key}, ())

    def start(self, body: dict[str, Any], descriptors: Sequence[int]) -> socket.socket:
        """Ask for a box; returns the socket on which its verdict comes, and whose closing cancels it."""
        ours, theirs = wire.pair()
        try:
            self._send({"verb": "run", **body}, [theirs.fileno(), *descriptors])
        except BaseException:  # whatever happened, the socket must not outlive it
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def _send(self, body: dict[str, Any], descriptors: Sequence[int]) -> None:
        try:
            wire.send(self._control, body, descriptors)
        except (BrokenPipeError, ConnectionResetError):
            raise self.death() from None
        except OSError as error:
            if error.errno == errno.EBADF:  # another thread has found it dead and let it go
                raise self.death() from None
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS):
                hint = "Too many descriptors are open, or in flight over sockets of this user: raise `ulimit -n`"
                raise HostError("handing descriptors to the fork server", errno=error.errno, hint=hint) from error
            if error.errno in SHORTAGES:
                raise short_of("telling the fork server what to do", error) from error
            raise

    def death(self) -> SandboxError:
        """The error for calls that were in flight when it died; says how it died and its last words."""
        try:
            code = self._process.wait(_DEATH_WAIT_S)
        except subprocess.TimeoutExpired:
            return self._dropped()
        how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        return InternalError(
            f"running a box: the fork server has died ({how}){_after_colon(self._last_words())}",
            hint="The next call starts a new one",
        )

    def _dropped(self) -> SandboxError:
        """The error for a call that has got no answer, and never will."""
        words = self._last_words()
        if wire.LOST in words:  # and with them the socket on which it would have said so
            hint = "It has too many open: raise `ulimit -n`, or make fewer calls at once"
            return HostError("handing descriptors to the fork server", errno=errno.EMFILE, hint=hint)
        return InternalError(f"running a box: the fork server dropped the call{_after_colon(words)}")

    def _last_words(self) -> str:
        """The end of its standard error: empty unless it failed."""
        with self._reading:
            if self._log is not None:
                size = os.fstat(self._log).st_size
                tail = os.pread(self._log, _LOG_TAIL, max(0, size - _LOG_TAIL))
                self._words = tail.decode("utf-8", "replace").strip()
            return self._words

    def _close_log(self) -> None:
        self._last_words()
        with self._reading:
            if self._log is not None:
                os.close(self._log)
                self._log = None

    def close(self) -> None:
        """End it, and with it every box of this process."""
        with contextlib.suppress(OSError):  # it has ended
            self._control.shutdown(socket.SHUT_WR)
        gone = select.poll()  # Popen.wait looks now and then, and a program's end would take as much longer
        gone.register(self._control, 0)
        gone.poll(_EXIT_WAIT_S * 1000)
        self._control.close()
        try:
            self._process.wait(_DEATH_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_log()

    def abandon(self) -> None:
        """Forget an inherited server in a forked child, without ending the parent's."""
        self._control.close()
        if self._log is not None:
            os.close(self._log)
        self._process.returncode = 0


def _start() -> tuple[socket.socket, int, subprocess.Popen[bytes]]:
    """A new fork server: the socket to it, the file with its standard error, and the process."""
    keep = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    with contextlib.ExitStack() as undo:
        ours, theirs = wire.pair()
        undo.callback(ours.close)
        with theirs:
            log = memory_file("kern-forkserver-log", b"")
            undo.callback(os.close, log)
            process = subprocess.Popen(
                [sys.executable or "python3", "-I", "-S", "-c", _BOOT, _PACKAGE_PARENT, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=keep,
                cwd="/",
                start_new_session=True,
            )
        undo.pop_all()
    return ours, log, process


def _after_colon(words: str) -> str:
    return f": {words}" if words else ""


class _Line:
    """What waits under one key, how much is being made, and how much there should be."""

    def __init__(self) -> None:
        self.ready: collections.deque[Waiting] = collections.deque()
        self.coming = 0
        self.wanted = 0


class _Registry:
    """The one fork server of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.server: ForkServer | None = None
        self.discarded: collections.deque[str] = collections.deque()
        self.waiting: collections.OrderedDict[str, _Line] = collections.OrderedDict()

    def after_fork(self) -> None:
        """In a forked child: a lock held by another thread of the parent must not stay held."""
        self.lock = threading.Lock()
        self.discarded.clear()
        self.waiting = collections.OrderedDict()  # the parent's
        if self.server is not None:
            self.server.abandon()
            self.server = None

    def at_exit(self) -> None:
        """The interpreter is ending."""
        let_waiting_go()
        if self.server is not None:
            self.server.close()
            self.server = None


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.after_fork)
atexit.register(_registry.at_exit)


def current_server() -> ForkServer:
    """The fork server of this process, started or restarted if need be.

    Raises:
        HostError: not Linux, or it cannot be started.
    """
    with _registry.lock:
        if _registry.server is not None and not _registry.server.alive:
            _registry.server.close()
            _registry.server = None
        if _registry.server is None:
            _registry.server = ForkServer()
        server = _registry.server
    while _registry.discarded:
        server.close_owner(_registry.discarded.popleft())
    return server


def discard_owner(owner: str) -> None:
    """Have ``owner`` closed, now or with the next call of anybody; waits for no lock: a garbage collector calls it."""
    server = _registry.server
    try:
        if server is not None and server.close_owner_now(owner):
            return
    except SandboxError:
        return  # the server is dead, and everything of the owner's with it
    _registry.discarded.append(owner)


def take_waiting(key: str) -> Waiting | None:
    """What ``put_waiting`` left under ``key``, which is known from now on."""
    with _registry.lock:
        known = key in _registry.waiting
        line = _registry.waiting.pop(key, None) or _Line()
        line.wanted = _WAITING_EACH if known else 0
        _registry.waiting[key] = line
        found = line.ready.popleft() if line.ready else None
        stale = [_registry.waiting.popitem(last=False)[1] for _ in range(len(_registry.waiting) - _MOST_WAITING)]
    _close_all(stale)
    return found


def put_waiting(key: str, make: Callable[[], Waiting]) -> bool:
    """Leave one more of what ``make`` makes for whoever asks for ``key`` next; ``False`` if enough waits there.

    Raises:
        BaseException: what ``make`` raised.
    """
    with _registry.lock:
        line = _registry.waiting.get(key)
        if line is None or len(line.ready) + line.coming >= line.wanted:
            return False
        line.coming += 1
    made = None
    try:
        made = make()
    finally:
        with _registry.lock:
            line.coming -= 1
            kept = _registry.waiting.get(key) is line
            if made is not None and kept:
                line.ready.append(made)
    if not kept:
        made.close()
    return kept


def let_waiting_go() -> None:
    """Close everything that waits."""
    with _registry.lock:
        waiting, _registry.waiting = _registry.waiting, collections.OrderedDict()
    _close_all(list(waiting.values()))


def _close_all(lines: Sequence[_Line]) -> None:
    for line in lines:
        for each in line.ready:
            each.close()


def existing_server() -> ForkServer | None:
    """The fork server of this process if one is running; never starts one."""
    server = _registry.server
    return server if server is not None and server.alive else None
