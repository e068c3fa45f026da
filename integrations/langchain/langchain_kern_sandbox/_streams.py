"""What comes out of a box's shell, line by line, with the end of each command told apart from its output."""

from __future__ import annotations

import codecs
import secrets
import threading
from typing import TYPE_CHECKING, NamedTuple

from kern_sandbox import neutralise

if TYPE_CHECKING:
    from typing import BinaryIO

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16


class Mark:
    """A word that nothing else prints, which the shell prints after a command: on both streams, with its status."""

    def __init__(self) -> None:
        self.word = f"__kern_{secrets.token_hex(16)}__"
        self.pattern = self.word.encode()


class End(NamedTuple):
    """A command has ended, with this status; ``None`` on standard error, which does not say."""

    status: int | None


class Stream:
    """One stream of one shell.

    Attributes:
        settled: set while nothing of the command that was begun last is still to come.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = b""
        self._mark: Mark | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.settled = threading.Event()

    def expect(self, mark: Mark) -> None:
        """A command begins whose end ``mark`` tells."""
        self.settled.clear()
        self._mark = mark

    def next(self) -> str | End | None:
        """The next line, or a piece of a very long one; ``End`` after a command; ``None`` where the shell is gone."""
        while True:
            found = self._cut()
            if found is not None:
                return found
            chunk = self._read()
            if not chunk:
                return self._last()
            self._buffer += chunk

    def _read(self) -> bytes:
        try:
            return self._file.read1(_CHUNK)  # type: ignore[attr-defined, no-any-return] # a BufferedReader
        except (OSError, ValueError):
            return b""  # closed meanwhile, which is an end too

    def _last(self) -> str | None:
        rest, self._buffer = self._buffer, b""
        if rest:
            return self._text(rest, final=True)
        self.settled.set()
        return None

    def _cut(self) -> str | End | None:
        end = self._buffer.find(b"\n") + 1
        if not end:
            return self._long_piece()
        line = self._buffer[:end]
        at = -1 if self._mark is None else line.find(self._mark.pattern)
        if at == 0:
            self._buffer = self._buffer[end:]
            self._mark = None
            self.settled.set()
            status = line.split()[1:]
            return End(int(status[0]) if status and status[0].isdigit() else None)
        piece = line if at < 0 else line[:at]
        self._buffer = self._buffer[len(piece) :]
        return self._text(piece, final=True)

    def _long_piece(self) -> str | None:
        """Most of a line that has grown too long to wait for its end; what could be a mark's beginning stays."""
        if len(self._buffer) < _LONGEST_LINE or (self._mark is not None and self._mark.pattern in self._buffer):
            return None
        piece, self._buffer = self._buffer[:-64], self._buffer[-64:]
        return self._text(piece, final=False)

    def _text(self, piece: bytes, *, final: bool) -> str:
        text = self._decoder.decode(piece, final)
        line = text.endswith("\n")
        # A reader takes "" for the end of the stream; what is invisible leaves an empty line, or a space.
        return neutralise(text.rstrip("\r\n")) + "\n" if line else neutralise(text) or " "
