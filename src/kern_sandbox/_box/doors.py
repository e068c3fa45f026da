"""A box's ways out: which addresses of its own stand for which allowed host, and how its programs find them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..spec_network import Entry

__all__ = ["Door", "doors_for", "hosts_lines", "proxy_env"]

_PROXY = ("127.1.0.1", 3128)
_A_SUBNET = 250
_LOCAL = ("127.0.0.1", "::1")


class Door(NamedTuple):
    """A listener in the box: where it stands, and the host that it leads to on the same port; ``""`` is the proxy."""

    address: str
    port: int
    host: str


def doors_for(entries: Sequence[Entry] | None) -> tuple[Door, ...]:
    """The doors of a box with these entries: the proxy's, and one for each port of each host that is named exactly.

    A host gets a loopback address of its own. One that is loopback on the host, or any other IPv4 address, keeps the
    address that it has: in the box it means the door.
    """
    if entries is None:
        return ()
    doors = [Door(*_PROXY, "")]
    names = list(dict.fromkeys(entry.host for entry in entries if entry.kind == "name" and entry.host != "localhost"))
    places = {host: f"127.1.{1 + at // _A_SUBNET}.{1 + at % _A_SUBNET}" for at, host in enumerate(names)}
    for entry in entries:
        address = places.get(entry.host, _LOCAL[0] if entry.host == "localhost" else entry.host)
        if entry.kind == "name" or (entry.kind == "address" and (":" not in address or address in _LOCAL)):
            doors += [Door(address, port, entry.host) for port in entry.ports]
    return tuple({(door.address, door.port): door for door in reversed(doors)}.values())[::-1]


def entry_words(entry: Entry) -> str:
    """An entry for a person."""
    host, ports, kind = entry
    return f"{'*.' if kind == 'below' else ''}{host} port {' and '.join(map(str, ports))}"


def hosts_lines(doors: Sequence[Door]) -> str:
    """The lines of ``/etc/hosts`` that lead a program to them."""
    named = dict.fromkeys((door.address, door.host) for door in doors if door.host not in ("", "localhost"))
    return "".join(f"{address} {host}\n" for address, host in named if address != host)


def proxy_env(doors: Sequence[Door]) -> dict[str, str]:
    """The variables by which programs find a proxy, in both spellings; none without doors."""
    if not doors:
        return {}
    url = "http://{}:{}".format(*_PROXY)
    values = {**dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), url), "no_proxy": "localhost,127.0.0.1,::1"}
    return {**values, **{name.upper(): value for name, value in values.items()}}
