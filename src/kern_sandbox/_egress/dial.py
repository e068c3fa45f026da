"""From an allowed host to a connection: looked up once, each address checked, and that very address connected."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

from ..spec_network import is_address, is_loopback_name
from .policy import Policy, Refused

__all__ = ["BUFFER", "Dialler", "Failed", "Stream", "is_own", "look_up", "open_stream"]

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LookUp = Callable[[str], Sequence[str]]

BUFFER = 1 << 15
"""Bytes buffered in each direction before the sender has to wait; Python's reader holds twice as many."""
_LOOK_UP_S = 10.0
_CONNECT_S = 10.0
_MOST_ADDRESSES = 6
_THREADS = 32


class Failed(Exception):
    """The host is allowed, and there is no connection to it."""


def look_up(host: str) -> list[str]:
    """The addresses of ``host`` by the host's own resolver; blocks.

    Raises:
        OSError: it has none.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in found))


def is_own(address: str) -> bool:
    """Whether ``address`` is this machine's: Linux would then use it as the source as well. Sends nothing."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((address, 9))
        except OSError:
            return False
        return str(sock.getsockname()[0]) == address


async def open_stream(sock: socket.socket) -> Stream:
    """Reader and writer of a connected socket, with small buffers: this memory is not counted as the box's."""
    reader, writer = await asyncio.open_connection(sock=sock, limit=BUFFER)
    writer.transport.set_write_buffer_limits(high=BUFFER)
    return reader, writer


class Dialler:
    """Makes connections for all boxes; one slow name server holds up only as many look-ups as a box may have."""

    def __init__(self, look_up: LookUp = look_up) -> None:
        self._look_up = look_up
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="look-up")

    async def dial(self, host: str, port: int, policy: Policy, turn: asyncio.Semaphore) -> Stream:
        """Connect to ``host``, which the policy allows.

        Args:
            host: in its one form.
            port: allowed with it.
            policy: has a say about each address.
            turn: held while a look-up runs, which may be longer than anybody waits for it.

        Raises:
            Refused: every address that it has is refused.
            Failed: no address, or none that answers.
        """
        addresses = await self._addresses(host, turn)
        allowed, refusal = _sieve(addresses, port, policy)
        if refusal is not None and not allowed:
            raise refusal
        words = "the host has no address"
        for address in allowed[:_MOST_ADDRESSES]:
            try:
                return await asyncio.wait_for(_connect(address, port), _CONNECT_S)
            except asyncio.TimeoutError:
                words = "the host does not answer"
            except OSError as error:
                words = error.strerror or "no connection"
        raise Failed(words)

    async def _addresses(self, host: str, turn: asyncio.Semaphore) -> Sequence[str]:
        if is_loopback_name(host):
            return ["127.0.0.1", "::1"]
        if is_address(host):
            return [host]
        loop = asyncio.get_running_loop()
        await turn.acquire()
        work = self._threads.submit(self._look_up, host)
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(turn.release))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(work), _LOOK_UP_S)
        except asyncio.TimeoutError:
            raise Failed("looking the host's address up took too long") from None
        except (OSError, UnicodeError):
            raise Failed("the host's name does not resolve") from None


def _sieve(addresses: Sequence[str], port: int, policy: Policy) -> tuple[list[str], Refused | None]:
    allowed, refusal = [], None
    for address in addresses:
        try:
            policy.check_address(address, port, own=is_own(address))
            allowed.append(address)
        except Refused as error:
            refusal = error
    return allowed, refusal


async def _connect(address: str, port: int) -> Stream:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
        return await open_stream(sock)
    except BaseException:  # whatever happened, the socket must not outlive it
        sock.close()
        raise
