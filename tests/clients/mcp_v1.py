"""The official client of generation 1; prints what it saw as JSON. See ``mcp_v2.py``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


async def scene() -> dict[str, Any]:
    """Look, run, fail and draw."""
    command, *words = json.loads(sys.argv[2])
    server = StdioServerParameters(
        command=command, args=words, env={"PYTHONPATH": os.environ["SERVER_PYTHONPATH"], "TMPDIR": os.environ["TMPDIR"]}
    )
    told: list[str] = []
    logged: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    async def log(message: Any) -> None:
        logged.append(message.level)

    async with stdio_client(server) as streams, ClientSession(*streams, logging_callback=log) as session:
        version = (await session.initialize()).protocolVersion
        await session.set_logging_level("warning")
        await session.send_ping()
        tools = await session.list_tools()
        ran = await session.call_tool("run_code", {"code": "print('hello')\n6 * 7"}, progress_callback=progress)
        failed = await session.call_tool("run_code", {"code": "import os\nos.kill(os.getpid(), 9)"})
        drawn = f"import base64\nclass P:\n  def _repr_png_(self): return base64.b64decode('{PIXEL}')\nP()"
        image = await session.call_tool("run_code", {"code": drawn})
        await session.call_tool("write_file", {"path": "a.txt", "content": "A"})
        read = await session.call_tool("read_file", {"path": "a.txt"})
        after = await session.call_tool("run_code", {"code": "print('after')"})
    return {
        "version": version,
        "tools": [one.name for one in tools.tools],
        "ran": ran.content[0].text,
        "data": ran.structuredContent,
        "failed": [failed.isError, failed.content[0].text],
        "image": [one.type for one in image.content],
        "read": read.content[0].text,
        "after": after.content[0].text,
        "told": told,
        "logged": logged,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(scene())))
