"""Methods of the bridge, each a verb of the library."""

from __future__ import annotations

import base64
import inspect
import itertools
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from .. import __version__
from .._rpc import DEFERRED, Request, RpcError, Server, claimed
from ..errors import SandboxError, SpecError
from ..sandbox import Sandbox
from ..session import How
from ..tool import Cancel
from ..tool._interpreter import Cells
from ._given import INVALID_PARAMS, Given
from ._processes import LiveProcess, about

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["PROTOCOL", "Bridge", "main"]

PROTOCOL = 1
SANDBOX_ERROR, NOT_FOUND, OTHER_PROTOCOL = -32000, -32001, -32002
NO_METHOD = -32601
_MOST = 96 << 20
_WORKERS = 64
T = TypeVar("T")


def main() -> int:
    """Serve until the client is gone; the exit status, 0."""
    if os.isatty(0):
        sys.stderr.write("kern-sandbox: waiting for a program that speaks the bridge's protocol; Ctrl-D ends it\n")
    with claimed(_MOST) as wire:
        bridge = Bridge()
        server = Server(wire, bridge, workers=_WORKERS, answers_cancelled=True)
        bridge.tell = server.notify
        server.serve()
    return 0


def _no_one(method: str, params: Mapping[str, Any]) -> None:
    """Where notifications go before there is a client."""


