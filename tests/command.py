"""The command ``kern-sandbox`` as tests start it: to its end, with pipes, or on a terminal."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import kern_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

SITE = str(Path(kern_sandbox.__path__[0]).parent)
COMMAND = [sys.executable, "-m", "kern_sandbox"]
ON_TERMINAL = (
    "import fcntl, os, sys, termios; sys.path.insert(0, sys.argv.pop(1)); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "from kern_sandbox.cli import main; sys.exit(main())"
)
"""The command with its standard input as its controlling terminal, as a shell starts it."""

Done = subprocess.CompletedProcess


def environment() -> dict[str, str]:
    """This process's own, with the package that is tested."""
    return {**os.environ, "PYTHONPATH": SITE, "PYTHONWARNINGS": "error"}


def kern(*words: str, stdin: bytes | None = None) -> Done[bytes]:
    """Run the command to its end."""
    with started(*words, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE) as process:
        out, err = process.communicate(stdin, timeout=100)
    return Done(process.args, process.returncode, out, err)


@contextlib.contextmanager
def started(*words: str, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    """The command, running, with pipes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0, **more}
    with subprocess.Popen([*COMMAND, *words], env=environment(), **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def pipe_of(file: IO[bytes] | None) -> IO[bytes]:
    """A pipe of `started`, for the type checker."""
    assert file is not None
    return file


class Terminal:
    """The command on a terminal of its own, which shows what the command wrote."""

    def __init__(self, *words: str) -> None:
        self.master, slave = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, SITE, *words],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment(),
        )  # fmt: skip
        os.close(slave)
        self.shown = b""

    def read(self) -> bool:
        """Read once; ``False`` when nobody holds the terminal any more."""
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        self.shown += data
        return bool(data)

    def show(self, words: bytes) -> None:
        """Read until the words have appeared."""
        while words not in self.shown:
            assert self.read(), self.shown

    def end(self) -> int:
        """Read to the end; the exit status."""
        while self.read():
            pass
        return self.process.wait(60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@contextlib.contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    made = Terminal(*words)
    with contextlib.closing(made):
        yield made
