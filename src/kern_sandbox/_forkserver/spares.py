"""Which boxes are made before there is a call for them, and which call gets which."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Callable

from .boxes import Box
from .owners import Owner
from .stems import Source, Stem

__all__ = ["UNUSED_LIMIT_S", "Spares"]

UNUSED_LIMIT_S = 600.0
"""How long prewarmed boxes wait for a call, and a stem for any, before they are dropped, seconds."""
_IDLE_LIMIT_S = 60.0
"""How long the one box that stands ready by itself waits for a call before it is dropped, seconds."""
_MOST = 256
"""Boxes that may stand ready in one fork server."""
_UNBORN = 2
"""Boxes that may be in the making at one source: more would only get into each other's way."""
_QUIET_S = 0.02
"""How long after a call the next one of a burst may come, seconds; while there are spares, none is made so long."""
Ahead = Callable[[Source, str, float], Box]


class Spares:
    """The boxes that wait at each source, and the wishes for more of them.

    Args:
        ahead: makes a box for an owner's name, or ``""``, that waits so many seconds.
        stems: the living ones, by key.
        owners: the open Sandboxes, by name.
        boxes: all that are alive, by number.
    """

    def __init__(
        self, ahead: Ahead, stems: Mapping[str, Stem], owners: Mapping[str, Owner], boxes: Mapping[int, Box]
    ) -> None:
        self._ahead = ahead
        self._stems = stems
        self._owners = owners
        self._boxes = boxes
        self._last_call = 0.0

    def taken(self, source: Source, name: str) -> Iterator[Box]:
        """Boxes that may serve the owner ``name``, its own first; each one is a spare no longer."""
        for box in [box for whose in (name, "") for box in source.spares if box.owner == whose]:
            source.spares.remove(box)
            yield box

    def drop(self, box: Box) -> None:
        """``box`` will serve no call."""
        if box in box.siblings:
            box.siblings.remove(box)

    def begin(self, source: Source) -> None:
        """``source`` can make boxes from now on."""
        source.wishes[""] = 1
        if self._keeps_prewarmed(self._stems[source.key], source):
            owners = (owner for owner in self._owners.values() if owner.key == source.key)
            wanted = {owner.name: max(owner.prewarm, owner.once) for owner in owners if owner.prewarm or owner.once}
            source.wishes.update(wanted)

    def wish(self, box: Box) -> None:
        """The source that ``box`` came from is in use: keep one more ready.

        A Sandbox that has made one call may well make no other: the next box is for whoever comes. Where call follows
        call, two are kept: a box takes longer to make than a call does to run, and there are processors enough.
        """
        stem, owner = self._stems.get(box.stem_key), self._owners.get(box.owner)
        if stem is None or owner is None or owner.once:
            return
        for source in (stem, stem.template):
            if source is not None and source.spares is box.siblings:
                name = owner.name if owner.calls > 1 or owner.prewarm else ""
                wanted = owner.prewarm if self._keeps_prewarmed(stem, source) else 0
                source.wishes[name] = max(wanted, 2 if owner.hurried and name else 1)

    @staticmethod
    def _keeps_prewarmed(stem: Stem, source: Source) -> bool:
        """Boxes that ``prewarm`` asks for are boxes for Python where there can be a template."""
        return source is not stem or stem.hopeless or not stem.nested

    def refill(self, source: Source) -> bool:
        """Have one box made that is wished for at ``source``; ``False`` when none is, or it has enough to do.

        Raises:
            OSError, HostError: it cannot be made.
        """
        if not source.ready or not source.wishes or len(source.waiting) >= _UNBORN:
            return False
        for name, wanted in list(source.wishes.items()):
            ready = sum(box.owner == name for box in source.spares)
            if ready >= wanted or (name and name not in self._owners) or self._count() >= _MOST:
                del source.wishes[name]
                continue
            if ready > 1 and self.rest_s() > 0:
                continue  # there is one for the next call, which may come at once and wants the processors
            source.spares.append(self._ahead(source, name, UNUSED_LIMIT_S if wanted > 2 else _IDLE_LIMIT_S))
            return True
        return False

    def called(self) -> None:
        """A call has begun or ended."""
        self._last_call = time.monotonic()

    def rest_s(self) -> float:
        """How long it is until work that can wait may be done, seconds."""
        return self._last_call + _QUIET_S - time.monotonic()

    def _count(self) -> int:
        return sum(box.call is None for box in self._boxes.values())
