"""What the tests of egress share: servers on loopback, a certificate authority, and the proxy in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from kern_sandbox._egress.dial import Dialler
from kern_sandbox._egress.service import Service
from kern_sandbox.spec_network import check_egress
from support import need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Keep = Callable[[Any], Any]
Talk = Callable[[socket.socket], None]
PATIENCE_S = 60.0
PROXY = "('127.1.0.1', 3128)"
TALK = """
import socket
def talk(place, say=b'ping', tunnel=None):
    try:
        with socket.create_connection(place, 20) as s:
            if tunnel:
                s.sendall(f'CONNECT {tunnel} HTTP/1.1\\r\\n\\r\\n'.encode())
                head = b''
                while not head.endswith(b'\\r\\n\\r\\n'):
                    piece = s.recv(1)
                    if not piece: break
                    head += piece
                if b' 200 ' not in head: return head.split()[1].decode()
            s.sendall(say)
            return s.recv(100)
    except OSError as error:
        return __import__('errno').errorcode.get(error.errno, error.errno)
"""


class Server:
    """A listener on loopback that hands each connection to ``talk`` in a thread of its own."""

    def __init__(self, talk: Talk, context: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> None:
        self.accepted = 0
        self._talk = talk
        self._context = context
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=512)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="upstream", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(connection,), name="upstream", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as open_:
            connection.settimeout(PATIENCE_S)
            open_.enter_context(connection)
            if self._context is not None:
                connection = open_.enter_context(self._context.wrap_socket(connection, server_side=True))
            self._talk(connection)

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def echo(connection: socket.socket) -> None:
    """Send everything back."""
    while data := connection.recv(65536):
        connection.sendall(data)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other end closes; what came before a reset counts."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            data += piece
    return data


class Authority(NamedTuple):
    """A certificate authority of the tests: its certificate, and a server context for the names it was asked for."""

    certificate: Path
    server: ssl.SSLContext


def make_authority(folder: Path, names: Sequence[str]) -> Authority:
    """Make one with the ``openssl`` program."""
    need(shutil.which("openssl") is not None, "openssl is not installed")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    alternative = "subjectAltName=" + ",".join(("IP:" if name[0].isdigit() else "DNS:") + name for name in names)
    usage = "keyUsage=critical,keyCertSign"
    openssl(
        "req",
        "-x509",
        *key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=tests",
        "-days",
        "7",
        "-addext",
        usage,
    )
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    (folder / "ext").write_text(alternative)
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "7", "-extfile", "ext")
    openssl("x509", "-req", "-in", "server.csr", *signing, "-out", "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return Authority(folder / "ca.pem", context)


class Proxy:
    """The service in a thread, with the listeners of one box on this machine's loopback.

    Args:
        entries: the box's ``egress_allow``.
        names: what the look-up of names gives: addresses, or a list of such answers, one a time.
        doors: hosts and ports that get a listener of their own.
    """

    def __init__(self, entries: Sequence[str], names: dict[str, Any], doors: Sequence[tuple[str, int]] = ()) -> None:
        self.asked: list[str] = []
        self._names = names
        self._others: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=2048) for _ in range(1 + len(doors))]
        self.ports = [listener.getsockname()[1] for listener in listeners]
        self._admit(check_egress(list(entries)), list(zip([("", 0), *doors], listeners)))

    def _admit(self, entries: Any, doors: Any) -> None:
        async def admit() -> Service:
            service = Service(Dialler(self._look_up))
            service.admit(1, entries, doors)
            return service

        self._service = asyncio.run_coroutine_threadsafe(admit(), self._loop).result(PATIENCE_S)

    def admit_another(self, number: int, entries: Sequence[str]) -> None:
        """Another box with entries of its own; its proxy's port comes last in ``ports``."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.ports.append(listener.getsockname()[1])
        self._others.append(number)
        wire: Any = check_egress(list(entries))
        self._loop.call_soon_threadsafe(self._service.admit, number, wire, [(("", 0), listener)])

    def _look_up(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host not in self._names:
            raise socket.gaierror("no such name")
        answer = self._names[host]
        if isinstance(answer, threading.Event):
            answer.wait(PATIENCE_S)
            return []
        found: Sequence[str] = answer.pop(0) if isinstance(answer[0], list) else answer
        return found

    def connect(self, door: int = 0) -> socket.socket:
        """A client's connection: to the proxy, or to the door of that number, counted from 1."""
        return socket.create_connection(("127.0.0.1", self.ports[door]), PATIENCE_S)

    def ask(self, request: bytes, door: int = 0) -> bytes:
        """What comes back for ``request``, to the end."""
        with self.connect(door) as client:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                client.sendall(request)
            return read_all(client)

    def tunnel(self, target: str, door: int = 0) -> socket.socket:
        """A connection through which ``target`` is reached; it must be let through."""
        client = self.connect(door)
        client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            piece = client.recv(1)
            assert piece, said
            said += piece
        assert said.startswith(b"HTTP/1.1 200 "), said
        return client

    def dismiss(self, number: int = 1) -> list[list[Any]]:
        """End a box; its rows."""
        ended = asyncio.run_coroutine_threadsafe(self._service.dismiss(number), self._loop).result(PATIENCE_S)
        return list(ended["rows"])

    def tasks(self) -> int:
        """How many tasks the service has: one for each listener and each connection."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        return asyncio.run_coroutine_threadsafe(count(), self._loop).result(PATIENCE_S)

    async def _rest(self) -> None:
        """What is still about to end has ended, and has closed what it held: nobody complains of it later."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    def close(self) -> None:
        """End the box and the thread."""
        for number in (1, *self._others):
            self.dismiss(number)
        asyncio.run_coroutine_threadsafe(self._rest(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


@contextlib.contextmanager
def closing_all() -> Iterator[Callable[[Any], Any]]:
    """Register things whose ``close`` is to be called at the end."""
    with contextlib.ExitStack() as stack:

        def keep(thing: Any) -> Any:
            stack.callback(thing.close)
            return thing

        yield keep


def allow(port: int, *more: str) -> list[str]:
    """Entries by which the names of these tests may lead to a server of the tests on loopback."""
    return [f"a.test:{port}", f"127.0.0.1:{port}", *more]


def answers(client: socket.socket) -> bool:
    """Whether an echo comes back."""
    client.sendall(b"x")
    return client.recv(1) == b"x"


NAMES: dict[str, Any] = {"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]}


def proxies() -> list[int]:
    """The egress proxies of this process: children of its fork servers."""
    from kern_sandbox._forkserver.client import existing_server

    server = existing_server()
    assert server is not None
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{name}/stat").read_text()
            if "(kern-egress)" in stat and int(stat.rpartition(")")[2].split()[1]) == server.pid:
                found.append(int(name))
    return found
