"""The Sandbox: a workspace and the limits of every box that works on it."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import replace
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from . import spec as specs
from ._box.plan import CELL, GUEST, Plan, plan
from ._box.rootfs import host_userland
from ._box.values import decode_values
from ._box.verdict import Facts, Judgement, judge, raise_failure
from ._forkserver.client import ForkServer, current_server, existing_server
from ._forkserver.launch import Command, Outcome, Stop, launch, run
from .errors import SessionClosed
from .process import Process
from .results import ExecutionResult, FileInfo, Usage
from .spec import BoxSpec
from .workspace import Workspace

__all__ = ["Sandbox", "run_code"]

_GUEST_FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_guest")
_SNIPPETS = {
    "python": ("main.py", ()),
    "bash": ("main.sh", ("bash",)),
    "sh": ("main.sh", ("sh",)),
    "node": ("main.js", ("node",)),
}
_numbers = itertools.count(1)
Callback = Callable[[str], object]


class How(NamedTuple):
    """What one call may say differently from its Sandbox."""

    timeout_s: float | None = None
    on_stdout: Callback | None = None
    on_stderr: Callback | None = None
    env: Mapping[str, str] | None = None
    stdin: str | bytes | None = None


class Sandbox:
    """Runs code in boxes that share one workspace; each call gets a fresh box. Usable from many threads at once.

    Args:
        workspace: a directory shown at ``/workspace`` and kept; ``None`` makes one that ``close()`` removes.
        memory_mb: memory of a box, MiB, 16 or more; ``None`` for no limit.
        cpus: processors that a box may use, e.g. 1.5; ``None`` for all.
        pids: processes and threads that a box may have.
        timeout_s: wall clock of one call, seconds, finite; enforced from outside the box.
        network: ``True`` shares the host's network with every box, its loopback included.
        tmpfs: scratch in memory; ``None`` is 64 MiB at ``/tmp``, ``{}`` none, else e.g. ``{"/tmp": "512m"}``.
        env: variables for the code; nothing of the host's environment goes in by itself.
        max_output_bytes: kept of standard output and of standard error each; the rest is read and dropped.
        require_limits: refuse to run where memory and pids limits cannot be enforced for a box as a whole.
        track_files: report changed workspace files on each result.

    Raises:
        SpecError: an option has a type or value that is not accepted.
        WorkspaceError: the workspace is not a directory that can be used.
    """

    def __init__(
        self,
        *,
        workspace: str | os.PathLike[str] | None = None,
        memory_mb: int | None = 512,
        cpus: float | None = None,
        pids: int = 256,
        timeout_s: float = 30,
        network: bool = False,
        tmpfs: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        max_output_bytes: int = 64 << 20,
        require_limits: bool = False,
        track_files: bool = True,
    ) -> None:
        self._spec = BoxSpec.of(
            memory_mb=memory_mb,
            cpus=cpus,
            pids=pids,
            timeout_s=timeout_s,
            network=network,
            tmpfs=tmpfs,
            env=env,
            max_output_bytes=max_output_bytes,
            require_limits=require_limits,
            track_files=track_files,
        )
        self._workspace = Workspace(workspace)
        self._closed = False
        self._plan = plan(self._spec, host_userland(self._spec.network), self._workspace.path, _GUEST_FILES)
        self._key = f"{self._plan.key}-{next(_numbers)}"

    @property
    def workspace(self) -> str:
        """The host directory that boxes see at ``/workspace``."""
        return self._workspace.path

    @property
    def plan(self) -> Plan:
        """What a box of this Sandbox consists of, step by step; ``plan.lines()`` prints it."""
        return self._plan

    def run_code(
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
        """Run a snippet in a fresh box.

        Args:
            code: the snippet.
            language: ``"python"``, ``"bash"``, ``"sh"`` or ``"node"``.
            timeout_s: instead of the Sandbox's own.
            on_stdout: called with text as it arrives, on another thread; one that is slow loses chunks.
            on_stderr: the same for standard error.
            env: variables on top of the Sandbox's.
            stdin: what the code reads; ``None`` is empty.

        Raises:
            SpecError: an argument is not accepted.
            SessionClosed: the Sandbox is closed.
            WorkspaceError: the workspace has vanished.
            HostError: this machine cannot make boxes.
            StartError: this box could not be built.
            InternalError: the engine failed.
        """
        return self._run_code(code, language, How(timeout_s, on_stdout, on_stderr, env, stdin))

    def run(
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
        """Run a program in a fresh box.

        Args:
            argv: the program and its arguments; never one shell string.
            timeout_s: instead of the Sandbox's own.
            on_stdout: as in ``run_code``.
            on_stderr: as in ``run_code``.
            env: variables on top of the Sandbox's.
            cwd: a directory as the box shows it; ``None`` is ``/workspace``.
            stdin: what the program reads; ``None`` is empty.

        Raises:
            SandboxError: as in ``run_code``; ``StartError`` for a ``cwd`` that is not there.
        """
        return self._run_argv(argv, cwd, How(timeout_s, on_stdout, on_stderr, env, stdin))

    def spawn(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Process:
        """Start a program in a fresh box and return at once, with its pipes.

        Args:
            argv: the program and its arguments.
            timeout_s: wall clock until it is stopped; the Sandbox's own if ``None``.
            env: variables on top of the Sandbox's.
            cwd: a directory as the box shows it; ``None`` is ``/workspace``.

        Raises:
            SandboxError: as in ``run_code``; what goes wrong later is raised by ``Process.wait``.
        """
        command = self._command(specs.check_argv(argv), How(timeout_s, env=env), cwd)
        server = self._server()
        launched = launch(server, command, interactive=True)
        return Process(launched, self._facts(command), server.death)

    def write_file(self, path: str, data: str | bytes) -> None:
        """Write a workspace file, whole or not at all; parents are made.

        Args:
            path: relative to the workspace (``/workspace/…`` works too); never leaves it.
            data: text (UTF-8) or bytes.

        Raises:
            WorkspaceError: the path is refused, or the disk is full.
        """
        self._workspace.write_file(path, data)

    def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """Read a workspace file.

        Args:
            path: relative to the workspace; a link, FIFO, socket, device or directory is refused.
            max_bytes: the most that is read.

        Raises:
            WorkspaceError: refused, missing, or larger than ``max_bytes``.
        """
        return self._workspace.read_file(path, max_bytes)

    def list_files(self, subdir: str = "") -> list[str]:
        """The regular files below ``subdir``, sorted, relative to the workspace.

        Raises:
            WorkspaceError: ``subdir`` is refused, or there are too many entries.
        """
        return self._workspace.list_files(subdir)

    def close(self) -> None:
        """End every box of this Sandbox and remove a temporary workspace. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        server = existing_server()
        if server is not None:
            server.close_plan(self._key, self._temporary())
        self._workspace.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    # One call

    def _run_code(self, code: str, language: str, how: How, stop: Stop | None = None) -> ExecutionResult:
        text = specs.check_code(code, language)
        name, shell = _SNIPPETS[language]
        guest = (self._plan.python, f"{GUEST}/run_once.py")
        argv = [*(shell or guest), f"{CELL}/{name}", *(() if shell else ("3",))]
        cell = {name: text.encode("utf-8", "surrogatepass")}
        return self._run(replace(self._command(argv, how), cell=cell, results=not shell), stop)

    def _run_argv(self, argv: Sequence[str], cwd: str | None, how: How, stop: Stop | None = None) -> ExecutionResult:
        return self._run(self._command(specs.check_argv(argv), how, cwd), stop)

    def _command(self, argv: list[str], how: How, cwd: str | None = None) -> Command:
        if cwd is not None and (not isinstance(cwd, str) or not cwd.startswith("/") or "\0" in cwd):
            raise specs.bad("cwd", cwd, "None or an absolute path as the box shows it")
        return Command(
            key=self._key,
            argv=argv,
            env={**self._plan.env, **specs.check_env(how.env)},
            cwd=cwd or "/workspace",
            timeout_s=self._spec.timeout_s if how.timeout_s is None else specs.check_timeout(how.timeout_s),
            stdin=specs.check_stdin(how.stdin),
            limit=self._spec.max_output_bytes,
            on_stdout=specs.check_callback("on_stdout", how.on_stdout),
            on_stderr=specs.check_callback("on_stderr", how.on_stderr),
        )

    def _temporary(self) -> list[str]:
        return [self._workspace.path] if self._workspace.temporary else []

    def _server(self) -> ForkServer:
        """The fork server, with this Sandbox's plan open in it."""
        if self._closed:
            raise SessionClosed("using a Sandbox that is closed", hint="Make a new one.")
        self._workspace.check()
        server = current_server()
        server.open_plan(self._plan, self._key, self._temporary())
        return server

    def _facts(self, command: Command) -> Facts:
        program = command.argv[0]
        return Facts(program, self._plan.userland, command.timeout_s, self._spec.memory_mb, self._spec.pids)

    def _run(self, command: Command, stop: Stop | None) -> ExecutionResult:
        server = self._server()
        before = self._workspace.scan() if self._spec.track_files else None
        start = time.monotonic()
        outcome = run(server, command, stop)
        duration_ms = round((time.monotonic() - start) * 1000)
        if self._closed:
            raise SessionClosed("running code: the Sandbox was closed during the call", hint="Make a new one.")
        if "refused" in outcome.evidence:
            raise_failure(outcome.evidence["refused"])
        judgement = judge(outcome.evidence, self._facts(command))
        files = [] if before is None else Workspace.changes(before, self._workspace.scan())
        return _result(outcome, judgement, duration_ms, files)


