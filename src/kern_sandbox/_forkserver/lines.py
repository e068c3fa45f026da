"""The descriptors of one session in a kernel's box, and what is said and written on them."""

from __future__ import annotations

import collections
import contextlib
import os
import select
import socket
import time
from typing import Any, Literal, NamedTuple

from ..errors import SessionClosed
from . import wire
from .held import HeldBox, hear
from .launch import within_limits
from .pump import Collector

__all__ = ["Lines", "Sinks", "Word"]

_CHUNK = 1 << 18
_PIPE_ROOM = 1 << 20
_CARRIED = 1 << 20
_MOST_WORDS = 1000
"""Words of the code's own process that may wait to be looked at; there is never use for more than a few."""


class Sinks(NamedTuple):
    """Where a cell's output goes."""

    out: Collector
    err: Collector
    values: Collector


class Word(NamedTuple):
    """Something that somebody said; ``None`` is an end of file."""

    source: Literal["branch", "keeper", "box", "time"]
    body: dict[str, Any] | None


class Lines:
    """A session's control socket, its leash, and its pipes; ``gifts`` are the box's ends, until they are handed over.

    Used by one thread at a time, but for what says otherwise.
    """

    def __init__(self, box: HeldBox) -> None:
        self.box = box
        self.closed = False
        self.fate: dict[str, Any] | None = None
        self.acknowledged = 0
        self._leash_lives = True
        self._carried: Sinks | None = None
        self.words: collections.deque[Word] = collections.deque()
        self.gifts: list[int] = []
        self.pipes: dict[int, int] = {}
        with within_limits(), contextlib.ExitStack() as undo:
            undo.callback(self._drop_pipes)
            undo.callback(self.drop_gifts)
            self.control, control = (undo.enter_context(end) for end in wire.pair())
            self.leash, leash = (undo.enter_context(end) for end in wire.pair())
            self.gifts.append(control.detach())
            for index in range(3):
                reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
                self.pipes[reader] = index
                self.gifts.append(writer)
                os.set_blocking(writer, True)
            self.gifts.append(leash.detach())
            undo.pop_all()
        self._poller = select.poll()
        for fd in (self.control.fileno(), self.leash.fileno(), box.call.fileno(), *self.pipes):
            self._poller.register(fd, select.POLLIN)

    @property
    def carried(self) -> Sinks:
        """Where output goes that comes between two cells."""
        if self._carried is None:
            self._carried = Sinks(*(Collector(_CARRIED) for _ in range(3)))
        return self._carried

    def pour(self, sinks: Sinks) -> None:
        """Begin ``sinks`` with what has come since the last cell."""
        if self._carried is not None:
            for old, new in zip(self._carried, sinks):
                new.feed(old.content())
            self._carried = None

    def next(self, sinks: Sinks, until: float) -> Word:
        """The next word; output that arrives meanwhile goes to ``sinks``, and holds nobody up beyond ``until``."""
        while not self.words:
            if self.closed:
                raise self._hung_up()
            wait = until - time.monotonic()
            self.turn(sinks, wait)
            if wait <= 0 and not self.words:
                return Word("time", {})
        if self.closed:
            raise self._hung_up()
        return self.words.popleft()

    def turn(self, sinks: Sinks, wait_s: float) -> bool:
        """Wait once, and take in what has come; ``False`` if nothing has."""
        ready = self._poller.poll(max(0.0, wait_s) * 1000)
        for fd, _ in ready:
            self._attend(fd, sinks)
        return bool(ready)

    def has_ended(self) -> bool:
        """Whether the keeper has said that the session's process has ended."""
        if self.fate is None and self._leash_lives:
            self._note("keeper", self.leash)
        return self.fate is not None

    @staticmethod
    def _hung_up() -> SessionClosed:
        return SessionClosed("using a kernel: it was closed meanwhile", hint="Make a new one")

    def _attend(self, fd: int, sinks: Sinks) -> None:
        if fd in self.pipes:
            if not self._read(fd, _CHUNK, sinks):
                self._poller.unregister(fd)
                self.pipes.pop(fd)
                os.close(fd)
        elif fd == self.control.fileno():
            self._note("branch", self.control)
        elif fd == self.leash.fileno():
            self._note("keeper", self.leash)
        else:
            self.box.attend()
            ended = Word("box", None)
            if self.box.evidence is not None and ended not in self.words:
                self.words.append(ended)

    def _note(self, source: Literal["branch", "keeper"], sock: socket.socket) -> None:
        body = hear(sock)
        if body is None:
            self._poller.unregister(sock)
            self._leash_lives = self._leash_lives and sock is not self.leash
        elif source == "keeper" and "ended" in body:
            self.fate = body
        elif source == "keeper" and "interrupted" in body:
            self.acknowledged += 1
            return
        if source == "branch" and len(self.words) >= _MOST_WORDS:
            return
        if body != {} and not (body is None and source == "keeper" and self.fate is not None):
            self.words.append(Word(source, body))

    def _read(self, fd: int, most: int, sinks: Sinks) -> int:
        """Read once; the number of bytes, 0 at the end of the stream, -1 where there is nothing now."""
        try:
            data = os.read(fd, most)
        except BlockingIOError:
            return -1
        sinks[self.pipes[fd]].feed(data)
        return len(data)

    def drain(self, fd: int, sinks: Sinks) -> None:
        """What is in the pipe now, and not what somebody may go on to write."""
        left = _PIPE_ROOM
        while left > 0:
            size = self._read(fd, min(left, _CHUNK), sinks)
            if size <= 0:
                return
            left -= size

    def kill(self) -> None:
        """Ask the keeper to end the session."""
        self.ask({"end": True})

    def ask(self, body: dict[str, Any]) -> None:
        try:
            wire.send(self.leash, body, (), socket.MSG_DONTWAIT)
        except OSError:
            return  # it has ended, which the next word tells; or it takes nothing in, and ends at a deadline

    def hang_up(self) -> None:
        """Wake whoever waits here: it then raises ``SessionClosed``."""
        self.closed = True
        try:
            self.leash.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the keeper was first

    def drop_gifts(self) -> None:
        while self.gifts:
            os.close(self.gifts.pop())

    def close(self) -> None:
        """End the session and let every descriptor go; closing twice does nothing."""
        self.closed = True
        self.drop_gifts()
        self.control.close()
        self.leash.close()
        self._drop_pipes()

    def _drop_pipes(self) -> None:
        while self.pipes:
            os.close(self.pipes.popitem()[0])
