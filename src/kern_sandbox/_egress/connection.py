"""One connection out of a box, from its first byte to its last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from ..spec_network import is_address
from .dial import BUFFER, Dialler, Failed, Stream
from .hello import DENIED, HelloReader
from .http import BadRequest, Request, answer, parse_head, parse_size
from .ledger import UNDECIDED, Record
from .policy import Policy, Refused

__all__ = ["Outside", "forward", "serve_http"]

HEAD_S = 20.0
"""How long a client may take for a request's head or for TLS's first message, seconds."""
LINGER_S = 30.0
"""How long one direction may go on after the other has ended, seconds."""
_MOST_HEAD = 32 << 10
_CHUNK = BUFFER
_CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Outside(NamedTuple):
    """What a connection needs to get out."""

    policy: Policy
    dialler: Dialler
    turn: asyncio.Semaphore

    async def reach(self, host: str, port: int, record: Record) -> Stream:
        """Check, look up, check, connect; ``record`` learns what became of it.

        Raises:
            Refused, Failed: as the policy and the dialler say.
        """
        record.host, record.port = host, port
        try:
            self.policy.check(host, port)
            record.allow()
            record.reason = UNDECIDED
            stream = await self.dialler.dial(host, port, self.policy, self.turn)
        except Refused as error:
            record.refuse(str(error))
            raise
        except Failed as error:
            record.reason = f"no connection: {error}"
            raise
        record.allow()
        return stream


async def forward(client: Stream, door: tuple[str, int], outside: Outside, record: Record) -> None:
    """Serve a client that knows no proxy: ``door`` is the host and port that its connection means."""
    try:
        upstream = await outside.reach(*door, record)
    except (Refused, Failed):
        return  # the caller drops the connection, which is all that such a client can be told
    await _relay(client, upstream, _checked(client, door[0], record), record)


async def serve_http(client: Stream, outside: Outside, record: Record) -> None:
    """Serve one request of a client that knows the proxy: a tunnel, or one request and its response."""
    try:
        request = await asyncio.wait_for(_read_request(client[0]), HEAD_S)
        upstream = await outside.reach(request.host, request.port, record)
    except asyncio.TimeoutError:
        record.refuse("the request did not come in time")
        await _say(client, answer("408 Request Timeout", record.reason))
    except BadRequest as error:
        record.refuse(f"not a request that the proxy takes: {error}")
        await _say(client, answer(f"{error.status} Bad Request", str(error)))
    except Refused as error:
        words = f"{record.host} port {record.port} was refused: {error}"
        await _say(client, answer("403 Forbidden by egress_allow", words))
    except Failed as error:
        await _say(client, answer("502 Bad Gateway", f"{record.host} port {record.port}: {error}"))
    else:
        await _fulfil(client, request, upstream, record)


async def _fulfil(client: Stream, request: Request, upstream: Stream, record: Record) -> None:
    if not request.head:
        client[1].write(_CONNECTED)
        await _relay(client, upstream, _checked(client, request.host, record), record)
        return
    upstream[1].write(request.head)
    record.up += len(request.head)
    await _relay(client, upstream, _body(client[0], request), record, tunnel=False)


async def _say(client: Stream, words: bytes) -> None:
    """Answer and end, leaving a client that is still sending the time to read it."""
    reader, writer = client
    writer.write(words)
    await writer.drain()
    writer.write_eof()
    try:
        await asyncio.wait_for(_drop(reader), 1.0)
    except asyncio.TimeoutError:
        return


async def _drop(reader: asyncio.StreamReader) -> None:
    while await reader.read(_CHUNK):
        pass


async def _read_request(reader: asyncio.StreamReader) -> Request:
    lines: list[bytes] = []
    room = _MOST_HEAD
    while True:
        line = await _line(reader)
        if line == b"\r\n":
            return parse_head(lines)
        room -= len(line)
        if room < 0:
            raise BadRequest(431, "the head is too large")
        lines.append(line)


async def _line(reader: asyncio.StreamReader) -> bytes:
    """One line with its end, which the parser looks at."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise BadRequest(431, "a line is too long") from None
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("the client left in the middle of its request") from error


