"""The same verbs for asyncio: a façade over ``Sandbox``; cancelling a task ends its box."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, TypeVar

from .errors import SessionClosed
from .process import Process
from .results import ExecutionResult
from .session import Callback, How, Session, Stop

__all__ = ["AsyncSandbox"]

_MAX_CALLS = 256
T = TypeVar("T")


class AsyncSandbox:
    """A ``Sandbox`` whose verbs are awaited. Takes the same options.

    Each call in flight waits on a thread of this object's own, up to 256; further calls wait their turn. Callbacks are
    called on other threads, as with ``Sandbox``.

    Raises:
        SandboxError: as ``Sandbox``.
    """

    def __init__(self, *, workspace: str | os.PathLike[str] | None = None, **sandbox_options: Any) -> None:
        self._session = Session(workspace, sandbox_options)
        self._threads = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="kern-call")

    @property
    def workspace(self) -> str:
        """The host directory that boxes see at ``/workspace``."""
        return self._session.workspace.path

    async def _do(self, verb: Callable[..., T], *args: Any) -> T:
        if self._session.closed:
            raise SessionClosed("using a Sandbox that is closed", hint="Make a new one")
        return await asyncio.get_running_loop().run_in_executor(self._threads, verb, *args)

    async def _call(self, verb: Callable[..., ExecutionResult], *args: Any) -> ExecutionResult:
        """Run one call; if the awaiting task is cancelled, end the box and wait until it is gone."""
        stop = Stop()
        call = asyncio.ensure_future(self._do(verb, *args, stop))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            stop.now()
            await asyncio.wait([call])
            call.exception()  # whatever it was, the cancellation is what the caller gets
            raise

    async def run_code(
        self,
        code: str,
        language: str = "python",
        *,
        timeout_s: float | None = None,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
    ) -> ExecutionResult:
        """``Sandbox.run_code``, awaited."""
        how = How(timeout_s, on_stdout, on_stderr, env, stdin)
        return await self._call(self._session.run_code, code, language, how)

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float | None = None,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | bytes | None = None,
    ) -> ExecutionResult:
        """``Sandbox.run``, awaited."""
        how = How(timeout_s, on_stdout, on_stderr, env, stdin)
        return await self._call(self._session.run, argv, cwd, how)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Process:
        """``Sandbox.spawn``, awaited; the process's own pipes are ordinary binary files."""
        return await self._do(self._session.spawn, argv, cwd, How(timeout_s, env=env))

    async def write_file(self, path: str, data: str | bytes) -> None:
        """``Sandbox.write_file``, awaited."""
        await self._do(self._session.workspace.write_file, path, data)

    async def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """``Sandbox.read_file``, awaited."""
        return await self._do(self._session.workspace.read_file, path, max_bytes)

    async def list_files(self, subdir: str = "") -> list[str]:
        """``Sandbox.list_files``, awaited."""
        return await self._do(self._session.workspace.list_files, subdir)

    async def snapshot(self, dest: str | os.PathLike[str], max_bytes: int = 4 << 30) -> list[str]:
        """``Sandbox.snapshot``, awaited."""
        return await self._do(self._session.workspace.snapshot, dest, max_bytes)

    async def restore(self, src: str | os.PathLike[str], max_bytes: int = 4 << 30) -> None:
        """``Sandbox.restore``, awaited."""
        await self._do(self._session.workspace.restore, src, max_bytes)

    async def close(self) -> None:
        """``Sandbox.close``, awaited; ends every box."""
        await asyncio.get_running_loop().run_in_executor(None, self._session.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
