"""The client's side of one session in a kernel's box: its line, its leash, its pipes, and one cell at a time.

The word of the code's own process counts for what a cell is (done, and with which exit code), as it does in every
interpreter. What became of the process is the keeper's word, which the code does not hold; what became of the box is
the fork server's.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import InternalError, SessionClosed, StartError
from . import wire
from .held import HeldBox, hear
from .launch import within_limits
from .lines import Lines, Sinks, Word

__all__ = ["GRACE_S", "Branch", "CellEnd", "Copy", "Sinks"]

GRACE_S = 1.0
"""How long an interrupted cell may take to end, seconds."""
_PATIENCE_S = (0.75 * GRACE_S, 0.25 * GRACE_S)
"""After the first interrupt, and after the second: one may be lost in a callback of the code's."""
_START_S = 60.0
_END_S = 15.0
_MUTE_S = 2.0
_MOST_STATUS = 0xFFFF
_LATER = "Interrupt or kill it"
_ERRNOS = 4096  # Linux has no larger one, and no text for what the code makes up


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


class Branch(Lines):
    """One session's process. Used by one thread at a time; ``interrupt`` and ``hang_up`` by any."""

    def __init__(self, box: HeldBox) -> None:
        super().__init__(box)
        self._turns = threading.Lock()
        self._running = False
        self._asked = 0

    # Coming to life

    def start(self) -> None:
        """Be the first session of the box.

        Raises:
            StartError: the keeper could not fork it, or is silent.
            SessionClosed: the box ended; it knows how.
        """
        self._give(self.box.line, {"start": True}, self.gifts)
        until = time.monotonic() + _START_S
        said: set[tuple[str, str]] = set()
        while not said >= {("keeper", "adopted"), ("branch", "pid")}:
            word = self._word(until)
            said |= {(word.source, key) for key in word.body or ()}
        if not self.box.wait_for_start(_END_S):
            raise SessionClosed("starting a kernel: its box has ended")

    def start_from(self, copy: socket.socket, *, reseed: bool) -> None:
        """Be a fork of the copy at the other end of ``copy``.

        Raises:
            StartError: the box has no room for another process.
            SessionClosed: the copy is gone.
        """
        until = time.monotonic() + _START_S
        *gifts, leash = self.gifts
        self.gifts = [leash]
        try:
            self._give(copy, {"reseed": reseed}, gifts)
        finally:
            for fd in gifts:
                os.close(fd)
        refused(_heard(copy, "failed", until, "forking a checkpoint"))
        pid = self._expect("branch", "pid", until)["pid"]
        self._give(self.box.line, {"adopt": pid}, self.gifts)
        self._expect("keeper", "adopted", until)
        self._give(self.control, {"begin": True})

    def copy(self) -> Copy:
        """Fork a copy of the session that waits.

        Raises:
            StartError: the box has no room for another process, or the session does not answer.
            SessionClosed: the session has ended.
        """
        with within_limits():
            ours, theirs = wire.pair()
        try:
            self._give(self.control, {"freeze": True}, [theirs.fileno()])
            theirs.close()
            until = time.monotonic() + _START_S
            refused(self._expect("branch", "failed", until))
            pid = _heard(ours, "pid", until, "making a checkpoint")["pid"]
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
            wire.send(sock, body, fds, socket.MSG_DONTWAIT)
        except (BrokenPipeError, ConnectionResetError):
            raise SessionClosed("asking something of a kernel: its process has ended") from None
        except BlockingIOError:
            raise SessionClosed("asking something of a kernel: its process does not listen", hint=_LATER) from None
        except OSError as error:
            if error.errno == errno.EBADF:
                raise SessionClosed("using a checkpoint that is closed", hint="Make another") from None
            raise
        finally:
            if fds is self.gifts:
                self.drop_gifts()

    def _expect(self, source: str, key: str, until: float) -> dict[str, Any]:
        """The word with ``key`` from ``source``; others are not for now."""
        while True:
            word = self._word(until)
            if word.source == source and word.body is not None and key in word.body:
                return word.body

    def _word(self, until: float) -> Word:
        """The next word of a session that lives."""
        word = self.next(self.carried, until)
        if word.source == "time" or time.monotonic() >= until:
            raise StartError("kernel", "the session did not answer in time", hint="The host is overloaded?")
        if word.body is None or (word.source == "keeper" and "ended" in word.body):
            raise SessionClosed("asking something of a kernel: its process has ended")
        return word

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
        self.pour(sinks)
        with self._turns:
            self._running = True
        try:
            return self._run(number, code, sinks, began + timeout_s)
        finally:
            with self._turns:
                self._running = False

    def _run(self, number: int, code: str, sinks: Sinks, until: float) -> CellEnd:
        began = time.monotonic()  # before it is sent: the cell may be quicker than this thread, and is swept by time
        if not self._begin({"run": number, "code": code}):
            return self.last_end(sinks)._replace(ran=False)
        end = self._until_end(number, sinks, until)
        if end is None:
            end = self._interrupt(number, sinks, began)
        if end.code is not None:
            self._await_interrupts(sinks)
        for fd in list(self.pipes):
            self.drain(fd, sinks)
        return end

    def _begin(self, body: dict[str, Any]) -> bool:
        """Send a cell; ``False`` where nobody is left to run it, or has taken in so little that this would wait."""
        self.words.clear()
        try:
            wire.send(self.control, body, (), socket.MSG_DONTWAIT)
        except (BrokenPipeError, ConnectionResetError):
            return False
        except BlockingIOError:
            self.kill()
            return False
        return True

    def last_end(self, sinks: Sinks | None = None) -> CellEnd:
        """How the session has ended, which it has, or is about to."""
        sinks = sinks or self.carried
        if self.fate is not None:
            return self._ended(self.fate, late=False)
        return self._until_end(0, sinks, time.monotonic() + _END_S) or self.end(sinks)

    def interrupt(self) -> None:
        """Interrupt the cell that is running, if one is. From any thread."""
        with self._turns:
            if self._running:
                self._asked += 1
                self.ask({"interrupt": True})

    def _await_interrupts(self, sinks: Sinks) -> None:
        """An interrupt that is on its way as a cell ends must not reach the next one."""
        with self._turns:
            self._running = False
        until = time.monotonic() + _END_S
        while self.acknowledged < self._asked and not self.closed and self.fate is None:
            self.turn(sinks, until - time.monotonic())
            if time.monotonic() >= until or self.box.evidence is not None:
                return

    def _until_end(self, number: int, sinks: Sinks, until: float, *, late: bool = False) -> CellEnd | None:
        """Wait for the end of the cell; ``None`` when time is up."""
        while True:
            word = self.next(sinks, until)
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
            if time.monotonic() >= until:  # what the code says instead, without end, gains it no time
                return None

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
        self.ask({"sweep": time.clock_gettime(time.CLOCK_BOOTTIME) - (time.monotonic() - began)})
        until = time.monotonic() + _END_S
        while True:
            word = self.next(sinks, until)
            if word.source == "keeper" and word.body is not None and "swept" in word.body:
                return word.body["swept"] is True
            if word.source in ("time", "box") or word.body is None or time.monotonic() >= until:
                return False

    def end(self, sinks: Sinks) -> CellEnd:
        """End the session, and the box if its keeper does not do that."""
        self.kill()
        mute = self.acknowledged < self._asked  # the code may have stopped the keeper
        until = time.monotonic() + (_MUTE_S if mute else _END_S)
        while True:
            word = self.next(sinks, until)
            if word.source == "keeper" and word.body is not None and "ended" in word.body:
                return self._ended(word.body, late=True)
            keeper_gone = word.source == "keeper" and word.body is None
            if word.source in ("time", "box") or keeper_gone or time.monotonic() >= until:
                return self._end_of_box(late=True)

    def _ended(self, body: dict[str, Any], late: bool) -> CellEnd:
        """The session's process has ended; where something of it escaped the keeper, the box ends too."""
        status = body["ended"]
        whole = type(status) is int and 0 <= status <= _MOST_STATUS and body.get("clean") is True
        if not whole or (_killed(status) and not late and self.box.is_ending(_END_S)):
            return self._end_of_box(late)
        return CellEnd(status=status, late=late)

    def _end_of_box(self, late: bool) -> CellEnd:
        if not self.box.wait_for_end(0 if late else _MUTE_S):
            self.box.kill()
            if not self.box.wait_for_end(_END_S):
                raise InternalError("ending a kernel's box: it neither answered nor ended", hint="Make a new kernel")
        return CellEnd(late=late)


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