async def _body(reader: asyncio.StreamReader, request: Request) -> AsyncIterator[bytes]:
    """Exactly the body that the head announces: what follows it never reaches the server."""
    if request.body is not None:
        async for data in _exactly(reader, request.body):
            yield data
        return
    while True:
        size = parse_size(await _line(reader))
        if size == 0:
            break
        yield b"%x\r\n" % size
        async for data in _exactly(reader, size):
            yield data
        if await reader.readexactly(2) != b"\r\n":
            raise BadRequest(400, "a chunk is malformed")
        yield b"\r\n"
    yield b"0\r\n\r\n"  # trailers are dropped: readers differ about what they may change


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size:
        data = await reader.read(min(size, _CHUNK))
        if not data:
            raise ConnectionResetError("the client left in the middle of a body")
        size -= len(data)
        yield data


async def _checked(client: Stream, host: str, record: Record) -> AsyncIterator[bytes]:
    """Everything that the client sends, once it is known that it does not ask TLS for another server's name."""
    reader, writer = client
    try:
        start = await _start(reader, host)
    except Refused as error:
        record.refuse(str(error))
        writer.write(DENIED)
        raise
    yield start
    while start:
        start = await reader.read(_CHUNK)
        yield start


async def _start(reader: asyncio.StreamReader, host: str) -> bytes:
    """As much as it takes to see whether the client starts TLS, and with which name.

    Raises:
        Refused: it does, and not with ``host``.
    """
    begun = HelloReader()
    data = await reader.read(_CHUNK)  # a server may speak first, so this may take its time
    deadline = asyncio.get_running_loop().time() + HEAD_S
    while True:
        try:
            hello = begun.feed(data)
        except ValueError as error:
            raise Refused(f"the start of TLS cannot be read: {error}") from None
        if hello is not None:
            break
        try:
            data = await asyncio.wait_for(reader.read(_CHUNK), deadline - asyncio.get_running_loop().time())
        except asyncio.TimeoutError:
            raise Refused("the start of TLS did not come in time") from None
        if not data:
            if begun.data:
                raise Refused("the start of TLS was cut short")
            return b""
    if hello.tls and hello.name != host and (hello.name or not is_address(host)):
        name = f"asks for the server name {hello.name}" if hello.name else "gives no server name"
        raise Refused(f"TLS {name}")
    return begun.data


async def _relay(
    client: Stream, upstream: Stream, source: AsyncIterator[bytes], record: Record, *, tunnel: bool = True
) -> None:
    """Carry bytes both ways until both have ended, one has failed, or the rest takes too long.

    Args:
        client: the box's end; dropped if the server drops its own.
        upstream: the server's end; closed here.
        source: what goes up.
        record: counts.
        tunnel: the client's end of file is passed on; a server may take it for a cancelled request otherwise.
    """
    up = asyncio.ensure_future(_carry_up(source, upstream[1], record, tunnel=tunnel))
    down = asyncio.ensure_future(_carry_down(upstream[0], client[1], record))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        if _went_well(down):
            await asyncio.wait((up,), timeout=LINGER_S if tunnel else 0)
        elif _went_well(up):
            await asyncio.wait((down,))
    finally:
        _drop_unless(_went_well(up), upstream[1])  # before the wait below, in which the box may end
        if down.done() and not down.cancelled() and down.exception() is not None:
            client[1].transport.abort()
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


def _went_well(task: asyncio.Future[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _drop_unless(well: bool, writer: asyncio.StreamWriter) -> None:
    """Close in order, with what is still to be sent; or at once."""
    if well:
        writer.close()
    else:
        writer.transport.abort()


async def _carry_up(
    source: AsyncIterator[bytes], writer: asyncio.StreamWriter, record: Record, *, tunnel: bool
) -> None:
    async for data in source:
        record.up += len(data)
        writer.write(data)
        await writer.drain()
    if tunnel:
        writer.write_eof()


async def _carry_down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Record) -> None:
    while True:
        data = await reader.read(_CHUNK)
        if not data:
            break
        record.down += len(data)
        writer.write(data)
        await writer.drain()
    writer.write_eof()
