"""Directories that are made once, shared, and collected."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from kern_sandbox import HostError
from kern_sandbox._shelf import Held, Shelf
from support import applies

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """An empty one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Shelf("things")


def fill(path: str) -> None:
    """A build that leaves a file."""
    with open(f"{path}/made", "w") as file:
        file.write("x" * 5000)


def never(*_: object) -> None:
    """Fails the test when it is called."""
    pytest.fail("it was not to be called")


def content(held: Held) -> list[str]:
    """What lies in it; it is let go of."""
    held.release()
    return os.listdir(held.path)


def test_nothing_gets_its_name_before_it_is_on_the_disk(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        assert os.listdir(path) == ["made"]
        raise OSError(5, "a broken disk", path)

    with monkeypatch.context() as patch:
        patch.setattr("kern_sandbox._shelf.sync_file_system", fail)
        with pytest.raises(HostError, match="writing the cache: Input/output error"):
            shelf.make("a", fill, never)
    assert shelf.take("a") is None
    assert content(shelf.make("a", fill, never)) == ["made"]


def test_an_entry_is_made_once_and_only_its_owner_may_look(shelf: Shelf) -> None:
    assert shelf.take("a") is None
    assert content(shelf.make("a", fill, never)) == ["made"]
    assert content(shelf.make("a", never, never)) == ["made"]
    assert os.stat(os.path.dirname(shelf.path)).st_mode & 0o777 == 0o700
    assert sorted(os.listdir(shelf.path)) == ["a", "a.lock"]


def test_a_build_that_fails_leaves_nothing_and_may_be_tried_again(shelf: Shelf) -> None:
    def fails(path: str) -> None:
        fill(path)
        raise KeyError(path)

    with pytest.raises(KeyError):
        shelf.make("a", fails, never)
    assert os.listdir(shelf.path) == []
    assert content(shelf.make("a", fill, never)) == ["made"]


def test_what_a_killed_build_left_is_no_entry_and_goes_before_the_next_one(shelf: Shelf) -> None:
    os.makedirs(f"{shelf.path}/a.making/locked/deep")
    os.chmod(f"{shelf.path}/a.making/locked", 0)
    assert shelf.take("a") is None
    assert content(shelf.make("a", fill, never)) == ["made"]


def test_who_comes_second_waits_and_takes_what_the_first_one_made(shelf: Shelf) -> None:
    building, waited = threading.Event(), threading.Event()

    def slow(path: str) -> None:
        building.set()
        assert waited.wait(30)
        fill(path)

    first = threading.Thread(target=lambda: shelf.make("a", slow, never).release())
    first.start()
    assert building.wait(30)
    assert content(shelf.make("a", never, waited.set)) == ["made"]
    first.join()


def test_who_waits_may_give_up(shelf: Shelf) -> None:
    def build(path: str) -> None:
        def give_up() -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError):
            Shelf("things").make("a", never, give_up)
        fill(path)

    assert content(shelf.make("a", build, never)) == ["made"]


def test_a_collector_takes_what_nobody_holds_and_nobody_used_for_so_long(shelf: Shelf) -> None:
    shelf.make("old", fill, never).release()
    shelf.make("new", fill, never).release()
    held = shelf.make("held", fill, never)
    for key in ("old", "held"):
        os.utime(f"{shelf.path}/{key}", (1, 1))
    gone = shelf.collect(3600)
    assert gone.entries == 1
    assert gone.size >= 4096
    assert sorted(os.listdir(shelf.path)) == ["held", "held.lock", "new", "new.lock"]
    held.release()
    assert shelf.collect(0).entries == 2
    assert os.listdir(shelf.path) == []


def test_taking_an_entry_makes_it_young_again(shelf: Shelf) -> None:
    shelf.make("a", fill, never).release()
    os.utime(f"{shelf.path}/a", (1, 1))
    assert content(shelf.make("a", never, never)) == ["made"]
    assert shelf.collect(3600).entries == 0


def test_a_collector_removes_leftovers_but_not_what_is_being_made(shelf: Shelf) -> None:
    os.makedirs(f"{shelf.path}/dead.making/x")
    os.makedirs(f"{shelf.path}/half.gone/x")

    def build(path: str) -> None:
        assert shelf.collect(0).entries == 0
        assert sorted(os.listdir(shelf.path)) == ["a.lock", "a.making"]
        fill(path)

    assert content(shelf.make("a", build, never)) == ["made"]


def test_a_shelf_that_was_never_used_is_empty(shelf: Shelf) -> None:
    assert shelf.collect(0) == (0, 0)
    assert not os.path.exists(shelf.path)


def test_a_cache_that_cannot_be_written_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    applies(os.geteuid() != 0, "root may write everywhere")
    (tmp_path / "locked").mkdir(mode=0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "locked"))
    with pytest.raises(HostError, match="XDG_CACHE_HOME"):
        Shelf("things").make("a", fill, never)