class Bridge:
    """What the bridge serves: the Sandboxes, processes and kernels of one client.

    Attributes:
        tell: sends a notification.
    """

    inline = frozenset(
        {"hello", "process.write", "process.close_stdin", "process.signal", "process.kill", "kernel.interrupt"}
    )

    def __init__(self) -> None:
        self.tell: Callable[[str, Mapping[str, Any]], None] = _no_one
        self._sandboxes: dict[str, Sandbox] = {}
        self._processes: dict[str, LiveProcess] = {}
        self._kernels: dict[str, Cells] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False
        self._methods: dict[str, Callable[[Request, Given], Any]] = {
            "hello": self._hello,
            "sandbox.open": self._open,
            "sandbox.close": self._close,
            "run_code": self._run_code,
            "run": self._run,
            "spawn": self._spawn,
            "process.write": self._write,
            "process.close_stdin": self._close_stdin,
            "process.signal": self._signal,
            "process.kill": self._kill,
            "kernel.open": self._open_kernel,
            "kernel.run": self._run_cell,
            "kernel.interrupt": self._interrupt,
            "kernel.close": self._close_kernel,
            "write_file": self._write_file,
            "read_file": self._read_file,
            "list_files": self._list_files,
            "snapshot": self._snapshot,
            "restore": self._restore,
        }

    def call(self, request: Request) -> Any:
        """Serve one request."""
        method = self._methods.get(request.method)
        if method is None:
            raise RpcError(NO_METHOD, f"there is no method {request.method[:80]!r}", {"methods": sorted(self._methods)})
        try:
            return method(request, Given(request.params))
        except SandboxError as error:
            raise RpcError(SANDBOX_ERROR, str(error), about(error)) from error

    def notified(self, server: Server, method: str, params: Mapping[str, Any]) -> None:
        """``cancel`` ends a request; anything else is not known and stays without effect."""
        if method == "cancel":
            server.cancel(params.get("id"))

    def close(self) -> None:
        """End every box."""
        with self._lock:
            self._closed = True
            sandboxes, processes = list(self._sandboxes.values()), list(self._processes.values())
        for process in processes:
            process.kill()
        for sandbox in sandboxes:
            sandbox.close()

    # Sandboxes

    def _hello(self, _: Request, given: Given) -> Mapping[str, Any]:
        asked = given.get("protocol", int)
        given.end()
        if asked not in (None, PROTOCOL):
            raise RpcError(OTHER_PROTOCOL, f"protocol {asked} is not served", {"supported": [PROTOCOL]})
        return {"protocol": PROTOCOL, "version": __version__, "methods": sorted(self._methods)}

    def _open(self, _: Request, given: Given) -> Mapping[str, Any]:
        options = given.get("options", dict) or {}
        given.end()
        known = inspect.signature(Sandbox).parameters
        unknown = [name for name in options if name not in known]
        if unknown:
            raise SpecError(f"unknown option {unknown[0][:80]!r}: accepted are {', '.join(known)}")
        sandbox = Sandbox(**{name: _as_python(name, value) for name, value in options.items()})
        with self._lock:
            closed, name = self._closed, f"sandbox-{next(self._numbers)}"
            self._sandboxes[name] = sandbox
        if closed:
            sandbox.close()
        return {"sandbox": name, "workspace": sandbox.workspace}

    def _close(self, _: Request, given: Given) -> Mapping[str, Any]:
        name = given.need("sandbox", str)
        given.end()
        with self._lock:
            sandbox = self._sandboxes.pop(name, None)
        if sandbox is not None:
            sandbox.close()
        return {}

    def _sandbox(self, given: Given) -> Sandbox:
        return self._known(self._sandboxes, "sandbox", given)

    def _session(self, given: Given) -> Session:
        return self._sandbox(given)._session  # noqa: SLF001 - the public verbs cannot be stopped from another thread

    def _known(self, table: Mapping[str, T], kind: str, given: Given) -> T:
        name = given.need(kind, str)
        with self._lock:
            if name in table:
                return table[name]
        raise RpcError(NOT_FOUND, f"there is no {kind} {name[:80]!r}: it has ended, or never was")

    # Code and programs

    def _run_code(self, request: Request, given: Given) -> Mapping[str, Any]:
        session, how = self._session(given), _how(request, given)
        code, language = given.any("code"), given.get("language", str)
        given.end()
        return session.run_code(code, language or "python", how, _cancel(request)).to_dict()

    def _run(self, request: Request, given: Given) -> Mapping[str, Any]:
        session, how = self._session(given), _how(request, given)
        argv, cwd = given.any("argv"), given.any("cwd")
        given.end()
        return session.run(argv, cwd, how, _cancel(request)).to_dict()

    def _spawn(self, request: Request, given: Given) -> Mapping[str, Any]:
        sandbox = self._sandbox(given)
        argv, cwd = given.any("argv"), given.any("cwd")
        timeout_s, env = given.any("timeout_s"), given.any("env")
        given.end()
        process = sandbox.spawn(argv, timeout_s=timeout_s, env=env, cwd=cwd)
        with self._lock:
            name = f"process-{next(self._numbers)}"
            live = LiveProcess(name, process, self.tell, lambda: self._processes.pop(name, None))
            self._processes[name] = live
            closed = self._closed
        if closed or request.cancelled:
            live.kill()
        request.after(live.start)  # the client knows the name before it hears of it
        return {"process": name}

    def _write(self, request: Request, given: Given) -> Any:
        process, data = self._process(given), given.content("data")
        given.end()
        if data is None:
            raise RpcError(INVALID_PARAMS, "the parameter 'data' or 'data_base64' is missing")
        process.write(data.encode("utf-8", "replace") if isinstance(data, str) else data, request)
        return DEFERRED

    def _close_stdin(self, request: Request, given: Given) -> Any:
        process = self._process(given)
        given.end()
        process.end_input(request)
        return DEFERRED

    def _signal(self, _: Request, given: Given) -> Mapping[str, Any]:
        process, number = self._process(given), given.any("signal")
        given.end()
        named = [int(one) for one in signal.Signals if one.name == number]
        process.send_signal(named[0] if named else number)
        return {}

    def _kill(self, _: Request, given: Given) -> Mapping[str, Any]:
        process = self._process(given)
        given.end()
        process.kill()
        return {}

    def _process(self, given: Given) -> LiveProcess:
        return self._known(self._processes, "process", given)

    # Kernels

    def _open_kernel(self, _: Request, given: Given) -> Mapping[str, Any]:
        sandbox, timeout_s, env = self._sandbox(given), given.any("timeout_s"), given.any("env")
        given.end()
        kernel = sandbox.kernel(timeout_s=timeout_s, env=env)
        with self._lock:
            name = f"kernel-{next(self._numbers)}"
            self._kernels[name] = Cells(kernel)
        return {"kernel": name}

    def _run_cell(self, request: Request, given: Given) -> Mapping[str, Any]:
        cells, how = self._cells(given), _how(request, given, fresh=False)
        code = given.any("code")
        given.end()
        told = {"timeout_s": how.timeout_s, "on_stdout": how.on_stdout, "on_stderr": how.on_stderr}
        return cells.run(code, told, _cancel(request)).to_dict()

    def _interrupt(self, _: Request, given: Given) -> Mapping[str, Any]:
        cells = self._cells(given)
        given.end()
        cells.kernel.interrupt()
        return {}

    def _close_kernel(self, _: Request, given: Given) -> Mapping[str, Any]:
        name = given.need("kernel", str)
        given.end()
        with self._lock:
            cells = self._kernels.pop(name, None)
        if cells is not None:
            cells.kernel.close()
        return {}

    def _cells(self, given: Given) -> Cells:
        return self._known(self._kernels, "kernel", given)

    # Files

    def _write_file(self, _: Request, given: Given) -> Mapping[str, Any]:
        sandbox, path, data = self._sandbox(given), given.any("path"), given.content("data")
        given.end()
        sandbox.write_file(path, "" if data is None else data)
        return {}

    def _read_file(self, _: Request, given: Given) -> Mapping[str, Any]:
        sandbox, path, most = self._sandbox(given), given.any("path"), given.get("max_bytes", int)
        given.end()
        data = sandbox.read_file(path) if most is None else sandbox.read_file(path, most)
        return {"data_base64": base64.b64encode(data).decode("ascii")}

    def _list_files(self, _: Request, given: Given) -> Mapping[str, Any]:
        sandbox, subdir = self._sandbox(given), given.get("subdir", str)
        given.end()
        return {"files": sandbox.list_files(subdir or "")}

    def _snapshot(self, _: Request, given: Given) -> Mapping[str, Any]:
        sandbox, dest = self._sandbox(given), given.need("dest", str)
        given.end()
        return {"left_out": sandbox.snapshot(dest)}

    def _restore(self, _: Request, given: Given) -> Mapping[str, Any]:
        sandbox, src = self._sandbox(given), given.need("src", str)
        given.end()
        sandbox.restore(src)
        return {}


def _as_python(option: str, value: Any) -> Any:
    """JSON has no tuples, which is how ``mounts`` says a mode."""
    if option == "mounts" and isinstance(value, dict):
        return {source: tuple(one) if isinstance(one, list) else one for source, one in value.items()}
    return value


def _cancel(request: Request) -> Cancel:
    cancel = Cancel()
    request.on_cancel(cancel.now)
    return cancel


def _how(request: Request, given: Given, *, fresh: bool = True) -> How:
    def told(stream: str) -> Callable[[str], None]:
        return lambda text: request.notify("output", {"id": request.id, "stream": stream, "text": text})

    streamed = given.get("stream", bool)
    return How(
        timeout_s=given.any("timeout_s"),
        on_stdout=told("stdout") if streamed else None,
        on_stderr=told("stderr") if streamed else None,
        env=given.any("env") if fresh else None,
        stdin=given.content("stdin") if fresh else None,
    )
