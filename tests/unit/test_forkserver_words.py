"""What the fork server believes of a template's or an init's words, which a preloaded module may have written."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from types import SimpleNamespace

import pytest

from kern_sandbox import CgroupUnavailable, HostError
from kern_sandbox._box.egress import egress_notes
from kern_sandbox._box.library import library_files
from kern_sandbox._box.plan import Plan
from kern_sandbox._forkserver import egress_main, wire
from kern_sandbox._forkserver.boxes import Box, too_late
from kern_sandbox._forkserver.nursery import Nursery
from kern_sandbox._forkserver.replies import evidence_of, notes_of, record_of
from kern_sandbox._forkserver.server import Server
from kern_sandbox._forkserver.stems import Source, Stem
from kern_sandbox._linux import fds
from kern_sandbox._linux.cgroup import Group
from support import PACKAGE, REPO, open_descriptors

HOLDER = f"""
import os, sys
sys.path.insert(0, {str(REPO / "src")!r})
from kern_sandbox._forkserver import workspaces
def die(*rest): os.kill(os.getpid(), 9)
workspaces.processes.write_text = die
workspaces._user_namespace((0, 0), 0)
"""


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        ({"status": 256, "cpu_ms": 5, "max_rss": 4096}, {"status": 256, "cpu_ms": 5, "max_rss": 4096}),
        ({"ready": "yes", "started": 1}, {"ready": True, "started": True}),
        ({"failed": "exec", "errno": 2}, {"failed": "exec", "errno": 2, "text": "", "path": None}),
        ({"status": "9", "cpu_ms": 1.5, "max_rss": -1, "errno": 1 << 40}, {}),
        ({"status": True, "text": 7, "path": ["/"]}, {}),
        ({"escape": "keyctl", "egress": {"rows": [[1]]}, "usage": {}}, {}),
    ],
)
def test_words_are_taken_in_their_types_and_those_of_others_are_dropped(said, believed) -> None:
    assert evidence_of(said) == believed


ROW = ["index.example", 443, "refused", "not listed", 1, 0, 0]


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        ({"rows": [ROW], "more": 2}, {"rows": [ROW], "more": 2}),
        ({"rows": [ROW[:6], [*ROW, 1], [1, *ROW[1:]], [*ROW[:2], "won", *ROW[3:]], "row", ROW]}, {"rows": [ROW]}),
        ({"rows": [[*ROW[:1], True, *ROW[2:]], [*ROW[:6], 1.5]]}, {}),
        ({"rows": "text", "more": "many"}, {}),
        ({"rows": [ROW] * 5000, "more": -1}, {"rows": [ROW] * 100}),
        ({}, {}),
    ],
)
def test_a_proxy_is_believed_in_the_form_of_a_record_only(said, believed) -> None:
    """It cannot make a call fail: what has another form is left out."""
    assert record_of(said) == {"rows": [], "more": 0, **believed}
    assert egress_notes({"egress": record_of(said)}) is not None


def test_words_and_notes_are_bounded() -> None:
    assert len(evidence_of({"text": "x" * 1_000_000})["text"]) < 100_000
    assert notes_of({"notes": ["kept", 7, *["x"] * 100]})[:1] == ["kept"]
    assert len(notes_of({"notes": ["x"] * 100})) < 100
    assert notes_of({"notes": "text"}) == notes_of({}) == []


def test_an_init_that_never_stops_talking_is_read_a_piece_at_a_time() -> None:
    ours, theirs = wire.pair()
    box = Box(1, "key", ours, Group(), 0.0, deque())
    theirs.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            wire.send(theirs, {"cpu_ms": sent})
            sent += 1
    assert box.read_report()
    assert box.evidence["cpu_ms"] == min(sent, 256) - 1
    theirs.close()
    while box.read_report():
        pass
    assert box.evidence["cpu_ms"] == sent - 1
    ours.close()


def new_box(report: socket.socket, group: Group | None = None) -> Box:
    return Box(1, "key", report, group or Group(), 0.0, deque())


@pytest.mark.parametrize("junk", [b"Jjunk", b"J[1]", b"X", b"M"])
def test_a_box_that_talked_nonsense_is_finished_like_any_other(junk) -> None:
    """Its end is also looked at where no handler of its own stands around it: at a deadline, or with its stem."""
    ours, theirs = wire.pair()
    box = new_box(ours)
    finished: list[Box] = []
    with ours:
        theirs.send(junk)
        theirs.close()
        Server._on_end(SimpleNamespace(_finish=finished.append), box)  # type: ignore[arg-type]  # all that it needs
    assert finished == [box]
    assert box.evidence["failed"] == "engine"


def test_a_box_sends_no_more_doors_than_any_has() -> None:
    ours, theirs = wire.pair()
    box = new_box(ours)
    before = open_descriptors()

    def open_doors() -> None:
        for _ in range(100):
            wire.send(theirs, {"doors": 60}, [theirs.fileno()] * 60)
            box.read_report()

    with ours, theirs:
        with pytest.raises(ValueError, match="doors"):
            open_doors()
        assert len(box.doors) < 1100
        box.close()
    assert not open_descriptors() - before


class Gone(Group):
    """A group that somebody has taken away."""

    def evidence(self):
        raise CgroupUnavailable("reading a box's cgroup counters")

    def kill(self):
        raise CgroupUnavailable("reading a box's cgroup counters")


def test_a_box_whose_cgroup_is_gone_ends_and_its_caller_is_told() -> None:
    ours, theirs = wire.pair()
    box = new_box(ours, Gone())
    sleeper = subprocess.Popen(["sleep", "1000"])
    with ours, theirs:
        box.pidfd = fds.open_pid(sleeper.pid)
        box.end("timeout")
        assert sleeper.wait(60) == -signal.SIGKILL
        told = box.verdict(named=True)
        box.close()
    assert told["failed"] == "engine"
    assert "counters" in told["text"]


def test_a_source_that_takes_no_more_requests_holds_nobody_up() -> None:
    """A module that hangs while it is preloaded, and more calls than its socket has room for."""
    ours, theirs = wire.pair()
    source = Source("key", Plan((), ()), ours)

    def ask() -> None:
        for number in range(100_000):
            source.ask({"box": number}, [])

    with ours, theirs, pytest.raises(HostError, match="were asked for"):
        ask()
    assert source.waiting == set(range(len(source.waiting)))


def test_a_request_that_could_not_be_made_is_not_waited_for() -> None:
    ours, theirs = wire.pair()
    theirs.close()
    with ours:
        source = Source("key", Plan((), ()), ours)
        with pytest.raises(BrokenPipeError):
            source.ask({"box": 1}, [])
    assert not source.waiting


def test_a_report_of_a_forbidden_call_that_somebody_else_takes_does_not_stop_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = wire.pair()
    box = Box(1, "key", ours, Group(), 0.0, deque())
    box.listener = ours.fileno()
    monkeypatch.setattr("kern_sandbox._forkserver.boxes.seccomp.receive", lambda fd: theirs.recv(1))
    before = signal.signal(signal.SIGALRM, too_late)
    try:
        with ours, theirs, pytest.raises(InterruptedError):
            box.read_listener()
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_template_cannot_pass_another_process_off_as_a_box() -> None:
    ours, theirs = wire.pair()
    with ours, theirs:
        for source, refused in ((Source("key", Plan((), ()), ours), True), (Stem("key", Plan((), ()), ours), False)):
            source.waiting.add(1)
            frame = wire.Frame({"box": 1}, [fds.open_pid(os.getpid())])
            box = new_box(theirs)
            nursery = SimpleNamespace(boxes={1: box}, hooks=SimpleNamespace(born=lambda box: None))
            with pytest.raises(ValueError, match="another process") if refused else contextlib.nullcontext():
                Nursery._on_born(nursery, source, frame)  # type: ignore[arg-type]  # all that it needs
            assert (box.pidfd is None) is refused
            for fd in (*frame.fds, *filter(None, [box.pidfd])):
                os.close(fd)


def test_only_the_first_process_of_a_namespace_below_is_taken_for_a_box() -> None:
    """The control, a box's own init, is every call that a template serves."""
    own = fds.open_pid(os.getpid())
    child = subprocess.Popen(["sleep", "60"])
    other = fds.open_pid(child.pid)
    reader, writer = os.pipe()
    try:
        assert not any(map(fds.heads_namespace_below, (own, other, reader)))
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert fds.heads_namespace_below(other), "nobody is left to be harmed by its name"
    finally:
        for fd in (own, other, reader, writer):
            os.close(fd)


