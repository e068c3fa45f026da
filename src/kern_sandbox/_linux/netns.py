"""A network namespace's own loopback."""

from __future__ import annotations

import fcntl
import socket
import struct

__all__ = ["raise_loopback"]

_SIOCSIFFLAGS = 0x8914  # linux/sockios.h
_IFF_UP = 1


def raise_loopback() -> None:
    """Bring ``lo`` of the current network namespace up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
