"""Acting as a fork server does towards cgroups: in a process of its own, which ``probe`` may move elsewhere."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

import pytest

from kern_sandbox._linux.cgroup import CgroupHost, Group, Limits, probe
from support import need_limits

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60.0
SLEEP = ["sleep", "1000"]

ServerBody = Callable[[CgroupHost], None]


def in_server(body: ServerBody) -> Callable[[], None]:
    """Run a test's body in a process of its own, with the host object that ``probe`` gives there."""

    @functools.wraps(body)
    def test() -> None:
        outcome = in_child(lambda: with_host(body))
        if outcome.startswith("skip:"):
            pytest.skip(outcome[5:])
        if outcome:
            pytest.fail(outcome, pytrace=False)

    del test.__wrapped__  # else pytest takes the body's parameter for a fixture
    return test


def with_host(body: ServerBody) -> None:
    host = probe()
    try:
        need_limits(host.enforces >= {"memory", "pids"}, f"cgroups cannot limit memory and pids here: {host.reasons}")
        body(host)
    finally:
        host.close()


def in_child(body: Callable[[], None]) -> str:
    """Return ``""`` if the body ended well in a forked child, else its traceback, or ``skip:`` and a reason."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        said = outcome_of(body)
        with os.fdopen(into, "w", encoding="utf-8") as pipe:
            pipe.write(said)
        os._exit(0)
    os.close(into)
    with os.fdopen(out, encoding="utf-8") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return said if status == 0 else f"{said}\nthe server ended with {status}"


def outcome_of(body: Callable[[], None]) -> str:
    try:
        body()
    except pytest.skip.Exception as skipped:
        return f"skip:{skipped}"
    except BaseException:
        return traceback.format_exc()
    return ""


class Ran(NamedTuple):
    """How a program in a group ended; ``code`` is negative where a signal ended it."""

    code: int
    stdout: str


def start(group: Group, argv: list[str], before: Callable[[], None] = lambda: None) -> subprocess.Popen[str]:
    """Start a program that joins the group by the descriptors alone."""
    doors = group.join_fds()

    def join() -> None:
        before()
        for door in doors:
            os.write(door, b"0")

    try:
        return subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=join,
            pass_fds=doors,
        )
    finally:
        for door in doors:
            os.close(door)


def run(group: Group, *argv: str) -> Ran:
    """Run a program in the group to its end."""
    program = start(group, list(argv))
    stdout, _ = program.communicate(timeout=60)
    return Ran(program.returncode, stdout)


def python(group: Group, code: str) -> Ran:
    """Run Python code in the group to its end."""
    return run(group, sys.executable, "-I", "-S", "-c", code)


@contextlib.contextmanager
def made(host: CgroupHost, limits: Limits) -> Iterator[Group]:
    """Make a group that is empty and removed in the end."""
    group = host.make(limits)
    try:
        yield group
    finally:
        group.kill()
        eventually(group.remove, "the group is removed")


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Fail unless the condition comes true within a patience that no healthy host needs."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"still not so: {what}"
        time.sleep(0.005)


def lives(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has waited for does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Server:
    """A server in a process of its own that holds one box with a program in it until told otherwise."""

    def __init__(self) -> None:
        out, into = os.pipe()
        hold, self._release = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._release)
            self._serve(into, hold)
        os.close(into)
        os.close(hold)
        with os.fdopen(out, encoding="utf-8") as pipe:
            said = json.loads(pipe.readline())
        self.directories: list[str] = said["directories"]
        self.program: int = said["program"]

    def _serve(self, into: int, hold: int) -> None:
        host = probe()
        group = host.make(Limits(pids=8))
        program = start(group, SLEEP)
        os.write(into, json.dumps({"directories": group.directories, "program": program.pid}).encode() + b"\n")
        os.close(into)
        os.read(hold, 1)
        host.close()
        program.kill()
        os._exit(0)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def stop(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._release, b"x")
        os.close(self._release)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.program, signal.SIGKILL)
