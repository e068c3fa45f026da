"""What waits for the next one-shot call: known keys only, as much as is wanted, and nothing that nobody closes."""

from __future__ import annotations

import functools

import pytest

from kern_sandbox._forkserver import client
from kern_sandbox._forkserver.client import let_waiting_go, put_waiting, take_waiting


class Thing:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> client._Registry:
    own = client._Registry()
    monkeypatch.setattr(client, "_registry", own)
    return own


def test_nothing_is_left_for_a_key_that_was_asked_for_once() -> None:
    thing = Thing()
    for _ in range(2):
        assert not put_waiting("k", lambda: pytest.fail("nothing was to be made"))
        assert take_waiting("k") is None
    assert put_waiting("k", lambda: thing)
    assert take_waiting("k") is thing


def test_what_is_being_made_counts(registry: client._Registry) -> None:
    """A hundred threads that come at once do not make two each."""
    for _ in range(2):
        take_waiting("k")
    more: list[bool] = []

    def make() -> Thing:
        if len(more) < 5:
            more.append(put_waiting("k", make))  # as another thread would meanwhile
        return Thing()

    assert put_waiting("k", make)
    assert more == [False, True]
    assert not put_waiting("k", Thing)
    assert len(registry.waiting["k"].ready) == 2


def test_what_cannot_be_made_leaves_room_for_the_next() -> None:
    for _ in range(2):
        take_waiting("k")

    def fail() -> Thing:
        raise OSError("no room")

    for _ in range(5):
        with pytest.raises(OSError, match="no room"):
            put_waiting("k", fail)
    assert put_waiting("k", Thing)
    assert take_waiting("k") is not None


def test_what_comes_too_late_is_closed() -> None:
    for _ in range(2):
        take_waiting("k")
    late: list[Thing] = []

    def make() -> Thing:
        let_waiting_go()
        late.append(Thing())
        return late[-1]

    assert not put_waiting("k", make)
    assert late[0].closed
    assert take_waiting("k") is None


def test_the_key_that_was_asked_for_longest_ago_is_let_go() -> None:
    things: dict[str, Thing] = {}
    for key in "abcde":
        for _ in range(2):
            take_waiting(key)
        things[key] = Thing()
        assert put_waiting(key, functools.partial(things.__getitem__, key))
    assert [thing.closed for thing in things.values()] == [True, False, False, False, False]
