"""A lock that another thread held when the process forked is free in the child."""

from __future__ import annotations

import os
import threading
import warnings

import pytest

from kern_sandbox.errors import HostError
from kern_sandbox.forksafe import ForkSafeLock, start_thread

A_MOMENT_S = 0.05


def entering(lock: ForkSafeLock) -> threading.Event:
    """Have another thread go through ``lock``; set once it is inside."""
    inside = threading.Event()

    def enter() -> None:
        with lock:
            inside.set()

    threading.Thread(target=enter, daemon=True).start()
    return inside


def test_in_a_forked_child_the_lock_is_free_and_in_the_parent_it_is_held() -> None:
    lock, held, over = ForkSafeLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what Python 3.12 says of such a fork
        pid = os.fork()
    if pid == 0:
        with lock, lock:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    waiting = entering(lock)
    assert not waiting.wait(A_MOMENT_S), "control: the parent's is held"
    over.set()
    holder.join()
    assert waiting.wait(60)


def test_threads_that_enter_first_at_once_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread comes in at the worst moment of another: when that is about to make the lock of a forked child."""
    lock, real, others = ForkSafeLock(), threading.RLock, list[threading.Event]()
    with lock:
        pass
    pid = os.getpid() + 1
    monkeypatch.setattr("kern_sandbox.forksafe.os.getpid", lambda: pid)
    over = threading.Event()

    def hold(inside: threading.Event) -> None:
        with lock:
            inside.set()
            over.wait(60)

    def make() -> object:
        made = real()
        if not others:
            others.append(threading.Event())
            threading.Thread(target=hold, args=others, daemon=True).start()
            assert others[0].wait(60)
        return made

    monkeypatch.setattr("kern_sandbox.forksafe.threading.RLock", make)
    inside = entering(lock)
    assert not inside.wait(A_MOMENT_S)
    over.set()
    assert inside.wait(60)


def test_a_thread_that_may_not_be_is_an_error_that_says_what_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    start_thread("kern-test", said.append, "done").join()
    assert said == ["done"]

    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    with pytest.raises(HostError, match=r"starting the thread kern-test: can't start new thread\. .*`ulimit -u`"):
        start_thread("kern-test", said.append, "never")
    assert said == ["done"]
