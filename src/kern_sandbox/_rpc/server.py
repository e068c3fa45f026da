"""The server's half of JSON-RPC 2.0: a bad message gets an error and never ends it; requests run side by side."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Protocol, Union

from .wire import BadFrame, Wire, decoded

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEFERRED", "Handler", "Request", "RpcError", "Server"]

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
BUSY, CANCELLED = -32010, -32800
_MOST_WAITING = 10_000
_LAST_WORDS_S = 1.0
"""How long a call in flight may go on when there is no more input, but somebody still reads, seconds."""
_PATIENCE_S = 5.0

Id = Union[str, int]


class RpcError(Exception):
    """An error reply.

    Attributes:
        code: as JSON-RPC 2.0 or the protocol above it has it.
        data: more for a program, or ``None``.
    """

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class _Deferred:
    """The type of `DEFERRED`."""


DEFERRED = _Deferred()
"""What a handler returns where it replies later."""


class Request:
    """One request: what is asked, and the ways to answer it. It is answered once; what comes later is dropped."""

    def __init__(self, server: Server, number: Id, method: str, params: Mapping[str, Any]) -> None:
        self.id = number
        self.method = method
        self.params = params
        self.cancelled = False
        self._server = server
        self._lock = threading.Lock()
        self._stops: list[Callable[[], object]] = []
        self._after: list[Callable[[], object]] = []
        self._answered = False

    def on_cancel(self, stop: Callable[[], object]) -> None:
        """``stop`` is called once this request is cancelled, at once if it has been."""
        with self._lock:
            self._stops.append(stop)
            cancelled = self.cancelled
        if cancelled:
            stop()

    def after(self, action: Callable[[], object]) -> None:
        """``action`` is called when the reply has been sent."""
        self._after.append(action)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell the client something about this request, as long as it is not answered."""
        if not self._answered and not self.cancelled:
            self._server.notify(method, params)

    def cancel(self) -> None:
        """The client wants no answer any more."""
        with self._lock:
            self.cancelled = True
            stops = list(self._stops)
        for stop in stops:
            stop()

    def reply(self, result: Mapping[str, Any]) -> None:
        """Answer with a result."""
        if self.cancelled:
            self.fail(RpcError(CANCELLED, "cancelled, as asked"))
        else:
            self._answer({"result": result})

    def fail(self, error: RpcError) -> None:
        """Answer with an error."""
        self._answer({"error": _error(error)})

    def _answer(self, body: Mapping[str, Any]) -> None:
        with self._lock:
            if self._answered:
                return
            self._answered = True
        self._server.answered(self, body)
        for action in self._after:
            action()


def _error(error: RpcError) -> dict[str, Any]:
    data = {} if error.data is None else {"data": error.data}
    return {"code": error.code, "message": str(error), **data}


class Handler(Protocol):
    """What a server serves."""

    inline: frozenset[str]
    """Methods that are served in the order in which they come and that never wait; the others run side by side."""

    def call(self, request: Request) -> Mapping[str, Any] | _Deferred:
        """Do what is asked; raises ``RpcError`` for what goes wrong."""

    def notified(self, server: Server, method: str, params: Mapping[str, Any]) -> None:
        """The client tells something; it gets no answer, whatever happens."""

    def close(self) -> None:
        """There will be no further call: end what is running."""


