"""The proxy against clients and servers that mean ill, stall or die: everything has a bound and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import threading
from typing import Callable

import pytest

from egress_help import NAMES, Keep, Proxy, Server, allow, answers, echo, read_all
from kern_sandbox._egress import connection, service


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET http://a.test/ HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", b"431"),
        (b"GET http://a.test/ HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", b"431"),
        (b"G" * 200_000, b"431"),
        (b"GET http://a.test/ HTTP/1.1\nHost: a.test\n\n", None),
        (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\nX: y\r\n\r\n", b"400"),
        (b"\x16\x03\x01\0\x05hello\r\n\r\n", b"400"),
        (b"\x05\x01\0\n\r\n", b"400"),
    ],
    ids=["one long header", "many headers", "no line", "bare line feeds", "one bare line feed", "TLS", "SOCKS"],
)
def test_a_head_that_is_too_large_or_none_is_refused(
    keep: Keep, sent: bytes, status: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if status is None:  # the others are answered however long they took to come
        monkeypatch.setattr(connection, "HEAD_S", 0.3)
    proxy = keep(Proxy(["a.test"], NAMES))
    assert proxy.ask(sent).startswith(b"HTTP/1.1 " + (status or b"408"))
    assert proxy.asked == []


@pytest.mark.parametrize("sent", [b"", b"GET http://a.test/ HT", b"GET http://a.test/ HTTP/1.1\r\nX: y\r\n"])
def test_a_client_that_does_not_finish_its_request_is_let_go(
    keep: Keep, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = keep(Proxy(["a.test"], NAMES))
    with monkeypatch.context() as patch:
        patch.setattr(connection, "HEAD_S", 0.2)
        assert proxy.ask(sent).startswith(b"HTTP/1.1 408 ")
    with proxy.connect() as client:  # which leaves by itself
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b""


def test_a_client_that_does_not_finish_tls_is_let_go(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    server = keep(Server(echo))
    proxy = keep(Proxy(allow(server.port), NAMES, doors=[("a.test", server.port)]))
    for door in (0, 1):
        with proxy.connect(1) if door else proxy.tunnel(f"a.test:{server.port}") as client:
            monkeypatch.setattr(connection, "HEAD_S", 0.2)  # it counts from what is sent now
            client.sendall(b"\x16\x03\x01\x01\0\x01")
            assert not read_all(client).startswith(b"\x16")
    assert proxy.dismiss()[0][2:] == ["refused", "the start of TLS did not come in time", 2, 0, 0]


def wait_until(true: Callable[[], bool]) -> None:
    """Look until it is so; the test's own timeout ends a wait that never does."""
    while not true():
        threading.Event().wait(0.01)


def wait_for_tasks(proxy: Proxy, number: int) -> None:
    """Until the service has only ``number`` tasks."""
    wait_until(lambda: proxy.tasks() == number)


