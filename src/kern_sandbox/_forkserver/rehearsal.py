"""What a box does while it waits, so that less is left to do when somebody waits for it.

A fork shares its memory with its parent until it touches it; then Linux maps or copies one page after the other, which
takes longer than what is done there. So a program that was forked ahead takes an order that nobody gave, and init sends
a report that nobody reads: what that touches is their own when it counts.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from .._box.plan import CELL
from .._linux import fds
from . import wire

__all__ = ["nobody_calls", "rehearse_order", "rehearse_report"]

_IDLE_MS = 20
_NAME = "rehearsal"


def nobody_calls(report: socket.socket) -> bool:
    """Whether no order comes for a while: where call follows call, a rehearsal would only be more work."""
    poller = select.poll()
    poller.register(report, select.POLLIN)
    return not poller.poll(_IDLE_MS)


def rehearse_order(env: Mapping[str, str], take: Callable[[socket.socket], Sequence[int]]) -> None:
    """Have ``take`` take an order for an empty file from a socket and return its descriptors; nothing is left of it.

    Args:
        env: the variables that the order names.
        take: as for the real one.
    """
    ours, theirs = wire.pair()
    file = fds.memory_file(_NAME, b"")
    order = {"argv": [""], "env": dict(env), "cwd": os.getcwd(), "cell": [_NAME], "roles": ["stdin", "cell"]}
    try:
        wire.send(ours, order, [file, file])
        for fd in take(theirs):
            os.close(fd)
        os.unlink(f"{CELL}/{_NAME}")
        wire.send(theirs, {"started": True})
    finally:
        os.close(file)
        ours.close()
        theirs.close()


def rehearse_report(words: dict[str, Any]) -> None:
    """Send ``words`` to nobody."""
    ours, theirs = wire.pair()
    with ours, theirs:
        wire.send(theirs, words)
