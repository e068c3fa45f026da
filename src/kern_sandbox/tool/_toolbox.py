"""Tools over one Sandbox: a name and arguments in, an ``Answer`` out, whatever happens."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from ..checks import bad, short, whole
from ..errors import MountRefused, SandboxError, SpecError, WorkspaceError
from ..kernel import start_kernel
from ..render import ImagePart, TextPart, blocks, neutralise, render
from ..results import ExecutionResult, Result
from ..session import How, Session
from ..workspace import vetted
from ._definitions import Definition, file_definitions, reset_definition, run_definition
from ._fence import without_fence
from ._interpreter import Cancel, Interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..aio import AsyncSandbox
    from ..sandbox import Sandbox

__all__ = ["Answer", "Toolbox", "describe_error"]

_LEAST, _LIMIT, _MOST = 2_000, 20_000, 1 << 30
_FILES_SHOWN = 1000
_MAX_FILE = 8 << 20
_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"))
_TYPES: Mapping[str, tuple[type, ...]] = {"string": (str,), "number": (int, float)}


@dataclass(frozen=True)
class Answer:
    """What a tool gives back.

    Attributes:
        text: what a model reads; never empty.
        parts: the same as text and images, in order.
        data: the same as plain, strict JSON that fits ``Definition.output_schema``; ``None`` where there is only an
            error.
        is_error: the code failed, the sandbox acted, or the tool could not do what was asked.
        result: of ``run_code``, as the box left it: not rendered, not bounded.
        error: what the sandbox raised. A ``SpecError`` or ``WorkspaceError`` is about the arguments, and a model can
            do better; any other is about this machine or the Sandbox.
    """

    text: str
    parts: Sequence[TextPart | ImagePart]
    data: Mapping[str, Any] | None = None
    is_error: bool = False
    result: ExecutionResult | None = None
    error: SandboxError | None = field(default=None, compare=False)


def describe_error(error: SandboxError) -> str:
    """An error in words for a model: what was wrong with the arguments, or that it is not about them."""
    words = neutralise(str(error))
    if isinstance(error, (SpecError, WorkspaceError)) and not isinstance(error, MountRefused):
        return f"[sandbox: refused] {words}"
    return f"[sandbox: error] {words}\nThe sandbox failed, not the code: other code will fail as well."


class Toolbox:
    """The tools of one Sandbox. Usable from many threads and tasks at once; the Sandbox stays its owner's to close.

    Args:
        sandbox: what the tools work on.
        kernel: Python runs in one interpreter that keeps its state, and there is a tool ``reset``.
        limit: characters of one text that a model gets at most, 2,000 or more; head and tail are kept.

    Raises:
        SpecError: ``sandbox`` or ``limit`` is not accepted.
    """

    def __init__(self, sandbox: Sandbox | AsyncSandbox, *, kernel: bool = False, limit: int = _LIMIT) -> None:
        session = getattr(sandbox, "_session", None)  # one floor, and no second way to the same engine
        if not isinstance(session, Session):
            raise bad("sandbox", sandbox, "a Sandbox or an AsyncSandbox")
        self._session: Session = session
        self._python = Interpreter(lambda: start_kernel(session, None, None, sandbox)) if kernel else None
        self._limit = whole("limit", limit, _LEAST, _MOST)
        self._languages: dict[str, str] | None = None

    def close(self) -> None:
        """End the interpreter that keeps its state, if there is one. Closing twice does nothing."""
        if self._python is not None:
            self._python.reset()

    def languages(self) -> Mapping[str, str]:
        """The languages that a box of this Sandbox runs, each with its interpreter's version; asked once, in boxes.

        Raises:
            SandboxError: no box could be made.
        """
        if self._languages is None:
            self._languages = _interpreters(self._session)
        return self._languages

    def definitions(self, languages: Mapping[str, str] | None = None) -> list[Definition]:
        """What a model is told: ``run_code`` first, where a box has an interpreter at all, the files, ``reset``.

        Args:
            languages: what ``run_code`` is said to run; asked in boxes if ``None``.

        Raises:
            SandboxError: no box could be made.
        """
        spoken = self.languages() if languages is None else languages
        kept = self._python is not None
        run = [run_definition(self._session, spoken, kernel=kept)] if spoken else []
        return [*run, *file_definitions(), *([reset_definition()] if kept else [])]

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_output: Callable[[str], object] | None = None,
        cancel: Cancel | None = None,
    ) -> Answer:
        """Use a tool. A ``SandboxError`` becomes an answer.

        Args:
            name: as in its definition.
            arguments: as its input schema says.
            on_output: called with what the code writes to either stream, as it comes, not rendered, on another thread.
            cancel: ends the code from another thread.
        """
        try:
            return self._call(name, arguments, on_output, cancel)
        except SandboxError as error:
            return _only_text(describe_error(error), is_error=True, error=error)

    async def acall(
        self, name: str, arguments: Mapping[str, Any], *, on_output: Callable[[str], object] | None = None
    ) -> Answer:
        """``call``, awaited; cancelling the task ends the code and waits until its box is gone."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        from ..aio import ended_with_its_task

        cancel = Cancel()
        thread = ThreadPoolExecutor(1, thread_name_prefix="kern-tool")
        call = asyncio.get_running_loop().run_in_executor(
            thread, lambda: self.call(name, arguments, on_output=on_output, cancel=cancel)
        )
        try:
            return await ended_with_its_task(call, cancel)
        finally:
            thread.shutdown(wait=False)

    def _call(
        self, name: str, arguments: Mapping[str, Any], on_output: Callable[[str], object] | None, cancel: Cancel | None
    ) -> Answer:
        if name == "run_code":
            given = _checked(name, arguments, {"code": "string", "language": "string", "timeout_s": "number"}, "code")
            return self._run(given, on_output, cancel)
        tools: dict[str, Callable[..., Answer]] = {
            "write_file": self._write,
            "read_file": self._read,
            "list_files": self._list,
        }
        if self._python is not None:
            tools["reset"] = self._reset
        if name not in tools:
            raise SpecError(f"there is no tool {short(name)}: the tools are {', '.join(['run_code', *tools])}")
        schema = next(one for one in [*file_definitions(), reset_definition()] if one.name == name).input_schema
        types = {key: each["type"] for key, each in schema["properties"].items()}
        return tools[name](**_checked(name, arguments, types, *schema["required"]))

    def _run(
        self, given: Mapping[str, Any], on_output: Callable[[str], object] | None, cancel: Cancel | None
    ) -> Answer:
        timeout = given.get("timeout_s")
        if timeout is not None and timeout > self._session.spec.timeout_s:
            raise SpecError(f"timeout_s={timeout!r} is more than the limit of {self._session.spec.timeout_s:g} s")
        code = without_fence(given["code"])
        language = given.get("language") or next(iter(self._languages or ()), "python")
        if self._python is not None and language == "python":
            how = {"timeout_s": timeout, "on_stdout": on_output, "on_stderr": on_output}
            return self.answer(self._python.run(code, how, cancel))
        fresh = How(timeout_s=timeout, on_stdout=on_output, on_stderr=on_output)
        return self.answer(self._session.run_code(code, language, fresh, cancel))

    def answer(self, result: ExecutionResult) -> Answer:
        """A result as a tool gives it."""
        return Answer(
            text=render(result, limit=self._limit),
            parts=blocks(result, limit=self._limit),
            data=self._data(result),
            is_error=not result.success,
            result=result,
        )

    def _data(self, result: ExecutionResult) -> dict[str, Any]:
        stdout, stderr = self._bounded(result.stdout), self._bounded(result.code_stderr)
        fault = result.fault
        paths = self._within([_path(one.path) for one in result.files[:_FILES_SHOWN]])
        values = [self._bounded(value.text)[0] for value in result.results[:100] if value.text is not None]
        return {
            "success": result.success,
            "exit_code": result.exit_code,
            "fault": None
            if fault is None
            else {key: neutralise(getattr(fault, key)) for key in ("type", "message", "detail")},
            "stdout": stdout[0],
            "stderr": stderr[0],
            "truncated": result.truncated or stdout[1] or stderr[1],
            "values": self._within(values),
            "files": [{"path": path, "size": one.size, "change": one.change} for path, one in zip(paths, result.files)],
            "notes": [neutralise(note) for note in result.runtime_notes],
            "duration_ms": result.duration_ms,
        }

    def _bounded(self, text: str) -> tuple[str, bool]:
        """Head and tail of ``text``, rendered, and whether something is missing between them."""
        if len(text) <= self._limit:
            return neutralise(text), False
        half = self._limit // 2
        head, tail = neutralise(text[:half]), neutralise(text[-half:])
        return f"{head}\n[… {len(text) - 2 * half} characters left out …]\n{tail}", True

    def _reset(self) -> Answer:
        assert self._python is not None
        self._python.reset()
        return _only_text("The interpreter has ended; the next call starts a new one.", data={"reset": True})

    # The files

    def _write(self, path: str, content: str) -> Answer:
        _require_unprotected(path, self._session.spec.protect)
        self._session.workspace.write_file(path, content)
        shown, size = neutralise(path), len(content.encode("utf-8", "replace"))
        return _only_text(f"Wrote {shown}, {size} bytes.", data={"path": shown, "size": size})

    def _read(self, path: str) -> Answer:
        data = self._session.workspace.read_file(path, _MAX_FILE)
        about = {"path": neutralise(path), "size": len(data), "text": None, "truncated": False}
        mime = next((mime for magic, mime in _IMAGES if data.startswith(magic)), None)
        if mime is not None:
            parts = blocks(ExecutionResult(results=[Result({mime: data})]))
            return Answer(render(ExecutionResult(results=[Result({mime: data})])), parts, about)
        try:
            text, cut = self._bounded(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise WorkspaceError(
                f"reading {path!r} as text: {len(data)} bytes that are not UTF-8",
                hint="Read it with code instead",
            ) from error
        return _only_text(text or "(the file is empty)", data={**about, "text": text, "truncated": cut})

    def _list(self, subdir: str = "") -> Answer:
        names = self._session.workspace.list_files(subdir)
        shown = self._within([_path(name) for name in names[:_FILES_SHOWN]])
        more = [f"[… {len(names) - len(shown)} more …]"] if len(names) > len(shown) else []
        return _only_text("\n".join([*shown, *more]) or "(no files)", data={"files": shown, "total": len(names)})

    def _within(self, lines: Sequence[str]) -> list[str]:
        """As many of the lines, from the first on, as fit into a text that a model gets; one is always among them."""
        shown: list[str] = []
        room = self._limit
        for line in lines:
            room -= len(line) + 1
            if room < 0 and shown:
                break
            shown.append(line)
        return shown


def _path(path: str) -> str:
    """A file's name for the middle of a list: it is no more than one line of it."""
    return neutralise(path).replace("\n", "\N{SYMBOL FOR NEWLINE}")


def _require_unprotected(path: str, protected: Iterable[str]) -> None:
    """What a model writes through a tool is code's doing too: raises for what ``protect`` keeps from code."""
    place = b"/".join([b"/workspace", *vetted(path)]).decode("utf-8", "surrogateescape")
    for kept in protected:
        if place == kept or place.startswith(f"{kept}/"):
            words = f"writing {short(path)} in the workspace: protect= keeps {kept} as it is"
            raise WorkspaceError(words, errno=errno.EROFS, path=path)


def _only_text(
    text: str, *, data: Mapping[str, Any] | None = None, is_error: bool = False, error: SandboxError | None = None
) -> Answer:
    return Answer(text, [TextPart(text)], data, is_error, error=error)


def _checked(name: str, arguments: object, types: Mapping[str, str], *required: str) -> dict[str, Any]:
    """The arguments, if they have the form that the input schema asks for; an optional one may be null."""
    if not isinstance(arguments, Mapping):
        raise SpecError(f"{name} takes an object of arguments: {', '.join(types)}")
    given = {key: value for key, value in arguments.items() if value is not None or key in required}
    for key, value in given.items():
        if key not in types:
            raise SpecError(f"{name} has no argument {str(key)[:80]!r}: it takes {', '.join(types)}")
        if isinstance(value, bool) or not isinstance(value, _TYPES[types[key]]):
            raise SpecError(f"{name}: {key} has to be a {types[key]}, not {type(value).__name__}")
    missing = [key for key in required if key not in given]
    if missing:
        raise SpecError(f"{name} needs the argument {missing[0]}")
    return given


def _interpreters(session: Session) -> dict[str, str]:
    """Which interpreters answer in a box, and as which version."""
    python = session.plan.python  # raises where an image cannot be had, which a call has as a fault
    asks = {
        "python": [python, "-V"],
        "bash": ["bash", "--version"],
        "sh": ["sh", "-c", ":"],
        "node": ["node", "--version"],
    }
    found = {}
    for language, argv in asks.items():
        result = session.run(argv, None, How(timeout_s=20))
        if result.success:
            version = re.search(r"\d+(\.\d+)*", result.stdout[:200])
            found[language] = version[0] if version else ""
    return found
