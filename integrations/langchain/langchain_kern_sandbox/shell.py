"""The execution policy that puts the shell of ``ShellToolMiddleware`` into a box."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kern_sandbox import Sandbox, SandboxError, SpecError
from langchain.agents.middleware._execution import SHELL_TEMP_PREFIX, BaseExecutionPolicy

from ._shell import LOST, BoxShell, Limits

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["KernExecutionPolicy", "kern_execution_policy"]

_MIB = 1 << 20
_MOST_INTERRUPTED = 1000
_OURS = frozenset({"workspace", "timeout_s", "max_output_bytes", "track_files", "prewarm", "preload"})
_INTERRUPTED = f"[sandbox: new shell] the last command was stopped, and its shell with it: {LOST}."
_NOT_DOCKER = {
    "binary": "there is no program to name: boxes are made in this process",
    "extra_run_args": "say what they are for as Sandbox options, e.g. mounts= or tmpfs=",
    "remove_container_on_exit": "a box never outlives its session",
    "cpu_time_seconds": "limit processors with cpus=, and time with command_timeout=",
}


@dataclass
class KernExecutionPolicy(BaseExecutionPolicy):
    """Runs the shell in a box of kern_sandbox: a peer of ``DockerExecutionPolicy``.

    Attributes:
        sandbox_options: as ``kern_sandbox.Sandbox`` takes them.
        mount_workspace: the middleware's workspace is what the shell sees at ``/workspace``; ``False`` gives every
            session a temporary one instead; ``None`` does as Docker's policy: only a ``workspace_root`` that was named.
        session_timeout: seconds that one shell may live.

    Raises:
        SpecError: an option has a type or value that is not accepted.
    """

    sandbox_options: dict[str, Any] = field(default_factory=dict)
    mount_workspace: bool | None = True
    session_timeout: float = 24 * 3600.0
    _interrupted: set[str] = field(init=False, repr=False, compare=False, default_factory=set)
    _lock: Any = field(init=False, repr=False, compare=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in sorted(_OURS & set(self.sandbox_options)):
            raise SpecError(f"{name} is not an option of a shell session: the middleware and the policy decide on it")
        Sandbox(**self.sandbox_options).close()  # what is wrong is said now, not when an agent runs

    def spawn(self, *, workspace: Path, env: Mapping[str, str], command: Sequence[str]) -> subprocess.Popen[str]:
        """Start the shell in a box of its own.

        Args:
            workspace: a directory of the host.
            env: variables for the shell, on top of those that a box has.
            command: the shell, as the box knows it.

        Raises:
            SandboxError: no box could be made.
        """
        key = str(workspace)
        limits = Limits(
            max(self.command_timeout, self.startup_timeout),
            self.session_timeout,
            self.max_output_lines,
            self.max_output_bytes,
        )
        with self._lock:
            note = _INTERRUPTED if key in self._interrupted else ""
            self._interrupted.discard(key)
        sandbox = Sandbox(**{**self.sandbox_options, **self._shown(workspace), "track_files": False})
        try:
            shell: Any = BoxShell(sandbox, command, env, limits, note=note, interrupted=lambda: self._remember(key))
        except SandboxError:
            sandbox.close()
            raise
        return shell  # type: ignore[no-any-return] # it has all of a Popen that a session uses

    def _remember(self, key: str) -> None:
        """The next shell on this workspace says that it is new; of most there is none, and they are forgotten."""
        with self._lock:
            if len(self._interrupted) >= _MOST_INTERRUPTED:
                self._interrupted.clear()
            self._interrupted.add(key)

    def _shown(self, workspace: Path) -> dict[str, str]:
        mount = self.mount_workspace
        if mount is None:
            mount = not workspace.name.startswith(SHELL_TEMP_PREFIX)
        return {"workspace": str(workspace)} if mount else {}

    def __deepcopy__(self, memo: object) -> KernExecutionPolicy:
        return dataclasses.replace(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def kern_execution_policy(*, match_docker_capabilities: bool = False, **options: Any) -> KernExecutionPolicy:
    """An execution policy for ``ShellToolMiddleware``.

    Args:
        match_docker_capabilities: the shell keeps capabilities over its own box, as in a container of Docker's; else
            it has none.
        options: those of every policy (``command_timeout``, ``startup_timeout``, ``termination_timeout``,
            ``max_output_lines``, ``max_output_bytes``), ``mount_workspace`` and ``session_timeout``, those of
            ``kern_sandbox.Sandbox``, and, in Docker's words, ``memory_bytes``, ``network_enabled``, ``cpus`` and
            ``user`` as text, and ``read_only_rootfs``.

    Raises:
        SpecError: an option is not known or not accepted, or is said twice.
        ValueError: a limit of the policy is not positive.
    """
    own = {each.name for each in dataclasses.fields(KernExecutionPolicy) if each.init} - {"sandbox_options"}
    policy = {name: options.pop(name) for name in own & set(options)}
    if match_docker_capabilities:
        _only_once(options, "cap_drop", "match_docker_capabilities")
        options["cap_drop"] = ()
    return KernExecutionPolicy(sandbox_options=_translated(options), **policy)


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    """Docker's words as those of a Sandbox."""
    for name, instead in _NOT_DOCKER.items():
        if options.get(name) is not None:
            raise SpecError(f"{name}={options[name]!r} is not an option of this policy: {instead}")
        options.pop(name, None)
    if "memory_bytes" in options:
        _only_once(options, "memory_mb", "memory_bytes")
        size = options.pop("memory_bytes")
        if not isinstance(size, int) or size <= 0:
            raise SpecError(f"memory_bytes={size!r} is not accepted: a positive number of bytes")
        options["memory_mb"] = -(-size // _MIB)
    if "network_enabled" in options:
        _only_once(options, "network", "network_enabled")
        options["network"] = options.pop("network_enabled")
    if "read_only_rootfs" in options:
        _only_once(options, "root", "read_only_rootfs")
        options["root"] = "read-only" if options.pop("read_only_rootfs") else "scratch"
    for name, kind in (("cpus", float), ("user", int)):
        if isinstance(options.get(name), str):
            with contextlib.suppress(ValueError):  # what is no number, the Sandbox refuses in its own words
                options[name] = kind(options[name].partition(":")[0])
    return options


def _only_once(options: Mapping[str, Any], name: str, other: str) -> None:
    if name in options:
        raise SpecError(f"{name}= and {other}= say the same thing: give one of them")
