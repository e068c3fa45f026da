"""A box as the sandbox backend of deepagents."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Any

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox
from kern_sandbox import AsyncSandbox, Sandbox, SandboxError, SpecError
from kern_sandbox.tool import describe_error
from langgraph.config import get_config

from ._threads import Threads, thread_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kern_sandbox import ExecutionResult

__all__ = ["KernSandbox"]

_KEPT = ("tmp", "large_tool_results", "conversation_history")
_TIMEOUT_S, _MOST_S = 300, 7 * 24 * 3600
_FAILED = 1
_PYTHON = '#!/bin/sh\nexec python3 "$@"\n'
_BIN = "/kern/bin"
"""Last on the PATH: models and deepagents say ``python``, which Debian does not have under this name."""
_SHELL = f'PATH=$PATH:{_BIN}; if command -v bash >/dev/null; then exec bash -c "$1"; else exec sh -c "$1"; fi'
_UPLOAD = """
[ -d "$1" ] && exit 41
mkdir -p -- "$(dirname -- "$1")" 2>/dev/null && cat 2>/dev/null >"$1" || exit 42
"""
_DOWNLOAD = """
[ -d "$1" ] && exit 41
[ -e "$1" ] || exit 43
[ -f "$1" ] && [ -r "$1" ] || exit 42
exec cat -- "$1"
"""
_ERRORS: Mapping[int, Any] = {41: "is_directory", 42: "permission_denied", 43: "file_not_found"}


class _Place:
    """A workspace, and what else of a box's files outlives a command.

    deepagents puts things into /tmp from one command to the next, and long results at the root.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._kept = Sandbox()
        for name in _KEPT:
            os.mkdir(os.path.join(self._kept.workspace, name))
        mounts = {os.path.join(self._kept.workspace, name): (f"/{name}", "rw") for name in _KEPT}
        self._kept.write_file("bin/python", _PYTHON)
        programs = os.path.join(self._kept.workspace, "bin")
        os.chmod(os.path.join(programs, "python"), 0o755)  # noqa: S103 - a program for every user of the box
        mounts[programs] = (_BIN, "ro")
        own = {**options, "tmpfs": {}, "mounts": {**(options.get("mounts") or {}), **mounts}, "track_files": False}
        try:
            self.sandbox = Sandbox(**own)
        except SandboxError:
            self._kept.close()
            raise
        self._own = {**own, "workspace": self.sandbox.workspace, "prewarm": 0}

    async def run(self, argv: list[str], **how: Any) -> ExecutionResult:
        """As ``Sandbox.run``, awaited: a Sandbox for this call alone, for there is no moment to close another one."""
        async with AsyncSandbox(**self._own) as sandbox:
            return await sandbox.run(argv, **how)

    def close(self) -> None:
        """End the boxes, and let the files go."""
        self.sandbox.close()
        self._kept.close()


