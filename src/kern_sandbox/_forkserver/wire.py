"""Frames between client, fork server, stems and boxes: one JSON object and some descriptors a message.

The sockets are local SEQPACKET pairs, so a message arrives whole or not at all. What does not fit in a message
travels in an anonymous file beside it.
"""

from __future__ import annotations

import array
import errno
import json
import os
import socket
import stat
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._linux.fds import memory_file

__all__ = ["LOST", "SMALL", "Frame", "pair", "receive", "reply", "send"]

_INLINE = 60_000
_MAX_DESCRIPTORS = 64
_MAX_FRAME = 64 << 20
SMALL = 1 << 20
"""The most that a frame may hold whose sender is in a box, where foreign code may have the word, bytes."""

LOST = "Too many open files: descriptors of a frame were lost"
"""What is said by a process that could not hold more of them."""


class Frame(NamedTuple):
    """One message; the receiver owns the descriptors, which are close-on-exec."""

    body: dict[str, Any]
    fds: list[int]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected, close-on-exec ends; neither has the number of a standard stream, also where those are closed."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    return _moved(one), _moved(other)


def _moved(end: socket.socket) -> socket.socket:
    if end.fileno() > 2:
        return end
    import fcntl  # late: it is of Unix only, and so are boxes

    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3))


def send(sock: socket.socket, body: dict[str, Any], fds: Sequence[int] = (), flags: int = 0) -> None:
    """Send one frame; ``flags`` as in sendmsg(2).

    Raises:
        OSError: the other end is gone (EPIPE, ECONNRESET), or it would block and must not (EAGAIN).
    """
    data = json.dumps(body, separators=(",", ":")).encode("ascii")
    if len(data) > _MAX_FRAME:
        raise OSError(errno.E2BIG, f"a frame of {len(data)} bytes is larger than {_MAX_FRAME}")
    if len(data) <= _INLINE:
        _send(sock, b"J" + data, fds, flags)
        return
    large = memory_file("kern-frame", data)
    try:
        _send(sock, b"M", [*fds, large], flags)
    finally:
        os.close(large)


def _send(sock: socket.socket, data: bytes, fds: Sequence[int], flags: int) -> None:
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([data], ancillary, socket.MSG_NOSIGNAL | flags)


def reply(sock: socket.socket, body: dict[str, Any]) -> None:
    """Send a frame to somebody who may be gone, or too busy to take it, and who then goes without; never waits."""
    try:
        send(sock, body, (), socket.MSG_DONTWAIT)
    except (BrokenPipeError, ConnectionResetError, BlockingIOError):
        return


def receive(sock: socket.socket, flags: int = 0, *, most: int = _MAX_FRAME) -> Frame | None:
    """The next frame, or ``None`` at end of file.

    Args:
        sock: where it comes from.
        flags: as in recvmsg(2).
        most: bytes that it may hold.

    Raises:
        OSError: as recvmsg(2); EMFILE if descriptors were lost because this process cannot hold more.
        ValueError: not a frame.
    """
    room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
    flags |= socket.MSG_CMSG_CLOEXEC
    try:
        data, ancillary, told, _ = sock.recvmsg(_INLINE + 1, room, flags)
    except ConnectionResetError:  # the other end left frames of ours unread; what it sent before is still here
        data, ancillary, told, _ = sock.recvmsg(_INLINE + 1, room, flags)
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    owned = list(fds)
    if told & socket.MSG_CTRUNC:
        for fd in owned:
            os.close(fd)
        raise OSError(errno.EMFILE, LOST)
    if not data and not owned:
        return None
    try:
        return Frame(_decode(data, owned, most), owned)
    except (ValueError, RecursionError):
        for fd in owned:
            os.close(fd)
        raise


def _whole_file(fd: int, most: int) -> bytes:
    with open(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > most:
            raise ValueError("a large frame is in a regular file of bounded size")
        return file.read(about.st_size)


def _decode(data: bytes, fds: list[int], most: int) -> dict[str, Any]:
    if data[:1] == b"M" and fds:
        data = b"J" + _whole_file(fds.pop(), most)
    if data[:1] != b"J":
        raise ValueError(f"a frame starts with J or M, not {data[:1]!r}")
    body = json.loads(data[1:])
    if not isinstance(body, dict):
        raise ValueError("a frame's body is a JSON object")
    return body
