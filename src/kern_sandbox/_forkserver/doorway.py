"""What init does about a box's ways out: it makes the listeners in the box's own network, and hands them away."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from .._box.doors import Door
from .._linux import netns
from . import wire

__all__ = ["open_doors"]

_BATCH = 60


def open_doors(doors: Sequence[Door], report: socket.socket) -> None:
    """Listen at every door, and send the listeners to the fork server in order; none stays here.

    Raises:
        OSError: an address cannot be had, for example of IPv6 where Linux has none.
    """
    for address in dict.fromkeys(door.address for door in doors):
        if ":" not in address and not address.startswith("127."):
            netns.add_address(address)
    for start in range(0, len(doors), _BATCH):
        listeners = [netns.listen(door.address, door.port) for door in doors[start : start + _BATCH]]
        wire.send(report, {"doors": len(listeners)}, [listener.fileno() for listener in listeners])
        for listener in listeners:
            listener.close()
