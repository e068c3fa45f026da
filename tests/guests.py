"""Running the guest's program on the host, without a box."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

from kern_sandbox._box.values import decode_values
from support import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

    from kern_sandbox.results import Result

PROGRAM = PACKAGE / "_guest" / "run_once.py"


class Ran(NamedTuple):
    """How a process ended."""

    stdout: bytes
    stderr: bytes
    status: int


class Shown(NamedTuple):
    """How a cell ended, and what it sent on its results descriptor."""

    ran: Ran
    raw: bytes

    @property
    def values(self) -> list[Result]:
        """What the host makes of it."""
        return decode_values(self.raw)

    @property
    def texts(self) -> list[str | None]:
        """The plain text of each value."""
        return [value.text for value in self.values]


def run(folder: Path, *argv: str, fds: tuple[int, ...] = ()) -> Ran:
    """Run a program in ``folder``, with an empty standard input and an environment of its own."""
    env = {
        "PATH": os.environ["PATH"],
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": str(folder.parent),
        "HOME": str(folder.parent),
    }
    ran = subprocess.run(argv, cwd=folder, env=env, pass_fds=fds, stdin=subprocess.DEVNULL, capture_output=True)
    return Ran(ran.stdout, ran.stderr, ran.returncode)


def guest(folder: Path, code: str | bytes, python: str = sys.executable, flags: tuple[str, ...] = ()) -> Shown:
    """Run ``code`` under the guest; its descriptor is a pipe that is read at once, as a box's is."""
    path = folder / "main.py"
    path.write_bytes(code if isinstance(code, bytes) else code.encode())
    read_end, write_end = os.pipe()
    received: list[bytes] = []
    reader = threading.Thread(target=_read, args=(read_end, received))
    reader.start()
    try:
        ran = run(folder, python, *flags, str(PROGRAM), str(path), str(write_end), fds=(write_end,))
    finally:
        os.close(write_end)
        reader.join()
    return Shown(ran, b"".join(received))


def _read(fd: int, received: list[bytes]) -> None:
    with open(fd, "rb") as pipe:
        received.append(pipe.read())
