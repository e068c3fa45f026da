"""The tool that runs code, as LangChain has tools."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import threading
from typing import TYPE_CHECKING, Any, Literal

from kern_sandbox import Sandbox, SandboxError, SpecError, neutralise
from kern_sandbox.tool import TextPart, Toolbox, describe_error
from langchain.tools import ToolRuntime
from langchain_core.messages.content import create_image_block, create_text_block
from langchain_core.tools import BaseTool, ToolException
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, create_model

from ._threads import Threads, thread_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kern_sandbox.tool import Answer

__all__ = ["KernCodeTool", "kern_code_tool"]

_NEW_WORKSPACE = (
    "[sandbox: new workspace] The files of this conversation had to make room for those of others; it is empty now.\n"
)
_LIMIT, _MOST_THREADS = 20_000, 64
Said = tuple[str | list[Any], dict[str, Any]]


class _Place:
    """The Sandbox of one conversation, and its tools."""

    def __init__(self, options: Mapping[str, Any], *, kernel: bool, limit: int) -> None:
        self.sandbox = Sandbox(**options)
        self.tools = Toolbox(self.sandbox, kernel=kernel, limit=limit)

    def close(self) -> None:
        """End the interpreter, the boxes, and a temporary workspace."""
        self.tools.close()
        self.sandbox.close()


class KernCodeTool(BaseTool):
    """Runs code in boxes; ``kern_code_tool`` makes it.

    Each conversation (``thread_id`` in ``configurable``) has a workspace of its own; calls that name none share one.
    Close the tool, or use it as a context manager: temporary workspaces end with it. A copy shares them.
    """

    name: str = "run_code"
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    images: bool = False

    _threads: Threads[_Place] = PrivateAttr()
    _made_with: dict[str, Any] = PrivateAttr()

    def _run(self, code: str, language: str | None = None, timeout_s: float | None = None, runtime: Any = None) -> Said:
        asked = {"code": code, "language": language, "timeout_s": timeout_s}
        key = thread_id(runtime.config if runtime else None)
        with _tool_errors():
            place, replaced = self._threads.acquire(key)
        try:
            return self._said(place.tools.call("run_code", asked, on_output=_progress(runtime)), replaced=replaced)
        finally:
            self._threads.release(key)

    async def _arun(
        self, code: str, language: str | None = None, timeout_s: float | None = None, runtime: Any = None
    ) -> Said:
        asked = {"code": code, "language": language, "timeout_s": timeout_s}
        key = thread_id(runtime.config if runtime else None)
        with _tool_errors():
            place, replaced = await self._threads.acquired(key)
        try:
            answer = await place.tools.acall("run_code", asked, on_output=_progress(runtime))
            return self._said(answer, replaced=replaced)
        finally:
            self._threads.release(key)

    def _said(self, answer: Answer, *, replaced: bool) -> Said:
        """Content for the model, and the artifact: plain data, which any checkpointer keeps as it is."""
        before = _NEW_WORKSPACE if replaced else ""
        if answer.error is not None:
            raise ToolException(before + answer.text)
        pictures = [(part.mime, part.data) for part in answer.parts if not isinstance(part, TextPart)]
        encoded = [{"mime_type": mime, "base64": base64.b64encode(data).decode()} for mime, data in pictures]
        artifact = {**(answer.data or {}), "images": encoded}
        if not self.images or not encoded:
            return before + answer.text, artifact
        blocks: list[Any] = [create_text_block(before + answer.text)]
        return blocks + [create_image_block(**each) for each in encoded], artifact

    def forget(self, thread: str) -> None:
        """A conversation is over: its workspace is closed.

        Args:
            thread: its ``thread_id``.
        """
        self._threads.forget(thread)

    def close(self) -> None:
        """End every box and let the workspaces go. Closing twice does nothing."""
        self._threads.close()

    async def aclose(self) -> None:
        """``close``, awaited."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> KernCodeTool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._made_with,)


def kern_code_tool(
    *,
    kernel: bool = False,
    images: bool = False,
    limit: int = _LIMIT,
    max_threads: int = _MOST_THREADS,
    **sandbox_options: Any,
) -> KernCodeTool:
    """A tool that runs code in a box. Its description names the limits and interpreters that a box really has.

    Args:
        kernel: Python keeps its variables from one call of a conversation to the next.
        images: the model gets PNG and JPEG images as content blocks; the artifact has them either way.
        limit: characters of one text that the model gets at most.
        max_threads: conversations whose workspace is kept; beyond it, that which was used the longest ago is closed.
        sandbox_options: as ``kern_sandbox.Sandbox`` takes them. A ``workspace`` that is named is shared by all
            conversations.

    Raises:
        SpecError: an option is not accepted, or a box has no interpreter.
        SandboxError: this machine cannot make such boxes.
    """
    if not isinstance(max_threads, int) or max_threads < 1:
        raise SpecError(f"max_threads={max_threads!r} is not accepted: a whole number of 1 or more")
    first = [_Place(sandbox_options, kernel=kernel, limit=limit)]
    definition = first[0].tools.definitions()[0]
    if definition.name != "run_code":
        raise SpecError("making a tool that runs code: a box of this image has no interpreter")
    tool = KernCodeTool(description=definition.description, args_schema=_schema(definition.input_schema), images=images)

    def make() -> _Place:
        return first.pop() if first else _Place(sandbox_options, kernel=kernel, limit=limit)

    tool._threads = Threads(make, max_threads)  # noqa: SLF001 - pydantic takes no private attribute when it makes one
    tool._made_with = dict(  # noqa: SLF001 - as above
        kernel=kernel, images=images, limit=limit, max_threads=max_threads, **sandbox_options
    )
    return tool


def _again(options: dict[str, Any]) -> KernCodeTool:
    return kern_code_tool(**options)


def _schema(given: Mapping[str, Any]) -> type[BaseModel]:
    """The definition's schema as pydantic has it, and the place where LangGraph puts what belongs to the call."""
    properties = given["properties"]
    languages = tuple(properties["language"]["enum"])
    most = properties["timeout_s"]["maximum"]
    words = {name: each["description"] for name, each in properties.items()}
    fields: dict[str, Any] = {
        "code": (str, Field(description=words["code"])),
        "language": (Literal[languages], Field(default=languages[0], description=words["language"])),
        "timeout_s": (float | None, Field(default=None, gt=0, le=most, description=words["timeout_s"])),
        "runtime": (ToolRuntime, None),
    }
    return create_model("RunCode", __config__=ConfigDict(arbitrary_types_allowed=True), **fields)


@contextlib.contextmanager
def _tool_errors() -> Iterator[None]:
    """What the sandbox raises is told to the model."""
    try:
        yield
    except SandboxError as error:
        raise ToolException(describe_error(error)) from error


def _progress(runtime: ToolRuntime | None) -> Callable[[str], object] | None:
    """What hands output on as it comes, on LangGraph's ``custom`` stream, from the thread that it arrives on."""
    if runtime is None:
        return None
    context, turn = contextvars.copy_context(), threading.Lock()

    def tell(text: str) -> None:
        said = {"type": "output", "tool": "run_code", "tool_call_id": runtime.tool_call_id, "text": neutralise(text)}
        with turn:
            context.run(runtime.stream_writer, said)

    return tell
