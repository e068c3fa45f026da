"""A network namespace's own loopback."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

__all__ = ["add_address", "listen", "raise_loopback"]

# linux/sockios.h
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_IFF_UP = 1
_BACKLOG = 512


def raise_loopback() -> None:
    """Bring ``lo`` of the current network namespace up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def add_address(address: str) -> None:
    """Make the one IPv4 ``address`` this namespace's own, under a label of ``lo`` made of its bytes.

    Raises:
        OSError: as netdevice(7).
    """
    raw = socket.inet_aton(address)
    label = b"lo:" + raw.hex().encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        for request, value in ((_SIOCSIFADDR, raw), (_SIOCSIFNETMASK, b"\xff\xff\xff\xff")):
            fcntl.ioctl(sock, request, struct.pack("16sHH4s8x", label, socket.AF_INET, 0, value))


def listen(address: str, port: int) -> socket.socket:
    """A TCP listener at ``address``.

    Raises:
        OSError: naming the address in its text.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.bind((address, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        code = error.errno or 0
        raise OSError(code, f"{os.strerror(code)} in listening at {address} port {port} of the box") from None
    return sock
