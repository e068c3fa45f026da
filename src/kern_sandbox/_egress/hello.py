"""The first bytes of a connection: whether they start TLS, and which server name they ask for (RFC 8446, RFC 6066)."""

from __future__ import annotations

from typing import NamedTuple

from ..spec_network import normal_host

__all__ = ["DENIED", "Hello", "HelloReader"]

DENIED = bytes((21, 3, 3, 0, 2, 2, 49))
"""A TLS record with the fatal alert ``access_denied``."""

_RECORDS = range(20, 25)  # change_cipher_spec, alert, handshake, application_data, heartbeat
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0
_MOST = 1 << 16


class Hello(NamedTuple):
    """What is known once enough was read.

    ``tls`` is whether the connection starts TLS; ``name`` the server name in its one form, ``""`` if none is given.
    """

    tls: bool
    name: str


class HelloReader:
    """Reads the start of a connection, and looks at each byte once: a box decides how small the pieces are.

    Attributes:
        data: all that has come.
    """

    def __init__(self) -> None:
        self.data = b""
        self._message = bytearray()
        self._record = 0
        self._taken = 0

    def feed(self, more: bytes) -> Hello | None:
        """What the start says, with ``more`` of it; ``None`` as long as that is not enough.

        Raises:
            ValueError: it starts like TLS, and is malformed or longer than any client's hello.
        """
        self.data += more
        data = self.data
        if len(data) < 2 and (not data or data[0] in _RECORDS):
            return None
        if data[0] not in _RECORDS or data[1] != 3:
            return _old_hello(data)
        hello = None
        while self._record + 5 <= len(data):
            whole = self._take_record()
            hello = self._whole()
            if hello is not None or not whole:
                break
        if hello is None and len(data) > _MOST:
            raise ValueError("the hello is too long")
        return hello

    def _take_record(self) -> bool:
        """Move what has come of a record into the message; whether that is all of it."""
        data, at = self.data, self._record
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at] != _HANDSHAKE or data[at + 1] != 3 or not 0 < size <= 1 << 14:
            raise ValueError("TLS does not start with a client's hello")
        fresh = data[at + 5 + self._taken : at + 5 + size]
        self._message += fresh
        self._taken += len(fresh)
        if self._taken < size:
            return False
        self._record, self._taken = at + 5 + size, 0
        return True

    def _whole(self) -> Hello | None:
        message = self._message
        if len(message) < 4:
            return None
        if message[0] != _CLIENT_HELLO:
            raise ValueError("TLS does not start with a client's hello")
        end = 4 + int.from_bytes(message[1:4], "big")
        return None if len(message) < end else Hello(True, _server_name(_Bytes(bytes(message[4:end]))))


def _old_hello(data: bytes) -> Hello | None:
    """An SSL 2 hello, which servers still take for TLS and which has no place for a name; else not TLS."""
    if not data[0] & 0x80:
        return Hello(False, "")
    if len(data) < 5:
        return None
    return Hello(data[2] == 1 and data[3] in (0, 3), "")


class _Bytes:
    """Vectors with their lengths before them, taken from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        if size > len(self.data):
            raise ValueError("a TLS hello is cut short")
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def vector(self, width: int) -> _Bytes:
        return _Bytes(self.take(self.number(width)))


def _server_name(hello: _Bytes) -> str:
    hello.take(2 + 32)  # version, random
    hello.vector(1)  # session
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression
    names: list[str] = []
    extensions = hello.vector(2) if hello.data else _Bytes(b"")
    while extensions.data:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            names += _names(content.vector(2))
    if len(names) > 1:
        raise ValueError("a TLS hello has several server names")
    return names[0] if names else ""


def _names(entries: _Bytes) -> list[str]:
    names = []
    while entries.data:
        kind, name = entries.number(1), entries.vector(2).data
        if kind != _HOST_NAME:
            raise ValueError("a TLS server name is of an unknown kind")
        names.append(normal_host(name.decode("ascii")))
    return names
