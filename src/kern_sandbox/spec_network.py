"""The words of ``egress_allow``: entries as a user writes them, hosts in their one form, and addresses by kind."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal, NamedTuple, Union

from .checks import bad, short
from .errors import SpecError

__all__ = [
    "Entry",
    "address_kind",
    "check_egress",
    "is_address",
    "is_loopback_name",
    "names_inside",
    "normal_host",
    "split_port",
]

_MOST = 128
_PORTS = (80, 443)
_MOST_NAME = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
# What IDNA 2003 (Python's own) and IDNA 2008 (today's browsers) spell differently: sharp s, final sigma, the joiners.
_AMBIGUOUS = re.compile("[\u00df\u1e9e\u03c2\u200c\u200d]")
_ACCEPTED = (
    'None, or a list of hosts such as "index.example", "*.example.com", "db.internal:5432" or "[2001:db8::1]:443"'
)
# What no public server has (the registries of special-purpose addresses that RFC 6890 set up, by kind).
_V4_KINDS = (
    ("an unspecified address", "0.0.0.0/8"),
    ("a loopback address", "127.0.0.0/8"),
    ("a link-local address, where clouds keep their metadata", "169.254.0.0/16"),
    ("a private address", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16"),
    ("a shared address of a carrier or cloud", "100.64.0.0/10"),
    ("the address of a cloud's own services", "168.63.129.16/32"),
    ("a multicast address", "224.0.0.0/4"),
    ("a reserved address", "192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24"),
    ("a reserved address", "240.0.0.0/4"),
)
_V6_KINDS = (
    ("an unspecified address", "::/128"),
    ("a loopback address", "::1/128"),
    ("a link-local address", "fe80::/10"),
    ("a private address", "fc00::/7 fec0::/10"),
    ("a multicast address", "ff00::/8"),
    ("a reserved address", "2001::/23 2001:db8::/32 2002::/16 3fff::/20"),
)
_V6_PUBLIC = ipaddress.IPv6Network("2000::/3")
_NO_HOST = tuple(ipaddress.ip_network(text) for text in ("0.0.0.0/8", "224.0.0.0/3", "::/128", "ff00::/8"))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


class Entry(NamedTuple):
    """One entry of ``egress_allow``.

    ``kind``: ``"name"`` is one host, ``"below"`` every name below ``host`` at any depth and not itself, ``"address"``
    an IP address in its canonical form.
    """

    host: str
    ports: tuple[int, ...]
    kind: Literal["name", "below", "address"]


def check_egress(value: object, option: str = "egress_allow") -> tuple[Entry, ...] | None:
    """The entries of ``option``; an empty list stays one: nothing is allowed.

    Raises:
        SpecError: not a list of str, too many, or an entry that names no host.
    """
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise bad(option, value, _ACCEPTED)
    if len(value) > _MOST:
        raise SpecError(f"{option} has {len(value)} entries: at most {_MOST} are taken; use a wildcard")
    return tuple(dict.fromkeys(_entry(item, option) for item in value))


def names_inside(entries: tuple[Entry, ...]) -> Entry | None:
    """The first entry that by itself names an address that is not public, if there is one."""
    for entry in entries:
        inside = entry.kind == "address" and address_kind(entry.host)
        if inside or is_loopback_name(entry.host):
            return entry
    return None


def _entry(item: object, option: str) -> Entry:
    if not isinstance(item, str):
        raise SpecError(f"{option} has the entry {short(item)}: an entry is a str")
    try:
        return _parsed(item)
    except ValueError as error:
        raise SpecError(f"{option} has the entry {short(item)}: {error}. Accepted are {_ACCEPTED}") from None


def _parsed(item: str) -> Entry:
    for mark, words in (("://", "leave the scheme out"), ("@", "leave the user out"), ("/", "a path is no part of it")):
        if mark in item:
            raise ValueError(words)
    if item == "*":
        raise ValueError("every host at once is what network=True gives")
    below = item.startswith("*.")
    rest = item[2:] if below else item
    bare = rest.count(":") > 1 and not rest.startswith("[")
    text, port = (rest, None) if bare else split_port(rest)
    host = normal_host(text)
    ports = _PORTS if port is None else (port,)
    if is_address(host) and any(ipaddress.ip_address(host) in network for network in _NO_HOST):
        raise ValueError("no host has this address")
    if not below:
        return Entry(host, ports, "address" if is_address(host) else "name")
    if is_address(host) or "." not in host:
        raise ValueError("a wildcard stands before a name of two labels or more")
    return Entry(host, ports, "below")


def split_port(text: str) -> tuple[str, int | None]:
    """``host:port`` or ``[address]:port`` in two; the host is not looked at.

    Raises:
        ValueError: the port is none.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text, None
    if not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError("a port is a whole number from 1 to 65535")
    return host, int(port)


def normal_host(text: str) -> str:
    """A host in its one form: lower case, A-labels, no final dot; an address as Python's ``ipaddress`` writes it.

    An IPv6 address may stand in brackets; one that holds an IPv4 address (``::ffff:…``) is that address.

    Raises:
        ValueError: it is no host, or an IPv4 address in a form that programs read differently.
    """
    if ":" in text or "[" in text:
        bracketed = text.startswith("[") and text.endswith("]")
        return _normal_v6(text[1:-1] if bracketed else text)
    name = _a_labels(text).lower()
    name = name.removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _normal_v4(name)
    if len(name) > _MOST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("it is no host name")
    return name


def _a_labels(text: str) -> str:
    if text.isascii():
        return text
    if len(text) > _MOST_NAME:
        raise ValueError("it is no host name")
    if _AMBIGUOUS.search(text):
        raise ValueError("it has a letter that is spelt in two ways in host names: give its xn-- form")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError("it is no host name") from None


def _normal_v4(name: str) -> str:
    try:
        address = str(ipaddress.IPv4Address(name))
    except ValueError:
        address = ""
    if address != name:
        raise ValueError("an IPv4 address is four decimal numbers without leading zeros")
    return address


def _normal_v6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError("it is neither a host with a port nor an IPv6 address") from None
    if "%" in text:
        raise ValueError("an address with a zone is not accepted")
    return str(address.ipv4_mapped or address)


def is_address(host: str) -> bool:
    """Whether a host in its one form is an IP address."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def is_loopback_name(host: str) -> bool:
    """Whether a name means loopback, whatever a resolver says (RFC 6761)."""
    return host == "localhost" or host.endswith(".localhost")


def address_kind(address: str) -> str:
    """What an address is that no public server has, in words; ``""`` for a public one."""
    try:
        parsed: Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "an address that cannot be read"
    if isinstance(parsed, ipaddress.IPv6Address):
        embedded = parsed.ipv4_mapped
        if embedded is None and parsed in _NAT64:
            embedded = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        parsed = embedded or parsed
    table = _V4_KINDS if parsed.version == 4 else _V6_KINDS
    for kind, networks in table:
        if any(parsed in ipaddress.ip_network(network) for network in networks.split()):
            return kind
    return "" if parsed.version == 4 or parsed in _V6_PUBLIC else "a reserved address"
