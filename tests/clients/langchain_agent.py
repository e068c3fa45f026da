"""A LangChain agent whose model is a script, with the server's tools through LangChain's own MCP adapter.

Prints, as JSON, the names of the tools and what each call gave the model. See ``mcp_v2.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


class Scripted(GenericFakeChatModel):  # type: ignore[misc] # not installed where types are checked
    """A model that says what its script says, whatever its tools are."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Scripted:
        """It knows them already."""
        return self


def call(name: str, number: int, **arguments: Any) -> AIMessage:
    """A turn in which the model uses a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": str(number)}])


async def scene() -> dict[str, Any]:
    """Three turns with tools, and one with the answer."""
    command, *words = json.loads(sys.argv[2])
    server = {
        "transport": "stdio",
        "command": command,
        "args": words,
        "env": {
            "PYTHONPATH": os.environ["SERVER_PYTHONPATH"],
            "TMPDIR": os.environ["TMPDIR"],
            "PATH": os.environ["PATH"],
        },
    }
    script = [
        call("write_file", 1, path="n.txt", content="41"),
        call("run_code", 2, code="print(int(open('n.txt').read()) + 1)"),
        call("run_code", 3, code="while True: pass", timeout_s=0.3),
        AIMessage("done"),
    ]
    async with MultiServerMCPClient({"kern": server}).session("kern") as session:
        tools = await load_mcp_tools(session)
        agent = create_agent(Scripted(messages=iter(script)), tools)
        state = await agent.ainvoke({"messages": [("user", "go")]})
    given = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    texts = [message.text if isinstance(message.text, str) else message.text() for message in given]
    return {"tools": [tool.name for tool in tools], "given": texts, "statuses": [message.status for message in given]}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(scene())))
