"""Frames: one JSON object a line, strict in both directions, on descriptors that nothing else can write to."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import threading
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["BadFrame", "Wire", "claimed", "decoded", "encoded"]

_CHUNK = 1 << 16
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadFrame(ValueError):
    """A frame that holds no JSON, or too much of it."""


def decoded(frame: bytes) -> Any:
    """The JSON value of a frame.

    Raises:
        BadFrame: it is not UTF-8, not JSON, or nested too deeply; the message says which.
    """
    try:
        return json.loads(frame.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise BadFrame(f"not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise BadFrame("nested too deeply") from None
    except ValueError as error:
        raise BadFrame(f"not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def encoded(message: Mapping[str, Any]) -> bytes:
    """A frame that any strict parser takes; a lone surrogate becomes U+FFFD.

    Raises:
        ValueError: it holds a number that JSON has no form for.
        TypeError: it holds something else that JSON has no form for.
    """
    text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text).encode("utf-8") + b"\n"


class Wire:
    """Two descriptors with frames on them.

    Args:
        source: where frames are read.
        target: where they are written.
        most: bytes of one incoming frame at most.
    """

    def __init__(self, source: int, target: int, most: int) -> None:
        self._source = source
        self._target = target
        self._most = most
        self._lock = threading.Lock()
        self.broken = False

    def frames(self) -> Iterator[bytes | BadFrame]:
        """Every frame until the other side is gone; one that is too long is dropped, and said to be.

        What stands after the last newline is a frame as well.
        """
        held = bytearray()
        skipping = False
        for chunk in self._chunks():
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                if skipping or len(held) + len(part) > self._most:
                    yield self._too_long()
                elif held.strip() or part.strip():
                    yield bytes(held + part)
                held.clear()
                skipping = False
            skipping = skipping or len(held) + len(rest) > self._most
            if skipping:
                held.clear()
            else:
                held += rest
        if held.strip() or skipping:
            yield self._too_long() if skipping else bytes(held)

    def _too_long(self) -> BadFrame:
        return BadFrame(f"a message of more than {self._most} bytes")

    def _chunks(self) -> Iterator[bytes]:
        poller = select.poll()
        poller.register(self._source, select.POLLIN)
        poller.register(self._target, 0)  # tells when nobody can read our replies any more
        while not self.broken:
            events = dict(poller.poll())
            if self._target in events:
                self.broken = True
                return
            try:
                chunk = os.read(self._source, _CHUNK)
            except OSError:
                return
            if not chunk:
                return
            yield chunk

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a frame, whole; once the other side is gone, nothing happens.

        Raises:
            ValueError, TypeError: as `encoded`; nothing was written.
        """
        view = memoryview(encoded(message))
        with self._lock:
            try:
                while view and not self.broken:
                    view = view[os.write(self._target, view) :]
            except OSError:
                self.broken = True


@contextlib.contextmanager
def claimed(most: int) -> Iterator[Wire]:
    """This process's standard input and output as a `Wire`, which nothing else in it can touch meanwhile.

    Whatever prints, prints on standard error; whatever reads standard input, finds it empty. Ctrl-C is the client's:
    unless this process itself is on a terminal, it is told by the end of its input.
    """
    before = None if os.isatty(0) else signal.signal(signal.SIGINT, _stay)
    source, target, empty = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.dup2(empty, 0)
        os.dup2(2, 1)
        yield Wire(source, target, most)
    finally:
        os.dup2(source, 0)
        os.dup2(target, 1)
        for fd in (source, target, empty):
            os.close(fd)
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _stay(*_: object) -> None:
    """A handler and not SIG_IGN, which every program of every box would inherit."""
