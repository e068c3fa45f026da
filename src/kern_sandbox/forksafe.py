"""A lock that a forked child can use, whoever held it in the parent at the time of the fork."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["ForkSafeLock"]


class ForkSafeLock:
    """A reentrant lock of one process. In a forked child, whose other threads are gone, it is free."""

    def __init__(self) -> None:
        self._by_process: dict[int, AbstractContextManager[object]] = {}

    def _own(self) -> AbstractContextManager[object]:
        """The lock of this process; of threads that ask for it first at once, all get the same."""
        pid = os.getpid()
        return self._by_process.get(pid) or self._by_process.setdefault(pid, threading.RLock())

    def __enter__(self) -> None:
        self._own().__enter__()

    def __exit__(self, *_: object) -> None:
        self._own().__exit__(None, None, None)
