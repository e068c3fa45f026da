"""A model that says what a test has written down, an image for boxes to show, a line that tells whether code runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import struct
import zlib
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.llms.mock import MockFunctionCallingLLM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Script:
    """Says its turns, one each time it is asked.

    Attributes:
        llm: the model.
        told: what it was told before each turn.
    """

    def __init__(self, *turns: str | ChatMessage) -> None:
        self.told: list[list[ChatMessage]] = []
        self._turns = iter(turns)
        self.llm = MockFunctionCallingLLM(response_generator=self._next, is_chat_model=True)

    def _next(self, messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        self.told.append(list(messages))
        turn = next(self._turns)
        return ChatMessage(role=MessageRole.ASSISTANT, content=turn) if isinstance(turn, str) else turn

    def heard(self, role: MessageRole) -> list[ChatMessage]:
        """The messages of one role that it was told before its last turn."""
        return [message for message in self.told[-1] if message.role == role]


def calls(*asked: tuple[str, dict[str, Any]]) -> ChatMessage:
    """One turn: these tools at once, each with its arguments."""
    blocks = [
        ToolCallBlock(tool_call_id=f"call-{at}", tool_name=name, tool_kwargs=arguments)
        for at, (name, arguments) in enumerate(asked)
    ]
    return ChatMessage(role=MessageRole.ASSISTANT, blocks=list(blocks))


def code(*programs: str) -> ChatMessage:
    """One turn: these programs at once."""
    return calls(*(("run_code", {"code": program}) for program in programs))


def said(text: object) -> str:
    """What code said, without the sandbox's notes, of which there is one where this machine has no cgroups for us."""
    return re.sub(r"\n+notes:\n(- .*\n?)+\Z", "", str(text)).removeprefix("stdout:\n")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = b"".join(
    [
        b"\x89PNG\r\n\x1a\n",
        _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(b"\0\x80")),
        _chunk(b"IEND", b""),
    ]
)
"""One grey pixel."""

CHART = f"class Chart:\n    def _repr_png_(self):\n        return {PNG!r}\nChart()"
"""Code whose value is that image."""

HOLDS_THE_LINE = "import time\nline = open('line', 'wb', 0)\nline.write(b'here')\ntime.sleep(25)"
"""Code that says that it runs, and then holds the line for as long as it does."""


class Line:
    """The host's end of a FIFO in a workspace."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def said(self) -> bytes:
        """What comes next."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._descriptor, ready.set)
        await ready.wait()
        loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, 100)

    def held(self) -> bool:
        """Whether the code that opened the other end still runs."""
        try:
            return os.read(self._descriptor, 1) != b""
        except BlockingIOError:
            return True


@contextlib.contextmanager
def line_from_box(workspace: str) -> Iterator[Line]:
    """A line that code in a box of this workspace can hold."""
    path = f"{workspace}/line"
    os.mkfifo(path)
    os.chmod(path, 0o666)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield Line(descriptor)
    finally:
        os.close(descriptor)
        os.unlink(path)
