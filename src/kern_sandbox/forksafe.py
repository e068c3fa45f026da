"""A lock that a forked child can use, whoever held it in the parent at the time of the fork."""

from __future__ import annotations

import os
import threading

__all__ = ["ForkSafeLock"]


class ForkSafeLock:
    """A reentrant lock of one process. In a forked child, whose other threads are gone, it is free."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        pid = os.getpid()
        if pid != self._pid:
            self._lock, self._pid = threading.RLock(), pid
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
