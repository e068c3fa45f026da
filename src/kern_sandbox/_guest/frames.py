"""Frames between a kernel's box and the host: one JSON object and some descriptors a message.

The sockets are local SEQPACKET pairs, so a message arrives whole or not at all; what is too large for one comes in an
anonymous file beside it. Stdlib only, Python 3.8 or later; loaded by `keeper`.
"""

import _socket
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

ROOM = 1 << 16
MAX_DESCRIPTORS = 16
SIZE = 4  # of a descriptor's number in a message, as of every C int


class Line:
    """One end of such a socket, by its descriptor, which may be closed or replaced at any time."""

    def __init__(self, fd: int) -> None:
        """Speak and listen on ``fd``."""
        self.fd = fd

    def send(self, **body: "Any") -> None:
        """Send one object; raises `OSError` if nobody listens any more."""
        self._with(lambda sock: sock.send(b"J" + json.dumps(body).encode("ascii"), _socket.MSG_NOSIGNAL))

    def receive(self) -> "Optional[Tuple[Dict[str, Any], List[int]]]":
        """Wait for the next object and its close-on-exec descriptors; ``None`` once the other end is gone."""
        room = _socket.CMSG_SPACE(MAX_DESCRIPTORS * SIZE)
        try:
            data, ancillary, _, _ = self._with(lambda sock: sock.recvmsg(ROOM, room, _socket.MSG_CMSG_CLOEXEC))
        except OSError:
            return None
        if not data:
            return None
        fds: "List[int]" = []
        for _, _, payload in ancillary:
            fds += [int.from_bytes(payload[at : at + SIZE], _order()) for at in range(0, len(payload), SIZE)]
        if data[:1] == b"M":
            with open(fds.pop(), "rb") as file:
                data = b"J" + file.read()
        return json.loads(data[1:]), fds

    def close(self) -> None:
        """Let the descriptor go; nothing happens if it is gone."""
        try:
            os.close(self.fd)
        except OSError:
            return

    def _with(self, do: "Any") -> "Any":
        """Use a socket object only for one call, so that none closes a descriptor which is another file by then."""
        sock = _socket.socket(fileno=self.fd)
        try:
            return do(sock)
        finally:
            sock.detach()


def _order() -> "Any":
    import sys

    return sys.byteorder