def test_the_proxy_takes_only_listeners_for_doors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as plain:
        door = egress_main._listener(os.dup(server.fileno()))
        assert door is not None
        door.close()
        assert egress_main._listener(os.dup(plain.fileno())) is None
        reader, writer = os.pipe()
        assert egress_main._listener(reader) is None
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(reader)
        os.close(writer)


def test_a_process_that_holds_a_user_namespace_ends_with_the_fork_server() -> None:
    """Were it left, it would hold what the server had open, and the calls of a killed server would never end."""
    ran = subprocess.run([sys.executable, "-c", HOLDER], capture_output=True, timeout=60, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr


def test_what_templates_run_tells_no_path_of_the_host() -> None:
    """B89: the paths in bytecode are read by every box that is forked from a template."""
    named = [path for path, content in library_files().items() if str(PACKAGE).encode() in content]
    assert named == []
    assert any(b"/.box/lib/kern_sandbox" in content for content in library_files().values())


ENDS = """
from kern_sandbox._forkserver import egress_main, wire
from kern_sandbox._linux import processes
ours, theirs = wire.pair()
if {gone}:
    theirs.close()
{what}
"""


@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("processes.live(lambda: wire.send(ours, {'ready': True}))", 70),
        ("egress_main._answer(ours, {'told': 1})", 0),
    ],
)
def test_a_process_whose_fork_server_was_killed_has_no_last_words_of_its_own(what, status) -> None:
    """They would stand in the error that says how the fork server died, as if they were why."""
    code = ENDS.format(gone=True, what=what)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (status, "")


def test_a_process_that_fails_of_itself_says_why() -> None:
    code = ENDS.format(gone=False, what="processes.live(lambda: wire.send(ours, {'ready': {}[1]}))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 70
    assert "KeyError: 1" in done.stderr
