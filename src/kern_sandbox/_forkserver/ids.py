"""Unprivileged host ids for boxes that root starts: no two live Sandboxes of this host share one.

Linux systems leave 0x70000000 to 0x7ffffffe free (systemd, docs/UIDS-GIDS.md). A fork server claims a block of them
by holding an abstract socket whose name is the block's number, so a claim ends with its holder.
"""

from __future__ import annotations

import os
import socket

from ..errors import HostError

__all__ = ["HostIds"]

_FIRST = 0x70000000
_BLOCK = 4096
_BLOCKS = 0x0FFF0000 // _BLOCK
_TRIES = 64


class HostIds:
    """One claimed block, and which of its ids are in use."""

    def __init__(self) -> None:
        self._claim, block = _claim()
        self._first = _FIRST + block * _BLOCK
        self._used: set[int] = set()
        self._next = 0

    def take(self) -> int:
        """An id that nobody uses, the longest unused first.

        Raises:
            HostError: all of the block are in use.
        """
        for step in range(_BLOCK):
            candidate = self._first + (self._next + step) % _BLOCK
            if candidate not in self._used:
                self._next = candidate - self._first + 1
                self._used.add(candidate)
                return candidate
        raise HostError(f"giving a Sandbox a host id of its own: all {_BLOCK} are in use", hint="Close some Sandboxes.")

    def give_back(self, taken: int) -> None:
        """``taken`` is free again: nothing runs with it any more."""
        self._used.discard(taken)


def _claim() -> tuple[socket.socket, int]:
    for _ in range(_TRIES):
        block = int.from_bytes(os.urandom(4), "little") % _BLOCKS
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            claim.bind(f"\0kern-sandbox-ids-{block}")
        except OSError:
            claim.close()
            continue
        return claim, block
    raise HostError(f"claiming a block of host ids: {_TRIES} blocks in a row were taken", hint="Too many fork servers.")
