"""The options of a Sandbox, checked when given: a ``BoxSpec`` that exists is valid."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .checks import bad, check_env, check_timeout, flag, number, short, size_of, whole
from .errors import SpecError
from .spec_network import Entry, check_egress, names_inside
from .spec_protect import check_protect
from .spec_setup import check_setup

__all__ = ["MEMORY_MB", "PIDS", "BoxSpec", "Unsaid"]

_MAX_MEMORY_MB = 16 << 20
_MAX_PREWARM = 128
_MAX_PRELOAD = 64
_TMPFS_PLACES = re.compile(r"/(tmp|mnt|scratch|var/tmp|data|vdisk)(/[A-Za-z0-9._-]+)*\Z")


class Unsaid(int):
    """A default that gives way to a profile, which a number that the caller gives does not."""


MEMORY_MB = Unsaid(512)
PIDS = Unsaid(256)


def _mebibytes(option: str, value: object, least: int) -> int | None:
    return None if value is None else whole(option, value, least, _MAX_MEMORY_MB)


def _tmpfs(value: object, memory_mb: int | None) -> Mapping[str, int] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise bad("tmpfs", value, 'None, {} or a mapping such as {"/tmp": "512m"}')
    sizes = {}
    for path, text in value.items():
        if not isinstance(path, str) or not _TMPFS_PLACES.match(path) or ".." in path:
            raise SpecError(
                f"tmpfs has the path {short(path)}: accepted are /tmp, /mnt, /scratch, /var/tmp, /data, /vdisk or below"
            )
        size = size_of(f"tmpfs[{path!r}]", text)
        if memory_mb is not None and size > memory_mb << 20:
            raise SpecError(
                f"tmpfs[{path!r}]={text!r} is more than memory_mb={memory_mb}: it is memory and is charged to the box"
            )
        sizes[path] = size
    for inner, outer in itertools.permutations(sizes, 2):
        if inner.startswith(f"{outer}/"):
            raise SpecError(f"tmpfs has {inner!r} below {outer!r}, which is scratch already: leave one of them out")
    return sizes


def _mounts(value: object) -> Mapping[str, object]:
    """Only the form; which sources and targets are allowed is a matter of the host's files (``_box.mountrules``)."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise bad("mounts", value, 'None or a mapping such as {"/srv/data": "/data"}')
    return dict(value)


def _cap_drop(value: object) -> tuple[str, ...]:
    if isinstance(value, (tuple, list)) and tuple(value) in ((), ("ALL",)):
        return tuple(value)
    raise bad("cap_drop", value, '("ALL",) or (), which keeps capabilities over the box\'s own namespaces')


def _root(value: object) -> str:
    if value not in ("read-only", "scratch"):
        raise bad("root", value, '"read-only", or "scratch": writable, in memory, gone with the box')
    return str(value)


def _preload(value: object) -> tuple[str, ...]:
    accepted = f'a list of at most {_MAX_PRELOAD} module names, e.g. ["numpy", "pandas"]'
    if not isinstance(value, (list, tuple)) or len(value) > _MAX_PRELOAD:
        raise bad("preload", value, accepted)
    for name in value:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise bad("preload", value, accepted)
    return tuple(value)


def _image(value: object) -> str | None:
    """Only the form; what it names is found out by ``_image.reference``."""
    if value is None or (isinstance(value, str) and value):
        return value
    raise bad("image", value, "None or the name of an image, e.g. 'python:3.12-slim' or 'dir:/srv/rootfs'")


def _apparmor(value: object) -> str | None:
    if value is None or (isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_./:@+-]{1,200}", value)):
        return value
    raise bad("apparmor", value, "None or the name of a loaded AppArmor profile")


def _profile(given: Mapping[str, Any], mounts: Mapping[str, object]) -> str | None:
    """``"untrusted"`` turns every tightening on, so an option that loosens one contradicts it."""
    if given["security_profile"] is None:
        return None
    if given["security_profile"] != "untrusted":
        raise bad("security_profile", given["security_profile"], 'None or "untrusted"')
    loosened = {
        "network": given["network"] is not False,
        "cap_drop": given["cap_drop"] != ("ALL",),
        "memory_mb": given["memory_mb"] is None,
        "root": given["root"] != "read-only",
        "deps_readonly": given["deps_readonly"] is not True,
        "mounts": any(isinstance(value, tuple) and value[-1:] == ("rw",) for value in mounts.values()),
    }
    for option, loose in loosened.items():
        if loose:
            words = f'{option}={given[option]!r} contradicts security_profile="untrusted"'
            raise SpecError(f"{words}. Leave one of them out")
    return "untrusted"


def _setup_egress(given: Mapping[str, Any]) -> tuple[Entry, ...] | None:
    entries = check_egress(given["setup_egress_allow"], "setup_egress_allow")
    if entries is not None and given["setup"] is None:
        raise SpecError("setup_egress_allow says what setup= may reach, and there is none. Leave it out, or add setup=")
    return entries


