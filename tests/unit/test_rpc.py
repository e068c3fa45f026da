"""The server's half of JSON-RPC, with a handler that is not well."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from kern_sandbox._rpc import Request, Server, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest


class Unwell:
    """Fails where nobody expects it."""

    inline = frozenset({"ask"})

    def call(self, request: Request) -> Mapping[str, Any]:
        if request.params:
            raise LookupError("no such thing")
        return {"well": True}

    def notified(self, server: Server, method: str, params: Mapping[str, Any]) -> None:
        raise LookupError(method)

    def close(self) -> None:
        """Nothing is kept."""


def served(*messages: Mapping[str, Any]) -> list[Any]:
    """What the server answers to messages that come one after the other."""
    (source, asks), (hears, target) = os.pipe(), os.pipe()
    os.write(asks, b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages))
    os.close(asks)
    Server(Wire(source, target, 1 << 20), Unwell(), workers=1, answers_cancelled=True).serve()
    os.close(source)
    os.close(target)
    with open(hears, "rb") as answers:
        return [json.loads(line) for line in answers]


def test_a_defect_costs_its_own_message_and_never_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    spoilt, well = served(
        {"method": "tell"},
        {"id": 1, "method": "ask", "params": {"what": "x"}},
        {"id": 2, "method": "ask"},
    )[1:]
    assert (spoilt["id"], spoilt["error"]["code"]) == (1, -32603)
    assert (well["id"], well["result"]) == (2, {"well": True})
    assert "LookupError: tell" in capsys.readouterr().err
