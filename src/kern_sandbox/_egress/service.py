"""The proxy of all boxes of one fork server: whose connection it is, who waits, and what is left when a box ends."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Sequence
from typing import Any

from .connection import Outside, forward, serve_http
from .dial import Dialler, Stream, open_stream
from .ledger import Ledger, Record
from .policy import Policy

__all__ = ["Door", "Service"]

MOST_CONNECTIONS = 128
"""Connections that a box may have at a time; further ones wait."""
MOST_LOOK_UPS = 8
"""Names that a box may have looked up at a time."""
_END_S = 0.5
_ROUNDS = 4  # before Python 3.12, wait_for() may swallow a cancellation; and a busy machine may be slow to run one
_RETRY_S = 0.1
_KERNEL_BUFFER = 1 << 17  # a box that does not read would fill megabytes of Linux' memory with each connection
_PASSING = (errno.EAGAIN, errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Door = tuple[str, int]
"""The host and port that a listener stands for; ``("", 0)`` is the proxy itself."""


class Service:
    """Boxes by number. Everything runs in one event loop."""

    def __init__(self, dialler: Dialler | None = None) -> None:
        self._dialler = dialler or Dialler()
        self._boxes: dict[int, _Box] = {}

    def admit(self, number: int, entries: Sequence[Sequence[Any]], doors: Sequence[tuple[Door, socket.socket]]) -> None:
        """Take over listeners that stand in box ``number``; more of them may follow."""
        if number not in self._boxes:
            self._boxes[number] = _Box(Outside(Policy.from_wire(entries), self._dialler, _turns()))
        for door, listener in doors:
            self._boxes[number].listen(door, listener)

    async def dismiss(self, number: int) -> dict[str, Any]:
        """Box ``number`` has ended: close everything of it, and say what it asked for."""
        box = self._boxes.pop(number, None)
        return Ledger().take() if box is None else await box.close()

    def tell(self, number: int) -> dict[str, Any]:
        """What box ``number`` has asked for since the last time."""
        box = self._boxes.get(number)
        return Ledger().take() if box is None else box.tell()


def _turns() -> asyncio.Semaphore:
    return asyncio.Semaphore(MOST_LOOK_UPS)


class _Box:
    """The listeners and connections of one box."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._ledger = Ledger()
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unserved: set[socket.socket] = set()
        self._alive: dict[int, Record] = {}

    def listen(self, door: Door, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._start(self._accept(door, listener))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> dict[str, Any]:
        for _ in range(_ROUNDS):
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=_END_S)
        for client in self._unserved:  # a task that is cancelled before its first step runs nothing, not even a finally
            client.close()
        return self._ledger.take()

    def tell(self) -> dict[str, Any]:
        return self._ledger.take(self._alive.values())

    async def _accept(self, door: Door, listener: socket.socket) -> None:
        with listener:
            while True:
                await _readable(listener)
                await self._room.acquire()
                client = _taken(listener)
                if client is None:
                    self._room.release()
                    await asyncio.sleep(_RETRY_S)
                    continue
                self._unserved.add(client)
                self._start(self._serve(door, client))

    async def _serve(self, door: Door, client: socket.socket) -> None:
        self._unserved.discard(client)
        record = self._ledger.open()
        self._alive[id(record)] = record
        stream: Stream | None = None
        try:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BUFFER)
            stream = await open_stream(client)
            if door[0]:
                await forward(stream, door, self._outside, record)
            else:
                await serve_http(stream, self._outside, record)
        except OSError:
            pass  # either end may leave at any time, and there is nobody to tell
        except Exception as error:  # a fault of ours costs this connection only, and its kind goes to the log
            sys.stderr.write(f"kern-egress: {type(error).__name__} in a connection\n")
        finally:
            _let_go(stream, client)
            del self._alive[id(record)]
            self._ledger.close(record)
            self._room.release()


async def _readable(listener: socket.socket) -> None:
    """Wait for a connection without taking it: one that ``sock_accept`` has taken is lost where it is cancelled."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(listener, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(listener)


def _taken(listener: socket.socket) -> socket.socket | None:
    """The next connection; ``None`` if it has gone, or this process has no descriptor left for it."""
    try:
        return listener.accept()[0]
    except OSError as error:
        if error.errno not in _PASSING:
            raise
        return None


def _let_go(stream: Stream | None, client: socket.socket) -> None:
    if stream is None:
        client.close()
    elif sys.exc_info()[0] is None:
        stream[1].close()
    else:
        stream[1].transport.abort()