def _result(outcome: Outcome, judgement: Judgement, duration_ms: int, files: Sequence[FileInfo]) -> ExecutionResult:
    stderr = outcome.stderr.decode("utf-8", "replace")
    notes = "".join(f"kern: note: {note}\n" for note in judgement.notes)
    gap = "\n" if notes and stderr and not stderr.endswith("\n") else ""
    return ExecutionResult(
        stdout=outcome.stdout.decode("utf-8", "replace"),
        stderr=stderr + gap + notes,
        exit_code=judgement.exit_code,
        duration_ms=duration_ms,
        fault=judgement.fault,
        files=list(files),
        results=decode_values(outcome.results),
        truncated=outcome.truncated,
        stdout_bytes=outcome.stdout,
        stderr_bytes=outcome.stderr,
        runtime_notes=judgement.notes,
        usage=Usage(**outcome.evidence.get("usage", {})),
    )


def run_code(code: str, *, language: str = "python", **sandbox_options: Any) -> ExecutionResult:
    """Run one snippet in a Sandbox of its own, which is gone when this returns.

    Args:
        code: the snippet.
        language: ``"python"``, ``"bash"``, ``"sh"`` or ``"node"``.
        sandbox_options: as ``Sandbox`` takes them.

    Raises:
        SandboxError: as ``Sandbox`` and ``Sandbox.run_code``.
    """
    with Sandbox(**sandbox_options) as sandbox:
        return sandbox.run_code(code, language)
