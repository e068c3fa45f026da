"""What runs the cases: the engine by each of its ways, and others to compare it with, behind one protocol."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import kern_sandbox
from kern_sandbox import ExecutionResult, Kernel, Sandbox, SandboxFault

from ._older import Older, Unusable, temporary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Demand", "Room", "Target", "Unusable", "all_targets", "bubblewrap_argv", "wiped"]

_BY_EXEC = {"PYTHONNOUSERSITE": "1"}
"""Variables of a call that changes how Python starts: its box starts an interpreter instead of forking a booted one."""
_PATIENCE = 100
_USUAL_TIMEOUT_S = 20


class Demand(NamedTuple):
    """What a case asks of the place where it runs.

    Attributes:
        options: of a Sandbox; targets without such options do what comes nearest, or nothing.
        timeout_s: of each call.
        show: host paths that are shown read-only, to the paths there.
    """

    options: Mapping[str, Any]
    timeout_s: float
    show: Mapping[str, str]


class Room(Protocol):
    """A place with a workspace, where each call runs in a fresh box, or what the target has instead."""

    workspace: str

    def run(self, code: str, language: str) -> ExecutionResult:
        """Run a snippet to its end."""

    def read(self, path: str) -> bytes:
        """Read a file of the workspace as this target's host side does."""

    def write(self, path: str, data: str) -> None:
        """Write a file of the workspace as this target's host side does."""


class Target(Protocol):
    """Something that runs snippets.

    Attributes:
        name: as the table shows it.
        ours: whether a breach of it is a fault of kern_sandbox.
        boxed: whether snippets that would harm the host may run on it.
    """

    name: str
    ours: bool
    boxed: bool

    def why_not(self) -> str:
        """Why it cannot run on this host; ``""`` where it can."""

    def room(self, demand: Demand) -> contextlib.AbstractContextManager[Room]:
        """Open a room."""

    def shown(self, path: str) -> str:
        """Where a snippet finds a host path that is to be shown as ``/shown``."""

    def close(self) -> None:
        """Let go of what is kept between rooms."""


# --- the engine -------------------------------------------------------------------------------------------------


class _EngineRoom:
    def __init__(self, sandbox: Sandbox, env: Mapping[str, str]) -> None:
        self.sandbox = sandbox
        self.workspace = sandbox.workspace
        self._env = env

    def run(self, code: str, language: str) -> ExecutionResult:
        return self.sandbox.run_code(code, language, env=self._env)

    def read(self, path: str) -> bytes:
        return self.sandbox.read_file(path)

    def write(self, path: str, data: str) -> None:
        self.sandbox.write_file(path, data)


class Exec:
    """The engine; each box starts its interpreter anew. Sandboxes without options of their own are used again."""

    name = "exec"
    ours = boxed = True
    env: Mapping[str, str] = _BY_EXEC

    def __init__(self, **more: Any) -> None:
        self._more = more
        self._idle: list[Sandbox] = []
        self._lock = threading.Lock()

    def why_not(self) -> str:
        """Whether a box runs at all."""
        return _why_no_boxes()

    def prepare(self, sandbox: Sandbox) -> None:
        """Bring a new Sandbox to where its calls go this target's way."""

    @contextlib.contextmanager
    def room(self, demand: Demand) -> Iterator[Room]:
        """A Sandbox with an empty workspace; every call in it has a box of its own."""
        own = bool(demand.options or demand.show or demand.timeout_s != _USUAL_TIMEOUT_S)
        with self._lock:
            kept = self._idle.pop() if self._idle and not own else None
        sandbox = kept or Sandbox(**_options(demand), **self._more)
        reusable = False
        try:
            if kept is None:
                self.prepare(sandbox)
            yield _EngineRoom(sandbox, self.env)
            reusable = not own and wiped(sandbox.workspace)
        finally:
            if not reusable:
                sandbox.close()
        if reusable:
            with self._lock:
                self._idle.append(sandbox)

    def shown(self, path: str) -> str:  # noqa: ARG002 - the protocol's
        """At the path asked for."""
        return "/shown"

    def close(self) -> None:
        """Close the Sandboxes that are kept."""
        while self._idle:
            self._idle.pop().close()


class Forked(Exec):
    """The engine; each box is forked from a booted interpreter."""

    name = "template"
    env: Mapping[str, str] = {}

    def prepare(self, sandbox: Sandbox) -> None:
        """Run calls until they are forked from a booted interpreter."""
        _warm(sandbox)


class Prewarmed(Forked):
    """The engine with boxes kept ready."""

    name = "prewarmed"

    def __init__(self) -> None:
        super().__init__(prewarm=2)


class _KernelRoom(_EngineRoom):
    def __init__(self, sandbox: Sandbox, kernel: Kernel, timeout_s: float) -> None:
        super().__init__(sandbox, {})
        self._kernel = kernel
        self._timeout_s = timeout_s

    def run(self, code: str, language: str) -> ExecutionResult:
        if language != "python":
            raise Unusable("a kernel runs Python only")
        return self._kernel.run_code(code, timeout_s=self._timeout_s)


class InKernel(Exec):
    """The engine's warm interpreter, a new one for each case; a case's calls are its cells."""

    name = "kernel"

    @contextlib.contextmanager
    def room(self, demand: Demand) -> Iterator[Room]:
        """A Sandbox with a kernel."""
        with Sandbox(**_options(demand)) as sandbox, sandbox.kernel() as kernel:
            yield _KernelRoom(sandbox, kernel, demand.timeout_s)


