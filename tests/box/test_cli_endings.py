"""The command ``kern-sandbox`` when its reader, its user or its terminal has something to say about its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from command import COMMAND, environment, pipe_of, started, terminal
from support import need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOREVER = "while True: print('more', flush=True)"
READY_THEN_WAIT = "import os, threading; os.write(1, b'ready\\n'); threading.Event().wait()"
SILENT_END = "print('before', end='', flush=True); import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture(autouse=True)
def _boxes() -> None:
    need_boxes()


# --- readers that go away ---------------------------------------------------------------------------------------


def test_when_nobody_reads_any_more_the_box_ends_quietly() -> None:
    with started("run", "-c", FOREVER, "--timeout-s", "90") as process:
        assert pipe_of(process.stdout).readline() == b"more\n"
        pipe_of(process.stdout).close()
        assert process.wait(60) == 141
        assert b"error" not in pipe_of(process.stderr).read()


@pytest.mark.parametrize("words", [["--help"], ["doctor"], ["exec", "--plan"], ["exec", "--json", "--", "true"]])
def test_every_command_is_quiet_when_nobody_reads(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, env=environment(),
        check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "words", [["--version"], ["exec", "--plan"], ["exec", "--json", "--stdin", os.devnull, "--", "true"]]
)
def test_every_command_says_that_the_disk_is_full(words: list[str]) -> None:
    with open("/dev/full", "wb") as full, started(*words, stdout=full) as process:
        assert process.wait(60) == 125
        said = pipe_of(process.stderr).read()
    assert b"kern-sandbox: error: writing to standard output: No space left on device" in said
    assert said.count(b"\n") == 1


def test_a_full_disk_is_said_and_ends_the_box() -> None:
    with open("/dev/full", "wb") as full, started("run", "-c", FOREVER, "--timeout-s", "90", stdout=full) as process:
        assert process.wait(60) == 125
        assert b"No space left on device" in pipe_of(process.stderr).read()


GIVE_AWAY = """
import os, socket
with socket.socket(socket.AF_UNIX) as there:
    there.connect("ear")
    socket.send_fds(there, [b"x"], [1])
    there.recv(1)
os.write(1, b"last words")
"""


def test_an_output_that_the_code_gave_away_does_not_hold_the_command(tmp_path: Path) -> None:
    """A process outside of the box has the pipe open for ever: the end of the code is the end."""
    tmp_path.chmod(0o777)
    ear = socket.socket(socket.AF_UNIX)
    ear.bind(str(tmp_path / "ear"))
    ear.listen()
    (tmp_path / "ear").chmod(0o777)
    with ear, started("run", "--workspace", str(tmp_path), "-c", GIVE_AWAY) as process:
        there, _ = ear.accept()
        _, (held,), _, _ = socket.recv_fds(there, 1, 1)
        there.close()
        assert process.wait(60) == 0
        assert pipe_of(process.stdout).read() == b"last words"
        os.close(held)


# --- Ctrl-C and terminals ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def lifeline(workspace: Path) -> Iterator[int]:
    """A descriptor that hangs up once nobody holds the FIFO ``alive`` open for writing any more."""
    workspace.chmod(0o777)
    os.mkfifo(workspace / "alive")
    reader = os.open(workspace / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield reader
    finally:
        os.close(reader)


def hung_up(reader: int) -> bool:
    poller = select.poll()
    poller.register(reader, 0)
    return bool(poller.poll(60_000))


HELD = "held = open('alive', 'wb', buffering=0); "
STUBBORN = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "


@pytest.mark.parametrize("mode", [[], ["--json"]], ids=["live", "json"])
def test_ctrl_c_on_a_terminal_ends_the_box_and_says_so(tmp_path: Path, mode: list[str]) -> None:
    with lifeline(tmp_path) as reader:
        code = STUBBORN + HELD + "held.write(b'x'); " + READY_THEN_WAIT
        with terminal("run", *mode, "--workspace", str(tmp_path), "--timeout-s", "90", "-c", code) as seen:
            assert select.select([reader], [], [], 60)[0]
            os.write(seen.master, b"\x03" * 5)
            status = seen.end()
        assert status == 130
        assert b"kern-sandbox: interrupted: " in seen.shown
        assert b"Traceback" not in seen.shown
        os.read(reader, 1)
        assert hung_up(reader), "the box outlived its command"


def test_an_interrupt_keeps_what_was_already_printed() -> None:
    with started("run", "--timeout-s", "90", "-c", READY_THEN_WAIT, start_new_session=True) as process:
        assert pipe_of(process.stdout).read(3) == b"rea"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"dy\n")
    assert b"interrupted" in err
    assert b"Traceback" not in err


def test_a_kill_of_the_command_ends_the_box(tmp_path: Path) -> None:
    with lifeline(tmp_path) as reader:
        code = HELD + READY_THEN_WAIT
        with started("run", "--workspace", str(tmp_path), "--timeout-s", "90", "-c", code) as process:
            assert pipe_of(process.stdout).readline() == b"ready\n"
            process.kill()
        assert hung_up(reader), "the box outlived its command"


ESCAPES = r"print('\x1b[2J\x1b]0;title\x07 \x9b1m \r\n end')"


def test_a_terminal_gets_no_control_character_of_a_box() -> None:
    with terminal("run", "-c", ESCAPES) as seen:
        assert seen.end() == 0
    assert b"\x1b" not in seen.shown
    assert b"\x07" not in seen.shown
    assert "␛[2J␛]0;title␇ \ufffd1m \r\n end" in seen.shown.decode()


def test_raw_lets_them_through() -> None:
    with terminal("run", "--raw", "-c", ESCAPES) as seen:
        assert seen.end() == 0
    assert b"\x1b[2J\x1b]0;title\x07" in seen.shown


def test_a_terminal_is_not_what_the_code_reads() -> None:
    with terminal("run", "-c", "import sys; print(repr(sys.stdin.read()))") as seen:
        assert seen.end() == 0
    assert b"''" in seen.shown


def test_the_verdict_begins_a_line_of_its_own_on_a_terminal() -> None:
    with terminal("run", "-c", SILENT_END) as seen:
        assert seen.end() == 137
    assert b"before\r\nkern-sandbox: " in seen.shown
