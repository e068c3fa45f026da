"""What a box will be: frozen steps that print and travel as JSON. ``decide`` makes a plan, ``build`` applies it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from .doors import Door, entry_words

if TYPE_CHECKING:
    from ..spec_network import Entry

__all__ = ["Bind", "Blob", "Device", "Folder", "Link", "Plan", "Step", "Text", "Tmpfs", "Userland", "from_wire"]

HOME = "/home/sandbox"
CELL = "/run/cell"
WORKSPACE = "/workspace"
GUEST = "/.box/guest"
MIB = 1 << 20
MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg", "/proc/kpagecgroup",
    "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
    "/proc/sysrq-trigger", "/proc/timer_list",
)  # fmt: skip
# The one part of /proc in which uid 0 of a box may write: settings of its own PID and IPC namespaces belong to it
# (pid_max, shmmax, msg_max), and only the host's root has the rest.
READ_ONLY = ("/proc/sys",)
DEVICES = ("full", "null", "random", "tty", "urandom", "zero")


class Bind(NamedTuple):
    """Show a host path in the box.

    ``owned``: its owner on the host appears as the box's own user. ``identity``: device and inode that it had when it
    was vetted; another file at that path is refused.
    """

    source: str
    target: str
    writable: bool = False
    owned: bool = False
    identity: tuple[int, int] | None = None


class Device(NamedTuple):
    """Show one host device node below ``/dev``."""

    name: str


class Folder(NamedTuple):
    """An empty directory of the box's root."""

    path: str
    mode: int = 0o755


class Text(NamedTuple):
    """A small file of the box's root."""

    path: str
    content: str


class Blob(NamedTuple):
    """A small file of the box's root that is not text; ``content`` is base64."""

    path: str
    content: str


class Link(NamedTuple):
    """A symbolic link of the box's root."""

    path: str
    value: str


class Tmpfs(NamedTuple):
    """An empty, size-capped file system in memory, fresh for each call."""

    target: str
    size: int
    mode: int = 0o755


Step = Union[Bind, Blob, Device, Folder, Text, Link]
_KINDS: dict[str, type[Step]] = {kind.__name__: kind for kind in (Bind, Blob, Device, Folder, Text, Link)}


class Userland(NamedTuple):
    """The operating-system files that a box shows, as steps, and where its interpreter is.

    Attributes:
        name: for messages.
        steps: its files.
        python: its interpreter, or a name that is not found.
        path: where its programs are.
        env: further variables that every program gets.
        people: its ``/etc/passwd`` and ``/etc/group``, whose names a box knows besides its own.
        like_host: its Python is of the same version as this one, and reads its bytecode.
    """

    name: str
    steps: tuple[Step, ...]
    python: str
    path: str
    env: Mapping[str, str] = {}
    people: tuple[str, str] = ("", "")
    like_host: bool = True

    def places(self) -> list[str]:
        """Where its steps put something that nothing else may cover."""
        steps = (step for step in self.steps if not isinstance(step, (Device, Folder)))
        return [step.target if isinstance(step, Bind) else step.path for step in steps]


