"""Landlock under Linux itself, in forked children of this process: each refusal beside what it does without."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING, Callable

import pytest

from kern_sandbox._linux import caps, landlock
from support import applies

if TYPE_CHECKING:
    from pathlib import Path

ABI = landlock.abi_version() if hasattr(os, "fork") else 0


def outcome(body: Callable[[], object], *allowed: Path, confined: bool) -> int:
    """0 where ``body`` works in a forked child that may write below ``allowed``; else the number of its error."""
    pid = os.fork()
    if pid == 0:
        try:
            if confined:
                caps.no_new_privileges()
                landlock.restrict_writes([str(path) for path in allowed], ABI)
            body()
        except OSError as error:
            os._exit(error.errno or 255)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def refused(body: Callable[[], object], *allowed: Path) -> bool:
    """Whether Landlock refuses what works without it."""
    assert outcome(body, *allowed, confined=False) == 0
    return outcome(body, *allowed, confined=True) in (1, 13)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    applies(ABI >= 2, "this Linux has no Landlock that boxes use")
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    return tmp_path / "inside", tmp_path / "outside"


VERBS: dict[str, Callable[[Path], object]] = {
    "write": lambda place: (place / "file").write_bytes(b"y"),
    "append": lambda place: (place / "file").open("ab").close(),
    "make a file": lambda place: (place / f"new{os.getpid()}").touch(),
    "make a directory": lambda place: (place / f"new{os.getpid()}").mkdir(),
    "make a link": lambda place: (place / f"new{os.getpid()}").symlink_to("/"),
    "make a pipe": lambda place: os.mkfifo(place / f"new{os.getpid()}"),
    "rename": lambda place: (place / "file").rename(place / "file"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_writes_work_only_below_what_is_named(verb: str, places: tuple[Path, Path]) -> None:
    inside, outside = places
    assert not refused(lambda: VERBS[verb](inside), inside)
    assert refused(lambda: VERBS[verb](outside), inside)


def test_reading_works_everywhere(places: tuple[Path, Path]) -> None:
    inside, outside = places
    assert not refused((outside / "file").read_bytes, inside)


def test_truncating_is_writing(places: tuple[Path, Path]) -> None:
    applies(ABI >= 3, "this Linux does not let Landlock refuse truncation")
    inside, outside = places
    assert not refused(lambda: os.truncate(inside / "file", 0), inside)
    assert refused(lambda: os.truncate(outside / "file", 0), inside)


def test_what_is_not_there_is_left_out(places: tuple[Path, Path]) -> None:
    inside, outside = places
    assert refused(lambda: VERBS["write"](outside), inside, inside / "no")


def test_no_process_outside_is_signalled(places: tuple[Path, Path]) -> None:
    applies(ABI >= 6, "this Linux does not let Landlock refuse signals")
    assert refused(lambda: os.kill(os.getppid(), signal.SIGCONT), *places)
    assert not refused(lambda: os.kill(os.getpid(), signal.SIGCONT), *places)


def test_no_abstract_socket_outside_is_reached(places: tuple[Path, Path]) -> None:
    applies(ABI >= 6, "this Linux does not let Landlock refuse abstract sockets")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("")
        server.listen(8)

        def connect() -> None:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(server.getsockname())

        assert refused(connect, *places)
