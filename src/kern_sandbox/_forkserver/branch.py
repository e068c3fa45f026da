"""The client's side of one session in a kernel's box: its line, its leash, its pipes, and one cell at a time.

The word of the code's own process counts for what a cell is (done, and with which exit code), as it does in every
interpreter. What became of the process is the keeper's word, which the code does not hold; what became of the box is
the fork server's.
"""

from __future__ import annotations

import collections
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ..errors import InternalError, SessionClosed, StartError
from . import wire
from .held import HeldBox, hear
from .pump import Collector

__all__ = ["GRACE_S", "Branch", "CellEnd", "Copy", "Sinks"]

GRACE_S = 1.0
"""How long an interrupted cell may take to end, seconds."""
_PATIENCE_S = (0.75 * GRACE_S, 0.25 * GRACE_S)
"""After the first interrupt, and after the second: one may be lost in a callback of the code's."""
_START_S = 60.0
_END_S = 15.0
_MUTE_S = 2.0
_CHUNK = 1 << 18
_PIPE_ROOM = 1 << 20
_CARRIED = 1 << 20


class Sinks(NamedTuple):
    """Where a cell's output goes."""

    out: Collector
    err: Collector
    values: Collector


class Word(NamedTuple):
    """Something that somebody said; ``None`` is an end of file."""

    source: Literal["branch", "keeper", "box", "time"]
    body: dict[str, Any] | None


class CellEnd(NamedTuple):
    """How a cell ended.

    Attributes:
        code: the session's word, if it gave one: the session lives.
        status: the wait status of the session's process, if that has ended.
        late: the deadline had passed, and the cell was interrupted.
        ran: the session had not ended before the cell.
    """

    code: int | None = None
    status: int | None = None
    late: bool = False
    ran: bool = True


