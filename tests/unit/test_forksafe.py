"""A lock that another thread held when the process forked is free in the child."""

from __future__ import annotations

import os
import threading
import warnings

from kern_sandbox.forksafe import ForkSafeLock


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
    assert not lock._lock.acquire(blocking=False), "control: the parent's is held"
    over.set()
    holder.join()
    with lock:
        pass
