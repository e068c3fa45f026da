"""The official client of generation 2, in the mode that the first argument names; prints what it saw as JSON.

It runs in an environment of its own, which has ``mcp`` 2 and not the package that is tested: the server's command is
the second argument, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


def parameters() -> StdioServerParameters:
    """The server as this client starts it."""
    command, *words = json.loads(sys.argv[2])
    return StdioServerParameters(
        command=command, args=words, env={"PYTHONPATH": os.environ["SERVER_PYTHONPATH"], "TMPDIR": os.environ["TMPDIR"]}
    )


async def scene(session: Any, told: list[str], logged: list[str]) -> dict[str, Any]:
    """What every client does: look, run, fail, draw, be told, and give up."""

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    tools = await session.list_tools()
    ran = await session.call_tool("run_code", {"code": "print('hello')\n6 * 7"}, progress_callback=progress)
    failed = await session.call_tool("run_code", {"code": "import os\nos.kill(os.getpid(), 9)"})
    drawn = f"import base64\nclass P:\n  def _repr_png_(self): return base64.b64decode('{PIXEL}')\nP()"
    image = await session.call_tool("run_code", {"code": drawn})
    await session.call_tool("write_file", {"path": "a.txt", "content": "A"})
    read = await session.call_tool("read_file", {"path": "a.txt"})
    waiting = asyncio.ensure_future(session.call_tool("run_code", {"code": "open('began', 'w')\nwhile True: pass"}))
    files: list[str] = []
    while "began" not in files:
        files = (await session.call_tool("list_files", {})).structured_content["files"]
    waiting.cancel()
    after = await session.call_tool("run_code", {"code": "print('after')"})
    return {
        "tools": [one.name for one in tools.tools],
        "ran": ran.content[0].text,
        "data": ran.structured_content,
        "failed": [failed.is_error, failed.content[0].text],
        "image": [one.type for one in image.content],
        "read": read.content[0].text,
        "after": after.content[0].text,
        "told": told,
        "logged": logged,
    }


async def with_client(mode: Any) -> dict[str, Any]:
    """By the client that negotiates."""
    logged: list[str] = []

    async def log(message: Any) -> None:
        logged.append(message.level)

    level: Any = None if mode == "legacy" else "warning"
    async with Client(parameters(), mode=mode, logging_callback=log, log_level=level) as client:
        return {"version": client.protocol_version, **await scene(client, [], logged)}


async def with_session() -> dict[str, Any]:
    """By the low-level session, which shakes hands."""
    logged: list[str] = []

    async def log(message: Any) -> None:
        logged.append(message.level)

    async with stdio_client(parameters()) as streams, ClientSession(*streams, logging_callback=log) as session:
        version = (await session.initialize()).protocol_version
        return {"version": version, **await scene(session, [], logged)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(with_session() if sys.argv[1] == "session" else with_client(sys.argv[1]))))
