"""The head of a request to the proxy, read strictly: what two readers could read in two ways is refused."""

from __future__ import annotations

import re
from typing import NamedTuple, Union

from ..spec_network import normal_host, split_port

__all__ = ["BadRequest", "Request", "answer", "parse_head", "parse_size"]

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_START = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])\r\n")
_HEADER = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t\x20-\x7e\x80-\xff]*)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
# Of one connection only (RFC 9110, 7.6.1), or written anew for the next.
_OWN = {
    b"connection", b"content-length", b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"transfer-encoding", b"upgrade",
}  # fmt: skip

Body = Union[int, None]
"""Bytes that follow the head; ``None`` for chunks."""


class BadRequest(Exception):
    """What came is not a request that the proxy takes."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Request(NamedTuple):
    """What is asked for: a tunnel (``head`` is empty), or one request to be sent as ``head``."""

    host: str
    port: int
    head: bytes
    body: Body


def answer(status: str, words: str) -> bytes:
    """A whole response that ends the connection."""
    body = f"kern-sandbox: {words}\n".encode("ascii", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("ascii") + body


def parse_head(lines: list[bytes]) -> Request:
    """Read a head.

    Args:
        lines: every line with its end, without the empty one.

    Raises:
        BadRequest: it is malformed, ambiguous, or for something that the proxy does not do.
    """
    start = _START.fullmatch(lines[0]) if lines else None
    if start is None:
        raise BadRequest(400, "the request line is malformed")
    method, target, minor = start[1], start[2], start[3]
    headers = [_header(line) for line in lines[1:]]
    body = _body(headers, modern=minor == b"1")
    if method == b"CONNECT":
        host, port = _authority(target, None)
        _agree(headers, (host, port), port)
        if body != 0:
            raise BadRequest(400, "CONNECT has no body")
        return Request(host, port, b"", 0)
    authority, path = _absolute(target)
    host, port = _authority(authority, 80)
    _agree(headers, (host, port), 80, required=minor == b"1")
    return Request(host, port, _origin_head(method + b" " + path, (host, port), headers, body), body)


def parse_size(line: bytes) -> int:
    """The size of a chunk from its line; extensions are refused, for readers differ about them.

    Raises:
        BadRequest: malformed.
    """
    match = _CHUNK.fullmatch(line)
    if match is None:
        raise BadRequest(400, "a chunk's size is malformed")
    return int(match[1], 16)


def _header(line: bytes) -> tuple[bytes, bytes]:
    match = _HEADER.fullmatch(line)
    if match is None:
        raise BadRequest(400, "a header is malformed")
    return match[1], match[2].rstrip(b" \t")


def _values(headers: list[tuple[bytes, bytes]], wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name.lower() == wanted]


def _body(headers: list[tuple[bytes, bytes]], *, modern: bool) -> Body:
    lengths, codings = _values(headers, b"content-length"), _values(headers, b"transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise BadRequest(400, "the length of the body is said more than once")
    if codings:
        if not modern or codings[0].lower() != b"chunked":
            raise BadRequest(400, "the only transfer coding is chunked")
        return None
    if not lengths:
        return 0
    if not _LENGTH.fullmatch(lengths[0]):
        raise BadRequest(400, "Content-Length is malformed")
    return int(lengths[0])


def _absolute(target: bytes) -> tuple[bytes, bytes]:
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() != b"http":
        raise BadRequest(400, "only http:// URLs and CONNECT are taken")
    place = min((at for at in (rest.find(mark) for mark in (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    authority, path = rest[:place], rest[place:]
    if b"#" in path:
        raise BadRequest(400, "a fragment is no part of a request")
    return authority, path if path.startswith(b"/") else b"/" + path


def _authority(text: bytes, default: int | None) -> tuple[str, int]:
    try:
        host, port = split_port(text.decode("utf-8"))
        port = default if port is None else port
        if port is None:
            raise BadRequest(400, "CONNECT needs a port")
        return normal_host(host), port
    except ValueError:
        raise BadRequest(400, "the host or its port is malformed") from None


def _agree(
    headers: list[tuple[bytes, bytes]], target: tuple[str, int], default: int, *, required: bool = False
) -> None:
    """A Host header names the target and nothing else."""
    hosts = _values(headers, b"host")
    if len(hosts) > 1 or (required and not hosts):
        raise BadRequest(400, "a request has one Host header")
    if hosts and _authority(hosts[0], default) != target:
        raise BadRequest(400, "the Host header names another host than the request line")


def _origin_head(start: bytes, target: tuple[str, int], headers: list[tuple[bytes, bytes]], body: Body) -> bytes:
    """What the server gets: the same request in origin form, on a connection that serves no other."""
    host, port = target
    shown = (f"[{host}]" if ":" in host else host) + ("" if port == 80 else f":{port}")
    own = _OWN | {name.strip().lower() for value in _values(headers, b"connection") for name in value.split(b",")}
    kept = [name + b": " + value for name, value in headers if name.lower() not in own]
    if body is None:
        kept.append(b"Transfer-Encoding: chunked")
    elif _values(headers, b"content-length"):
        kept.append(b"Content-Length: %d" % body)
    first = [start + b" HTTP/1.1", b"Host: " + shown.encode("ascii")]
    return b"\r\n".join([*first, *kept, b"Connection: close", b"", b""])