def _killed(status: int) -> bool:
    """Whether the process may have died with its box: the keeper, which dies too, was only faster to tell."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _exit_code(code: object) -> int:
    return code & 0xFF if isinstance(code, int) else 1


def refused(body: dict[str, Any]) -> None:
    """Raise what kept a fork in the box from being made, if anything did.

    Raises:
        StartError: the errno is the fork's own.
    """
    failed = body.get("failed")
    if failed != 0:
        code = failed if type(failed) is int and 0 < failed < _ERRNOS else None
        hint = "A checkpoint or a further kernel is another process of the same box: raise pids or memory_mb"
        raise StartError("checkpoint", "forking the session in its box", errno=code, hint=hint)


def _heard(sock: socket.socket, key: str, until: float, what: str) -> dict[str, Any]:
    """The next word of a copy that has ``key``.

    Raises:
        SessionClosed: it is gone.
        StartError: it is silent.
    """
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    while time.monotonic() < until and poller.poll(max(0.0, until - time.monotonic()) * 1000):
        body = hear(sock)
        if body is None:
            raise SessionClosed(f"{what}: the process that keeps it has ended", hint="Make another checkpoint")
        if key in body:
            return body
    raise StartError("checkpoint", f"{what}: no answer in time", hint="The host is overloaded?")
