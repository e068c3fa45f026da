"""A local endpoint that speaks OpenAI's chat completions and says what a script has: cassettes are recorded from it."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def _completion(turn: dict[str, Any], at: int) -> dict[str, Any]:
    finish = "tool_calls" if turn.get("tool_calls") else "stop"
    message = {"role": "assistant", "content": None, **turn}
    return {
        "id": f"chatcmpl-{at}",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def asks(name: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    """A turn that calls a tool once for each."""
    return {
        "tool_calls": [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(each)}}
            for at, each in enumerate(arguments)
        ]
    }


@contextlib.contextmanager
def serving(turns: list[dict[str, Any]]) -> Iterator[str]:
    """The endpoint's base URL; each answer is the turn that follows those which the request already has."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            at = sum(message["role"] == "assistant" for message in asked["messages"])
            body = json.dumps(_completion(turns[at], at)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing is said."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
