"""The tools of one Sandbox in the form that LlamaIndex gives to tools."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import ConfigDict, create_model
from llama_index.core.llms import ImageBlock, TextBlock
from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.tools.tool_spec.base import SPEC_FUNCTION_TYPE, BaseToolSpec

from kern_sandbox import Sandbox, SpecError
from kern_sandbox.tool import ImagePart, Toolbox

if TYPE_CHECKING:
    from kern_sandbox import AsyncSandbox
    from kern_sandbox.tool import Answer, Definition

__all__ = ["KernSandboxToolSpec"]


class KernSandboxToolSpec(BaseToolSpec):
    """Runs code, each call in a fresh box, on a workspace that all calls share. Usable from many threads and tasks.

    Every tool gives a ``ToolOutput``: text, then images; ``is_error`` where the code failed, the sandbox acted, or the
    tool could not do what was asked; as raw output plain data that any JSON encoder takes. None of that raises: where
    it was the sandbox that failed, its error is the ``exception`` of the output.

    Args:
        sandbox: what the tools work on, which stays its owner's to close; ``None`` makes one, which `close` closes.
        kernel: Python keeps its variables from one ``run_code`` to the next, and there is a tool ``reset``.
        images: a model gets charts as image blocks too; else only the text, which names them.
        limit: characters of one text that a model gets at most, 2,000 or more.
        sandbox_options: as ``Sandbox`` takes them.

    Raises:
        SandboxError: as ``Sandbox``; a ``SpecError`` also for options beside a ``sandbox``.
    """

    spec_functions: list[SPEC_FUNCTION_TYPE] = ["run_code", "write_file", "read_file", "list_files"]  # noqa: RUF012 - its base declares it so

    def __init__(
        self,
        sandbox: Sandbox | AsyncSandbox | None = None,
        *,
        kernel: bool = False,
        images: bool = True,
        limit: int = 20_000,
        **sandbox_options: Any,
    ) -> None:
        if sandbox is not None and sandbox_options:
            raise SpecError(
                f"a sandbox and options of one as well ({', '.join(sandbox_options)}): give one or the other"
            )
        self._own = Sandbox(**sandbox_options) if sandbox is None else None
        self._sandbox = sandbox or self._own
        assert self._sandbox is not None
        self._tools = Toolbox(self._sandbox, kernel=kernel, limit=limit)
        self._cells = self._tools if kernel else Toolbox(self._sandbox, kernel=True, limit=limit)
        self._images = images
        if kernel:
            self.spec_functions = [*self.spec_functions, "reset"]

    @property
    def sandbox(self) -> Sandbox | AsyncSandbox:
        """What the tools work on."""
        assert self._sandbox is not None
        return self._sandbox

    def close(self) -> None:
        """End the interpreters, and the Sandbox if it is the spec's own. Closing twice does nothing."""
        self._tools.close()
        self._cells.close()
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> KernSandboxToolSpec:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: object) -> KernSandboxToolSpec:
        """The same object: a copy of a tool works on the same workspace."""
        return self

    # The tools

    def to_tool_list(
        self,
        spec_functions: list[SPEC_FUNCTION_TYPE] | None = None,
        func_to_metadata_mapping: dict[str, ToolMetadata] | None = None,
    ) -> list[FunctionTool]:
        """The tools, each with a sync and an async side; cancelling the async one ends the code.

        Args:
            spec_functions: only these; a name stands for both sides. Without it, ``run_code`` is left out where a box
                has no interpreter.
            func_to_metadata_mapping: a tool's name to what a model is told instead.

        Raises:
            SandboxError: no box could be made to ask which interpreters it has.
            ValueError: ``run_code`` was asked for and a box has no interpreter.
        """
        definitions = {each.name: each for each in self._tools.definitions()}
        told = func_to_metadata_mapping or {}
        tools: list[FunctionTool] = []
        for each in spec_functions or [
            name for name in self.spec_functions if name != "run_code" or name in definitions
        ]:
            name = each if isinstance(each, str) else each[0]
            if name in definitions:
                tools.append(self._tool(name, told.get(name) or _metadata(definitions[name])))
            elif name == "run_code":
                raise ValueError("there is no tool run_code: a box of this Sandbox has no interpreter")
            else:
                tools += super().to_tool_list([each], told)
        return tools

    def _tool(self, name: str, metadata: ToolMetadata) -> FunctionTool:
        def whole(output: ToolOutput) -> ToolOutput:
            """What a callback gives is the output; without one LlamaIndex keeps nothing of it but its text."""
            output.tool_name = metadata.get_name()
            return output

        return FunctionTool.from_defaults(
            fn=getattr(self, name),
            async_fn=getattr(self, f"a{name}"),
            tool_metadata=metadata,
            callback=whole,
        )

    def run_code(self, code: str, language: str | None = None, timeout_s: float | None = None) -> ToolOutput:
        """Run a program in a box and get what it printed, the value of its last expression and its figures.

        Args:
            code (str): the program.
            language (str): what it is written in; Python unless given.
            timeout_s (float): seconds until it is stopped; the Sandbox's own limit unless given.
        """
        return self._call("run_code", code=code, language=language, timeout_s=timeout_s)

    async def arun_code(self, code: str, language: str | None = None, timeout_s: float | None = None) -> ToolOutput:
        """``run_code``, awaited; cancelling the task ends the code and waits until its box is gone."""
        return await self._acall("run_code", code=code, language=language, timeout_s=timeout_s)

    def write_file(self, path: str, content: str) -> ToolOutput:
        """Write a text file of the workspace.

        Args:
            path (str): relative to the workspace.
            content (str): the whole file.
        """
        return self._call("write_file", path=path, content=content)

    async def awrite_file(self, path: str, content: str) -> ToolOutput:
        """``write_file``, awaited."""
        return await self._acall("write_file", path=path, content=content)

    def read_file(self, path: str) -> ToolOutput:
        """Read a file of the workspace: text, or a PNG or JPEG image.

        Args:
            path (str): relative to the workspace.
        """
        return self._call("read_file", path=path)

    async def aread_file(self, path: str) -> ToolOutput:
        """``read_file``, awaited."""
        return await self._acall("read_file", path=path)

    def list_files(self, subdir: str = "") -> ToolOutput:
        """List the files of the workspace.

        Args:
            subdir (str): only what is below this directory.
        """
        return self._call("list_files", subdir=subdir)

    async def alist_files(self, subdir: str = "") -> ToolOutput:
        """``list_files``, awaited."""
        return await self._acall("list_files", subdir=subdir)

    def reset(self) -> ToolOutput:
        """End the interpreter whose variables are kept; only with ``kernel=True``."""
        return self._call("reset")

    async def areset(self) -> ToolOutput:
        """``reset``, awaited."""
        return await self._acall("reset")

    async def code_execute_fn(self, code: str) -> dict[str, Any]:
        """Run code for a ``CodeActAgent``: what its top level defines is there for the next code.

        It is the interpreter of ``run_code`` if the spec has ``kernel=True``, else one of its own.

        Args:
            code (str): Python.

        Returns:
            The result as plain data. Its ``str``, which is all that the agent shows a model, is the text for one.

        Raises:
            RuntimeError: the sandbox failed, not the code; an agent hands the message to its model and goes on.
        """
        answer = await self._cells.acall("run_code", {"code": code})
        if answer.data is None:
            raise RuntimeError(answer.text) from answer.error
        return _Told(answer.data, answer.text)

    def _call(self, name: str, **arguments: Any) -> ToolOutput:
        return self._output(name, arguments, self._tools.call(name, arguments))

    async def _acall(self, name: str, **arguments: Any) -> ToolOutput:
        return self._output(name, arguments, await self._tools.acall(name, arguments))

    def _output(self, name: str, arguments: dict[str, Any], answer: Answer) -> ToolOutput:
        return ToolOutput(
            tool_name=name,
            blocks=_blocks(answer, images=self._images),
            raw_input={"args": (), "kwargs": arguments},
            raw_output=answer.text if answer.data is None else dict(answer.data),
            is_error=answer.is_error,
            exception=answer.error,
        )