class Branch:
    """One session's process. Used by one thread at a time; ``interrupt`` and ``hang_up`` by any."""

    def __init__(self, box: HeldBox) -> None:
        self.box = box
        self.closed = False
        self.carried = Sinks(*(Collector(_CARRIED) for _ in range(3)))
        self._words: collections.deque[Word] = collections.deque()
        self._gifts: list[int] = []
        self._pipes: dict[int, int] = {}
        self._control, control = wire.pair()
        self._leash, leash = wire.pair()
        self._gifts += [control.detach()]
        for index in range(3):
            reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            os.set_blocking(writer, True)
            self._pipes[reader] = index
            self._gifts.append(writer)
        self._gifts.append(leash.detach())
        self._poller = select.poll()
        for fd in (self._control.fileno(), self._leash.fileno(), box.call.fileno(), *self._pipes):
            self._poller.register(fd, select.POLLIN)

    # Coming to life

    def start(self) -> None:
        """Be the first session of the box.

        Raises:
            StartError: the keeper could not fork it, or is silent.
            SessionClosed: the box ended; it knows how.
        """
        self._give(self.box.line, {"start": True}, self._gifts)
        until = time.monotonic() + _START_S
        self._expect("keeper", "adopted", until)
        self._expect("branch", "pid", until)
        while not self.box.started:
            self._next(self.carried, until)

    def start_from(self, copy: socket.socket, *, reseed: bool) -> None:
        """Be a fork of the copy at the other end of ``copy``.

        Raises:
            StartError: the box has no room for another process.
            SessionClosed: the copy is gone.
        """
        until = time.monotonic() + _START_S
        *gifts, leash = self._gifts
        self._gifts = [leash]
        try:
            self._give(copy, {"reseed": reseed}, gifts)
        finally:
            for fd in gifts:
                os.close(fd)
        refused(_heard(copy, until, "forking a checkpoint"))
        pid = self._expect("branch", "pid", until)["pid"]
        self._give(self.box.line, {"adopt": pid}, self._gifts)
        self._expect("keeper", "adopted", until)
        self._give(self._control, {"begin": True})

    def copy(self) -> Copy:
        """Fork a copy of the session that waits.

        Raises:
            StartError: the box has no room for another process, or the session does not answer.
            SessionClosed: the session has ended.
        """
        ours, theirs = wire.pair()
        try:
            self._give(self._control, {"freeze": True}, [theirs.fileno()])
            theirs.close()
            until = time.monotonic() + _START_S
            refused(self._expect("branch", "failed", until))
            pid = _heard(ours, until, "making a checkpoint")["pid"]
            self._give(self.box.line, {"copy": pid})
            self._give(ours, {"begin": True})
        except BaseException:  # whatever happened, our end must not outlive it
            ours.close()
            raise
        finally:
            theirs.close()
        return Copy(self.box, ours)

    def _give(self, sock: socket.socket, body: dict[str, Any], fds: Sequence[int] = ()) -> None:
        try:
            wire.send(sock, body, fds)
        except (BrokenPipeError, ConnectionResetError):
            raise SessionClosed("asking something of a kernel: its process has ended") from None
        except OSError as error:
            if error.errno == errno.EBADF:
                raise SessionClosed("using a checkpoint that is closed", hint="Make another") from None
            raise
        finally:
            if fds is self._gifts:
                self._drop_gifts()

    def _expect(self, source: str, key: str, until: float) -> dict[str, Any]:
        """The word with ``key`` from ``source``; others are not for now."""
        while True:
            word = self._next(self.carried, until)
            if word.source == "time":
                raise StartError("kernel", "the session did not answer in time", hint="The host is overloaded?")
            if word.body is None or (word.source == "keeper" and "ended" in word.body):
                raise SessionClosed("asking something of a kernel: its process has ended")
            if word.source == source and key in word.body:
                return word.body

    # One cell

    def run(self, number: int, code: str, sinks: Sinks, timeout_s: float) -> CellEnd:
        """Run one cell to its end, whatever that is, and read what it wrote.

        Returns:
            How it ended; neither ``code`` nor ``status`` where the box has ended.

        Raises:
            SessionClosed: the kernel was closed meanwhile.
            InternalError: the box neither answers nor ends.
        """
        began = time.monotonic()
        for old, new in zip(self.carried, sinks):
            if old.content():
                new.feed(old.content())
                self.carried = Sinks(*(Collector(_CARRIED) for _ in range(3)))
        if not self._begin({"run": number, "code": code}, sinks):
            found = self._until_end(number, sinks, began + _END_S) or self.end(sinks)
            return found._replace(ran=False)
        end = self._until_end(number, sinks, began + timeout_s)
        if end is None:
            end = self._interrupt(number, sinks, began)
        for fd in list(self._pipes):
            self._drain(fd, sinks)
        return end

    def _begin(self, body: dict[str, Any], sinks: Sinks) -> bool:
        """Send a cell, unless the session has ended since the last one: then ``False``, and the next word says how."""
        self._words.clear()
        for fd, _ in self._poller.poll(0):
            self._attend(fd, sinks)
        if any(word.body is None or word.source != "branch" for word in self._words):
            return False
        self._words.clear()
        try:
            wire.send(self._control, body)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def _until_end(self, number: int, sinks: Sinks, until: float, *, late: bool = False) -> CellEnd | None:
        """Wait for the end of the cell; ``None`` when time is up."""
        while True:
            word = self._next(sinks, until)
            if word.source == "time":
                return None
            if word.source == "box" or (word.source == "keeper" and word.body is None):
                return self._end_of_box(late)
            body = word.body
            if body is None:
                until = min(until, time.monotonic() + _MUTE_S)
            elif word.source == "keeper" and "ended" in body:
                return self._ended(body, late)
            elif word.source == "branch" and body.get("done") == number:
                return CellEnd(code=_exit_code(body.get("code")), late=late)

    def _interrupt(self, number: int, sinks: Sinks, began: float) -> CellEnd:
        """The deadline has passed: ask the cell to end, and if it will not, end the session."""
        for patience in _PATIENCE_S:
            self.interrupt()
            end = self._until_end(number, sinks, time.monotonic() + patience, late=True)
            if end is not None:
                break
        else:
            return self.end(sinks)
        if end.code is None or self._sweep(sinks, began):
            return end
        return self.end(sinks)

    def _sweep(self, sinks: Sinks, began: float) -> bool:
        """Have the processes killed that the cell has left; ``False`` if that did not work."""
        self._ask({"sweep": time.monotonic() - began})
        until = time.monotonic() + _END_S
        while True:
            word = self._next(sinks, until)
            if word.source == "keeper" and word.body is not None and "swept" in word.body:
                return word.body["swept"] is True
            if word.source in ("time", "box") or word.body is None:
                return False

    def end(self, sinks: Sinks) -> CellEnd:
        """End the session, and the box if its keeper does not do that."""
        self.kill()
        until = time.monotonic() + _END_S
        while True:
            word = self._next(sinks, until)
            if word.source == "keeper" and word.body is not None and "ended" in word.body:
                return self._ended(word.body, late=True)
            if word.source in ("time", "box") or (word.source == "keeper" and word.body is None):
                return self._end_of_box(late=True)

    def _ended(self, body: dict[str, Any], late: bool) -> CellEnd:
        """The session's process has ended; where something of it escaped the keeper, the box ends too."""
        if body.get("clean") is not True:
            return self._end_of_box(late)
        return CellEnd(status=body["ended"], late=late)

    def _end_of_box(self, late: bool) -> CellEnd:
        if not self.box.wait_for_end(0 if late else _MUTE_S):
            self.box.kill()
            if not self.box.wait_for_end(_END_S):
                raise InternalError("ending a kernel's box: it neither answered nor ended", hint="Make a new kernel")
        return CellEnd(late=late)

    # Waiting

    def _next(self, sinks: Sinks, until: float) -> Word:
        """The next word; output that arrives meanwhile goes to ``sinks``."""
        while not self._words:
            if self.closed:
                raise SessionClosed("using a kernel: it was closed meanwhile", hint="Make a new one")
            wait = until - time.monotonic()
            ready = self._poller.poll(max(0.0, wait) * 1000)
            if not ready and wait <= 0:
                return Word("time", {})
            for fd, _ in ready:
                self._attend(fd, sinks)
        return self._words.popleft()

    def _attend(self, fd: int, sinks: Sinks) -> None:
        if fd in self._pipes:
            if not self._read(fd, _CHUNK, sinks):
                self._poller.unregister(fd)
                self._pipes.pop(fd)
                os.close(fd)
        elif fd == self._control.fileno():
            self._note("branch", self._control)
        elif fd == self._leash.fileno():
            self._note("keeper", self._leash)
        else:
            self.box.attend()
            if self.box.evidence is not None:
                self._words.append(Word("box", None))

    def _note(self, source: Literal["branch", "keeper"], sock: socket.socket) -> None:
        body = hear(sock)
        if body is None:
            self._poller.unregister(sock)
        if body != {}:
            self._words.append(Word(source, body))

    def _read(self, fd: int, most: int, sinks: Sinks) -> int:
        """Read once; the number of bytes, 0 at the end of the stream, -1 where there is nothing now."""
        try:
            data = os.read(fd, most)
        except BlockingIOError:
            return -1
        sinks[self._pipes[fd]].feed(data)
        return len(data)

    def _drain(self, fd: int, sinks: Sinks) -> None:
        """What is in the pipe now, and not what somebody may go on to write."""
        left = _PIPE_ROOM
        while left > 0:
            size = self._read(fd, min(left, _CHUNK), sinks)
            if size <= 0:
                return
            left -= size

    # From any thread

    def interrupt(self) -> None:
        """Ask the keeper to interrupt the session; nothing happens between two cells."""
        self._ask({"interrupt": True})

    def kill(self) -> None:
        """Ask the keeper to end the session."""
        self._ask({"end": True})

    def _ask(self, body: dict[str, Any]) -> None:
        try:
            wire.send(self._leash, body)
        except OSError:
            return  # it has ended, which the next word tells

    def hang_up(self) -> None:
        """Wake whoever waits here: it then raises ``SessionClosed``."""
        self.closed = True
        try:
            self._leash.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the keeper was first

    def _drop_gifts(self) -> None:
        while self._gifts:
            os.close(self._gifts.pop())

    def close(self) -> None:
        """End the session and let every descriptor go; closing twice does nothing."""
        self.closed = True
        self._drop_gifts()
        self._control.close()
        self._leash.close()
        while self._pipes:
            os.close(self._pipes.popitem()[0])


