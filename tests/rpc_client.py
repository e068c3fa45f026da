"""A client of our JSON-RPC servers that says what it likes and hears everything."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
"""One black pixel."""


class Client:
    """One server's client; `command.started` starts the server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin, self.stdout = process.stdin, process.stdout
        self.told: list[dict[str, Any]] = []
        self._last = 0

    def say(self, data: bytes) -> None:
        """Write bytes as they are."""
        view = memoryview(data)
        while view:
            view = view[self.stdin.write(view) :]

    def send(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self.say(json.dumps(message).encode() + b"\n")
        return self._last

    def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        """The next message."""
        line = b""
        while not line.endswith(b"\n"):
            part = self.stdout.readline()
            assert part, f"the bridge has ended: {self.process.poll()}"
            line += part
        message = json.loads(line)
        assert isinstance(message, dict)
        return message

    def answer(self, number: object) -> dict[str, Any]:
        """The answer to a request; notifications that come before it are kept in ``told``."""
        while True:
            message = self.read()
            if "method" not in message and message["id"] == number:
                return message
            self.told.append(message)

    def ask(self, method: str, **params: Any) -> Any:
        """A request's result."""
        answer = self.answer(self.send(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    def refused(self, method: str, **params: Any) -> dict[str, Any]:
        """A request's error."""
        answer = self.answer(self.send(method, **params))
        assert "error" in answer, answer
        error = answer["error"]
        assert isinstance(error, dict)
        return error


BAD_FRAMES: list[tuple[bytes, int, object]] = [
    (b"garbage", -32700, None),
    (b"\xff\xfe", -32700, None),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"x": NaN}}', -32700, None),
    (b"[" * 100_000, -32700, None),
    (b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b"}", -32700, None),
    (b"[]", -32600, None),
    (b"null", -32600, None),
    (b'"text"', -32600, None),
    (b'{"id": 5, "method": "x"}', -32600, 5),
    (b'{"jsonrpc": "2.0", "id": 6, "method": 7}', -32600, 6),
    (b'{"jsonrpc": "2.0", "id": "x", "method": "no.such"}', -32601, "x"),
    (b'{"jsonrpc": "2.0", "id": 8, "method": "no.such", "params": [1]}', -32602, 8),
    (b'{"jsonrpc": "2.0", "id": 9, "method": "no.such\\ud800"}', -32601, 9),
    *(
        (b'{"jsonrpc": "2.0", "id": %s, "method": "x"}' % number, -32600, None)
        for number in (b"null", b"true", b"1.5", b"[]", b"{}")
    ),
    (b"x" * (97 << 20), -32600, None),
]
"""What no client should send: the frame, the code of its error, and the id that the error names."""
