"""Cgroups kept off a call's path: one stands ready before it is needed, and goes after its box has ended."""

from __future__ import annotations

import collections

from .._linux.cgroup import CgroupHost, Group, Limits
from ..errors import CgroupUnavailable

__all__ = ["Groups"]

_READY = 2
_PILE = 32
_SOON_S, _LATE_S = 0.01, 1.0
"""How long after a group could not be removed that is tried again: twice as long each time, up to the second."""


class Groups:
    """Groups by the limits that they enforce."""

    def __init__(self, host: CgroupHost) -> None:
        self.host = host
        self._ready: dict[Limits, collections.deque[Group]] = {}
        self._ended: collections.deque[Group] = collections.deque()
        self._patience_s = _SOON_S

    def take(self, limits: Limits) -> Group:
        """A group that no process was ever in."""
        ready = self._ready.setdefault(limits, collections.deque())
        return ready.popleft() if ready else self.host.make(limits)

    def apart(self, limits: Limits) -> Group:
        """A group as ``take`` gives it, of limits that are not asked for again soon."""
        return self.host.make(limits)

    def put_away(self, group: Group) -> None:
        """``group``'s box has ended; remove it when there is time."""
        self._ended.append(group)
        self._patience_s = _SOON_S

    def forget(self, limits: Limits) -> None:
        """No Sandbox with these limits is left."""
        self._ended.extend(self._ready.pop(limits, ()))

    def tidy(self, *, urgent_only: bool) -> bool:
        """Do one piece of the work that can wait; ``False`` when there is none, or only work that must wait.

        Args:
            urgent_only: leave everything for later, unless a great deal has piled up.
        """
        if urgent_only and len(self._ended) < _PILE:
            return False
        for limits, ready in self._ready.items():
            if len(ready) < _READY:
                try:
                    ready.append(self.host.make(limits))
                except CgroupUnavailable:
                    break  # the call that needs one will meet the same and report it
                return True
        for _ in range(len(self._ended)):
            group = self._ended.popleft()
            if self._is_rid_of(group):
                self._patience_s = _SOON_S
                return True
            self._ended.append(group)
        self._patience_s = min(2 * self._patience_s, _LATE_S)
        return False

    @staticmethod
    def _is_rid_of(group: Group) -> bool:
        try:
            return group.remove()
        except (OSError, CgroupUnavailable):
            return True  # Linux will not have it: it is left to the next server, which collects what is stale

    @property
    def again_s(self) -> float | None:
        """How long until it is worth while to tidy again, seconds; ``None`` where no ended group has to go."""
        return self._patience_s if self._ended else None

    def close(self) -> None:
        """Remove everything."""
        self.host.close()
