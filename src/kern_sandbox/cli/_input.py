"""What a command reads: its code, and what the code is to read."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["Usage", "code_of", "input_of", "whole"]


class Usage(Exception):
    """The command line asks for something that cannot be."""


def code_of(arguments: argparse.Namespace) -> tuple[str, bool]:
    """The snippet, and whether standard input was read for it."""
    if (arguments.code is None) == (arguments.file is None):
        raise Usage("name one thing to run: a FILE, -c CODE, or - for standard input")
    if arguments.code is not None:
        return arguments.code, False
    from_stdin = arguments.file == "-"
    name = "standard input" if from_stdin else repr(arguments.file)
    try:
        with open(0 if from_stdin else arguments.file, "rb", closefd=not from_stdin) as file:
            return file.read().decode("utf-8-sig"), from_stdin
    except OSError as error:
        raise Usage(f"reading the code from {name}: {os.strerror(error.errno or 0)}") from error
    except UnicodeDecodeError as error:
        raise Usage(f"the code from {name} is not UTF-8 text (byte {error.start})") from error


@contextlib.contextmanager
def input_of(arguments: argparse.Namespace, *, taken: bool) -> Iterator[int | None]:
    """A descriptor of what the code is to read, or ``None`` for nothing."""
    named = arguments.stdin
    if named is None or named == "-":
        if named == "-" and taken:
            raise Usage("standard input cannot be both the code and what it reads")
        usable = sys.stdin is not None and not taken and (named == "-" or not os.isatty(0))
        yield 0 if usable else None
        return
    try:
        file = open(named, "rb", buffering=0)  # noqa: SIM115 - closed below, on every way out
    except OSError as error:
        raise Usage(f"--stdin {named}: {os.strerror(error.errno or 0)}") from error
    with file:
        yield file.fileno()


def whole(stdin: int | None, patience_s: float) -> bytes | None:
    """All that there is to read. Whoever starts us may have left a pipe open that never ends: that is said."""
    if stdin is None:
        return None

    poller = select.poll()
    poller.register(stdin, select.POLLIN)
    deadline = time.monotonic() + patience_s
    chunks: list[bytes] = []
    while poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        chunk = os.read(stdin, 1 << 16)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
    words = "the input did not end within --timeout-s, and --json and --render read it whole before the code starts"
    raise Usage(f"{words}; say --stdin /dev/null where the code reads nothing")