class KernSandbox(BaseSandbox):
    """A backend for ``create_deep_agent``: every command runs in a fresh box on the same files.

    ``/workspace``, where commands start, ``/tmp`` and the places that deepagents writes to are kept from one command to
    the next; processes are not. Close it, or use it as a context manager.

    Args:
        per_thread: each conversation (``thread_id``) has files of its own; what is called outside of an agent's run
            belongs to a further one. Else there is one set of files, as with any backend of deepagents.
        max_threads: with ``per_thread``, conversations whose files are kept.
        timeout_s: seconds of a command for which the model asks no other limit.
        sandbox_options: as ``kern_sandbox.Sandbox`` takes them, but for ``tmpfs`` and ``track_files``.

    Raises:
        SandboxError: as ``Sandbox``.
    """

    def __init__(
        self, *, per_thread: bool = False, max_threads: int = 64, timeout_s: float = _TIMEOUT_S, **sandbox_options: Any
    ) -> None:
        for name in {"tmpfs", "track_files"} & set(sandbox_options):
            raise SpecError(f"{name} is not an option of this backend: it decides on it itself")
        self._options = {**sandbox_options, "timeout_s": timeout_s}
        self._per_thread = per_thread
        self._id = f"kern-{secrets.token_hex(8)}"
        self._places = Threads(lambda: _Place(self._options), max_threads)
        with self._place():
            pass  # what is wrong with the options is said now

    @property
    def id(self) -> str:
        """Tells this backend from others."""
        return self._id

    # Commands

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command in ``/workspace``.

        Args:
            command: for bash, or for sh where a box has no bash.
            timeout: seconds; 0 for as long as boxes may run, which is seven days.
        """
        try:
            with self._place() as place:
                limit = self._seconds(timeout)
                return _said(place.sandbox.run(_argv(command), timeout_s=limit), limit)
        except SandboxError as error:
            return _failed(error)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:  # noqa: ASYNC109 - theirs
        """``execute``, awaited; cancelling the task ends the box."""
        try:
            with self._place() as place:
                limit = self._seconds(timeout)
                return _said(await place.run(_argv(command), timeout_s=limit), limit)
        except SandboxError as error:
            return _failed(error)

    def _seconds(self, timeout: int | None) -> float:
        limit: float = self._options["timeout_s"] if timeout is None else timeout
        return limit or _MOST_S

    # Files

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files from within a box, whose links lead nowhere else; parents are made.

        Args:
            files: absolute paths and contents.
        """
        return [FileUploadResponse(path, error=self._upload(path, data)) for path, data in files]

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """``upload_files``, awaited."""
        return await asyncio.to_thread(self.upload_files, files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files from within a box.

        Args:
            paths: absolute ones.
        """
        return [self._download(path) for path in paths]

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """``download_files``, awaited."""
        return await asyncio.to_thread(self.download_files, paths)

    def _upload(self, path: str, data: bytes) -> Any:
        if not path.startswith("/"):
            return "invalid_path"
        with self._place() as place, contextlib.suppress(SpecError):
            done = place.sandbox.run(["sh", "-c", _UPLOAD, "sh", path], stdin=data)
            return None if done.success else _ERRORS.get(done.exit_code, "permission_denied")
        return "invalid_path"

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path, error="invalid_path")
        with self._place() as place, contextlib.suppress(SpecError):
            done = place.sandbox.run(["sh", "-c", _DOWNLOAD, "sh", path])
            if done.success and not done.truncated:
                return FileDownloadResponse(path, content=done.stdout_bytes)
            return FileDownloadResponse(path, error=_ERRORS.get(done.exit_code, "permission_denied"))
        return FileDownloadResponse(path, error="invalid_path")

    # The places

    @contextlib.contextmanager
    def _place(self) -> Iterator[_Place]:
        key = _running_thread() if self._per_thread else ""
        place, _ = self._places.acquire(key)
        try:
            yield place
        finally:
            self._places.release(key)

    def forget(self, thread: str) -> None:
        """With ``per_thread``: a conversation is over, and its files go.

        Args:
            thread: its ``thread_id``.
        """
        self._places.forget(thread)

    def close(self) -> None:
        """End every box and let the files go. Closing twice does nothing."""
        self._places.close()

    def __enter__(self) -> KernSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _running_thread() -> str:
    try:
        return thread_id(get_config())
    except RuntimeError:  # langgraph's word for being called outside of a graph
        return ""


def _argv(command: str) -> list[str]:
    return ["sh", "-c", _SHELL, "sh", command]


def _said(result: ExecutionResult, limit: float) -> ExecuteResponse:
    """Output as it was written: deepagents takes its own file operations from it, byte for byte."""
    parts = [each for each in (result.stdout, result.code_stderr) if each]
    if result.fault is not None and result.fault.type == "timeout":
        parts.append(f"Command timed out after {limit:g} seconds")
    elif result.fault is not None:
        parts.append(f"[sandbox: {result.fault.type}] {result.fault.message}")
    output = "\n".join([*(part.removesuffix("\n") for part in parts[:-1]), *parts[-1:]])
    return ExecuteResponse(output=output, exit_code=result.exit_code, truncated=result.truncated)


def _failed(error: SandboxError) -> ExecuteResponse:
    """An exception would end the agent's run."""
    return ExecuteResponse(output=describe_error(error), exit_code=_FAILED)
