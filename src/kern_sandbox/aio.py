"""The same verbs for asyncio: a façade over ``Sandbox`` and ``Kernel``; cancelling a task ends its box, or its cell."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from typing import Any, Callable, TypeVar

from ._forkserver.branch import GRACE_S
from .errors import SessionClosed
from .forksafe import no_more_threads
from .kernel import Checkpoint, Kernel, start_kernel
from .process import Process
from .results import ExecutionResult
from .session import Callback, How, Session, Stop

__all__ = ["AsyncKernel", "AsyncSandbox", "ended_with_its_task"]

_MAX_CALLS = 256
T = TypeVar("T")


async def ended_with_its_task(call: asyncio.Future[T], stop: Stop) -> T:
    """What ``call`` gives; where the awaiting task is cancelled, ``stop`` ends it, and it is waited for."""
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        stop.now()
        await asyncio.wait([call])
        call.exception()  # whatever it was, the cancellation is what the caller gets
        raise


def _begun(begin: Callable[[], T], owner: str) -> T:
    """What ``begin`` hands to an executor.

    Raises:
        SessionClosed: the executor has been shut down, with its ``owner``.
        HostError: there may be no more threads.
    """
    try:
        return begin()
    except RuntimeError as error:
        if "start new thread" in str(error):
            raise no_more_threads("starting a thread for a call", error) from error
        raise SessionClosed(f"using a {owner} that is closed", hint="Make a new one") from None


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
        loop = asyncio.get_running_loop()
        return await _begun(lambda: loop.run_in_executor(self._threads, verb, *args), "Sandbox")

    async def _call(self, verb: Callable[..., ExecutionResult], *args: Any) -> ExecutionResult:
        """Run one call; if the awaiting task is cancelled, end the box and wait until it is gone."""
        stop = Stop()
        return await ended_with_its_task(asyncio.ensure_future(self._do(verb, *args, stop)), stop)

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

    async def kernel(self, *, timeout_s: float | None = None, env: Mapping[str, str] | None = None) -> AsyncKernel:
        """``Sandbox.kernel``, awaited."""
        return AsyncKernel(await self._do(start_kernel, self._session, timeout_s, env, self))

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
        try:
            closed = asyncio.get_running_loop().run_in_executor(None, self._session.close)
        except RuntimeError:  # there is no thread for it
            self._session.close()
        else:
            await closed
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.discard()


class AsyncKernel:
    """A ``Kernel`` whose verbs are awaited; ``AsyncSandbox.kernel`` makes it.

    Cells take turns on one thread of this object's own. Cancelling the task that awaits a cell interrupts the cell,
    and kills the kernel's process if that does not end it within a second.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kern-kernel")

    @property
    def alive(self) -> bool:
        """As ``Kernel.alive``."""
        return self._kernel.alive

    async def run_code(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
    ) -> ExecutionResult:
        """``Kernel.run_code``, awaited."""
        run = functools.partial(self._kernel.run_code, timeout_s=timeout_s, on_stdout=on_stdout, on_stderr=on_stderr)
        cell = self._submit(run, code)
        try:
            return await asyncio.shield(asyncio.wrap_future(cell))
        except asyncio.CancelledError:
            if not cell.cancel():
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, _stop, self._kernel, cell))
            raise

    def _submit(self, verb: Callable[..., T], *args: Any) -> Future[T]:
        return _begun(lambda: self._thread.submit(verb, *args), "kernel")

    async def _do(self, verb: Callable[..., T], *args: Any) -> T:
        return await asyncio.shield(asyncio.wrap_future(self._submit(verb, *args)))

    def interrupt(self) -> None:
        """As ``Kernel.interrupt``."""
        self._kernel.interrupt()

    def kill(self) -> None:
        """As ``Kernel.kill``."""
        self._kernel.kill()

    async def checkpoint(self) -> Checkpoint:
        """``Kernel.checkpoint``, awaited."""
        return await self._do(self._kernel.checkpoint)

    async def rollback(self, checkpoint: Checkpoint) -> None:
        """``Kernel.rollback``, awaited."""
        await self._do(self._kernel.rollback, checkpoint)

    async def fork(self, n: int) -> list[AsyncKernel]:
        """``Kernel.fork``, awaited."""
        return [AsyncKernel(kernel) for kernel in await self._do(self._kernel.fork, n)]

    async def close(self) -> None:
        """``Kernel.close``, awaited."""
        await asyncio.get_running_loop().run_in_executor(None, self._kernel.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> AsyncKernel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _stop(kernel: Kernel, cell: Future[ExecutionResult]) -> None:
    """Interrupt the cell, kill it if need be, and wait until it has ended; how is nobody's concern any more."""
    kernel.interrupt()
    try:
        cell.exception(GRACE_S)
    except StillRunning:
        kernel.kill()
        cell.exception()
