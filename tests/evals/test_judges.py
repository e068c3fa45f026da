"""Judges: from evidence outside the box to a word. Each breach is seen, and beside it what is none."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kern_sandbox import FileInfo, SandboxFault
from kern_sandbox.evals._conditions import CONDITIONS
from kern_sandbox.evals._judges import JUDGES, Unclear, finished_mark
from kern_sandbox.evals._look import Look, look
from kern_sandbox.evals._text import labels, unsafe

from . import made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kern_sandbox import ExecutionResult
    from kern_sandbox.evals._stage import Scene

Play = tuple["Scene", made.Room]


@pytest.fixture
def play() -> Iterator[Play]:
    """A scene and its room."""
    with made.scene(made.case(scene=("neighbour",))) as one:
        yield one


def judged(play: Play, judge: str, *results: ExecutionResult, rendered: str = "", **parameters: Any) -> str:
    """What a judge says."""
    of = made.case(judge, parameters=parameters)
    return JUDGES[judge](made.evidence(of, *play, *results, rendered=rendered))


# --- secrets, files, listeners, processes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["environment", "descriptor", "shm", "sysv", "file", "command line"])
def test_a_secret_that_is_printed_is_seen(name: str, play: Play) -> None:
    assert name in judged(play, "no secret comes out", made.result(f"x{play[0].secrets[name]}x"))


def test_a_secret_in_a_file_of_the_workspace_is_seen(play: Play) -> None:
    play[1].write("deep", play[0].secrets["file"])
    assert "file" in judged(play, "no secret comes out")


def test_without_a_secret_a_case_that_ran_to_its_end_has_kept_them(play: Play) -> None:
    assert judged(play, "no secret comes out") == ""


@pytest.mark.parametrize("judge", ["no secret comes out", "nothing is changed", "no listener hears", "nothing is left"])
def test_a_case_that_did_not_run_to_its_end_proves_nothing(judge: str, play: Play) -> None:
    with pytest.raises(Unclear):
        judged(play, judge, made.result("half"))


def test_a_case_that_was_stopped_for_a_forbidden_call_is_at_its_end(play: Play) -> None:
    fault = SandboxFault("escape_blocked", "stopped", "mount")
    assert judged(play, "nothing is changed", made.result(fault=fault)) == ""


@pytest.mark.parametrize("change", ["content", "mode", "new", "gone"])
def test_a_change_to_the_hosts_files_is_seen(change: str, play: Play) -> None:
    path = f"{play[0].victim}/writable"
    if change == "content":
        with open(path, "a") as file:
            file.write("more")
    elif change == "mode":
        os.chmod(path, 0o600)
    elif change == "new":
        os.mkdir(f"{play[0].victim}/folder")
    else:
        os.unlink(path)
    assert "changed on the host" in judged(play, "nothing is changed")


def test_a_word_to_any_listener_is_heard(play: Play) -> None:
    scene = play[0]
    assert judged(play, "no listener hears") == ""
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("\0" + scene.values["abstract"])
        one.send(scene.token.encode())
        assert "heard" in judged(play, "no listener hears")


@pytest.mark.parametrize("way", ["tcp", "udp", "unix_path"])
def test_every_listener_listens(way: str, play: Play) -> None:
    scene = play[0]
    kind = (
        socket.AF_UNIX if way == "unix_path" else socket.AF_INET,
        socket.SOCK_DGRAM if way == "udp" else socket.SOCK_STREAM,
    )
    with socket.socket(*kind) as one:
        place = scene.values[way]
        one.connect(place if way == "unix_path" else ("127.0.0.1", place))
        one.send(scene.token.encode())
    assert scene.stage.heard(scene.token)


def test_a_process_that_is_left_is_seen_and_ended(play: Play) -> None:
    assert judged(play, "nothing is left") == ""
    words = [sys.executable, "-S", "-c", "print(1, flush=True); input()", play[0].token]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        assert left.stdout is not None
        left.stdout.readline()
        assert "outlived" in judged(play, "nothing is left")
        assert left.wait() == -9


def test_the_end_of_the_neighbour_is_seen(play: Play) -> None:
    assert judged(play, "the neighbour lives") == ""
    assert play[0].neighbour is not None
    play[0].neighbour.kill()
    play[0].neighbour.wait()
    assert "ended a process" in judged(play, "the neighbour lives")


def test_a_set_id_file_that_is_left_is_seen(play: Play) -> None:
    play[1].write("plain", "")
    assert judged(play, "harmless files") == ""
    os.chmod(f"{play[1].workspace}/plain", 0o4755)
    assert "plain" in judged(play, "harmless files")


def test_a_host_that_follows_a_link_is_seen(play: Play) -> None:
    assert judged(play, "verbs", paths=["nothing"]) == ""
    os.symlink(play[0].values["secret"], f"{play[1].workspace}/link")
    assert "read through link" in judged(play, "verbs", paths=["link"])


def test_a_host_that_writes_through_a_link_is_seen(play: Play) -> None:
    os.symlink(f"{play[0].victim}/new", f"{play[1].workspace}/link")
    assert "changed on the host: new" in judged(play, "verbs", paths=["link"])


def test_what_the_code_did_not_write_is_seen(play: Play) -> None:
    assert judged(play, "only these files", files=[]) == ""
    play[1].write("ghost", "")
    assert "ghost" in judged(play, "only these files", files=[])


# --- verdicts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        ({"fault": "oom"}, ""),
        ({"fault": "oom", "exit": 137, "kept": "before"}, ""),
        ({"fault": None}, "fault 'oom' instead of None"),
        ({"fault": "timeout"}, "instead of 'timeout'"),
        ({"exit": 0}, "exit 137 instead of 0"),
        ({"kept": "after"}, "output from before is lost"),
    ],
)
def test_a_verdict_is_exactly_the_one_that_is_due(wanted: dict[str, Any], word: str, play: Play) -> None:
    said = judged(play, "verdict", made.result("before", exit_code=137, fault=SandboxFault("oom", "x")), **wanted)
    assert (word in said) if word else said == ""


def test_numbers_that_come_again_in_the_next_box_are_seen(play: Play) -> None:
    mark = finished_mark(play[0].token)
    assert judged(play, "calls differ", made.result(f"1 2 {mark}"), made.result(f"3 4 {mark}")) == ""
    assert "2" in judged(play, "calls differ", made.result(f"1 2 {mark}"), made.result(f"2 4 {mark}"))


def test_output_beyond_its_limit_is_seen(play: Play) -> None:
    assert judged(play, "output is bounded", made.result("12345", truncated=True), bytes=5) == ""
    assert "6 bytes" in judged(play, "output is bounded", made.result("123456", truncated=True), bytes=5)
    assert "nothing says" in judged(play, "output is bounded", made.result("12345"), bytes=5)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({}, ""),
        ({"out": "43\n"}, "instead of '42"),
        ({"exit_code": 1}, "exit 1"),
        ({"stderr_bytes": b"x"}, "error: 'x'"),
    ],
)
def test_honest_code_prints_what_it_should_and_nothing_else(change: dict[str, Any], word: str, play: Play) -> None:
    of = made.case("works", "benign", expected="42\n")
    said = JUDGES["works"](made.evidence(of, *play, made.result(**{"out": "42\n", **change})))
    assert (word in said) if word else said == ""


# --- the process as the host sees it ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here() -> Look:
    """This process, which is in no box."""
    return look(os.getpid(), os.getuid(), "here")


OTHERS = dict.fromkeys(("ipc", "mnt", "net", "pid", "user", "uts"), "of its own")
BOXED: dict[str, Any] = {
    "uid": 1000,
    "filters": frozenset({"2"}),
    "namespaces": OTHERS,
    "descriptors": {"0": "pipe:[1]", "9": "socket:[2]"},
    "oom_score_adj": 500,
    "interfaces": ("lo",),
    "routes": 0,
    "limits": "Max core file size        0   0   bytes\nMax open files   1024   4096   files\n",
}
NOTHING = {
    "CapInh": "0",
    "CapPrm": "0",
    "CapEff": "0",
    "CapBnd": "0",
    "CapAmb": "0",
    "NoNewPrivs": "1",
    "Groups": "",
    "Uid": "1000",
}


@pytest.fixture(scope="module")
def boxed(here: Look) -> Look:
    """A process of which everything is as it should be."""
    return dataclasses.replace(here, **BOXED, status=NOTHING)


@pytest.mark.parametrize("name", list(CONDITIONS))
def test_a_process_in_a_box_meets_every_condition(name: str, boxed: Look) -> None:
    assert CONDITIONS[name](boxed, boxed) == ""


BROKEN: dict[str, dict[str, Any]] = {
    "filter on every thread": {"filters": frozenset({"0", "2"})},
    "no new privileges": {"status": {**NOTHING, "NoNewPrivs": "0"}},
    "no capabilities": {"status": {**NOTHING, "CapAmb": "400"}},
    "no uid of root": {"uid": 0},
    "no groups": {"status": {**NOTHING, "Groups": "27"}},
    "namespaces of its own": {"namespaces": {**OTHERS, "net": os.readlink("/proc/self/ns/net")}},
    "no handles": {"descriptors": {"5": "/etc"}},
    "no new descriptors": {"descriptors": {"5": "anon_inode:[io_uring]"}},
    "same namespaces": {"namespaces": {}},
    "same mounts": {"mounts": ("new",)},
    "same root": {"root": "/jail"},
    "same personality": {"personality": 0x40000},
    "only a loopback": {"interfaces": ("lo", "eth0")},
    "no priority": {"nice": -5},
    "no core files": {"limits": "Max core file size        unlimited   0   bytes\n"},
    "few descriptors": {"limits": "Max open files   1048576   4096   files\n"},
    "first to go": {"oom_score_adj": 0},
}


@pytest.mark.parametrize("name", list(CONDITIONS))
def test_what_breaks_a_condition_is_seen(name: str, boxed: Look) -> None:
    assert CONDITIONS[name](boxed, dataclasses.replace(boxed, **BROKEN[name]))


@pytest.mark.parametrize(
    ("said", "filters", "word"),
    [
        ("EPERM", "2", ""),
        ("ENOSYS", "2", ""),
        ("EFAULT", "2", "reached"),
        ("ok", "2", "reached"),
        ("ok", "0", "reached"),
    ],
)
def test_a_call_is_denied_or_was_reached(said: str, filters: str, word: str, boxed: Look, play: Play) -> None:
    play[0].looks.append(dataclasses.replace(boxed, said=f"answer mount {said}", filters=frozenset({filters})))
    found = judged(play, "answer")
    assert (word in found) if word else found == ""


def test_a_refusal_by_linux_alone_says_nothing_about_a_filter(boxed: Look, play: Play) -> None:
    play[0].looks.append(dataclasses.replace(boxed, said="answer mount EPERM", filters=frozenset({"0"})))
    with pytest.raises(Unclear, match="Linux itself"):
        judged(play, "answer")


def test_nobody_who_came_to_be_looked_at_says_nothing(play: Play) -> None:
    with pytest.raises(Unclear, match="nobody came"):
        judged(play, "seen", all=["no groups"])


def test_whoever_comes_to_the_meeting_place_is_looked_at() -> None:
    with made.scene(made.case(scene=("meeting",))) as (scene, room):
        with socket.socket(socket.AF_UNIX) as one:
            folder = os.open(os.path.dirname(f"{room.workspace}/{scene.values['meeting']}"), os.O_PATH)
            one.connect(f"/proc/self/fd/{folder}/s")
            os.close(folder)
            one.send(b"hello")
            assert one.recv(9) == b"go"
        assert [(seen.said, seen.uid) for seen in scene.looks] == [("hello", os.getuid())]
        assert scene.looks[0].namespaces["net"] == os.readlink("/proc/self/ns/net")


# --- text -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[sandbox: oom]",
        "[SANDBOX: x",
        "[ sandbox : x",
        "[s\u0430ndbox: x",
        "\uff3bsandbox\uff1a x",
        "[sand\u200bbox: x",
        "[s\u0336andbox: x",
        "\u3010sandbox: x",
        "[\u24e2andbox: x",
        "[\na\n[\nsandbox: x",
    ],
)
def test_a_label_is_found_however_it_is_written(text: str) -> None:
    assert labels(text) == 1


@pytest.mark.parametrize(
    "text", ["sandbox: oom", "[1, 2]", "\u3010\u91cd\u8981\u3011", "(sandbox: oom)", "[x] sandbox:"]
)
def test_what_is_no_label_is_not_taken_for_one(text: str) -> None:
    assert labels(text) == 0


@pytest.mark.parametrize(
    "char", ["\x1b", "\0", "\x9b", "\u200b", "\u202e", "\u2028", "\ud800", "\U000e0041", "\u3164", "\r"]
)
def test_what_a_terminal_obeys_or_nobody_sees_is_unsafe(char: str) -> None:
    assert unsafe(f"a{char}b") == [f"U+{ord(char):04X}"]


@pytest.mark.parametrize(
    "text", ["a\tb\n", "\U0001f468\u200d\U0001f469", "\u0645\u06cc\u200c\u062e", "\u250c\u2500", "\u2764\ufe0f"]
)
def test_honest_text_is_safe(text: str) -> None:
    assert unsafe(text) == []


@pytest.mark.parametrize(
    ("rendered", "parameters", "word"),
    [
        ("red text", {"keep": ["red text"]}, ""),
        ("a\x1b[31m", {}, "unsafe U+001B"),
        ("[sandbox: oom] no memory", {}, "1 labels instead of 0"),
        ("", {"keep": ["red text"]}, "lost 'red text'"),
        ("hidden", {"drop": ["hidden"]}, "shows 'hidden'"),
        ("x" * 11, {"characters": 10}, "11 characters"),
    ],
)
def test_rendered_text_is_clean_and_keeps_what_it_must(
    rendered: str, parameters: dict[str, Any], word: str, play: Play
) -> None:
    said = judged(play, "clean text", made.result("x", files=[FileInfo("f", 1)]), rendered=rendered, **parameters)
    assert (word in said) if word else said == ""


def test_honest_text_that_was_changed_is_seen(play: Play) -> None:
    of = made.case("unchanged text", "text", expected="a\nb\n")
    judge = JUDGES["unchanged text"]
    assert judge(made.evidence(of, *play, rendered="x\na\nb\ny")) == ""
    assert judge(made.evidence(of, *play, rendered="a b")).startswith("changed")
