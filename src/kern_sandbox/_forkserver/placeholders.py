"""Placeholders on the host, removed when no box can be alive that needs them; see ``_box.protection``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._box.protection import Placeholder, remove_placeholder

__all__ = ["Placeholders"]


class Placeholders:
    """Those of every Sandbox, open and locked by the descriptors that its client has sent."""

    def __init__(self) -> None:
        self._of: dict[str, list[Placeholder]] = {}

    def take(self, body: dict[str, Any], fds: Sequence[int]) -> None:
        """A Sandbox was opened."""
        if fds:
            self._of[body["owner"]] = [Placeholder(path, fd) for path, fd in zip(body["placeholders"], fds)]

    def remove(self, owner: str) -> None:
        """The last box of ``owner`` is gone, and no more come."""
        for one in self._of.pop(owner, ()):
            remove_placeholder(one)

    def remove_all(self) -> None:
        """No box is left at all."""
        for owner in list(self._of):
            self.remove(owner)
