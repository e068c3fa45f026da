"""The proxy against servers on loopback and clients that mean ill: what passes, what does not, and what is left."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from egress_help import NAMES, Authority, Keep, Proxy, Server, allow, answers, echo, make_authority, read_all

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"), ["a.test", "b.test", "127.0.0.1"])


class Recorder:
    """An HTTP server that keeps what it was sent until its client stops sending."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.done = threading.Event()

    def __call__(self, client: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += client.recv(65536)
        while not data.endswith((b"\r\n\r\n", b"end")):
            data += client.recv(65536)
        client.sendall(ANSWER)
        client.shutdown(socket.SHUT_WR)
        data += read_all(client)
        self.heard.append(data)
        self.done.set()


# --- what passes ------------------------------------------------------------------------------------------------


def test_a_request_reaches_its_server_in_origin_form_and_alone_on_its_connection(keep: Keep) -> None:
    recorder = Recorder()
    port = keep(Server(recorder)).port
    proxy = keep(Proxy(allow(port), NAMES))
    said = proxy.ask(
        f"POST http://a.test:{port}/x HTTP/1.1\r\nHost: a.test:{port}\r\nContent-Length: 3\r\n\r\nend"
        "GET /second HTTP/1.1\r\nHost: secret.test\r\n\r\n".encode()
    )
    assert said == ANSWER
    assert recorder.done.wait(60)
    sent = f"POST /x HTTP/1.1\r\nHost: a.test:{port}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nend"
    assert recorder.heard == [sent.encode()]
    assert proxy.dismiss() == [["a.test", port, "allowed", "", 1, len(sent), len(ANSWER)]]


def test_chunks_are_framed_anew_and_nothing_follows_them(keep: Keep) -> None:
    recorder = Recorder()
    port = keep(Server(recorder)).port
    proxy = keep(Proxy(allow(port), NAMES))
    start = f"POST http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert proxy.ask(start.encode() + b"003\r\nabc\r\n0\r\nX: trailer\r\n\r\nGET / HTTP/1.1\r\n\r\n") == ANSWER
    assert recorder.done.wait(60)
    assert recorder.heard[0].partition(b"\r\n\r\n")[2] == b"3\r\nabc\r\n0\r\n\r\n"


def test_a_tunnel_and_a_door_carry_bytes_both_ways_and_ends_of_file(keep: Keep) -> None:
    port = keep(Server(echo)).port
    proxy = keep(Proxy(allow(port), NAMES, doors=[("a.test", port)]))
    blob = bytes(range(256)) * 4096
    for client in (proxy.tunnel(f"A.test.:{port}"), proxy.connect(1)):
        with client:
            sender = threading.Thread(target=lambda: (client.sendall(blob), client.shutdown(socket.SHUT_WR)))  # noqa: B023
            sender.start()
            assert read_all(client) == blob
            sender.join()
    assert proxy.dismiss() == [["a.test", port, "allowed", "", 2, 2 * len(blob), 2 * len(blob)]]


def test_a_server_that_speaks_first_is_heard(keep: Keep) -> None:
    port = keep(Server(lambda client: client.sendall(b"220 ready\r\n"))).port
    proxy = keep(Proxy(allow(port), NAMES, doors=[("a.test", port)]))
    with proxy.connect(1) as client:
        assert client.recv(100) == b"220 ready\r\n"


# --- what does not ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("CONNECT evil.test:443", 403),
        ("CONNECT a.test:22", 403),
        ("CONNECT a.test.evil.test:{port}", 403),
        ("CONNECT 127.0.0.1:1", 403),
        ("CONNECT 127.1:{port}", 400),
        ("CONNECT a.test:{port}:80", 400),
        ("CONNECT 169.254.169.254:80", 403),
        ("CONNECT [::ffff:169.254.169.254]:80", 403),
        ("CONNECT 2852039166:80", 400),
        ("GET http://evil.test/", 403),
        ("GET http://a.test@evil.test/", 400),
        ("GET /", 400),
    ],
)
def test_what_is_not_named_is_refused_without_a_look_up_or_a_connection(
    keep: Keep, request_line: str, status: int
) -> None:
    server = keep(Server(echo))
    proxy = keep(Proxy(allow(server.port), NAMES))
    assert proxy.ask(f"{request_line.format(port=server.port)} HTTP/1.0\r\n\r\n".encode()).startswith(
        b"HTTP/1.1 %d " % status
    )
    assert (server.accepted, proxy.asked) == (0, [])
    with proxy.tunnel(f"a.test:{server.port}") as client:
        assert answers(client)
        assert (server.accepted, proxy.asked) == (1, ["a.test"])
    assert sorted((row[2], bool(row[3])) for row in proxy.dismiss()) == [("allowed", False), ("refused", True)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (["127.0.0.2"], "a loopback address"),
        (["10.0.0.1"], "a private address"),
        (["169.254.169.254"], "link-local"),
        (["::1"], "a loopback address"),
        (["::ffff:127.0.0.1"], "a loopback address"),
        (["fd00:ec2::254"], "a private address"),
        (["100.100.100.200"], "a shared address"),
        (["0.0.0.0"], "an unspecified address"),
        (["fe80::1%1"], "link-local"),
    ],
)
def test_an_allowed_name_with_an_address_of_the_inside_is_refused(keep: Keep, answer: list[str], reason: str) -> None:
    port = keep(Server(echo)).port
    proxy = keep(Proxy(allow(port, f"b.test:{port}"), {"a.test": ["127.0.0.1"], "b.test": answer}))
    said = proxy.ask(f"CONNECT b.test:{port} HTTP/1.1\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 403 ")
    assert reason in said.decode()
    assert answer[0] not in said.decode()
    with proxy.tunnel(f"a.test:{port}"):
        pass


