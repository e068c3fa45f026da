"""The proxy's two parsers: a request's head, where ambiguity is refused, and the start of TLS, for its server name."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kern_sandbox._egress.hello import Hello, HelloReader
from kern_sandbox._egress.http import BadRequest, Request, parse_head, parse_size

GET = "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"
OWN = "\r\nHost: a.example\r\n"


def head(text: str) -> Request:
    return parse_head(text.encode("latin-1").splitlines(keepends=True))


# --- requests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n", "a.example", 443),
        ("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n", "a.example", 443),
        ("CONNECT A.example.:5432 HTTP/1.0\r\n", "a.example", 5432),
        ("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n", "::1", 443),
        ("CONNECT [::ffff:10.0.0.1]:443 HTTP/1.1\r\n", "10.0.0.1", 443),
    ],
)
def test_a_tunnel_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert head(text) == Request(host, port, b"", 0)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("GET http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\n", "GET /x?y HTTP/1.1\r\nHost: a.example\r\n"),
        ("GET http://A.example. HTTP/1.1\r\nHOST: a.EXAMPLE:80\r\n", "GET / HTTP/1.1\r\nHost: a.example\r\n"),
        ("GET http://a.example?q HTTP/1.0\r\n", "GET /?q HTTP/1.1\r\nHost: a.example\r\n"),
        ("GET HTTP://[::1]:81/ HTTP/1.0\r\n", "GET / HTTP/1.1\r\nHost: [::1]:81\r\n"),
        (
            f"{GET}Proxy-Authorization: x\r\nUpgrade: y\r\nConnection: upgrade, X-Own\r\nX-Own: 1\r\nX-Kept: 2 \r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\nX-Kept: 2\r\n",
        ),
        (
            "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n",
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n",
        ),
        (
            "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\n",
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n",
        ),
    ],
)
def test_a_request_is_written_anew_for_its_one_server(text: str, sent: str) -> None:
    assert head(text).head == f"{sent}Connection: close\r\n\r\n".encode()


@pytest.mark.parametrize(
    "text",
    [
        "", "\r\n", "GET\r\n", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1" + OWN, "GET * HTTP/1.1\r\n",
        "GET  http://a.example/ HTTP/1.1" + OWN, "GET http://a.example/ HTTP/1.1 " + OWN,
        "GET http://a.example/ HTTP/1.2" + OWN, "GET http://a.example/ HTTP/1.1\nHost: a.example\r\n",
        "GET http://a.example/\tx HTTP/1.1" + OWN, " GET http://a.example/ HTTP/1.1\r\n",
        "GET https://a.example/ HTTP/1.1" + OWN, "GET ftp://a.example/ HTTP/1.1" + OWN,
        "GET http://me@a.example/ HTTP/1.1" + OWN, "GET http:///x HTTP/1.1\r\nHost: \r\n",
        "GET http://a.example/#f HTTP/1.1" + OWN, "GET http://a.example\\@b/ HTTP/1.1" + OWN,
        "GET http://a.example:/ HTTP/1.1" + OWN, "GET http://127.1/ HTTP/1.1\r\nHost: 127.1\r\n",
        "GET http://a.example/ HTTP/1.1\r\n", f"{GET}Host: a.example\r\n", f"{GET}host: evil.example\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: evil.example\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example:81\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example, b\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: b.example\r\n", "CONNECT a.example HTTP/1.1\r\n",
        "CONNECT a.example:0 HTTP/1.1\r\n", "CONNECT http://a.example:443 HTTP/1.1\r\n",
        "CONNECT me@a.example:443 HTTP/1.1\r\n", "CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 3\r\n",
        f"{GET}Content-Length: 1\r\nContent-Length: 1\r\n",
        f"{GET}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", f"{GET}Content-Length: +1\r\n",
        f"{GET}Content-Length: 1, 1\r\n", f"{GET}Content-Length: \r\n", f"{GET}Content-Length: -1\r\n",
        f"{GET}Content-Length: 0x1\r\n", f"{GET}Transfer-Encoding: gzip, chunked\r\n",
        f"{GET}Transfer-Encoding: identity\r\n", f"{GET}Transfer-Encoding: \x0bchunked\r\n",
        f"{GET}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "GET http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", f"{GET}Transfer-Encoding : chunked\r\n",
        f"{GET} folded: x\r\n", f"{GET}X: a\r\n\tfolded\r\n", f"{GET}X: a\nY: b\r\n", f"{GET}X: a\0\r\n",
        f"{GET}X: a\rb\r\n", f"{GET}: x\r\n", f"{GET}X\r\n", f"{GET}X: a\n", f"{GET}X\xe9: a\r\n",
    ],
)  # fmt: skip
def test_a_request_that_two_readers_could_read_in_two_ways_is_refused(text: str) -> None:
    assert head(GET).head  # the control
    with pytest.raises(BadRequest):
        parse_head(text.encode("latin-1").splitlines(keepends=True))


@pytest.mark.parametrize(("line", "size"), [(b"0\r\n", 0), (b"1a\r\n", 26), (b"00F\r\n", 15)])
def test_the_size_of_a_chunk_is_a_hexadecimal_number(line: bytes, size: int) -> None:
    assert parse_size(line) == size


@pytest.mark.parametrize(
    "line", [b"", b"\r\n", b"1\n", b"1;x=y\r\n", b"0x1\r\n", b"+1\r\n", b"1 \r\n", b"-1\r\n", b"g\r\n"]
)
def test_any_other_size_of_a_chunk_is_refused(line: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_size(line)


@given(some.lists(some.binary(max_size=60), max_size=6))
def test_whatever_comes_is_a_request_or_a_refusal(lines: list[bytes]) -> None:
    with contextlib.suppress(BadRequest):
        assert parse_head([line + b"\r\n" for line in lines]).host


# --- TLS --------------------------------------------------------------------------------------------------------


def hello_of(name: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """What Python's own TLS sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.maximum_version = version
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def in_pieces(hello: bytes, size: int) -> bytes:
    """The same message in many records."""
    body = hello[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(hello[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def read_hello(start: bytes) -> Hello | None:
    return HelloReader().feed(start)


def read_singly(start: bytes) -> Hello | None:
    """The same, byte by byte, as far as it takes."""
    reader = HelloReader()
    return next((hello for at in range(len(start)) if (hello := reader.feed(start[at : at + 1])) is not None), None)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("given", "read"),
    [("a.example", "a.example"), ("A.Example", "a.example"), ("bücher.example", "xn--bcher-kva.example"), (None, "")],
)
def test_the_server_name_is_that_which_the_client_asks_for(
    given: str | None, read: str, version: ssl.TLSVersion
) -> None:
    assert read_hello(hello_of(given, version)) == Hello(True, read)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_hello_in_fragments_is_put_together(size: int) -> None:
    assert read_hello(in_pieces(hello_of("a.example"), size)) == Hello(True, "a.example")
    assert read_singly(in_pieces(hello_of("a.example"), size)) == Hello(True, "a.example")


def test_what_comes_in_single_bytes_is_looked_at_once() -> None:
    """A box could else keep the proxy of all boxes busy: by whole looks this takes half an hour."""
    with pytest.raises(ValueError, match="too long"):
        read_singly(in_pieces(b"\x16\x03\x01\0\0\x01\xff\xff\xff" + bytes(1 << 16), 1))


def test_until_all_of_it_is_there_nothing_is_known() -> None:
    hello = hello_of("a.example")
    assert [read_hello(hello[:size]) for size in range(len(hello))] == [None] * len(hello)


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"*1\r\n",
        b"SSH-2.0-x",
        b"\x16\x01\0\0\x01",
        b"\x80\0\0\0\x01",
        b"x",
    ],
)
def test_other_protocols_are_not_taken_for_tls(start: bytes) -> None:
    assert read_hello(start) == Hello(False, "")


