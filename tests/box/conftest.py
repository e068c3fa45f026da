"""What the tests of boxes share: Sandboxes, calls in the background, processes of a user, and a view from the host.

``box_path`` and ``options`` are where a later issue parametrises how a box comes to be (exec or template): every
Sandbox of these tests is made by ``make``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar

import pytest

import kern_sandbox
from support import need_boxes, need_limits

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")
PATIENCE_S = 100.0
"""How long a condition may take to come true on a machine that is busy with other things."""

_numbers = itertools.count(1)


# --- Sandboxes --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["exec", "template"])
def box_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a box for Python comes to be: by starting an interpreter, or by forking a booted one."""
    if request.param == "exec":
        monkeypatch.setattr("kern_sandbox.session._starts_alike", lambda env: False)
    return str(request.param)


def _from_template(sandbox: kern_sandbox.Sandbox) -> bool:
    """Whether the next box for Python would be forked from a booted interpreter."""
    return "template.py" in sandbox.run_code("print(open('/proc/self/cmdline').read())").stdout


@pytest.fixture
def options(box_path: str) -> dict[str, Any]:
    """Options that every Sandbox of a test gets."""
    return {"timeout_s": 60}


@pytest.fixture
def make(box_path: str, options: dict[str, Any]) -> Iterator[Callable[..., kern_sandbox.Sandbox]]:
    """Make a Sandbox with further options; all are closed at the end. ``used=False``: it has served no call yet."""
    need_boxes()
    with contextlib.ExitStack() as made:

        def one(*, used: bool = True, **more: Any) -> kern_sandbox.Sandbox:
            sandbox = made.enter_context(kern_sandbox.Sandbox(**{**options, **more}))
            if used and box_path == "template":
                _eventually(lambda: _from_template(sandbox), "a booted interpreter for this Sandbox")
            return sandbox

        yield one


@pytest.fixture
def sandbox(make: Callable[..., kern_sandbox.Sandbox]) -> kern_sandbox.Sandbox:
    """A Sandbox with no options of its own."""
    return make()


def _unlimited(word: str) -> bool:
    notes = kern_sandbox.run_code("").runtime_notes
    return any(word in note.partition("not limited for the box")[0] for note in notes if "not limited" in note)


@pytest.fixture
def memory_cgroup() -> None:
    """The test needs a host that limits the memory of a box as a whole."""
    need_boxes()
    need_limits(not _unlimited("memory"), "no cgroup limits memory here")


@pytest.fixture
def pids_cgroup() -> None:
    """The test needs a host that limits the processes of a box as a whole."""
    need_boxes()
    need_limits(not _unlimited("pids"), "no cgroup limits pids here")


# --- waiting ----------------------------------------------------------------------------------------------------


def _eventually(condition: Callable[[], T], what: str = "the condition") -> T:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {PATIENCE_S:g} s", pytrace=False)
        time.sleep(0.01)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait until a condition holds, and return its value; fail after a generous deadline."""
    return _eventually


@pytest.fixture
def background() -> Callable[[Callable[[], T]], Future[T]]:
    """Run a function on a thread that does not keep the tests from ending; returns its future."""

    def start(body: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(body())
            except BaseException as error:  # it belongs to whoever asks the future
                future.set_exception(error)

        threading.Thread(target=work, daemon=True, name="test-background").start()
        return future

    return start


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that is interrupted has as long to end as a busy machine may take, and is not killed before."""
    monkeypatch.setattr("kern_sandbox._forkserver.branch._PATIENCE_S", (10.0, 20.0))
    monkeypatch.setattr("kern_sandbox.aio.GRACE_S", 30.0)
    monkeypatch.setattr("kern_sandbox.tool._interpreter._GRACE_S", 30.0)


# --- the host's view --------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """A process as the host sees it; with its start time it is never another one."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        fields = _stat(self.pid)
        return fields is not None and fields[19] == self.started and fields[0] not in "ZX"

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


def _stat(pid: int) -> list[str] | None:
    """The fields of proc_pid_stat(5) from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _seen(pid: int) -> Seen | None:
    fields = _stat(pid)
    return None if fields is None else Seen(pid, fields[19])


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return 0 if fields is None else int(fields[1])


def _heads_namespace(pid: int) -> bool:
    """Whether it is PID 1 of a PID namespace below ours."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    numbers = next(line for line in lines if line.startswith("NSpid:")).split()[1:]
    return len(numbers) > 1 and numbers[-1] == "1"


class Chain(NamedTuple):
    """One call from the program up: its init, the stem that it was forked from, the fork server."""

    program: Seen
    init: Seen
    stem: Seen
    server: Seen


def _pid_of(marker: str) -> int | None:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if arguments[0].endswith(b"sleep") and marker.encode() in arguments[1:]:
                return int(name)
    return None


def _chain(marker: str) -> Chain | None:
    pid = _pid_of(marker)
    found = [] if pid is None else [pid]
    above = 0 if pid is None else _parent(pid)
    while above > 1 and len(found) < 3:
        if _heads_namespace(above):
            found.append(above)
        above = _parent(above)
    if len(found) == 3:
        found.append(_parent(found[-1]))
    seen = [process for process in map(_seen, found) if process is not None]
    return Chain(*seen) if len(seen) == 4 else None


class Sleeper:
    """A program for a box that sleeps longer than any test lasts, and can be found from the host."""

    def __init__(self) -> None:
        self.marker = f"{100_000 + next(_numbers)}.{os.getpid()}"
        self.argv = ["sleep", self.marker]

    def chain(self) -> Chain:
        """Wait until it runs; every process from it up to the fork server."""
        chain = _eventually(lambda: _chain(self.marker), f"`sleep {self.marker}` in a box")
        assert chain is not None
        return chain

    @property
    def running(self) -> bool:
        """Whether the host sees it."""
        return _pid_of(self.marker) is not None


@pytest.fixture
def sleeper() -> Callable[[], Sleeper]:
    """Make a ``Sleeper``."""
    return Sleeper


# --- a user's process -------------------------------------------------------------------------------------------

_PRELUDE = "import os, sys; sys.path.insert(0, sys.argv[1]); import kern_sandbox as kern\n"


class User:
    """A Python process of a user of the library, and everything below it."""

    def __init__(self, code: str, prefix: list[str]) -> None:
        package_parent = os.path.dirname(kern_sandbox.__path__[0])
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", _PRELUDE + code, package_parent],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def below(self) -> list[Seen]:
        """Every process below it that is alive now."""
        below: list[int] = []
        parents = {int(name): _parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
        todo = [self.pid]
        while todo:
            above = todo.pop()
            children = [pid for pid, parent in parents.items() if parent == above]
            below += children
            todo += children
        return [process for process in map(_seen, below) if process is not None and process.alive]

    def ends(self) -> str:
        """Wait for its end; what it printed. It must end well and say nothing on standard error."""
        try:
            out, err = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            out, err = self.process.communicate()
            pytest.fail(f"a user's process did not end within {PATIENCE_S:g} s:\n{out}{err}", pytrace=False)
        assert (self.process.returncode, err) == (0, ""), out + err
        return out

    def close(self) -> None:
        """Kill it if it is alive, and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


@pytest.fixture
def user_process() -> Iterator[Callable[..., User]]:
    """Start a Python process that has ``kern``, ``os`` and ``sys``; ``prefix`` goes before its command."""
    need_boxes()
    with contextlib.ExitStack() as started:

        def start(code: str, prefix: list[str] | None = None) -> User:
            user = User(code, prefix or [])
            started.callback(user.close)
            return user

        yield start
