"""A Sandbox as the fork server knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._box.plan import Bind

__all__ = ["Owner"]


@dataclass
class Owner:
    """Whose calls are served by boxes of the plan ``key``. Sandboxes with equal plans share stems and templates.

    Attributes:
        workspace: what its boxes show at ``/workspace``.
        temporary: directories to remove if the user's process dies.
        prewarm: how many boxes are kept ready for it; 0 for one, while it is in use.
        calls: how many it has made.
        once: it makes one call at most.
        hurried: its last call came at once after another.
    """

    name: str
    key: str
    workspace: Bind
    temporary: list[tuple[str, int, int]]
    prewarm: int = 0
    calls: int = 0
    once: bool = False
    hurried: bool = False

    @classmethod
    def of(cls, body: dict[str, Any]) -> Owner:
        """From the client's frame."""
        temporary = [(path, device, inode) for path, device, inode in body["temporary"]]
        return cls(body["owner"], body["key"], Bind(*body["workspace"]), temporary, body["prewarm"], once=body["once"])
