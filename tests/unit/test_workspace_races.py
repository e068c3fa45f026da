"""A box that swaps, moves and makes things while the host walks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kern_sandbox.errors import WorkspaceError
from kern_sandbox.workspace import Workspace, _walk
from unit.workspace_help import KERNELS, guarded, quick_directory, workspace_on

if TYPE_CHECKING:
    from collections.abc import Iterator


TRIES = 20_000


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for directory in quick_directory():
        monkeypatch.setattr(tempfile, "tempdir", str(directory))
        yield directory


@pytest.fixture(params=KERNELS)
def space(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, quick: Path) -> Iterator[Workspace]:
    yield from workspace_on(request.param, monkeypatch, quick)


@pytest.fixture
def outside(quick: Path) -> Iterator[Path]:
    yield from guarded(quick)


# --- races ------------------------------------------------------------------------------------------------------

ATTACK = """
import ctypes, os, sys
os.chdir(sys.argv[1])
swap = ctypes.CDLL(None).renameat2
print("ready", flush=True)
while True:
    swap(-100, b"d", -100, b"d-link", 2)
    swap(-100, b"real/f", -100, b"real/f-link", 2)
    try:
        os.rename("e", "e-away"); os.symlink(sys.argv[2], "e"); os.unlink("e"); os.rename("e-away", "e")
    except OSError:
        pass
"""


@contextmanager
def attacked(space: Workspace, outside: Path) -> Iterator[None]:
    """Another process exchanges directories and files of the workspace with links to the outside, all the time."""
    root = Path(space.path)
    for name in ("d", "e", "real"):
        (root / name).mkdir()
        (root / name / "f").write_text("inside")
    (root / "d-link").symlink_to(outside / "sub")
    (root / "real/f-link").symlink_to(outside / "secret")
    command = [sys.executable, "-c", ATTACK, space.path, str(outside / "sub")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdout
        assert attacker.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            attacker.kill()


TARGETS = ("d/f", "real/f", "e/f")


def test_a_reader_that_checks_first_loses_the_race(space: Workspace, outside: Path) -> None:
    """The control of the two tests below: the swaps are quick enough to beat a check by path."""
    seen = set()
    with attacked(space, outside):
        for turn in range(TRIES * 20):
            path = Path(space.path, TARGETS[turn % 2])
            try:
                if path.resolve().is_relative_to(space.path) and path.is_file():
                    seen.add(path.read_text())
            except OSError:
                continue
            if "SECRET" in seen:
                break
    assert "SECRET" in seen


def test_a_swapped_directory_or_file_never_makes_a_read_see_the_outside(space: Workspace, outside: Path) -> None:
    seen, refused = set(), 0
    with attacked(space, outside):
        for turn in range(TRIES):
            try:
                seen.add(space.read_file(TARGETS[turn % 3]))
            except WorkspaceError:
                refused += 1
    assert seen == {b"inside"}
    assert refused


def test_a_swapped_directory_or_file_never_makes_a_write_reach_the_outside(space: Workspace, outside: Path) -> None:
    written = refused = 0
    with attacked(space, outside):
        for turn in range(TRIES):
            try:
                space.write_file(TARGETS[turn % 3], b"inside")
                written += 1
            except WorkspaceError:
                refused += 1
    assert written
    assert refused
    assert sorted(os.listdir(outside)) == ["secret", "sub"]
    assert (outside / "secret").read_text() == "SECRET"


def test_a_swapped_directory_never_makes_a_listing_show_the_outside(space: Workspace, outside: Path) -> None:
    seen = set()
    with attacked(space, outside):
        for _ in range(TRIES // 10):
            before = space.scan()
            seen.update(space.list_files())
            space.changes(before, space.scan())
    assert {path.rpartition("/")[2] for path in seen} <= {"f", "f-link"}
    assert any(path.endswith("/f") for path in seen)


def test_a_swapped_directory_never_makes_the_removal_reach_the_outside(outside: Path) -> None:
    for _ in range(30):
        space = Workspace(None)
        with attacked_once(space, outside):
            _walk.empty_directory(space.fd)
        space.close()
        assert not os.path.exists(space.path)


@contextmanager
def attacked_once(space: Workspace, outside: Path) -> Iterator[None]:
    """A thread makes and swaps directories and links for as long as the removal leaves it something."""
    finished = threading.Event()

    def attack() -> None:
        turn = 0
        while not finished.is_set():
            turn += 1
            try:
                os.makedirs(f"{space.path}/t{turn % 20}/sub")
                os.rename(f"{space.path}/t{turn % 20}", f"{space.path}/x")
                os.symlink(outside, f"{space.path}/t{turn % 20}")
                os.rename(f"{space.path}/x", f"{space.path}/y{turn % 20}")
            except OSError:
                continue

    thread = threading.Thread(target=attack)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join(60)
    assert not thread.is_alive()


def test_a_directory_moved_away_during_a_walk_does_not_lead_the_walk_elsewhere(tmp_path: Path) -> None:
    """The way back up is not ``..`` of wherever the directory is now."""
    top, elsewhere = tmp_path / "ws" / "d", tmp_path / "elsewhere"
    deep = top.joinpath(*"d" * _walk.OPEN_LEVELS * 2)
    deep.mkdir(parents=True)
    (deep / "leaf").touch()
    (tmp_path / "ws" / "side").mkdir()
    (tmp_path / "ws" / "side" / "near").touch()
    for number in range(20):
        (top / f"x{number}").mkdir()
        (elsewhere / f"x{number}").mkdir(parents=True)
        (elsewhere / f"x{number}" / "outside").touch()

    def names(move: bool) -> tuple[set[str], bool]:
        walk = _walk.Walk(os.open(tmp_path / "ws", os.O_RDONLY), lambda _: False, 1000)
        found: set[str] = set()
        for place in walk:
            found.update(entry.name for entry in place.files)
            if move and "leaf" in found and (top / "d").exists():
                os.rename(top / "d", elsewhere / "d")
        return found, walk.complete

    assert names(move=False) == ({"leaf", "near"}, True)
    assert names(move=True) == ({"leaf", "near"}, False)
