"""A live program in a box, with its pipes in the caller's hands."""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, cast

from ._box.egress import egress_events
from ._box.verdict import Facts, judge, raise_failure
from ._forkserver import wire
from ._forkserver.launch import Launched
from .errors import SandboxError, SessionClosed, SpecError
from .results import ExecutionResult, Usage

if TYPE_CHECKING:
    from .workspace import Guard

__all__ = ["Process", "copy_out"]

_CHUNK = 1 << 16
_PIPE_ROOM = 1 << 20
_STILL_RUNNING = "the process is still running"
_LONGEST_S = 20 * 24 * 3600.0
"""Longer than any program may run; poll(2) counts milliseconds in an int."""


class Process:
    """A program that ``Sandbox.spawn`` started. Close it, or use it as a context manager: the box ends with it.

    Attributes:
        stdin: a binary file to write to; close it to give the program its end of file.
        stdout: a binary file, unbuffered on the box's side; it ends when nobody in the box holds it any more.
        stderr: the same for standard error.
    """

    def __init__(self, launched: Launched, facts: Facts, death: Callable[[], SandboxError], guard: Guard) -> None:
        assert launched.stdin is not None
        self.stdin: BinaryIO = cast("BinaryIO", io.FileIO(launched.stdin, "wb"))
        self.stdout: BinaryIO = io.BufferedReader(io.FileIO(launched.stdout, "rb"))
        self.stderr: BinaryIO = io.BufferedReader(io.FileIO(launched.stderr, "rb"))
        self._call = launched.call
        self._facts = facts
        self._death = death
        self._guard = guard
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._started = time.monotonic()
        self._result: ExecutionResult | None = None
        self._closed = False

    def wait(self, timeout_s: float | None = None) -> ExecutionResult:
        """Wait until the program has ended; the result has everything but the output, which the caller reads.

        The program blocks when it has filled a pipe that nobody reads.

        Args:
            timeout_s: how long to wait; ``None`` for as long as the program may run.

        Raises:
            TimeoutError: it is still running.
            SessionClosed: this process was closed.
            SandboxError: the box could not be built, or the engine failed.
        """
        until = None if timeout_s is None else time.monotonic() + min(max(0.0, timeout_s), _LONGEST_S)
        if self._result is not None:
            return self._result
        if self._pid != os.getpid():  # the verdict is the parent's to read, and the lock may be held there
            raise SessionClosed("waiting for a process of another process", hint="Start one in this process")
        if not self._lock.acquire(timeout=-1 if until is None else _left(until)):  # another thread waits already
            raise TimeoutError(_STILL_RUNNING)
        try:
            if self._result is None:
                evidence = self._evidence(until)
                if "refused" in evidence:
                    raise_failure(evidence["refused"])
                self._result = self._judge(evidence)
            return self._result
        finally:
            self._lock.release()

    def poll(self) -> ExecutionResult | None:
        """The result if the program has ended, else ``None``."""
        try:
            return self.wait(0)
        except TimeoutError:
            return None

    def _evidence(self, until: float | None) -> dict[str, Any]:
        if self._closed:
            raise SessionClosed("waiting for a process that was closed")
        poller = select.poll()
        poller.register(self._call, select.POLLIN)
        if not poller.poll(None if until is None else _left(until) * 1000):
            raise TimeoutError(_STILL_RUNNING)
        frame = wire.receive(self._call)
        if frame is None:
            raise SessionClosed("waiting for a process that was closed") if self._closed else self._death()
        return frame.body

    def _judge(self, evidence: dict[str, Any]) -> ExecutionResult:
        judgement = judge(self._guard.conclude(evidence), self._facts)
        return ExecutionResult(
            stderr="".join(f"kern: note: {note}\n" for note in judgement.notes),
            exit_code=judgement.exit_code,
            duration_ms=round((time.monotonic() - self._started) * 1000),
            fault=judgement.fault,
            runtime_notes=judgement.notes,
            usage=Usage(**evidence.get("usage", {})),
            egress=egress_events(evidence),
        )

    def send_signal(self, number: int) -> None:
        """Send a signal to the program; nothing happens if it has ended.

        Raises:
            SpecError: not a signal number.
        """
        if not isinstance(number, int) or number not in signal.valid_signals():
            raise SpecError(f"signal {number!r} is not accepted. Accepted: a number that signal.valid_signals() holds")
        self._say({"signal": int(number)})

    def kill(self) -> None:
        """End the whole box now; ``wait`` then gives the fault ``killed``."""
        self._say({"kill": "killed"})

    def _say(self, body: dict[str, Any]) -> None:
        if self._closed or self._result is not None:
            return
        try:
            wire.send(self._call, body)
        except OSError:
            return  # it has ended, or was closed meanwhile, which is what was wanted

    def close(self) -> None:
        """End the box if it is alive, and close the pipes. Closing twice does nothing.

        In a forked child, whose parent has started the program, only the child's own descriptors are closed.
        """
        if self._closed:
            return
        self._closed = True
        if self._pid == os.getpid():
            self._hang_up()
        self._call.close()
        for file in (self.stdin, self.stdout, self.stderr):
            try:
                file.close()
            except BrokenPipeError:
                pass  # the program no longer reads; there is nothing to flush

    def _hang_up(self) -> None:
        """End the box; an inherited copy in a forked child must not, for the box is the parent's."""
        self._guard.release()
        try:
            self._call.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the fork server closed its end first
        with self._lock:  # a thread that waits has seen the end of the socket by now
            self._call.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


def copy_out(source: int, ended: int, write: Callable[[bytes], object]) -> None:
    """Hand over what comes on a process's output until its end, which is handed over as ``b""``.

    Args:
        source: the descriptor to read.
        ended: becomes readable when the process has ended; where something else still holds the stream, what the box
            wrote is then all that is read.
        write: takes each piece.
    """
    poller = select.poll()
    for fd in (source, ended):
        poller.register(fd, select.POLLIN)
    over = False
    while not over:
        ready = [fd for fd, _ in poller.poll()]
        if source not in ready:
            break
        data = os.read(source, _CHUNK)
        write(data)
        if not data:
            return
        over = ended in ready
    _drain(source, write)


def _drain(source: int, write: Callable[[bytes], object]) -> None:
    os.set_blocking(source, False)
    left = _PIPE_ROOM
    while left > 0:
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:
            break
        if not data:
            break
        write(data)
        left -= len(data)
    write(b"")