class Server:
    """Serves a handler on a wire until the client is gone.

    Args:
        wire: where the client is.
        handler: what is served.
        workers: requests that run at the same time; further ones wait.
        answers_cancelled: whether a request that was cancelled gets an error, or no answer at all.
    """

    def __init__(self, wire: Wire, handler: Handler, *, workers: int, answers_cancelled: bool) -> None:
        self._wire = wire
        self._handler = handler
        self._answers_cancelled = answers_cancelled
        self._workers = _Workers(workers)
        self._flying: dict[Id, Request] = {}
        self._leaving = 0
        self._lock = threading.Condition()

    def serve(self) -> None:
        """Returns when the client is gone and all that ran for it has ended."""
        try:
            for frame in self._wire.frames():
                self._take(frame)
            with self._lock:
                self._lock.wait_for(lambda: not (self._flying or self._leaving) or self._wire.broken, _LAST_WORDS_S)
        finally:
            self._wire.broken = True
            with self._lock:
                flying = list(self._flying.values())
            for request in flying:
                request.cancel()
            self._handler.close()
            self._workers.close()

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        self._wire.send({"jsonrpc": "2.0", "method": method, "params": params})

    def cancel(self, number: object) -> None:
        """Cancel the request with that id; nothing happens if there is none in flight."""
        with self._lock:
            request = self._flying.get(number) if _is_id(number) else None  # type: ignore[call-overload] # is checked
        if request is not None:
            request.cancel()

    def answered(self, request: Request, body: Mapping[str, Any]) -> None:
        """Send the answer of ``request``."""
        with self._lock:
            self._flying.pop(request.id, None)  # first: whoever reads the answer may use the id again
            self._leaving += 1
        try:
            if not request.cancelled or self._answers_cancelled:
                self._send(request.id, body)
        finally:
            with self._lock:
                self._leaving -= 1
                self._lock.notify_all()

    def _send(self, number: Id | None, body: Mapping[str, Any]) -> None:
        try:
            self._wire.send({"jsonrpc": "2.0", "id": number, **body})
        except (ValueError, TypeError) as error:
            failure = RpcError(INTERNAL_ERROR, f"the answer has no form in JSON: {error}")
            self._wire.send({"jsonrpc": "2.0", "id": number, "error": _error(failure)})

    def _take(self, frame: bytes | BadFrame) -> None:
        number: Id | None = None
        try:
            if isinstance(frame, BadFrame):
                raise RpcError(INVALID_REQUEST, str(frame))
            message = _object(frame)
            number = message.get("id") if _is_id(message.get("id")) else None
            self._dispatch(message)
        except RpcError as error:
            self._send(number, {"error": _error(error)})
        except Exception as error:  # a defect of ours must not end the server
            self._send(number, {"error": _error(_defect(error))})

    def _dispatch(self, message: Mapping[str, Any]) -> None:
        if "method" not in message and ("result" in message or "error" in message):
            return  # an answer, and we have asked nothing
        method, params = message.get("method"), message.get("params", {})
        if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
            raise RpcError(INVALID_REQUEST, 'a message has "jsonrpc": "2.0" and a method, which is a string')
        if "id" not in message:
            if isinstance(params, Mapping):
                self._handler.notified(self, method, params)
            return
        if not _is_id(message["id"]):
            raise RpcError(INVALID_REQUEST, "an id is a string or a whole number")
        if not isinstance(params, Mapping):
            raise RpcError(INVALID_PARAMS, "params is an object: parameters have names")
        self._begin(Request(self, message["id"], method, params))

    def _begin(self, request: Request) -> None:
        with self._lock:
            if request.id in self._flying:
                raise RpcError(INVALID_REQUEST, "a request with this id is in flight")
            if len(self._flying) >= _MOST_WAITING:
                raise RpcError(BUSY, f"{_MOST_WAITING} requests are in flight; wait for answers")
            self._flying[request.id] = request
        if request.method in self._handler.inline:
            self._perform(request)
        else:
            self._workers.submit(lambda: self._perform(request))

    def _perform(self, request: Request) -> None:
        if request.cancelled:
            request.fail(RpcError(CANCELLED, "cancelled, as asked"))
            return
        try:
            result = self._handler.call(request)
            if not isinstance(result, _Deferred):
                request.reply(result)
        except RpcError as error:
            request.fail(error)
        except Exception as error:  # a defect of ours must not take the other calls with it
            request.fail(_defect(error))


def _defect(error: Exception) -> RpcError:
    """The reply to what a defect of ours has spoilt; where it is, standard error tells."""
    sys.stderr.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    return RpcError(INTERNAL_ERROR, f"the server failed: {type(error).__name__}: {error}")


def _is_id(number: object) -> bool:
    return isinstance(number, (str, int)) and not isinstance(number, bool)


def _object(frame: bytes) -> Mapping[str, Any]:
    try:
        message = decoded(frame)
    except BadFrame as error:
        raise RpcError(PARSE_ERROR, str(error)) from None
    if isinstance(message, list):
        raise RpcError(INVALID_REQUEST, "batches are not served: send one message a line")
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "a message is a JSON object")
    return message


class _Workers:
    """Threads that are started as they are needed, at most ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False
        self._change = threading.Condition()

    def submit(self, work: Callable[[], None]) -> None:
        with self._change:
            self._waiting.append(work)
            if self._idle < len(self._waiting) and len(self._threads) < self._most:
                self._start_one()
            self._change.notify()

    def _start_one(self) -> None:
        thread = threading.Thread(target=self._run, daemon=True, name="kern-request")
        try:
            thread.start()
        except RuntimeError:  # there may be no more
            if not self._threads:  # and nobody who would do it later
                raise
        else:
            self._threads.append(thread)

    def _run(self) -> None:
        for work in self._works():
            work()

    def _works(self) -> Iterator[Callable[[], None]]:
        while True:
            with self._change:
                self._idle += 1
                self._change.wait_for(lambda: self._waiting or self._closed)
                self._idle -= 1
                if not self._waiting:
                    return
                work = self._waiting.popleft()
            yield work

    def close(self) -> None:
        """Let what waits run out, which it does at once where its request is cancelled, and the threads end."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        until = time.monotonic() + _PATIENCE_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