def test_an_ssl_2_hello_is_tls_without_a_name() -> None:
    assert read_hello(b"\x80\x2e\x01\x03\x01") == Hello(True, "")
    assert read_hello(b"\x80\x2e\x01") is None


def two_names(hello: bytes) -> bytes:
    """The hello with its server name extension twice, all lengths put right."""
    at = hello.index(b"\0\0", hello.index(b"a.example") - 12)
    size = int.from_bytes(hello[at + 2 : at + 4], "big") + 4
    extension = hello[at : at + size]
    longer = bytearray(hello[:at] + extension + hello[at:])
    sessions = 5 + 4 + 34
    ciphers = sessions + 1 + longer[sessions]
    compression = ciphers + 2 + int.from_bytes(longer[ciphers : ciphers + 2], "big")
    extensions = compression + 1 + longer[compression]
    for place, width in ((3, 2), (6, 3), (extensions, 2)):
        value = int.from_bytes(longer[place : place + width], "big") + size
        longer[place : place + width] = value.to_bytes(width, "big")
    return bytes(longer)


@pytest.mark.parametrize(
    "start",
    [
        two_names(hello_of("a.example")),
        b"\x15\x03\x01\0\x02\x01\x5a" + hello_of("a.example"),
        b"\x14\x03\x01\0\x01\x01" + hello_of("a.example"),
        b"\x16\x03\x01\0\0" + hello_of("a.example"),
        b"\x16\x03\x01\0\x04\x02\0\0\0",
        b"\x16\x03\x01\0\x05\x01\0\0\x01\x03",
        b"\x16\x03\x01\xff\xff",
        in_pieces(b"\x16\x03\x01\0\0\x01\xff\xff\xff" + bytes(1 << 17), 1 << 14),
    ],
    ids=[
        "two names",
        "an alert first",
        "a change of cipher first",
        "an empty record",
        "a server's",
        "cut",
        "long",
        "endless",
    ],
)
def test_a_start_of_tls_that_readers_could_read_differently_is_refused(start: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # its words go into a reason as they are
        read_hello(start)


@given(some.binary(max_size=200))
def test_whatever_follows_the_start_of_tls_is_read_or_refused(rest: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert read_hello(b"\x16\x03\x01" + rest) in (None, Hello(True, ""))
