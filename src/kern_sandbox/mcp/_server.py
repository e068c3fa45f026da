"""What the server does with each request: the methods of the protocol, over one Sandbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._rpc import Request, Server
from ..errors import SandboxError, SpecError, WorkspaceError
from ..forksafe import start_thread
from ..render import neutralise
from ..sandbox import Sandbox
from ..tool import Cancel, Toolbox
from ._protocol import LEVELS, complete, content, discovered, envelope, initialized, refused, tool

if TYPE_CHECKING:
    from ..tool import Answer
    from ._protocol import Envelope
    from ._settings import Settings

__all__ = ["McpServer"]

NO_METHOD, INVALID_PARAMS, NOT_READY = -32601, -32602, -32000
_PROGRESS_S = 0.1
_TAIL = 500
_PATIENCE_S = 20.0
_USUAL = ("python", "bash", "sh")
"""What is offered where an image or a set-up takes longer than a client may want to wait for a list."""


class McpServer:
    """Serves the tools of one Sandbox.

    Args:
        settings: options of the Sandbox.

    Raises:
        SandboxError: there cannot be such a Sandbox.
    """

    inline = frozenset({"initialize", "ping", "server/discover", "logging/setLevel"})

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sandbox = Sandbox(**settings.options)
        self._tools = Toolbox(self._sandbox, kernel=settings.kernel)
        self._level = "warning"
        self._ready = threading.Event()

    def warm(self) -> None:
        """Make the first boxes, with all that they need, ahead of the first call."""
        start_thread("kern-warm", self._warm)

    def _warm(self) -> None:
        try:
            self._tools.languages()
        except SandboxError:
            pass  # whoever lists the tools is told
        self._ready.set()

    def close(self) -> None:
        """End every box."""
        self._tools.close()
        self._sandbox.close()

    def notified(self, server: Server, method: str, params: Mapping[str, Any]) -> None:
        """``notifications/cancelled`` ends a call; nothing else is of interest."""
        if method == "notifications/cancelled":
            server.cancel(params.get("requestId"))

    def call(self, request: Request) -> Mapping[str, Any]:
        """Serve one request, by the protocol that it speaks."""
        around = envelope(request.method, request.params)
        if around.modern:
            result = self._modern(request, around)
            return complete(result, cacheable=request.method != "tools/call")
        return self._handshake(request, around)

    def _modern(self, request: Request, around: Envelope) -> Mapping[str, Any]:
        if request.method == "server/discover":
            return discovered()
        return self._either(request, around)

    def _handshake(self, request: Request, around: Envelope) -> Mapping[str, Any]:
        if request.method == "initialize":
            return initialized(request.params)
        if request.method == "ping":
            return {}
        if request.method == "logging/setLevel":
            level = request.params.get("level")
            if level not in LEVELS:
                raise refused(INVALID_PARAMS, f"level has to be one of {', '.join(LEVELS)}")
            self._level = level
            return {}
        return self._either(request, around._replace(level=self._level))

    def _either(self, request: Request, around: Envelope) -> Mapping[str, Any]:
        if request.method == "tools/list":
            return self._list(request.params)
        if request.method == "tools/call":
            return self._use(request, around)
        raise refused(NO_METHOD, f"there is no method {request.method[:80]!r}")

    def _list(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if params.get("cursor") is not None:
            raise refused(INVALID_PARAMS, "cursor: there is one page only")
        try:
            ready = self._ready.wait(_PATIENCE_S)
            definitions = self._tools.definitions(None if ready else dict.fromkeys(_USUAL, ""))
        except SandboxError as error:
            raise refused(NOT_READY, str(error)) from error
        network = bool(self._settings.options.get("egress_allow"))
        return {"tools": [tool(one, network=network) for one in definitions]}

    def _use(self, request: Request, around: Envelope) -> Mapping[str, Any]:
        name, arguments = request.params.get("name"), request.params.get("arguments")
        if not isinstance(name, str):
            raise refused(INVALID_PARAMS, "name has to be a string")
        cancel = Cancel()
        request.on_cancel(cancel.now)
        tell = None if around.progress is None else _Progress(request, around.progress).heard
        answer = self._tools.call(name, {} if arguments is None else arguments, on_output=tell, cancel=cancel)
        self._log_end(request, around, name, answer)
        return content(answer)

    def _log_end(self, request: Request, around: Envelope, name: str, answer: Answer) -> None:
        about: dict[str, Any] = {"tool": neutralise(name)}
        level = "info"
        if answer.error is not None:
            about["error"] = neutralise(str(answer.error))
            level = "info" if isinstance(answer.error, (SpecError, WorkspaceError)) else "error"
        elif answer.result is not None:
            result = answer.result
            about.update(exit_code=result.exit_code, duration_ms=result.duration_ms)
            if result.fault is not None:
                about["fault"], level = result.fault.type, "warning"
        self._log(request, around, level, about)

    @staticmethod
    def _log(request: Request, around: Envelope, level: str, data: Mapping[str, Any]) -> None:
        if around.level is not None and LEVELS.index(level) >= LEVELS.index(around.level):
            request.notify("notifications/message", {"level": level, "logger": "kern-sandbox", "data": data})


class _Progress:
    """Tells a client, now and then, the end of what its code has written so far."""

    def __init__(self, request: Request, token: str | int) -> None:
        self._request = request
        self._token = token
        self._lock = threading.Lock()
        self._written = 0
        self._tail = ""
        self._told_at = float("-inf")

    def heard(self, text: str) -> None:
        with self._lock:
            self._written += len(text)
            self._tail = (self._tail + text)[-_TAIL:]
            if not text or time.monotonic() - self._told_at < _PROGRESS_S:
                return
            self._told_at = time.monotonic()
            told = {"progressToken": self._token, "progress": self._written, "message": neutralise(self._tail)}
            self._request.notify("notifications/progress", told)