def _egress(given: Mapping[str, Any]) -> tuple[Entry, ...] | None:
    """The entries; they contradict the host's whole network, and for hostile code must not name the host's inside."""
    entries = check_egress(given["egress_allow"])
    if entries is not None and given["network"]:
        raise SpecError("egress_allow and network=True contradict each other: leave one of them out")
    inside = names_inside(entries or ())
    if given["security_profile"] is not None and inside is not None:
        words = f"egress_allow names {inside.host}, which is not public: that"
        raise SpecError(f'{words} contradicts security_profile="untrusted". Leave one of them out')
    return entries


@dataclass(frozen=True)
class BoxSpec:
    """Validated options. Build it with ``BoxSpec.of``, which checks and converts.

    Attributes:
        tmpfs: mount point to bytes, or ``None`` for the default.
        env: variables for the code.
        devices: nodes below ``/dev`` to show, vetted by ``_profiles``.
    """

    memory_mb: int | None = MEMORY_MB
    cpus: float | None = None
    pids: int = PIDS
    workspace_mb: int | None = None
    timeout_s: float = 30.0
    network: bool = False
    tmpfs: Mapping[str, int] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    max_output_bytes: int = 64 << 20
    require_limits: bool = False
    track_files: bool = True
    mounts: Mapping[str, object] = field(default_factory=dict)
    protect: Mapping[str, str | None] = field(default_factory=dict)
    security_profile: str | None = None
    apparmor: str | None = None
    cap_drop: tuple[str, ...] = ("ALL",)
    user: int = 0
    root: str = "read-only"
    prewarm: int = 0
    preload: tuple[str, ...] = ()
    setup: str | None = None
    deps_readonly: bool = True
    devices: tuple[str, ...] = ()
    egress_allow: tuple[Entry, ...] | None = None
    setup_egress_allow: tuple[Entry, ...] | None = None
    image: str | None = None

    @property
    def setup_egress(self) -> tuple[Entry, ...] | None:
        """What the setup may reach: what was said for it, else what the code may; ``None`` is the whole network."""
        return self.egress_allow if self.setup_egress_allow is None else self.setup_egress_allow

    @property
    def processors(self) -> int:
        """How many processors the code sees: the CPU limit rounded up, at most those of the host."""
        host = os.cpu_count() or 1
        return host if self.cpus is None else min(host, math.ceil(self.cpus))

    @property
    def threads(self) -> int:
        """How many threads numeric libraries should start: one a processor, at most 16."""
        return min(16, self.processors)

    @classmethod
    def of(cls, **options: Any) -> BoxSpec:
        """Check every option.

        Raises:
            SpecError: naming the option, the value and what is accepted.
        """
        known = cls.__dataclass_fields__
        unknown = sorted(set(options) - set(known))
        if unknown:
            accepted = ["workspace", "profiles", *(name for name in known if name != "devices")]
            raise SpecError(f"unknown option {unknown[0]}: accepted are {', '.join(accepted)}")
        given = {name: options.get(name, spec.default) for name, spec in known.items()}
        given["cap_drop"] = _cap_drop(given["cap_drop"])
        profile = _profile(given, _mounts(options.get("mounts")))
        if given["user"] and not given["cap_drop"]:
            raise SpecError("cap_drop=() keeps capabilities for uid 0 only: leave out user, or cap_drop")
        memory = _mebibytes("memory_mb", given["memory_mb"], 16)
        return cls(
            memory_mb=memory,
            cpus=None if given["cpus"] is None else number("cpus", given["cpus"], 0.0, 4096.0),
            pids=whole("pids", given["pids"], 1, 1 << 22),
            workspace_mb=_mebibytes("workspace_mb", given["workspace_mb"], 1),
            timeout_s=check_timeout(given["timeout_s"]),
            network=flag("network", given["network"]),
            tmpfs=_tmpfs(given["tmpfs"], memory),
            env=check_env(options.get("env")),
            max_output_bytes=whole("max_output_bytes", given["max_output_bytes"], 1, 1 << 31),
            require_limits=flag("require_limits", given["require_limits"]) or profile is not None,
            track_files=flag("track_files", given["track_files"]),
            mounts=_mounts(options.get("mounts")),
            protect=check_protect(options.get("protect"), capabilities=not given["cap_drop"]),
            security_profile=profile,
            apparmor=_apparmor(given["apparmor"]),
            cap_drop=given["cap_drop"],
            user=whole("user", 0 if given["user"] is None else given["user"], 0, (1 << 32) - 2),
            root=_root(given["root"]),
            prewarm=whole("prewarm", given["prewarm"], 0, _MAX_PREWARM),
            preload=_preload(given["preload"]),
            setup=check_setup(given["setup"]),
            deps_readonly=flag("deps_readonly", given["deps_readonly"]),
            devices=tuple(given["devices"]),
            egress_allow=_egress(given),
            setup_egress_allow=_setup_egress(given),
            image=_image(given["image"]),
        )