@dataclass(frozen=True)
class Plan:
    """Everything that shapes a box except the one program that it runs.

    Attributes:
        base: steps made once for all boxes of this plan, on a read-only root.
        workspace: shown at ``/workspace``. It comes with the call, so plans that differ in nothing else are one plan.
        fresh: file systems made anew for each call.
        masked: paths hidden, where they exist.
        read_only: paths made read-only, where they exist.
        writable: directories below which Landlock allows writes.
        frozen: paths below a writable mount that are read-only all the same.
        pinned: directories on the way to those, which cannot be renamed.
        preload: modules that a template imports before it serves.
        lingers: its stem may outlive the last Sandbox for a while, for one with an equal plan.
        file_bytes: the largest that one file may become, or ``None`` for the general limit.
        scratch_root: bytes of a writable root made anew for each call, or ``None`` for the read-only one.
        env: variables that every program gets.
        egress: what may be reached, for the proxy; ``None`` where there is no proxy.
        doors: the listeners in the box by which it is reached.
        like_host: its Python reads this one's bytecode.
    """

    base: tuple[Step, ...]
    fresh: tuple[Tmpfs, ...]
    workspace: Bind | None = None
    masked: tuple[str, ...] = MASKED
    read_only: tuple[str, ...] = READ_ONLY
    writable: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    python: str = "python3"
    like_host: bool = True
    userland: str = "host userland"
    hostname: str = "sandbox"
    memory_bytes: int | None = None
    pids: int | None = None
    cpus: float | None = None
    network: bool = False
    capabilities: bool = False
    untrusted: bool = False
    apparmor: str | None = None
    user: int = 0
    file_bytes: int | None = None
    scratch_root: int | None = None
    require_limits: bool = False
    preload: tuple[str, ...] = ()
    lingers: bool = True
    egress: tuple[Entry, ...] | None = None
    doors: tuple[Door, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """The plan as JSON data, without the workspace."""
        plain = dict(vars(self))
        del plain["workspace"]
        plain["base"] = [[type(step).__name__, *step] for step in self.base]
        plain["fresh"] = [list(step) for step in self.fresh]
        plain["env"] = dict(self.env)
        return plain

    @property
    def below(self) -> list[str]:
        """What the base shows below the workspace, and what therefore has to be shown again on top of one."""
        return [step.target for step in self.base if isinstance(step, Bind) and step.target.startswith(f"{WORKSPACE}/")]

    @property
    def key(self) -> str:
        """A digest of everything in it: no call is served by a box built for another plan."""
        import hashlib  # loads OpenSSL, which the fork server must not hold

        return hashlib.sha256(json.dumps(self.to_wire(), sort_keys=True).encode()).hexdigest()[:24]

    def lines(self) -> list[str]:
        """The plan for a person, one step a line (``kern-sandbox exec --plan``)."""
        limits = f"memory {_size(self.memory_bytes)}, pids {self.pids}, cpus {self.cpus or 'all'}"
        return [
            "namespaces: user, mount, pid, ipc, uts, cgroup" + ("" if self.network else ", network"),
            *(f"{type(step).__name__.lower()}: {_words(step)}" for step in self.base),
            *(f"workspace: {_words(step)}" for step in (self.workspace,) if step is not None),
            f"root: {'read-only' if self.scratch_root is None else 'scratch'}, nosuid, nodev; pivot_root",
            *(f"fresh: {step.target}, {_size(step.size)}, mode {step.mode:o}" for step in self.fresh),
            *(f"egress: {entry_words(entry)}" for entry in self.egress or ()),
            *(f"door: {door.address} port {door.port} to {door.host or 'the proxy'}" for door in self.doors),
            f"masked: {' '.join(self.masked)}",
            f"read-only: {' '.join(self.read_only)}",
            *(f"protected: {path}" for path in self.frozen),
            f"limits: {limits}",
            f"capabilities: {'those of its own namespaces' if self.capabilities else 'none'}; no_new_privs; securebits",
            f"landlock: writes only below {' '.join(self.writable)}",
            "seccomp: deny by default" + (", untrusted" if self.untrusted else ""),
        ]


def from_wire(plain: dict[str, Any]) -> Plan:
    """The inverse of ``Plan.to_wire``."""
    values = dict(plain)
    values["base"] = tuple(_KINDS[kind](*fields) for kind, *fields in plain["base"])
    values["fresh"] = tuple(Tmpfs(*fields) for fields in plain["fresh"])
    values["doors"] = tuple(Door(*fields) for fields in plain["doors"])
    for name in ("masked", "read_only", "writable", "frozen", "pinned", "preload"):
        values[name] = tuple(plain[name])
    return Plan(**values)


def _size(value: int | None) -> str:
    return "unlimited" if value is None else f"{value // MIB} MiB" if value >= MIB else f"{value} bytes"


def _words(step: Step) -> str:
    if isinstance(step, Bind):
        return f"{step.source} → {step.target} ({'read-write' if step.writable else 'read-only'})"
    if isinstance(step, (Blob, Text)):
        return f"{step.path}, {len(step.content)} characters"
    if isinstance(step, Folder):
        return f"{step.path}, mode {step.mode:o}"
    return ", ".join(str(part) for part in step)
