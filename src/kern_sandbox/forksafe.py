"""A lock that a forked child can use, whoever held it in the parent; and threads that a user may be out of."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Callable

from .errors import HostError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["ForkSafeLock", "no_more_threads", "start_thread"]

_NO_MORE = (
    "This user, or the container, may have no more of them, or no memory is left: see `ulimit -u` and `ulimit -v`"
)


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


def no_more_threads(attempted: str, error: RuntimeError) -> HostError:
    """The error for a thread that Python could not start."""
    return HostError(f"{attempted}: {error}", hint=_NO_MORE)


def start_thread(name: str, work: Callable[..., object], *args: object) -> threading.Thread:
    """Start a daemon thread that does ``work(*args)``.

    Raises:
        HostError: there may be no more threads.
    """
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise no_more_threads(f"starting the thread {name}", error) from error
    return thread
