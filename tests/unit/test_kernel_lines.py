"""What the code in a kernel's box may say or write, without end or without sense, and what the host makes of it."""

from __future__ import annotations

import json
import os
import socket
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable

import pytest

from kern_sandbox import HostError, SessionClosed, StartError
from kern_sandbox._forkserver import branch as branches
from kern_sandbox._forkserver import wire
from kern_sandbox._forkserver.branch import Branch, Sinks
from kern_sandbox._forkserver.lines import Word
from kern_sandbox._forkserver.pump import Collector
from support import open_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator


class EndedBox:
    """A box that has ended, as far as anybody asks."""

    def __init__(self) -> None:
        self.call, self.server = wire.pair()
        self.line, self.keeper = wire.pair()
        self.evidence: dict[str, Any] | None = None

    def attend(self) -> None:
        self.evidence = {}

    def wait_for_end(self, patience_s: float) -> bool:
        return True

    def is_ending(self, patience_s: float) -> bool:
        return True


class Ends:
    """A session, and what its process and its keeper hold of it."""

    def __init__(self) -> None:
        self.box = EndedBox()
        self.branch = Branch(self.box)  # type: ignore[arg-type]  # as much of a box as is needed
        control, self.out, self.err, self.values, leash = self.branch.gifts
        self.branch.gifts = []
        self.control, self.leash = socket.socket(fileno=control), socket.socket(fileno=leash)

    def close(self) -> None:
        self.branch.close()
        for each in (self.control, self.leash, self.box.call, self.box.server, self.box.line, self.box.keeper):
            each.close()
        for fd in (self.out, self.err, self.values):
            os.close(fd)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setattr(branches, "_PATIENCE_S", (0.01, 0.01))
    monkeypatch.setattr(branches, "_MUTE_S", 0.01)
    monkeypatch.setattr(branches, "_END_S", 0.05)
    monkeypatch.setattr(branches, "_START_S", 0.05)
    made = Ends()
    yield made
    made.close()


def sinks() -> Sinks:
    return Sinks(*(Collector(1000) for _ in range(3)))


def in_time(verb: Callable[[], Any]) -> Any:
    """What ``verb`` gives, on a thread that does not keep the tests from ending."""
    found: Future[Any] = Future()

    def work() -> None:
        try:
            found.set_result(verb())
        except BaseException as error:  # the test's own
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found.result(60)


def said(body: Any) -> bytes:
    return b"J" + json.dumps(body).encode()


def test_a_cell_ends_with_the_word_for_it(ends: Ends) -> None:
    ends.control.send(said({"x": 1}))
    ends.control.send(said({"done": 1, "code": 3}))
    assert in_time(lambda: ends.branch.run(1, "", sinks(), 60)).code == 3


@pytest.mark.parametrize("flood", ["words", "output"])
def test_a_deadline_holds_whatever_the_code_says_or_writes_without_end(
    flood: str, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn(_: Sinks, __: float) -> bool:
        if flood == "words":
            ends.branch.words.append(Word("branch", {"x": 1}))
        return True

    monkeypatch.setattr(ends.branch, "turn", turn)
    end = in_time(lambda: ends.branch.run(1, "", sinks(), 0.01))
    assert (end.code, end.status, end.late) == (None, None, True)


@pytest.mark.parametrize("verb", ["copy", "start"])
def test_a_request_has_an_end_whatever_the_code_says_meanwhile(
    verb: str, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends.branch, "turn", lambda *_: ends.branch.words.extend([Word("branch", {"x": 1})]))
    with pytest.raises(StartError, match="in time"):
        in_time(getattr(ends.branch, verb))


def fill(sock: socket.socket) -> None:
    """Send until nothing more goes in: whoever is at the other end does not read."""
    while True:
        try:
            wire.send(sock, {"x": "x" * 1000}, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return


def test_a_session_that_reads_nothing_holds_nobody_up(ends: Ends) -> None:
    """Its code can say that a cell is done without having taken it in, again and again."""
    fill(ends.branch.control)
    fill(ends.branch.leash)
    end = in_time(lambda: ends.branch.run(1, "", sinks(), 60))
    assert (end.code, end.status, end.ran) == (None, None, False)
    with pytest.raises(SessionClosed, match="does not listen"):
        in_time(ends.branch.copy)


def test_words_that_nobody_has_asked_for_do_not_pile_up(ends: Ends) -> None:
    for _ in range(3000):
        ends.control.send(said({"done": 7}))
        ends.branch.turn(sinks(), 1)
    assert len(ends.branch.words) <= 1000


def test_the_end_of_a_box_is_told_once(ends: Ends) -> None:
    ends.box.server.close()
    for _ in range(5):
        ends.branch.turn(sinks(), 1)
    assert list(ends.branch.words) == [Word("box", None)]


@pytest.mark.parametrize("status", ["9", -1, 1 << 70, True, None])
def test_a_keepers_word_that_is_no_wait_status_is_not_taken_for_one(status: object, ends: Ends) -> None:
    ends.leash.send(said({"ended": status, "clean": True}))
    end = in_time(lambda: ends.branch.run(1, "", sinks(), 60))
    assert (end.code, end.status) == (None, None)


def test_a_wait_status_is_taken(ends: Ends) -> None:
    ends.leash.send(said({"ended": 0x0300, "clean": True}))
    assert in_time(lambda: ends.branch.run(1, "", sinks(), 60)).status == 0x0300


def test_a_copy_is_known_by_its_number_and_other_words_of_it_are_passed_over(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches, "_START_S", 60.0)
    ends.control.send(said({"failed": 0}))
    copying: Future[Any] = Future()
    threading.Thread(target=lambda: copying.set_result(ends.branch.copy()), daemon=True).start()
    _, (line, *_), *_ = socket.recv_fds(ends.control, 100, 1)
    with socket.socket(fileno=line) as copy:
        for body in ({"x": 1}, [7], {"pid": 5}):
            copy.send(said(body))
        copying.result(60).close()
    frame = wire.receive(ends.box.keeper)
    assert frame is not None
    assert frame.body == {"copy": 5}


def test_a_session_that_has_no_room_for_its_pipes_leaves_none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pipe2
    made: list[tuple[int, int]] = []

    def pipe2(flags: int) -> tuple[int, int]:
        if len(made) == 2:
            raise OSError(24, "Too many open files")
        made.append(real(flags))
        return made[-1]

    box = EndedBox()
    before = open_descriptors()
    monkeypatch.setattr(os, "pipe2", pipe2)
    with pytest.raises(HostError, match="ulimit -n"):
        Branch(box)  # type: ignore[arg-type]  # as much of a box as is needed
    assert not open_descriptors() - before
    for each in (box.call, box.server, box.line, box.keeper):
        each.close()