class _Told(dict[str, Any]):
    """A result as data, with the text for a model as its ``str``."""

    def __init__(self, data: Any, text: str) -> None:
        super().__init__(data)
        self._text = text

    def __str__(self) -> str:
        return self._text


def _blocks(answer: Answer, *, images: bool) -> list[Any]:
    """The text, which is never missing since some agents pass on nothing else, and the images."""
    pictures = [part for part in answer.parts if isinstance(part, ImagePart)] if images else []
    return [
        TextBlock(text=answer.text),
        *(ImageBlock(image=picture.data, image_mimetype=picture.mime) for picture in pictures),
    ]


def _metadata(definition: Definition) -> ToolMetadata:
    """The definition as LlamaIndex keeps one: the schema is that of a model class, here to the letter."""
    schema = definition.input_schema
    fields: dict[str, Any] = {
        name: (Any, ... if name in schema["required"] else one.get("default"))
        for name, one in schema["properties"].items()
    }

    def exactly(drawn: dict[str, Any]) -> None:
        drawn.clear()
        drawn.update(copy.deepcopy(dict(schema)))

    model = create_model(definition.name, __config__=ConfigDict(json_schema_extra=exactly), **fields)
    return ToolMetadata(name=definition.name, description=definition.description, fn_schema=model)
