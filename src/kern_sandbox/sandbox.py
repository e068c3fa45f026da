"""The Sandbox: a workspace and the limits of every box that works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .once import run_once
from .session import Callback, How, Session
from .spec import MEMORY_MB, PIDS

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from ._box.plan import Plan
    from .kernel import Kernel
    from .process import Process
    from .results import ExecutionResult

__all__ = ["Sandbox", "run_code"]


class Sandbox:
    """Runs code in boxes that share one workspace; each call gets a fresh box. Usable from many threads at once.

    Args:
        workspace: a directory shown at ``/workspace`` and kept; ``None`` makes one that ``close()`` removes.
        memory_mb: memory of a box, MiB, 16 or more; ``None`` for that of a profile, else no limit.
        workspace_mb: what the workspace may take of the disk, MiB; ``None`` for no ceiling. It is watched: a call that
            goes beyond is stopped, with the fault ``disk_full``, within about a tenth of a second.
        cpus: processors that a box may use, e.g. 1.5; ``None`` for all.
        pids: processes and threads that a box may have.
        timeout_s: wall clock of one call, seconds, finite; enforced from outside the box.
        network: ``True`` shares the host's network with every box, its loopback included.
        tmpfs: scratch in memory; ``None`` is 64 MiB at ``/tmp``, ``{}`` none, else e.g. ``{"/tmp": "512m"}``.
        profiles: of ``kern.toml``, e.g. ``["vcpu:heavy", "vdisk:scratch"]``; an option that is given beats a profile.
        env: variables for the code; nothing of the host's environment goes in by itself.
        max_output_bytes: kept of standard output and of standard error each; the rest is read and dropped.
        require_limits: refuse to run where memory and pids limits cannot be enforced for a box as a whole.
        track_files: report changed workspace files on each result.
        mounts: host paths shown in every box, ``{"/srv/data": "/data"}`` or ``{"/srv/out": ("/out", "rw")}``;
            read-only unless said otherwise; the host's own directories and credentials are refused.
        protect: paths in the box, below a writable mount or the workspace, that the code cannot change, rename or
            make, e.g. ``["/srv/project/.git/hooks"]``. What does not exist has a placeholder on the host until the
            last Sandbox that protects it is closed: an empty directory, or a file if a mapping gives its text.
        security_profile: ``"untrusted"`` turns every tightening on and refuses an option that loosens one.
        apparmor: a loaded AppArmor profile for the code; one that is not loaded is an error.
        cap_drop: ``()`` keeps capabilities over the box's own namespaces, e.g. to bind a port below 1024.
        user: the uid and gid that the code sees itself as; ``None`` is 0. On the host it is no more.
        root: ``"scratch"`` lets the code make files anywhere in the box's root that is not shown from the host; they
            are memory, at most a quarter of ``memory_mb``, and gone with the box.
        prewarm: boxes for Python kept ready from now on (with ``setup``: from the first call on), for calls that come
            in bursts; up to 128, each a few MiB.
        preload: modules that are imported once, ahead, e.g. ``["numpy", "pandas"]``, for every box for Python to have
            at no cost. The first call waits for them; one that cannot be imported is a ``StartError``.
        setup: a shell command such as ``"pip install pandas"``, run at the first call in a box of its own with the
            network. What it installs is kept, shared by every Sandbox with the same command, and shown at
            ``/workspace/.deps``, on the import path and on ``PATH``.
        deps_readonly: ``False`` gives this Sandbox its own copy of what ``setup`` installed, which code may change.
        egress_allow: the only hosts that the code can reach, ``["index.example", "*.example.com", "db.test:5432"]``;
            ports 80 and 443 unless one is named; ``[]`` is none; not together with ``network=True``.
        setup_egress_allow: the same for ``setup`` alone, instead of ``egress_allow``: a package index that the code
            has no way to.
        image: the operating system that boxes show: ``None`` is this machine's own; ``"python:3.12-slim"`` or any other
            reference of a registry, ``"oci-archive:FILE"``, ``"docker-archive:FILE"``, ``"dir:DIRECTORY"``. It is
            fetched by the first call that needs it, and kept; where that fails, the call has the fault
            ``startup_failed``.

    Raises:
        SpecError: an option has a type or value that is not accepted.
        MountRefused: a mount that is never made.
        WorkspaceError: the workspace is not a directory that can be used.
    """

    def __init__(
        self,
        *,
        workspace: str | os.PathLike[str] | None = None,
        memory_mb: int | None = MEMORY_MB,
        workspace_mb: int | None = None,
        cpus: float | None = None,
        pids: int = PIDS,
        timeout_s: float = 30,
        network: bool = False,
        tmpfs: Mapping[str, str] | None = None,
        profiles: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        max_output_bytes: int = 64 << 20,
        require_limits: bool = False,
        track_files: bool = True,
        mounts: Mapping[str, str | tuple[str, str]] | None = None,
        protect: Sequence[str] | Mapping[str, str | None] | None = None,
        security_profile: str | None = None,
        apparmor: str | None = None,
        cap_drop: Sequence[str] = ("ALL",),
        user: int | None = None,
        root: str = "read-only",
        prewarm: int = 0,
        preload: Sequence[str] = (),
        setup: str | None = None,
        deps_readonly: bool = True,
        egress_allow: Sequence[str] | None = None,
        setup_egress_allow: Sequence[str] | None = None,
        image: str | None = None,
    ) -> None:
        options = {
            "memory_mb": memory_mb,
            "workspace_mb": workspace_mb,
            "cpus": cpus,
            "pids": pids,
            "timeout_s": timeout_s,
            "network": network,
            "tmpfs": tmpfs,
            "profiles": profiles,
            "env": env,
            "max_output_bytes": max_output_bytes,
            "require_limits": require_limits,
            "track_files": track_files,
            "mounts": mounts,
            "protect": protect,
            "security_profile": security_profile,
            "apparmor": apparmor,
            "cap_drop": cap_drop,
            "user": user,
            "root": root,
            "prewarm": prewarm,
            "preload": preload,
            "setup": setup,
            "deps_readonly": deps_readonly,
            "egress_allow": egress_allow,
            "setup_egress_allow": setup_egress_allow,
            "image": image,
        }
        self._session = Session(workspace, options)

    @property
    def workspace(self) -> str:
        """The host directory that boxes see at ``/workspace``."""
        return self._session.workspace.path

    @property
    def plan(self) -> Plan:
        """What a box of this Sandbox consists of, step by step; ``plan.lines()`` prints it.

        Raises:
            ImageError: the image cannot be had.
        """
        return self._session.plan

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
        return self._session.run_code(code, language, How(timeout_s, on_stdout, on_stderr, env, stdin))

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
        return self._session.run(argv, cwd, How(timeout_s, on_stdout, on_stderr, env, stdin))

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
        return self._session.spawn(argv, cwd, How(timeout_s, env=env))

    def kernel(self, *, timeout_s: float | None = None, env: Mapping[str, str] | None = None) -> Kernel:
        """Start a warm interpreter in a box of its own: its cells share one process.

        Args:
            timeout_s: wall clock of a cell; the Sandbox's own if ``None``. The kernel itself lives until it is closed.
            env: variables on top of the Sandbox's.

        Raises:
            SandboxError: as in ``run_code``; ``StartError`` for an interpreter that does not start.
        """
        from .kernel import start_kernel  # late: few Sandboxes need it

        return start_kernel(self._session, timeout_s, env, self)

    def write_file(self, path: str, data: str | bytes) -> None:
        """Write a workspace file, whole or not at all; parents are made.

        Args:
            path: relative to the workspace (``/workspace/…`` works too); never leaves it.
            data: text (UTF-8) or bytes.

        Raises:
            WorkspaceError: the path is refused, or the disk is full.
        """
        self._session.workspace.write_file(path, data)

    def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """Read a workspace file.

        Args:
            path: relative to the workspace; a link, FIFO, socket, device or directory is refused.
            max_bytes: the most that is read.

        Raises:
            WorkspaceError: refused, missing, or larger than ``max_bytes``.
        """
        return self._session.workspace.read_file(path, max_bytes)

    def list_files(self, subdir: str = "") -> list[str]:
        """The regular files below ``subdir``, sorted, relative to the workspace.

        Raises:
            WorkspaceError: ``subdir`` is refused, or there are too many entries.
        """
        return self._session.workspace.list_files(subdir)

    def snapshot(self, dest: str | os.PathLike[str], max_bytes: int = 4 << 30) -> list[str]:
        """Write the workspace's files and directories into a tar.gz; the same tree gives the same bytes.

        Args:
            dest: where, outside of the workspace; it appears whole or not at all, and replaces a file.
            max_bytes: the most that the files may hold in all, holes not counted.

        Returns:
            What was left out, sorted: links, FIFOs, sockets, devices, what cannot be read, names with a line break.

        Raises:
            WorkspaceError: ``dest`` cannot be written, there is too much, or a box changed what was being read.
        """
        return self._session.workspace.snapshot(dest, max_bytes)

    def restore(self, src: str | os.PathLike[str], max_bytes: int = 4 << 30) -> None:
        """Replace everything in the workspace by what is in a tar.gz, or change nothing.

        Args:
            src: of a snapshot, or of plain files and directories from elsewhere.
            max_bytes: the most that the files may hold in all, holes not counted.

        Raises:
            WorkspaceError: it cannot be read, is damaged, holds links, devices, absolute paths, ``..`` or a name
                twice, or too much.
        """
        self._session.workspace.restore(src, max_bytes)

    def close(self) -> None:
        """End every box of this Sandbox and remove a temporary workspace. Closing twice does nothing."""
        self._session.close()

    def __enter__(self) -> Sandbox:
        self._session.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.discard()


def run_code(code: str, *, language: str = "python", **sandbox_options: Any) -> ExecutionResult:
    """Run one snippet in a Sandbox of its own, which is gone when this returns.

    Args:
        code: the snippet.
        language: ``"python"``, ``"bash"``, ``"sh"`` or ``"node"``.
        sandbox_options: as ``Sandbox`` takes them.

    Raises:
        SandboxError: as ``Sandbox`` and ``Sandbox.run_code``.
    """
    return run_once(code, language, sandbox_options)
