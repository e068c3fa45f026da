"""What a box may reach, decided purely: a host and port, and then the address that it turned out to have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..spec_network import Entry, address_kind, is_loopback_name

__all__ = ["Policy", "Refused"]


class Refused(Exception):
    """The policy says no; the words say why, and hold nothing of the host's own network."""


class Policy:
    """The entries of one ``egress_allow``. Hosts are given to it in their one form (``normal_host``)."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)

    @classmethod
    def from_wire(cls, rows: Sequence[Sequence[Any]]) -> Policy:
        """The inverse of writing entries as JSON."""
        return cls(Entry(str(host), tuple(int(port) for port in ports), kind) for host, ports, kind in rows)

    def check(self, host: str, port: int) -> None:
        """Whether ``host`` may be asked for at all, before anything is looked up.

        Raises:
            Refused: no entry names it, or none with this port.
        """
        ports = [each for entry in self._entries if _names(entry, host) for each in entry.ports]
        if not ports:
            raise Refused("the host is not in egress_allow")
        if port not in ports:
            raise Refused(f"egress_allow has the host, but not with port {port}")

    def check_address(self, address: str, port: int, *, own: bool = False) -> None:
        """Whether a connection may go to ``address``, which an allowed host has turned out to have.

        Args:
            address: as the resolver gives it.
            port: of the host.
            own: it is one of this machine's, behind whatever shields that from the world.

        Raises:
            Refused: it is not public, or is this machine's, and no entry names it.
        """
        kind = address_kind(address) or ("an address of this machine" if own else "")
        if kind and not any(_names_address(entry, address) and port in entry.ports for entry in self._entries):
            raise Refused(f"the host has {kind}, which no entry of egress_allow names")


def _names(entry: Entry, host: str) -> bool:
    return host.endswith("." + entry.host) if entry.kind == "below" else host == entry.host


def _names_address(entry: Entry, address: str) -> bool:
    if entry.kind == "address":
        return address == entry.host
    return entry.kind == "name" and is_loopback_name(entry.host) and address in ("127.0.0.1", "::1")
