"""What is attacked: kern_sandbox (whole or weakened), plain bubblewrap, and a plain subprocess, behind one protocol."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import kern_sandbox
from kern_sandbox._box.plan import Bind
from kern_sandbox.evals._targets import bubblewrap_argv

from . import weak

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATIENCE_S = 30


class Ran(NamedTuple):
    """What a snippet left. ``fault`` is the fault's type and detail, joined by a colon."""

    stdout: str
    stderr: str
    exit_code: int
    fault: str


class Room(Protocol):
    """A place where snippets run, each in a fresh process that starts in the shared directory ``workspace``."""

    workspace: str

    def run(self, code: str) -> Ran:
        """Run Python code to its end."""

    def start(self, code: str) -> contextlib.AbstractContextManager[object]:
        """Run Python code in the background until the context ends."""


class Target(Protocol):
    """Something that runs code."""

    name: str

    def room(self, *, show: Mapping[str, str] | None = None, **options: Any) -> contextlib.AbstractContextManager[Room]:
        """Open a room. ``show``: host paths to show read-only in the room, to the paths there."""


class _EngineRoom:
    def __init__(self, sandbox: kern_sandbox.Sandbox) -> None:
        self.sandbox = sandbox
        self.workspace = sandbox.workspace

    def run(self, code: str) -> Ran:
        result = self.sandbox.run_code(code)
        fault = f"{result.fault.type}:{result.fault.detail}" if result.fault else ""
        return Ran(result.stdout, result.stderr, result.exit_code, fault)

    @contextlib.contextmanager
    def start(self, code: str) -> Iterator[object]:
        with self.sandbox.spawn([self.sandbox.plan.python, "-c", code]) as process:
            process.stdout.readline()
            yield process
            process.kill()


class Engine:
    """kern_sandbox, without the layers ``removed``; ``template``: its boxes are forked from a booted interpreter."""

    def __init__(self, *removed: str, template: bool = False) -> None:
        self.removed = removed
        self.template = template
        self.name = "kern_sandbox" + "".join(f" -{name}" for name in removed)

    @contextlib.contextmanager
    def room(self, *, show: Mapping[str, str] | None = None, **options: Any) -> Iterator[Room]:
        """A Sandbox; ``show`` is added to its plan, with the ids of the workspace's mount."""
        with weak.weakened(*self.removed), kern_sandbox.Sandbox(timeout_s=PATIENCE_S, **options) as sandbox:
            shown = tuple(Bind(source, target) for source, target in (show or {}).items())
            weak.edit_plan(sandbox, lambda plan: dataclasses.replace(plan, base=(*plan.base, *shown)))
            weak.weaken_plan(sandbox, *self.removed)
            if self.template:
                _wait_for_template(sandbox)
            yield _EngineRoom(sandbox)


def _wait_for_template(sandbox: kern_sandbox.Sandbox) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while "template.py" not in sandbox.run_code("print(open('/proc/self/cmdline').read())").stdout:
        assert time.monotonic() < deadline, "no booted interpreter was kept for this Sandbox"


class _ProcessRoom:
    def __init__(self, workspace: str, prefix: list[str], links: Mapping[str, str]) -> None:
        self.workspace = workspace
        self.prefix = prefix
        self.links = links

    def _argv(self, code: str) -> list[str]:
        for source, target in self.links.items():
            code = code.replace(target, source)
        return [*self.prefix, _python(), "-c", code]

    def run(self, code: str) -> Ran:
        process = subprocess.Popen(
            self._argv(code),
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            close_fds=False,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            return Ran("", "still running", -1, "timeout")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return Ran(out, err, process.returncode, "")

    @contextlib.contextmanager
    def start(self, code: str) -> Iterator[object]:
        argv = self._argv(code)
        with subprocess.Popen(argv, cwd=self.workspace, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
            os.killpg(process.pid, signal.SIGKILL)


def _python() -> str:
    """An interpreter that every target sees."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


class Subprocess:
    """A plain child process of the same user: no boundary at all."""

    name = "subprocess"

    @contextlib.contextmanager
    def room(self, *, show: Mapping[str, str] | None = None, **options: Any) -> Iterator[Room]:
        """A temporary directory; ``show`` needs nothing, limits are not there."""
        with tempfile.TemporaryDirectory(prefix="boundary-") as workspace:
            yield _ProcessRoom(workspace, [], show or {})


class Bubblewrap:
    """``bwrap --unshare-all`` with the host's ``/usr``: namespaces and nothing more."""

    name = "bwrap"

    @contextlib.contextmanager
    def room(self, *, show: Mapping[str, str] | None = None, network: bool = False, **options: Any) -> Iterator[Room]:
        """A temporary directory at ``/workspace``."""
        with tempfile.TemporaryDirectory(prefix="boundary-") as workspace:
            yield _ProcessRoom(workspace, bubblewrap_argv(workspace, show or {}, network=network), {})


def bubblewrap_works() -> bool:
    """Whether bwrap is installed and can make its namespaces here."""
    return shutil.which("bwrap") is not None and _bubblewrap_probe() == 0


def _bubblewrap_probe() -> int:
    return subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True).returncode