class Copy:
    """A fork of a session that waits, unchanged; closing it ends it. Usable from any thread."""

    def __init__(self, box: HeldBox, line: socket.socket) -> None:
        self.box = box
        self._line = line
        self._lock = threading.Lock()

    def branch(self, *, reseed: bool) -> Branch:
        """A new session with this memory; ``reseed`` lets its random numbers differ.

        Raises:
            StartError: the box has no room for another process.
            SessionClosed: the copy is gone.
        """
        branch = Branch(self.box)
        try:
            with self._lock:
                branch.start_from(self._line, reseed=reseed)
        except BaseException:  # whatever happened, its descriptors must not outlive it
            branch.close()
            raise
        return branch

    def close(self) -> None:
        """End it; closing twice does nothing."""
        self._line.close()


def _exit_code(code: object) -> int:
    return code & 0xFF if isinstance(code, int) else 1


def refused(body: dict[str, Any]) -> None:
    """Raise what kept a fork in the box from being made, if anything did.

    Raises:
        StartError: the errno is the fork's own.
    """
    if body.get("failed") != 0:
        code = body["failed"] if isinstance(body["failed"], int) else None
        hint = "A checkpoint or a further kernel is another process of the same box: raise pids or memory_mb"
        raise StartError("checkpoint", "forking the session in its box", errno=code, hint=hint)


def _heard(sock: socket.socket, until: float, what: str) -> dict[str, Any]:
    """The next word of a copy.

    Raises:
        SessionClosed: it is gone.
        StartError: it is silent.
    """
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    while poller.poll(max(0.0, until - time.monotonic()) * 1000):
        body = hear(sock)
        if body is None:
            raise SessionClosed(f"{what}: the process that keeps it has ended", hint="Make another checkpoint")
        if body:
            return body
    raise StartError("checkpoint", f"{what}: no answer in time", hint="The host is overloaded?")
