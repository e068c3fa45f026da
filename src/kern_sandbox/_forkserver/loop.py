"""One thread that waits on many descriptors and calls whoever watches the one that is ready."""

from __future__ import annotations

import selectors
import sys
from typing import Any, Callable, NamedTuple

__all__ = ["Loop"]


_LONGEST_S = 3600.0  # epoll(7) counts milliseconds in an int


class _Watch(NamedTuple):
    handler: Callable[[], None]
    on_fault: Callable[[Exception], None]


class Loop:
    """A selector whose handlers are kept apart: a fault in one call's handler costs that call only."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.running = True

    def watch(self, file: Any, handler: Callable[[], None], on_fault: Callable[[Exception], None]) -> None:
        """Call ``handler`` whenever ``file`` is readable, and ``on_fault`` with the error if that raises one."""
        self._selector.register(file, selectors.EVENT_READ, _Watch(handler, on_fault))

    def drop(self, file: Any) -> None:
        """Watch ``file`` no longer; nothing happens if nobody did."""
        if file is not None and file in self._selector.get_map():
            self._selector.unregister(file)

    def turn(self, wait_s: float | None) -> None:
        """Wait up to ``wait_s`` seconds, and handle everything that is ready."""
        for key, _ in self._selector.select(None if wait_s is None else min(wait_s, _LONGEST_S)):
            if self._still(key):
                self._handle(key.data)

    def _still(self, key: selectors.SelectorKey) -> bool:
        """Whether an event is not stale: an earlier one of the same turn may have closed what it is about."""
        try:
            return self._selector.get_key(key.fd).data is key.data
        except KeyError:
            return False

    def _handle(self, watch: _Watch) -> None:
        try:
            watch.handler()
        except Exception as error:  # a fault in one call must not end the others; it is reported to its caller
            sys.stderr.write(f"kern-forkserver: {type(error).__name__}: {error}\n")
            watch.on_fault(error)