def test_the_address_that_was_checked_is_the_one_that_is_connected(keep: Keep) -> None:
    """A name server that answers differently the second time is asked only once for a connection."""
    server = keep(Server(echo))
    changing = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1"]]
    proxy = keep(Proxy(allow(server.port), {"a.test": changing}))
    with proxy.tunnel(f"a.test:{server.port}") as client:
        assert answers(client)
        assert (proxy.asked, server.accepted) == (["a.test"], 1)
    assert proxy.ask(f"CONNECT a.test:{server.port} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 403 ")
    assert (len(proxy.asked), server.accepted) == (2, 1)


def test_of_several_addresses_the_first_allowed_one_that_answers_is_taken(keep: Keep) -> None:
    server = keep(Server(echo))
    entries = [*allow(server.port), f"127.0.0.3:{server.port}"]
    answer = ["10.0.0.1", "::1", "127.0.0.3", "127.0.0.1"]  # refused, refused, nobody there, there
    proxy = keep(Proxy(entries, {"a.test": answer}))
    with proxy.tunnel(f"a.test:{server.port}") as client:
        assert answers(client)
        assert server.accepted == 1


def test_a_name_that_leads_to_this_machine_by_a_public_address_is_refused(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = keep(Server(echo)).port
    proxy = keep(Proxy([*allow(port), f"b.test:{port}"], {**NAMES, "b.test": ["1.1.1.1"]}))
    monkeypatch.setattr("kern_sandbox._egress.dial.is_own", lambda address: True)
    said = proxy.ask(f"CONNECT b.test:{port} HTTP/1.1\r\n\r\n".encode())
    assert b"an address of this machine" in said
    with proxy.tunnel(f"a.test:{port}") as client:
        assert answers(client)


@pytest.mark.parametrize("request_line", ["CONNECT {}", "GET http://{}/"])
def test_a_redirect_is_a_new_request(keep: Keep, request_line: str) -> None:
    def redirect(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")

    port = keep(Server(redirect)).port
    proxy = keep(Proxy(allow(port), NAMES))
    assert b"302 Found" in proxy.ask(f"GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n".encode())
    target = request_line.format("169.254.169.254" + (":80" if "CONNECT" in request_line else ""))
    assert proxy.ask(f"{target} HTTP/1.0\r\n\r\n".encode()).startswith(b"HTTP/1.1 403 ")


def test_a_name_without_an_address_and_a_server_that_is_not_there_are_a_bad_gateway(keep: Keep) -> None:
    taken = keep(socket.socket())  # so that nobody else comes to listen there meanwhile
    taken.bind(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    proxy = keep(Proxy([f"none.test:{port}", *allow(port)], NAMES, doors=[("none.test", port)]))
    for host in ("none.test", "a.test"):
        assert proxy.ask(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 502 ")
    with proxy.connect(1) as client:
        assert client.recv(1) == b""
    rows = proxy.dismiss()
    assert [(row[0], row[2]) for row in rows] == [("none.test", "allowed"), ("a.test", "allowed")]
    assert all("no connection: " in row[3] for row in rows)


# --- TLS --------------------------------------------------------------------------------------------------------


def tls_client(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


@pytest.mark.parametrize("door", [False, True])
def test_tls_passes_with_the_allowed_name_and_no_other(keep: Keep, authority: Authority, door: bool) -> None:
    server = keep(Server(echo, authority.server))
    proxy = keep(Proxy(allow(server.port), NAMES, doors=[("a.test", server.port)]))
    context = tls_client(authority)

    def talk(name: str | None) -> bytes:
        context.check_hostname = name is not None
        connection = proxy.connect(1) if door else proxy.tunnel(f"a.test:{server.port}")
        with connection, context.wrap_socket(connection, server_hostname=name) as secure:
            secure.sendall(b"secret")
            return secure.recv(100)

    assert talk("a.test") == b"secret"
    for name in ("b.test", None):
        with pytest.raises(ssl.SSLError, match=r"(?i)access.denied"):
            talk(name)
    rows = proxy.dismiss()
    assert [(row[2], row[3]) for row in rows] == [
        ("allowed", ""),
        ("refused", "TLS asks for the server name b.test"),
        ("refused", "TLS gives no server name"),
    ]
    assert [row[5] for row in rows[1:]] == [0, 0]


def test_an_address_has_no_server_name_to_match(keep: Keep, authority: Authority) -> None:
    server = keep(Server(echo, authority.server))
    proxy = keep(Proxy(allow(server.port), NAMES))
    context = tls_client(authority)
    with context.wrap_socket(proxy.tunnel(f"127.0.0.1:{server.port}"), server_hostname="127.0.0.1") as secure:
        secure.sendall(b"secret")
        assert secure.recv(100) == b"secret"
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(proxy.tunnel(f"127.0.0.1:{server.port}"), server_hostname="a.test")
