"""What must hold of a process as the host sees it: from two looks, the first and the last, to what is wrong."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._look import Look

__all__ = ["CONDITIONS", "Condition"]

Condition = Callable[["Look", "Look"], str]


def _no_capabilities(_: Look, last: Look) -> str:
    held = {name: last.status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    return f"capabilities {held}" if any(int(value, 16) for value in held.values()) else ""


def _other_namespaces(_: Look, last: Look) -> str:
    kinds = ("ipc", "mnt", "net", "pid", "user", "uts")
    shared = [name for name in kinds if last.namespaces[name] == os.readlink(f"/proc/self/ns/{name}")]
    return f"shares with the host: {', '.join(shared)}" if shared else ""


def _no_new_descriptors(first: Look, last: Look) -> str:
    fresh = set(last.descriptors.values()) - set(first.descriptors.values())
    kinds = [one for one in fresh if not one.startswith("socket:")]
    sockets = sum(one.startswith("socket:") for one in last.descriptors.values())
    before = sum(one.startswith("socket:") for one in first.descriptors.values())
    return f"opened {', '.join(kinds) or 'a socket'}" if kinds or sockets > before else ""


def _no_handles(_: Look, last: Look) -> str:
    """The meeting's own socket is one."""
    sockets = [one for one in last.descriptors.values() if one.startswith("socket:")]
    paths = [
        one for one in last.descriptors.values() if one.startswith("/") and not one.startswith(("/dev/", "/run/cell"))
    ]
    held = (sockets[1:]) + [path for path in paths if path]
    return f"holds {', '.join(held)}" if held else ""


def _interfaces(last: Look) -> str:
    extra = [name for name in last.interfaces if name != "lo"]
    return ", ".join(
        filter(
            None, [f"interfaces {', '.join(extra)}" if extra else "", f"{last.routes} routes" if last.routes else ""]
        )
    )


def _same(name: str) -> Condition:
    def condition(first: Look, last: Look) -> str:
        before, after = getattr(first, name), getattr(last, name)
        return "" if before == after else f"its {name} changed from {before!r} to {after!r}"[:300]

    return condition


CONDITIONS: Mapping[str, Condition] = {
    "filter on every thread": lambda _, last: "" if last.filters == {"2"} else f"Seccomp {sorted(last.filters)}",
    "no new privileges": lambda _, last: "" if last.status["NoNewPrivs"] == "1" else "it may gain privileges",
    "no capabilities": _no_capabilities,
    "no uid of root": lambda _, last: (
        "" if last.uid and "0" not in last.status["Uid"].split() else "the host sees uid 0"
    ),
    "no groups": lambda _, last: f"groups {last.status['Groups']}" if last.status["Groups"] else "",
    "namespaces of its own": _other_namespaces,
    "no handles": _no_handles,
    "no new descriptors": _no_new_descriptors,
    "same namespaces": _same("namespaces"),
    "same mounts": _same("mounts"),
    "same root": _same("root"),
    "same personality": _same("personality"),
    "only a loopback": lambda _, last: _interfaces(last),
    "no priority": lambda _, last: (
        "" if last.nice >= 0 and last.policy == 0 else f"nice {last.nice}, policy {last.policy}"
    ),
    "no core files": lambda _, last: "" if _limit(last, "Max core file size") == "0" else "it may write core files",
    "few descriptors": lambda _, last: "" if int(_limit(last, "Max open files")) <= 8192 else "too many descriptors",
    "first to go": lambda _, last: "" if last.oom_score_adj > 0 else f"oom_score_adj {last.oom_score_adj}",
}


def _limit(look: Look, name: str) -> str:
    line = next(line for line in look.limits.splitlines() if line.startswith(name))
    return line[len(name) :].split()[0].replace("unlimited", str(1 << 62))
