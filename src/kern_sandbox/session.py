"""What stands behind a Sandbox: one workspace, one plan, and the way from a command to a result.

``Sandbox`` and ``AsyncSandbox`` are two sets of words for it.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from . import checks
from ._box.decide import plan
from ._box.egress import egress_events
from ._box.guestfiles import guest_steps
from ._box.mountrules import check_workspace, checked_mounts
from ._box.plan import CELL, GUEST, Bind, Plan, Step, Userland
from ._box.protection import Protection
from ._box.rootfs import host_userland
from ._box.values import decode_values
from ._box.verdict import Facts, Judgement, judge, raise_failure
from ._forkserver.client import (
    ForkServer,
    Opening,
    Temporary,
    current_server,
    discard_owner,
    existing_server,
)
from ._forkserver.launch import Command, Outcome, Stop, launch, run
from ._profiles import with_profiles
from .errors import HostError, ImageError, SandboxError, SessionClosed
from .forksafe import ForkSafeLock
from .process import Process
from .results import ExecutionResult, FileInfo, Usage
from .spec import BoxSpec
from .workspace import Workspace

# What few Sandboxes need (images, setups, kernels) is imported where it is used: loading it takes as long as a call.
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._forkserver.held import HeldBox
    from ._image.images import Image, Progress
    from ._image.reference import Reference
    from .setup import Setup
    from .userland import Userlands

__all__ = ["Callback", "How", "Session", "Stop", "result_of"]

_GUEST_FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_guest")
_SNIPPETS = (
    ("python", "main.py", ()),
    ("bash", "main.sh", ("bash",)),
    ("sh", "main.sh", ("sh",)),
    ("node", "main.js", ("node",)),
)
_HELD_S = 1e9
"""The deadline of a box that its caller holds: it ends with the caller."""
Callback = Callable[[str], object]


class How(NamedTuple):
    """What one call may say differently from its Sandbox."""

    timeout_s: float | None = None
    on_stdout: Callback | None = None
    on_stderr: Callback | None = None
    env: Mapping[str, str] | None = None
    stdin: str | bytes | None = None


class Session:
    """Usable from many threads at once; see ``Sandbox`` for what its verbs promise and raise."""

    needs_bytecode = True
    """Whether boxes have bytecode for the host's standard library where the host itself has none."""

    once = False
    """Whether it makes one call at most, and soon."""

    def __init__(self, workspace: str | os.PathLike[str] | None, options: Mapping[str, Any]) -> None:
        if not sys.platform.startswith("linux"):
            raise HostError(
                f"making a Sandbox on {sys.platform}",
                hint="kern_sandbox needs Linux: use it in a Linux virtual machine, or under WSL2 on Windows",
            )
        # Late, for it makes boxes and needs this module; not in a call: a fork beside a first import hangs the child.
        from .bytecode import with_bytecode

        self._with_bytecode = with_bytecode
        self._prepared = False
        self.spec = BoxSpec.of(**with_profiles(options))
        self._own_user = options.get("user")
        self._reference = None if self.spec.image is None else _chosen(self.spec.image)
        self._image: Image | None = None
        self._bare: Plan | None = None
        self._plan: Plan | None = None
        self._setup: Setup | None = None
        self._key = ""
        self._begin()
        current_server()  # it starts while this process goes on
        host = None if self._reference else host_userland(self.spec.network)
        mounts = checked_mounts(self.spec.mounts, host.places() if host else (), self._scratch)
        check_workspace(workspace)
        limit = self.spec.workspace_mb
        self.workspace = Workspace(workspace, None if limit is None else limit << 20)
        try:
            if host is not None:
                self._settle(self.spec, host, mounts, host_userland)
            if (self.once or self.spec.prewarm) and self.spec.setup is None and self.image_failure() is None:
                self._server()
        except BaseException:  # whatever happened, nobody else can close what was made
            self.close()
            raise

    def _begin(self) -> None:
        """What no two sessions have in common."""
        self.closed = False
        self._pid = os.getpid()
        self._planning = ForkSafeLock()
        self._protection = Protection({}, ())
        self._protector: ForkServer | None = None
        self._owner = os.urandom(8).hex()

    def _settle(self, spec: BoxSpec, userland: Userland, mounts: Sequence[Bind], userlands: Userlands) -> None:
        """From now on boxes show this userland; ``userlands`` gives it with the host's network or without."""
        shared = Bind(self.workspace.path, "/workspace", writable=True, owned=True, identity=self.workspace.identity)
        guest = guest_steps(_GUEST_FILES)
        bare = plan(spec, userland, mounts, shared, guest)
        self._protection = Protection(spec.protect, [*mounts, shared])
        self._bare = replace(bare, frozen=self._protection.frozen, pinned=self._protection.pinned)
        self._setup = None if spec.setup is None else _new_setup(spec, userlands, guest, self.workspace)
        self._plan = self._bare if self._setup is None else self._setup.foreseen(self._bare)

    @property
    def plan(self) -> Plan:
        """What a box consists of; an image is fetched for it.

        Raises:
            ImageError: the image cannot be had.
            MountRefused: a mount lies where the image has something.
        """
        return self._made_plan(None)

    def _made_plan(self, progress: Progress | None) -> Plan:
        with self._planning:
            if self._plan is None:
                assert self._reference is not None
                self.require_open()
                self._settle_on_image(self._reference, progress)
            assert self._plan is not None
            return self._plan

    @property
    def _scratch(self) -> tuple[str, ...]:
        """Where boxes have scratch file systems."""
        return ("/tmp",) if self.spec.tmpfs is None else tuple(self.spec.tmpfs)

    def _settle_on_image(self, reference: Reference, progress: Progress | None) -> None:
        from .userland import userland_of

        chosen = userland_of(reference, self._scratch, progress)
        try:
            self.require_open()
            userland = chosen.userland(self.spec.network)
            mounts = checked_mounts(self.spec.mounts, userland.places(), self._scratch)
            own = self._own_user is not None or not self.spec.cap_drop
            spec = self.spec if own else replace(self.spec, user=chosen.user)
            self._settle(spec, userland, mounts, chosen.userland)
        except BaseException:  # whatever happened, the store must not wait for us
            chosen.image.close()
            raise
        self._image = chosen.image

    def _let_image_go(self) -> None:
        image, self._image = self._image, None
        if image is not None:
            image.close()

    def run_code(self, code: str, language: str, how: How, stop: Stop | None = None) -> ExecutionResult:
        """Run a snippet in a fresh box; ``stop`` lets another thread end it."""
        text = checks.check_code(code, language)
        failure = self.image_failure()
        if failure is not None:
            return failure
        name, shell = next((name, shell) for known, name, shell in _SNIPPETS if known == language)
        guest = (self.plan.python, f"{GUEST}/run_once.py")
        argv = [*(shell or guest), f"{CELL}/{name}", *(() if shell else ("3",))]
        cell = {name: text.encode("utf-8", "surrogatepass")}
        command = replace(self._command(argv, how), cell=cell, results=not shell)
        return self._run(replace(command, snippet=not shell and _starts_alike(how.env)), stop)

    def run(self, argv: Sequence[str], cwd: str | None, how: How, stop: Stop | None = None) -> ExecutionResult:
        """Run a program in a fresh box; ``stop`` lets another thread end it."""
        program = checks.check_argv(argv)
        failure = self.image_failure()
        return failure if failure is not None else self._run(self._command(program, how, cwd), stop)

    def spawn(self, argv: Sequence[str], cwd: str | None, how: How) -> Process:
        """Start a program in a fresh box and hand its pipes over."""
        return self._start(self._command(checks.check_argv(argv), how, cwd))[0]

    def hold(self, how: How) -> HeldBox:
        """Start a kernel's box."""
        argv = [self.plan.python, f"{GUEST}/run_once.py", "-", "3"]
        command = replace(self._command(argv, how), timeout_s=_HELD_S, snippet=_starts_alike(how.env))
        from ._forkserver.held import HeldBox

        return HeldBox(self._server(), command)

    def require_open(self) -> None:
        """Raises ``SessionClosed`` once it is closed."""
        if self.closed:
            raise SessionClosed("using a Sandbox that is closed", hint="Make a new one")

    def close(self) -> None:
        """End every box and let the workspace go. Closing twice does nothing."""
        if self.closed:
            return
        self.closed = True
        server = existing_server()
        try:
            if server is not None:
                server.close_owner(self._owner)
        finally:
            self._let_go()

    def discard(self) -> None:
        """As ``close``, for a garbage collector: it may run while this thread holds any lock, so it takes none."""
        if not self.closed:
            self.closed = True
            discard_owner(self._owner)
            self._let_go()

    def _let_go(self) -> None:
        if self._pid != os.getpid() or (self._protector is not None and self._protector.alive):
            self._protection.hand_over()
        else:
            self._protection.release()
        try:
            if self._setup is not None:
                self._setup.close()
        finally:
            self._let_image_go()
            self.workspace.close()

    def image_failure(self, progress: Progress | None = None) -> ExecutionResult | None:
        """Fetch the image if need be; the result of a call where it cannot be had, ``None`` where it can."""
        try:
            self._made_plan(progress)
        except ImageError as error:
            from .userland import image_failed

            return image_failed(error)
        return None

    def _command(self, argv: list[str], how: How, cwd: str | None = None) -> Command:
        return Command(
            owner=self._owner,
            argv=argv,
            env={**self.plan.env, **checks.check_env(how.env)},
            cwd=checks.check_cwd(cwd) or "/workspace",
            timeout_s=self.spec.timeout_s if how.timeout_s is None else checks.check_timeout(how.timeout_s),
            stdin=checks.check_stdin(how.stdin),
            limit=self.spec.max_output_bytes,
            on_stdout=checks.check_callback("on_stdout", how.on_stdout),
            on_stderr=checks.check_callback("on_stderr", how.on_stderr),
        )

    def _temporary(self) -> list[Temporary]:
        """What the fork server removes if this process dies: not in a forked child, whose parent owns it."""
        if self._pid != os.getpid():
            return []
        copies = [] if self._setup is None else self._setup.temporary()
        own = [(self.workspace.path, *self.workspace.identity)] if self.workspace.temporary else []
        return own + copies

    def _add_bytecode(self) -> None:
        """Once, before the first box: a host without bytecode for its standard library has it compiled."""
        if self._reference is not None or not self.needs_bytecode:
            return
        with self._planning:
            if not self._prepared:
                assert self._bare is not None
                self._bare = self._with_bytecode(self._bare)
                self._plan = self._bare if self._setup is None else self._plan
                self._prepared = True

    def _server(self, stop: Stop | None = None) -> ForkServer:
        """The fork server, with this session's plan open in it; its setup is done. ``stop`` ends one that is not."""
        self.require_open()
        self.workspace.check()
        self._add_bytecode()
        made = self.plan
        if self._setup is not None:
            assert self._bare is not None
            made = self._plan = self._setup.ready(self._bare, stop)
        # What serves an untrusted Sandbox serves no other.
        self._key = self._key or made.key + (self._owner if made.untrusted else "")
        server = current_server()
        own = self._pid == os.getpid()  # what a forked child inherits is its parent's to remove
        opening = Opening(self._temporary(), self.spec.prewarm, self.once, self._protection.placeholders if own else ())
        server.open(self._owner, self._key, made, opening)
        if self.closed:  # by another thread, which did not find it open
            server.close_owner(self._owner)
            self.require_open()
        self._protector = server
        return server

    def _start(self, command: Command, stopped: Stop | None = None) -> tuple[Process, int | None]:
        """Launch ``command`` with its pipes in the caller's hands; the second is that of rich values."""
        server, guard, stop = self._server(stopped), self.workspace.guard(), Stop()
        guard.watch(lambda: stop.now("disk_full"))
        try:
            launched = launch(server, command, interactive=True)
        except BaseException:  # whatever happened, nobody else would end the watch
            guard.release()
            raise
        stop.attach(launched.call)
        return Process(launched, self._facts(command), server.death, guard), launched.results

    def _facts(self, command: Command) -> Facts:
        return self.facts(command.argv[0], command.timeout_s)

    def facts(self, program: str, timeout_s: float) -> Facts:
        """What a verdict says about a call of ``program``."""
        spec = self.spec
        return Facts(program, self.plan.userland, timeout_s, spec.memory_mb, spec.pids, spec.workspace_mb)

    def _meanwhile(self) -> None:
        """Called while a box runs."""

    def _run(self, command: Command, stop: Stop | None) -> ExecutionResult:
        try:
            return self._execute(command, stop)
        except SandboxError as error:
            if self.closed and not isinstance(error, SessionClosed):
                raise SessionClosed("running code: the Sandbox was closed meanwhile", hint="Make a new one") from error
            raise

    def _execute(self, command: Command, stop: Stop | None) -> ExecutionResult:
        server = self._server(stop)
        before = self.workspace.scan() if self.spec.track_files else None
        guard, stop = self.workspace.guard(), stop or Stop()
        guard.watch(lambda: stop.now("disk_full"))
        start = time.monotonic()
        try:
            outcome = run(server, command, stop, self._meanwhile)
        finally:
            guard.release()
        duration_ms = round((time.monotonic() - start) * 1000)
        if self.closed:
            raise SessionClosed("running code: the Sandbox was closed during the call", hint="Make a new one")
        if "refused" in outcome.evidence:
            raise_failure(outcome.evidence["refused"])
        judgement = judge(guard.conclude(outcome.evidence), self._facts(command))
        files = [] if before is None else Workspace.changes(before, self.workspace.scan())
        return result_of(outcome, judgement, duration_ms, files)