def reset(client: socket.socket) -> None:
    """Close so that the other end sees a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def test_clients_that_die_in_the_middle_leave_nothing(keep: Keep) -> None:
    gone = threading.Semaphore(0)

    def endless(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client.sendall(bytes(65536))
        gone.release()

    port = keep(Server(endless)).port
    proxy = keep(Proxy(allow(port), NAMES, doors=[("a.test", port)]))
    for end in (reset, lambda client: client.close()):
        for client in [proxy.connect(1) for _ in range(10)]:
            assert client.recv(10)
            end(client)
    for _ in range(20):
        assert gone.acquire(timeout=60)
    wait_for_tasks(proxy, 2)


def test_a_server_that_dies_ends_its_clients(keep: Keep) -> None:
    def die(client: socket.socket) -> None:
        client.recv(10)
        client.sendall(b"half")
        reset(client)

    port = keep(Server(die)).port
    proxy = keep(Proxy(allow(port), NAMES, doors=[("a.test", port)]))
    for client in (proxy.connect(1), proxy.tunnel(f"a.test:{port}")):
        with client:
            client.sendall(b"x")
            assert read_all(client) in (b"half", b"")
    wait_for_tasks(proxy, 2)


def test_a_box_has_a_most_number_of_connections_and_the_others_wait(keep: Keep) -> None:
    server = keep(Server(echo))
    proxy = keep(Proxy(allow(server.port), NAMES, doors=[("a.test", server.port)]))
    clients = [proxy.connect(1) for _ in range(1000)]
    first = clients[: service.MOST_CONNECTIONS]
    for client in first:
        assert answers(client)
    assert server.accepted == service.MOST_CONNECTIONS
    for client in first:
        client.close()
    last = clients[service.MOST_CONNECTIONS]
    assert answers(last)
    for client in clients:
        client.close()
    wait_for_tasks(proxy, 2)


def test_slow_look_ups_of_one_box_hold_up_nobody_else(keep: Keep) -> None:
    answer = threading.Event()
    server = keep(Server(echo))
    entries = [*allow(server.port), *(f"slow{number}.test" for number in range(40))]
    slow = keep(Proxy(entries, {**NAMES, **{f"slow{number}.test": answer for number in range(40)}}))
    waiting = [slow.connect() for _ in range(40)]
    for number, client in enumerate(waiting):
        client.sendall(f"CONNECT slow{number}.test:443 HTTP/1.1\r\n\r\n".encode())
    wait_until(lambda: len(slow.asked) == service.MOST_LOOK_UPS)
    slow.admit_another(2, allow(server.port))
    with slow.tunnel(f"a.test:{server.port}", door=-1):
        assert slow.asked.count("a.test") == 1
    assert len(slow.asked) == service.MOST_LOOK_UPS + 1
    answer.set()
    for client in waiting:
        assert read_all(client).startswith(b"HTTP/1.1 502 ")
        client.close()


def test_a_look_up_that_nobody_waits_for_any_more_still_counts(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one box would soon have every thread that looks names up, each with a name server that does not answer."""
    monkeypatch.setattr("kern_sandbox._egress.dial._LOOK_UP_S", 0.1)
    answer, names = threading.Event(), [f"slow{number}.test" for number in range(2 * service.MOST_LOOK_UPS)]
    proxy = keep(Proxy([*names, "a.test"], {**NAMES, **dict.fromkeys(names, answer)}))
    waiting = [proxy.connect() for _ in names]
    for name, client in zip(names, waiting):
        client.sendall(f"CONNECT {name}:443 HTTP/1.1\r\n\r\n".encode())
    answered: set[socket.socket] = set()
    while len(answered) < service.MOST_LOOK_UPS:
        answered |= set(select.select([client for client in waiting if client not in answered], [], [])[0])
    assert len(proxy.asked) == service.MOST_LOOK_UPS
    answer.set()
    wait_until(lambda: len(proxy.asked) == len(names))
    for client in waiting:
        assert client not in answered or b"took too long" in read_all(client)
        client.close()


def test_when_a_box_ends_its_connections_end_and_are_on_record(keep: Keep) -> None:
    server = keep(Server(echo))
    proxy = keep(Proxy(allow(server.port), NAMES, doors=[("a.test", server.port)]))
    clients = [proxy.connect(1), proxy.tunnel(f"a.test:{server.port}")]
    for client in clients:
        client.sendall(b"abc")
        assert client.recv(3) == b"abc"
    half_open = proxy.connect()
    half_open.sendall(b"CONNECT ")
    assert proxy.dismiss() == [["a.test", server.port, "allowed", "", 2, 6, 6]]
    for client in (*clients, half_open):
        with client:
            assert read_all(client) == b""
    with pytest.raises(ConnectionRefusedError):
        proxy.connect(1)


def test_a_box_that_ends_in_the_moment_in_which_its_connection_does_leaves_no_descriptor(keep: Keep) -> None:
    server = keep(Server(echo))
    proxy = keep(Proxy(["a.test"], NAMES))

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for number in range(2, 102):
        proxy.admit_another(number, allow(server.port))
        with proxy.tunnel(f"a.test:{server.port}", door=-1) as client:
            client.sendall(b"x")
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b"x"
            if number % 2:
                assert client.recv(1) == b""
            proxy.dismiss(number)
    wait_until(lambda: descriptors() <= before)  # what an earlier test has left may go meanwhile


def test_the_record_is_bounded(keep: Keep) -> None:
    proxy = keep(Proxy(["a.test"], NAMES))
    for number in range(120):
        proxy.ask(f"CONNECT h{number}.test:443 HTTP/1.1\r\n\r\n".encode())
    proxy.admit_another(2, ["a.test"])
    long = ".".join(["x" * 61] * 4)
    for number in range(100, 220):
        proxy.ask(f"CONNECT {number}{long[3:]}:443 HTTP/1.1\r\n\r\n".encode(), door=-1)
    assert len(proxy.dismiss()) == 100
    rows = proxy.dismiss(2)
    assert 80 < len(rows) < 90
    assert len(json.dumps(rows)) < 50_000
