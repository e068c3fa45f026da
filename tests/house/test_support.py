"""The tests' own instruments find what they are there to find."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest

from support import cgroup_mode, heed_signals, leaks, need, repo_files, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def a_descriptor() -> Iterator[None]:
    number = os.open(os.devnull, os.O_RDONLY)
    yield
    os.close(number)


@contextlib.contextmanager
def a_process() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield
        process.communicate(b"\n")


@contextlib.contextmanager
def a_zombie() -> Iterator[None]:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield
    os.waitpid(pid, 0)


@contextlib.contextmanager
def a_thread() -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    yield
    stop.set()
    thread.join()


@contextlib.contextmanager
def a_directory() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="kern-"):
        yield


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (a_descriptor, "descriptor: /dev/null"),
        (a_process, "process: "),
        (a_zombie, r"\(zombie\)"),
        (a_thread, "thread: "),
        (a_directory, "temporary: "),
    ],
)
def test_what_is_left_behind_is_found(plant: Callable[[], contextlib.AbstractContextManager[None]], kind: str) -> None:
    with contextlib.ExitStack() as planted, pytest.raises(pytest.fail.Exception, match=kind), leaks(patience_s=0.1):
        planted.enter_context(plant())


def test_what_goes_away_within_the_patience_was_not_left_behind() -> None:
    timer = threading.Timer(0.1, lambda: None)
    with leaks():
        timer.start()
    timer.join()


def test_nothing_done_leaves_nothing() -> None:
    assert not snapshot() - snapshot()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_run_behind_nohup_starts_processes_that_heed_signals(number: signal.Signals) -> None:
    code = f"import signal; print(signal.getsignal({number.value}) is signal.SIG_IGN)"

    def ignored_by_a_child() -> bool:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n"

    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert ignored_by_a_child()
        heed_signals()
        assert not ignored_by_a_child()
    finally:
        signal.signal(number, before)


def test_a_missing_ability_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    need(True, "never said")
    monkeypatch.delenv("KERN_MUST_WORK", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such thing"):
        need(False, "no such thing")
    monkeypatch.setenv("KERN_MUST_WORK", "1")
    with pytest.raises(pytest.fail.Exception, match="no such thing"):
        need(False, "no such thing")


def test_the_machine_is_described() -> None:
    assert cgroup_mode() in {"v1", "v2", "v1+v2", "none"}
    assert any(path.name == "pyproject.toml" for path in repo_files())