def _chosen(image: str) -> Reference:
    from .userland import choose_image

    return choose_image(image)


def _new_setup(spec: BoxSpec, userlands: Userlands, guest: Sequence[Step], workspace: Workspace) -> Setup:
    from .setup import Setup

    return Setup(spec, userlands, guest, workspace)


def _starts_alike(env: Mapping[str, str] | None) -> bool:
    """Whether an interpreter that has started without ``env`` is like one that started with it."""
    return not any(name.startswith(("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_")) for name in env or ())


def result_of(outcome: Outcome, judgement: Judgement, duration_ms: int, files: list[FileInfo]) -> ExecutionResult:
    """The result of a call, of what it left and how it was judged."""
    stderr = outcome.stderr.decode("utf-8", "replace")
    notes = "".join(f"kern: note: {note}\n" for note in judgement.notes)
    gap = "\n" if notes and stderr and not stderr.endswith("\n") else ""
    return ExecutionResult(
        stdout=outcome.stdout.decode("utf-8", "replace"),
        stderr=stderr + gap + notes,
        exit_code=judgement.exit_code,
        duration_ms=duration_ms,
        fault=judgement.fault,
        files=files,
        results=decode_values(outcome.results),
        truncated=outcome.truncated,
        stdout_bytes=outcome.stdout,
        stderr_bytes=outcome.stderr,
        runtime_notes=judgement.notes,
        usage=Usage(**outcome.evidence.get("usage", {})),
        egress=egress_events(outcome.evidence),
    )
