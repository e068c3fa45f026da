"""The client's side of a call in flight: its pipes, its verdict, its end.

One thread, the caller's, waits on everything at once. A box's output is read from descriptors outside the box; what
counts as the end of a call is the verdict, never anything that the code wrote or kept open.
"""

from __future__ import annotations

import codecs
import io
import os
import queue
import select
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from ..errors import InternalError, SandboxError
from ..forksafe import start_thread
from . import wire

__all__ = ["Collector", "Relay", "finish", "pump"]

_CHUNK = 1 << 18
_PIPE_ROOM = 1 << 20
_RELAY_CHUNKS = 256
_HANG_S = 90.0
"""How long past its deadline a call waits for the fork server's verdict before it calls the server dead, seconds."""


class Relay:
    """Hands chunks of text to a callback on a thread of its own; a slow callback loses chunks, never stalls the box."""

    def __init__(self, callback: Callable[[str], object]) -> None:
        self._callback = callback
        self._chunks: queue.Queue[str | None] = queue.Queue(_RELAY_CHUNKS)
        self.error: BaseException | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._thread = start_thread("kern-relay", self._work)

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Queue ``data`` as text; drop it if the callback is too far behind."""
        text = self._decoder.decode(data, final)
        if text:
            try:
                self._chunks.put_nowait(text)
            except queue.Full:
                return

    def finish(self) -> None:
        """Deliver what is queued and stop the thread.

        Raises:
            BaseException: what the callback raised, if it did.
        """
        self.feed(b"", final=True)
        self._chunks.put(None)
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _work(self) -> None:
        while True:
            text = self._chunks.get()
            if text is None:
                return
            if self.error is None:
                try:
                    self._callback(text)
                except BaseException as error:  # it belongs to the caller and is raised there by finish()
                    self.error = error


def finish(relays: Iterable[Relay | None]) -> None:
    """Finish every relay that there is.

    Raises:
        BaseException: the first that a callback raised.
    """
    errors = []
    for relay in relays:
        if relay is not None:
            try:
                relay.finish()
            except BaseException as error:  # it belongs to the caller, once every thread has stopped
                errors.append(error)
    if errors:
        raise errors[0]


class Collector:
    """One stream of a box: keeps up to ``limit`` bytes, reads and drops the rest."""

    def __init__(self, limit: int, relay: Relay | None = None) -> None:
        self.limit = limit
        self.relay = relay
        self.truncated = False
        self._content = io.BytesIO()  # a list of what was read would cost a box's single bytes many times their size
        self._kept = 0

    def feed(self, data: bytes) -> None:
        """Take in ``data`` as it was written."""
        room = self.limit - self._kept
        if len(data) > room:
            self.truncated = True
            data = data[:room]
        if data:
            self._content.write(data)
            self._kept += len(data)
            if self.relay is not None:
                self.relay.feed(data)

    def content(self) -> bytes:
        """Everything kept, in order."""
        return self._content.getvalue()


class _Input:
    """Standard input still to be written; a program that does not read it never stalls the call."""

    def __init__(self, fd: int, data: bytes) -> None:
        self.fd = fd
        self.left = memoryview(data)
        os.set_blocking(fd, False)

    def write(self) -> bool:
        """Write what fits; ``False`` when all is written or nobody reads."""
        try:
            self.left = self.left[os.write(self.fd, self.left[:_CHUNK]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(self.left)


class Pump:
    """The loop of one call. Owns and closes the descriptors that it is given."""

    def __init__(self, call: socket.socket, outputs: Mapping[int, Collector], stdin: _Input | None) -> None:
        self.call = call
        self.open = dict(outputs)
        self.stdin = stdin
        self.verdict: dict[str, Any] | None = None
        self._poller = select.poll()
        self._poller.register(call, select.POLLIN)
        for fd in self.open:
            os.set_blocking(fd, False)
            self._poller.register(fd, select.POLLIN)
        if stdin is not None:
            self._poller.register(stdin.fd, select.POLLOUT)

    def run(
        self, timeout_s: float, death: Callable[[], SandboxError], meanwhile: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """Do what there is to do ``meanwhile``, wait for the verdict, and return it with all output read.

        Raises:
            InternalError: the fork server died or fell silent.
            HostError: it has no descriptors left for this call.
        """
        give_up = time.monotonic() + timeout_s + _HANG_S
        try:
            if meanwhile is not None:
                meanwhile()
            while self.verdict is None:
                ready = self._poller.poll(max(0.0, give_up - time.monotonic()) * 1000)
                if not ready:
                    raise InternalError(
                        f"waiting for the verdict of a call: none came within {timeout_s + _HANG_S:g} s"
                    )
                for fd, _ in ready:
                    self._attend(fd, death)
            for fd in list(self.open):
                self._drain(fd)
            return self.verdict
        finally:
            self.close()

    def _attend(self, fd: int, death: Callable[[], SandboxError]) -> None:
        if fd == self.call.fileno():
            self.verdict = self._read_verdict(death)
        elif self.stdin is not None and fd == self.stdin.fd:
            if not self.stdin.write():
                self._poller.unregister(fd)
                os.close(fd)
                self.stdin = None
        elif not self._read(fd, _CHUNK):
            self._poller.unregister(fd)
            self.open.pop(fd)
            os.close(fd)

    def _read_verdict(self, death: Callable[[], SandboxError]) -> dict[str, Any]:
        frame = wire.receive(self.call)
        if frame is None:
            raise death()
        return frame.body

    def _read(self, fd: int, most: int) -> int:
        """Read once; the number of bytes, 0 at the end of the stream, 1 where there is nothing now."""
        try:
            data = os.read(fd, most)
        except BlockingIOError:
            return 1
        self.open[fd].feed(data)
        return len(data)

    def _drain(self, fd: int) -> None:
        """What the dead box left in the pipe, and not what somebody else who was given its end may still write."""
        left = _PIPE_ROOM
        while left > 0:
            try:
                data = os.read(fd, min(left, _CHUNK))
            except BlockingIOError:
                return
            if not data:
                return
            self.open[fd].feed(data)
            left -= len(data)

    def close(self) -> None:
        """Close everything; the fork server takes the closing of the call socket as a cancellation."""
        self.call.close()
        for fd in self.open:
            os.close(fd)
        self.open.clear()
        if self.stdin is not None:
            os.close(self.stdin.fd)
            self.stdin = None


def pump(call: socket.socket, outputs: Mapping[int, Collector], stdin: tuple[int, bytes] | None) -> Pump:
    """A pump over the read ends ``outputs`` and, if there is input, its write end and content."""
    return Pump(call, outputs, None if stdin is None else _Input(*stdin))
