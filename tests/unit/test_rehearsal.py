"""What a waiting box does ahead leaves nothing behind, and gives way to an order."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kern_sandbox._forkserver import rehearsal, wire
from kern_sandbox._forkserver.rehearsal import nobody_calls, rehearse_order, rehearse_report
from support import open_descriptors


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = wire.pair()
    with ours, theirs:
        yield ours, theirs


def test_an_order_that_is_there_is_not_kept_waiting(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    assert nobody_calls(theirs)
    wire.send(ours, {})
    assert not nobody_calls(theirs)


def test_a_fork_server_that_is_gone_is_noticed_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.close()
    assert not nobody_calls(theirs)


def test_a_rehearsed_order_is_whole_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "CELL", str(tmp_path))
    seen = []

    def take(source: socket.socket) -> list[int]:
        frame = wire.receive(source)
        assert frame is not None
        seen.append(frame.body)
        given, file = frame.fds
        assert os.fstat(file).st_size == 0
        os.close(file)
        (tmp_path / frame.body["cell"][0]).write_bytes(b"")
        return [given]

    before = open_descriptors()
    rehearse_order({"HOME": "/"}, take)
    assert not open_descriptors() - before
    assert list(tmp_path.iterdir()) == []
    assert sorted(seen[0]) == ["argv", "cell", "cwd", "env", "roles"]
    assert (seen[0]["env"], seen[0]["cwd"]) == ({"HOME": "/"}, os.getcwd())


def test_a_rehearsal_that_fails_is_not_kept_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "CELL", str(tmp_path))

    def take(source: socket.socket) -> list[int]:
        source.close()
        raise OSError(116, "stale")

    before = open_descriptors()
    with pytest.raises(OSError, match="stale"):
        rehearse_order({}, take)
    assert not open_descriptors() - before


def test_a_rehearsed_report_leaves_nothing() -> None:
    before = open_descriptors()
    rehearse_report({"status": 0})
    assert not open_descriptors() - before
