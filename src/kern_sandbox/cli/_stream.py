"""What a box writes, copied to this process's own streams as it comes: nothing is lost and nothing comes twice.

Callbacks of ``Sandbox.run_code`` lose chunks where they are slow. Here a slow reader slows the box down instead, as
it does in a pipeline without a box.
"""

from __future__ import annotations

import codecs
import os
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .._forkserver.launch import Command
from ..forksafe import start_thread
from ..process import Process, copy_out
from ..session import Session, Stop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..results import ExecutionResult

__all__ = ["LiveSession", "Sink", "Streams", "neutralised", "stream"]

_CHUNK = 1 << 16
_LAST_WORDS_S = 1.0
"""How long what a box wrote may take to be written after Ctrl-C, seconds."""
_SHOWN = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def neutralised(text: str) -> str:
    """``text`` with every control character but newline and tab as a picture of it, so that a terminal obeys none."""
    return text.replace("\r\n", "\n").translate(_SHOWN)


class Sink:
    """One of this process's own output streams.

    Args:
        fd: where to write.
        limit: bytes of the box's output that are written; the rest is dropped.
        raw: whether a terminal gets control characters as they are.

    Attributes:
        truncated: something was dropped.
        error: what a write failed with; from then on all is dropped.
        at_line_start: whether what was written last ended a line.
        terminal: whether a person may be looking.
    """

    def __init__(self, fd: int, limit: int, *, raw: bool) -> None:
        self.fd = fd
        self.truncated = False
        self.error: OSError | None = None
        self.at_line_start = True
        self._left = limit
        self.terminal = _is_terminal(fd)
        self._decoder = None if raw or not self.terminal else codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def write(self, data: bytes, *, final: bool = False) -> None:
        """Write what the box wrote; returns when all of it is written."""
        self.truncated = self.truncated or len(data) > self._left
        data = data[: self._left]
        self._left -= len(data)
        if self._decoder is not None:
            data = self._tame(self._decoder.decode(data, final), final=final).encode("utf-8", "replace")
        view = memoryview(data)
        while view and self.error is None:
            try:
                view = view[os.write(self.fd, view) :]
            except OSError as error:
                self.error = error
        if data:
            self.at_line_start = data.endswith(b"\n")

    def _tame(self, text: str, *, final: bool) -> str:
        """A carriage return at the end waits for the newline that may follow it."""
        text, self._held = self._held + text, ""
        if text.endswith("\r") and not final:
            text, self._held = text[:-1], "\r"
        return neutralised(text)


class Streams(NamedTuple):
    """Where a box's streams go: its input comes from the descriptor ``stdin``, or is empty."""

    stdin: int | None
    stdout: Sink
    stderr: Sink


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def stream(process: Process, streams: Streams) -> ExecutionResult:
    """Copy all three streams until the program has ended, and all that it wrote is written.

    A stream of ours that cannot be written ends the box; its ``Sink.error`` then says why.

    Raises:
        SandboxError: as ``Process.wait``.
    """
    ended, say_ended = os.pipe2(os.O_CLOEXEC)
    copiers = []
    patience: float | None = _LAST_WORDS_S
    try:
        for source, sink in ((process.stdout, streams.stdout), (process.stderr, streams.stderr)):
            copiers.append(start_thread("kern-copy-out", copy_out, source.fileno(), ended, _writer(process, sink)))
        if streams.stdin is None:
            process.stdin.close()
        else:
            start_thread("kern-copy-in", _copy_in, streams.stdin, process)
        result = process.wait()
        patience = None
    finally:
        process.kill()
        os.close(say_ended)
        for copier in copiers:
            copier.join(patience)
    os.close(ended)
    return result


def _writer(process: Process, sink: Sink) -> Callable[[bytes], None]:
    """Writes what a box wrote; once that fails, the box has nobody to write for."""

    def write(data: bytes) -> None:
        sink.write(data, final=not data)
        if sink.error is not None:
            process.kill()

    return write


def _copy_in(source: int, process: Process) -> None:
    """Copy our input to the program until one of them ends it."""
    try:
        while True:
            data = os.read(source, _CHUNK)
            if not data:
                break
            process.stdin.write(data)
        process.stdin.close()
    except (OSError, ValueError):
        return  # the program reads no more, or its box is closed


class LiveSession(Session):
    """A Session whose calls show their output on ``streams`` as it comes, and have none in their result."""

    def __init__(self, workspace: str | None, options: Mapping[str, Any], streams: Streams) -> None:
        super().__init__(workspace, options)
        self._streams = streams

    def _run(self, command: Command, stop: Stop | None) -> ExecutionResult:
        process, results = self._start(command, stop)
        with process:
            if results is not None:
                start_thread("kern-discard", _discard, results)
            return stream(process, self._streams)


def _discard(source: int) -> None:
    """Rich values have no place on a terminal; who writes them must not block."""
    while os.read(source, _CHUNK):
        pass
    os.close(source)
