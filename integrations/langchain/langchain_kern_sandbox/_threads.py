"""What is kept for each conversation: made when it is first needed, bounded, and closed."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kern_sandbox import SessionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Threads", "thread_id"]


class Closable(Protocol):
    """Anything that is closed."""

    def close(self) -> None:
        """Let go of it."""


T = TypeVar("T", bound=Closable)


class _Kept(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value
        self.users = 0


class Threads(Generic[T]):
    """One ``T`` for each conversation. Usable from many threads at once; copies are the same object.

    Args:
        make: makes one.
        most: how many are kept: beyond it the one that was used the longest ago, and is not in use, is closed.
    """

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self._make = make
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self._gone: OrderedDict[str, bool] = OrderedDict()
        self._closed = False

    def acquire(self, key: str) -> tuple[T, bool]:
        """That of the conversation, kept until ``release``, and whether it stands for one that had to go.

        Raises:
            SessionClosed: all of them have been closed.
        """
        with self._lock:
            if self._closed:
                raise SessionClosed("using a tool that was closed", hint="Make a new one")
            kept, replaced = self._kept.get(key), False
            if kept is None:
                kept = self._kept[key] = _Kept(self._make())
                replaced = self._gone.pop(key, False)
            self._kept.move_to_end(key)
            kept.users += 1
            surplus = self._surplus()
        for each in surplus:
            each.close()
        return kept.value, replaced

    async def acquired(self, key: str) -> tuple[T, bool]:
        """``acquire``, awaited, for making one takes its time; a wait that is cancelled keeps nothing.

        Raises:
            SessionClosed: as ``acquire``.
        """
        work = asyncio.ensure_future(asyncio.to_thread(self.acquire, key))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(lambda done: done.cancelled() or done.exception() or self.release(key))
            raise

    def release(self, key: str) -> None:
        """A use of it is over."""
        with self._lock:
            if key in self._kept:
                self._kept[key].users -= 1

    def _surplus(self) -> list[T]:
        idle = [key for key, kept in self._kept.items() if not kept.users]
        going = idle[: max(0, len(self._kept) - self._most)]
        self._gone.update(dict.fromkeys(going, True))
        while len(self._gone) > 64 * self._most:
            self._gone.popitem(last=False)
        return [self._kept.pop(key).value for key in going]

    def forget(self, key: str) -> None:
        """Close that of one conversation, which is over."""
        with self._lock:
            kept = self._kept.pop(key, None)
        if kept is not None:
            kept.value.close()

    def close(self) -> None:
        """Close them all. Closing twice does nothing."""
        with self._lock:
            self._closed = True
            kept = list(self._kept.values())
            self._kept.clear()
        for each in kept:
            each.value.close()

    def __len__(self) -> int:
        return len(self._kept)

    def __deepcopy__(self, memo: object) -> Threads[T]:
        return self


def thread_id(config: Mapping[str, Any] | None) -> str:
    """The conversation that a call belongs to; ``""`` where its caller named none."""
    named = ((config or {}).get("configurable") or {}).get("thread_id")
    return "" if named is None else str(named)
