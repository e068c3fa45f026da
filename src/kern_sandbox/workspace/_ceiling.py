"""A ceiling on what a workspace takes of the disk: counted before, during and after a call.

No quota of the file system's stands behind it, so a box can be above it for as long as nobody has looked.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from ..errors import SandboxError, SessionClosed, WorkspaceError
from ..forksafe import start_thread
from ._usage import usage

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Ceiling", "Guard"]

INTERVAL_S = 0.02
"""The least time between two counts while a call runs, seconds."""
_SHARE = 9
"""How many times longer than a count the pause after it is: counting takes a tenth of a processor at most."""
_MIB = 1 << 20
_SLACK = 256 * _MIB
"""How far above a small ceiling a call may still begin, to clear up after one that was fast, bytes."""


class Ceiling:
    """Watches one workspace for all calls on it, from one thread that lives while there are any.

    Args:
        limit: bytes.
        held: gives a descriptor of the directory that is its caller's to close.
        path: of the workspace, for words.
    """

    def __init__(self, limit: int, held: Callable[[], int], path: str) -> None:
        self.limit = limit
        self.path = path
        self._held = held
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._guards: set[Guard] = set()
        self._thread: threading.Thread | None = None

    def used(self, enough: int) -> int:
        """Bytes that the workspace takes now; not exact above ``enough``.

        Raises:
            WorkspaceError: they cannot be counted.
            SessionClosed: the workspace is closed.
        """
        try:
            handle = self._held()
            try:
                return usage(handle, enough)
            finally:
                os.close(handle)
        except OSError as error:
            what = f"count what the workspace {self.path} holds"
            raise WorkspaceError(what, errno=error.errno, path=self.path) from error

    def make_room(self, more: int) -> None:
        """Make sure that ``more`` bytes fit.

        Raises:
            WorkspaceError: they do not (ENOSPC).
        """
        if self.used(self.limit) + more > self.limit:
            raise self._full(f"put {more} bytes into the workspace")

    def begin(self) -> int:
        """The most that a call which begins now may let the workspace take.

        One that is above the ceiling already may shrink it and not let it grow; far above it, nothing runs.

        Raises:
            WorkspaceError: it takes more than twice the ceiling, and 256 MiB more than it.
        """
        far = self.limit + max(self.limit, _SLACK)
        used = self.used(far)
        if used > far:
            raise self._full(f"run code on the workspace, which takes more than {far // _MIB} MiB")
        return max(used, self.limit)

    def _full(self, attempted: str) -> WorkspaceError:
        words = f"{attempted}: the ceiling is workspace_mb={self.limit // _MIB}"
        hint = f"Remove files below {self.path}, or restore() a snapshot"
        return WorkspaceError(words, errno=errno.ENOSPC, path=self.path, hint=hint)

    def watch(self, guard: Guard) -> None:
        """Count while ``guard`` is there, and tell it."""
        if self._pid != os.getpid():  # a forked child: its parent's calls are not its own, nor are the threads
            self._pid, self._changed, self._guards = os.getpid(), threading.Condition(), set()
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = start_thread("kern-ceiling", self._work)
            self._guards.add(guard)

    def forget(self, guard: Guard) -> None:
        """``guard`` is to hear nothing more."""
        with self._changed:
            self._guards.discard(guard)
            self._changed.notify()

    def _work(self) -> None:
        pause = INTERVAL_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._guards, pause)
                guards = list(self._guards)
                if not guards:
                    self._thread = None
                    return
            begun = time.monotonic()
            try:
                used = self.used(max(guard.allowed for guard in guards))
            except SandboxError:
                used = 0  # closed; or the count at the end of the call reports it to the caller
            for guard in guards:
                guard.told(used)
            pause = max(INTERVAL_S, _SHARE * (time.monotonic() - begun))


class Guard:
    """The ceiling over one call; without a ceiling it does nothing."""

    def __init__(self, ceiling: Ceiling | None) -> None:
        self._ceiling = ceiling
        self._stop: Callable[[], None] | None = None
        self.allowed = 0 if ceiling is None else ceiling.begin()

    def watch(self, stop: Callable[[], None]) -> None:
        """Call ``stop``, on another thread and at most once, if the call lets the workspace grow too far."""
        self._stop = stop
        if self._ceiling is not None:
            self._ceiling.watch(self)

    def told(self, used: int) -> None:
        """What the workspace takes now."""
        stop = self._stop
        if used > self.allowed and stop is not None:
            self._stop = None
            stop()

    def release(self) -> None:
        """The call is over, however it ended."""
        if self._ceiling is not None:
            self._ceiling.forget(self)

    def conclude(self, evidence: Mapping[str, Any]) -> dict[str, Any]:
        """The evidence of the call with what its end has left: ``disk_full``, and a note where it is too much.

        Raises:
            WorkspaceError: that cannot be counted.
        """
        self.release()
        ceiling = self._ceiling
        if ceiling is None:
            return dict(evidence)
        try:
            used = ceiling.used(self.allowed)
        except SessionClosed:
            return dict(evidence)
        notes = list(evidence.get("notes", ()))
        if used > ceiling.limit:
            notes.append(f"the workspace takes more than workspace_mb={ceiling.limit // _MIB}: remove files from it")
        return {**evidence, "disk_full": used > self.allowed, "notes": notes}
