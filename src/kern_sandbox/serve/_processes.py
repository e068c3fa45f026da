"""A live process at the other end of a wire: its output goes out as notifications, its input comes in order."""

from __future__ import annotations

import base64
import os
import queue
import threading
from collections.abc import Mapping
from typing import Any, Callable

from .._rpc import Request, RpcError
from ..errors import SandboxError
from ..process import Process, copy_out

__all__ = ["NOT_READING", "LiveProcess", "about"]

NOT_READING = -32003
Tell = Callable[[str, Mapping[str, Any]], None]


def about(error: SandboxError) -> dict[str, Any]:
    """An error of the library as plain data."""
    stage = getattr(error, "stage", None)
    return {
        "type": type(error).__name__,
        "message": str(error),
        "attempted": error.attempted,
        "hint": error.hint,
        "errno": error.errno,
        "path": error.path,
        **({} if stage is None else {"stage": stage}),
    }


def _not_reading() -> RpcError:
    return RpcError(NOT_READING, "the program does not read its input any more")


class LiveProcess:
    """A process whose pipes are copied by threads of its own, from ``start`` to its end.

    Args:
        name: by which the client knows it.
        process: it; closed here when it has ended.
        tell: sends a notification.
        ended: called when everything about the end has been told.
    """

    def __init__(self, name: str, process: Process, tell: Tell, ended: Callable[[], object]) -> None:
        self.name = name
        self._process = process
        self._tell = tell
        self._ended = ended
        self._input: queue.SimpleQueue[tuple[bytes | None, Request] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._over = False

    def start(self) -> None:
        """Begin to copy."""
        for work in (self._write_all, self._wait):
            threading.Thread(target=work, daemon=True, name="kern-process").start()

    def write(self, data: bytes, request: Request) -> None:
        """Give it input; ``request`` is answered when it has been written."""
        self._put(data, request)

    def end_input(self, request: Request) -> None:
        """Give it the end of its input, after what was written before."""
        self._put(None, request)

    def _put(self, data: bytes | None, request: Request) -> None:
        with self._lock:
            if not self._over:
                self._input.put((data, request))
                return
        request.fail(_not_reading())

    def send_signal(self, number: int) -> None:
        """Send the program a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End its box."""
        self._process.kill()

    def _write_all(self) -> None:
        for data, request in iter(self._input.get, None):
            try:
                self._write(data)
                request.reply({})
            except (OSError, ValueError):
                request.fail(_not_reading())

    def _write(self, data: bytes | None) -> None:
        if data is None:
            self._process.stdin.close()
            return
        view = memoryview(data)
        while view:
            view = view[self._process.stdin.write(view) :]

    def _wait(self) -> None:
        over, say_over = os.pipe2(os.O_CLOEXEC)
        copiers = [
            threading.Thread(target=copy_out, args=(file.fileno(), over, self._teller(name)), daemon=True)
            for name, file in (("stdout", self._process.stdout), ("stderr", self._process.stderr))
        ]
        for copier in copiers:
            copier.start()
        end: dict[str, Any] = {"process": self.name}
        try:
            end["result"] = self._process.wait().to_dict()
        except SandboxError as error:
            end["error"] = about(error)
        os.close(say_over)
        for copier in copiers:
            copier.join()
        os.close(over)
        self._process.close()
        with self._lock:  # what comes later finds nobody who would write it
            self._over = True
            self._input.put(None)
        self._tell("process.exit", end)
        self._ended()

    def _teller(self, stream: str) -> Callable[[bytes], None]:
        def tell(data: bytes) -> None:
            if data:
                encoded = base64.b64encode(data).decode("ascii")
                self._tell("process.output", {"process": self.name, "stream": stream, "data_base64": encoded})

        return tell