def _options(demand: Demand) -> dict[str, Any]:
    options = {"timeout_s": demand.timeout_s, **demand.options}
    if demand.show:
        options["mounts"] = {**options.get("mounts", {}), **demand.show}
    return options


def _warm(sandbox: Sandbox) -> None:
    """Run calls until they are forked from a booted interpreter, whose program is not the one that calls else have."""
    for _ in range(_PATIENCE):
        if "template" in sandbox.run_code("print(open('/proc/self/cmdline').read())").stdout:
            return
    raise Unusable("no booted interpreter was kept for this Sandbox")


def _why_no_boxes() -> str:
    try:
        result = kern_sandbox.run_code("print(1)")
    except kern_sandbox.SandboxError as error:
        return str(error)
    return "" if result.stdout == "1\n" else f"a first box gave {result.stdout!r} {result.stderr!r}"


def wiped(folder: str) -> bool:
    """Whether everything in ``folder`` could be removed."""
    for entry in list(os.scandir(folder)):
        try:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        except (OSError, RecursionError):
            return False
    return True


# --- others -----------------------------------------------------------------------------------------------------


class _ProcessRoom:
    """Runs snippets as child processes, with what programs commonly take for verdicts: the exit status."""

    def __init__(self, workspace: str, prefix: list[str], timeout_s: float) -> None:
        self.workspace = workspace
        self._prefix = prefix
        self._timeout_s = timeout_s

    def run(self, code: str, language: str) -> ExecutionResult:
        program = {"python": _python(), "bash": "bash", "node": "node"}[language]
        flag = "-e" if language == "node" else "-c"
        process = subprocess.Popen(
            [*self._prefix, program, flag, code],
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            close_fds=False,
        )
        timeout = False
        try:
            out, err = process.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            timeout = True
            out, err = _what_came(process)
        code_of = 124 if timeout else process.returncode
        return plain_result(out, err, code_of if code_of >= 0 else 128 - code_of)

    def read(self, path: str) -> bytes:
        with open(os.path.join(self.workspace, path), "rb") as file:
            return file.read(1 << 20)

    def write(self, path: str, data: str) -> None:
        with open(os.path.join(self.workspace, path), "w", encoding="utf-8") as file:
            file.write(data)


def _what_came(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What is in the pipes by now: who else holds them may never close them."""
    found = []
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        with pipe:
            found.append(pipe.read(1 << 20) or b"")
    process.wait()
    return found[0], found[1]


def plain_result(out: bytes, err: bytes, exit_code: int) -> ExecutionResult:
    """What a plain process left, with the verdict that its exit status is commonly read as."""
    said = {124: "timeout", 137: "oom", 159: "escape_blocked"}.get(exit_code)
    fault: Any = SandboxFault(said, f"exit status {exit_code}") if said else None  # type: ignore[arg-type] # closed set
    return ExecutionResult(
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
        exit_code=exit_code,
        fault=fault,
        stdout_bytes=out,
        stderr_bytes=err,
    )


def _python() -> str:
    """An interpreter that every target sees."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


class Subprocess:
    """A plain child process of the same user: no boundary at all."""

    name = "subprocess"
    ours = boxed = False

    def why_not(self) -> str:
        """It always runs."""
        return ""

    @contextlib.contextmanager
    def room(self, demand: Demand) -> Iterator[Room]:
        """A temporary directory."""
        with temporary() as workspace:
            yield _ProcessRoom(workspace, [], demand.timeout_s)

    def shown(self, path: str) -> str:
        """Where it is."""
        return path

    def close(self) -> None:
        """Nothing is kept."""


class Bubblewrap(Subprocess):
    """``bwrap --unshare-all`` with the host's ``/usr``: namespaces and nothing more."""

    name = "bwrap"

    def why_not(self) -> str:
        """Whether bwrap is installed and can make its namespaces here."""
        if shutil.which("bwrap") is None:
            return "bwrap is not installed"
        tried = subprocess.run(
            ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, text=True, check=False
        )
        return tried.stderr.strip() if tried.returncode else ""

    @contextlib.contextmanager
    def room(self, demand: Demand) -> Iterator[Room]:
        """A temporary directory at ``/workspace``."""
        with temporary() as workspace:
            prefix = bubblewrap_argv(workspace, demand.show, network=bool(demand.options.get("network")))
            yield _ProcessRoom(workspace, prefix, demand.timeout_s)

    def shown(self, path: str) -> str:  # noqa: ARG002 - the protocol's
        """At the path asked for."""
        return "/shown"


def bubblewrap_argv(workspace: str, show: Mapping[str, str], *, network: bool = False) -> list[str]:
    """The words ahead of a program's that run it in bubblewrap, in ``workspace`` at ``/workspace``."""
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for name in ("bin", "lib", "lib32", "lib64", "sbin", "usr", os.path.realpath(sys.base_prefix).lstrip("/")):
        words += ["--ro-bind-try", f"/{name}", f"/{name}"]
    for source, target in show.items():
        words += ["--ro-bind", source, target]
    words += ["--bind", workspace, "/workspace", "--chdir", "/workspace"]
    return [*words, *(["--share-net"] if network else [])]


def all_targets() -> list[Target]:
    """Every target, whether or not it can run here."""
    return [Exec(), Forked(), Prewarmed(), InKernel(), Subprocess(), Bubblewrap(), Older()]
