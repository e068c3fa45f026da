"""Stands in for a model, so that the examples run without one: it says what it is given, turn by turn."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage


class ScriptedModel(FakeMessagesListChatModel):
    """Any chat model that can call tools takes its place."""

    def bind_tools(self, *_: Any, **__: Any) -> ScriptedModel:
        """The script knows already which tools there are."""
        return self


def turn(tool: str, **arguments: Any) -> AIMessage:
    """The model calls a tool."""
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": "call"}])
