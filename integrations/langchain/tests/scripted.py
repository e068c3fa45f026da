"""Models that say what a test has written down, and what an agent made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain.agents.middleware import HostExecutionPolicy, ShellToolMiddleware
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import Field

if TYPE_CHECKING:
    import subprocess

HELLO = {"messages": [HumanMessage("go")]}


class Scripted(FakeMessagesListChatModel):
    """Says its lines, one a turn, and keeps what it was told."""

    told: list[list[BaseMessage]] = Field(default_factory=list)

    def bind_tools(self, tools: Any, **_: Any) -> Scripted:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.told.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


def calls(*asked: dict[str, Any], name: str = "run_code") -> AIMessage:
    """One turn of a model: these calls of a tool at once."""
    numbered = [{"name": name, "args": args, "id": f"call-{at}", "type": "tool_call"} for at, args in enumerate(asked)]
    return AIMessage("", tool_calls=numbered)


def code(*programs: str) -> AIMessage:
    """One turn: these programs at once."""
    return calls(*({"code": program} for program in programs))


def agent_of(tool: Any, *turns: AIMessage, **how: Any) -> Any:
    """An agent with this tool whose model takes these turns, and then says that it is done."""
    tools = [] if tool is None else [tool]
    return create_agent(Scripted(responses=[*turns, AIMessage("done")]), tools, **how)


def told(state: dict[str, Any]) -> list[ToolMessage]:
    """What the tools said."""
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def in_thread(name: str) -> dict[str, Any]:
    """The config of a conversation."""
    return {"configurable": {"thread_id": name}}


def shell(*commands: str | None) -> AIMessage:
    """One turn: these commands of the shell at once; ``None`` restarts it."""
    return calls(*({"restart": True} if each is None else {"command": each} for each in commands), name="shell")


def shell_agent(policy: Any, *turns: AIMessage, how: dict[str, Any] | None = None, **middleware: Any) -> Any:
    """An agent with a shell whose model takes these turns."""
    own = ShellToolMiddleware(execution_policy=policy, **middleware)
    more = (how or {}).pop("middleware", [])
    return agent_of(None, *turns, middleware=[*more, own], **(how or {}))


@dataclass
class Host(HostExecutionPolicy):
    """The stock policy, and what its sessions leave open, which the session does not close."""

    made: list[subprocess.Popen[str]] = field(default_factory=list)

    def spawn(self, **how: Any) -> subprocess.Popen[str]:
        self.made.append(super().spawn(**how))
        return self.made[-1]

    def close(self) -> None:
        for process in self.made:
            for file in (process.stdin, process.stdout, process.stderr):
                file.close()
            process.wait(10)


def plain(message: ToolMessage | str) -> str:
    """What a model reads, without the sandbox's remarks on this machine: an ordinary user's may not limit memory."""
    text = message if isinstance(message, str) else str(message.content)
    said, notes, _ = text.partition("\n\nnotes:\n")
    return said.removeprefix("stdout:\n") if notes else said
