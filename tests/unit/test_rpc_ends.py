"""How the server of JSON-RPC ends."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kern_sandbox._rpc import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class Handler:
    """Answers everything."""

    inline: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.closed = threading.Event()

    def call(self, request: Any) -> Any:
        return {}

    def notified(self, server: Any, method: str, params: Any) -> None:
        pass

    def close(self) -> None:
        self.closed.set()


class SlowWire:
    """Brings one request and the end of the input; gives a hasty server time to close before an answer is written."""

    broken = False

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.written: list[Any] = []

    def frames(self) -> Iterator[bytes]:
        yield json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x"}).encode()

    def send(self, message: Any) -> None:
        self.handler.closed.wait(0.2)
        if not self.broken:
            self.written.append(message)


def test_an_answer_that_is_being_written_at_the_end_of_the_input_is_written_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kern_sandbox._rpc.server._LAST_WORDS_S", 60.0)  # a busy machine is another matter
    handler = Handler()
    wire: Any = SlowWire(handler)
    Server(wire, handler, workers=1, answers_cancelled=True).serve()
    assert wire.written == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert handler.closed.is_set()
