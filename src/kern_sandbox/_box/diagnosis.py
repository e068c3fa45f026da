"""Evidence to diagnosis, purely: what each try showed becomes a layer's state, and the command that would change it.

A layer *works* where its try did what a box needs. It is *degraded* where boxes start all the same, and something
weaker (or nothing, which the detail says) stands in. It is *missing* where no box starts without it.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from . import remedies

__all__ = ["LayerReport", "State", "box_layer", "diagnose"]

State = Literal["works", "degraded", "missing"]
_NAMESPACES = ("mount", "pid", "ipc", "uts", "cgroup")
_LANDLOCK = ((2, "no write outside the box's own directories"), (3, "truncation"), (6, "abstract sockets and signals"))
_STANDS_IN = {
    "memory": "a limit on each process's own data stands in",
    "pids": "a limit on the user's processes stands in",
    "cpu": "the box is only bound to as many processors",
}


@dataclass(frozen=True)
class LayerReport:
    """Whether this host can do one layer of a box.

    Attributes:
        name: of the layer.
        state: ``"works"``; ``"degraded"``, boxes run without it or with something weaker; ``"missing"``, none starts.
        detail: what was seen.
        fix: the command that would change the state, or ``""`` where nothing is to be changed or no command would.
    """

    name: str
    state: State
    detail: str
    fix: str = ""


class _Try(NamedTuple):
    """One outcome, as ``probe.gather`` describes it; one that is not there has failed."""

    ok: bool
    value: Any
    code: int
    text: str

    @classmethod
    def of(cls, evidence: Mapping[str, Any], name: str) -> _Try:
        found = evidence["tries"].get(name, {"ok": False, "text": "was not tried"})
        return cls(bool(found["ok"]), found.get("value"), found.get("errno") or 0, str(found.get("text", "")))


def diagnose(evidence: Mapping[str, Any]) -> list[LayerReport]:
    """Every layer, from the outside of a box to its inside.

    Args:
        evidence: what ``probe.gather`` gave.
    """
    if evidence["failed"]:
        return [LayerReport("probe", "missing", f"trying out the layers failed: {evidence['failed']}")]
    facts: Mapping[str, str] = evidence["facts"]
    return [
        *_user_namespaces(evidence, facts),
        _other_namespaces(evidence, facts),
        _network(evidence, facts),
        _proc(evidence, facts),
        _plain(evidence, "root", "read-only root", "mount_setattr and pivot_root did what was asked"),
        _idmap(evidence, facts),
        *_limits(evidence, facts),
        _plain(evidence, "capabilities", "capabilities", "all dropped, no_new_privs set"),
        _seccomp(evidence, facts),
        _listener(evidence, facts),
        _landlock(evidence),
        _plain(evidence, "pidfd", "pidfd", "processes are held by descriptors"),
        _temporary(evidence),
        _interpreters(evidence),
    ]


def _usable(evidence: Mapping[str, Any]) -> bool:
    return _Try.of(evidence, "user").ok


def _needs_user_namespaces(name: str) -> LayerReport:
    return LayerReport(name, "missing", "needs user namespaces")


def _user_namespaces(evidence: Mapping[str, Any], facts: Mapping[str, str]) -> list[LayerReport]:
    user, nested = _Try.of(evidence, "user"), _Try.of(evidence, "nested")
    if not user.ok:
        reason, fix = remedies.for_user_namespaces(user.code, facts)
        why = reason or "Linux or its policy refuses them; `journalctl -k` may say more"
        return [
            LayerReport("user namespaces", "missing", f"{user.text}: {why}", fix),
            _needs_user_namespaces("nested user namespaces"),
        ]
    unprivileged = (
        "root's boxes run under an unprivileged id" if facts.get("uid") == "0" else "made as an ordinary user"
    )
    first = LayerReport("user namespaces", "works", unprivileged)
    if nested.ok:
        return [first, LayerReport("nested user namespaces", "works", "what a box sees mounted is locked for it")]
    reason, fix = remedies.for_user_namespaces(nested.code, facts)
    detail = f"{nested.text}{': ' if reason else ''}{reason}; boxes share the namespace of their Sandbox"
    return [first, LayerReport("nested user namespaces", "degraded", detail, fix)]


def _other_namespaces(evidence: Mapping[str, Any], facts: Mapping[str, str]) -> LayerReport:
    name = "other namespaces"
    if not _usable(evidence):
        return _needs_user_namespaces(name)
    refused = [(each, tried) for each in _NAMESPACES for tried in [_Try.of(evidence, each)] if not tried.ok]
    if not refused:
        return LayerReport(name, "works", f"{', '.join(_NAMESPACES)}: all made")
    detail = "; ".join(f"{each}: {tried.text}" for each, tried in refused)
    kind, first = refused[0]
    return LayerReport(name, "missing", detail, remedies.for_namespace(kind, first.code, facts))


def _network(evidence: Mapping[str, Any], facts: Mapping[str, str]) -> LayerReport:
    name, tried = "network namespace", _Try.of(evidence, "network")
    if not _usable(evidence):
        return _needs_user_namespaces(name)
    if tried.ok:
        return LayerReport(name, "works", "only a loopback, and it carries data")
    return LayerReport(name, "missing", tried.text, remedies.for_namespace("net", tried.code, facts))


def _proc(evidence: Mapping[str, Any], facts: Mapping[str, str]) -> LayerReport:
    name, tried = "fresh /proc", _Try.of(evidence, "proc")
    if not _usable(evidence):
        return _needs_user_namespaces(name)
    if tried.ok:
        return LayerReport(name, "works", "shows the box's own processes only")
    reason, fix = remedies.for_proc(facts)
    return LayerReport(name, "missing", f"{tried.text}{': ' if reason else ''}{reason}", fix)


def _idmap(evidence: Mapping[str, Any], facts: Mapping[str, str]) -> LayerReport:
    name, tried = "idmapped mounts", _Try.of(evidence, "idmap")
    if facts.get("uid") != "0":
        return LayerReport(name, "works", "not needed: only root's boxes use them")
    if not _usable(evidence):
        return _needs_user_namespaces(name)
    if tried.ok:
        return LayerReport(name, "works", "workspace files keep their owner")
    detail = (
        f"{tried.text}: the file system of the temporary directory has none; a workspace there belongs to the box "
        "while its Sandbox lives"
    )
    return LayerReport(name, "degraded", detail, "export TMPDIR=/var/tmp")


def _limits(evidence: Mapping[str, Any], facts: Mapping[str, str]) -> list[LayerReport]:
    tried = _Try.of(evidence, "limits")
    nothing: dict[str, Any] = {"mode": "none", "held": {}, "reasons": dict.fromkeys(_STANDS_IN, tried.text)}
    value = tried.value if tried.ok else nothing
    held, reasons, mode = value["held"], value["reasons"], value["mode"]
    layers = []
    for name, stands_in in _STANDS_IN.items():
        if name in held:
            layers.append(LayerReport(f"{name} limit", "works", f"cgroup {mode}: {held[name]}"))
            continue
        detail, fix = remedies.for_limit(reasons.get(name, "no cgroup enforces it"), facts)
        layers.append(LayerReport(f"{name} limit", "degraded", f"{detail}; {stands_in}", fix))
    return [*layers[:2], _swap("memory" in held, facts), *layers[2:]]


def _swap(memory_holds: bool, facts: Mapping[str, str]) -> LayerReport:
    if not facts.get("swap"):
        return LayerReport("swap off", "works", "this host has no swap")
    if memory_holds:
        return LayerReport("swap off", "works", "memory over the limit did not go to the host's swap")
    return LayerReport(
        "swap off", "degraded", "without a memory limit a box can fill the host's swap", "sudo swapoff -a"
    )


def _plain(evidence: Mapping[str, Any], key: str, name: str, works: str) -> LayerReport:
    tried = _Try.of(evidence, key)
    if tried.ok:
        return LayerReport(name, "works", works)
    if key != "pidfd" and not _usable(evidence):
        return _needs_user_namespaces(name)
    older = tried.code in (errno.ENOSYS, errno.EINVAL)
    return LayerReport(name, "missing", tried.text + ("; Linux 5.12 or later is needed" if older else ""))


def _seccomp(evidence: Mapping[str, Any], facts: Mapping[str, str]) -> LayerReport:
    tried = _Try.of(evidence, "seccomp")
    if tried.ok:
        return LayerReport("seccomp filter", "works", "a forbidden call ended its process")
    return LayerReport("seccomp filter", "missing", tried.text, remedies.for_seccomp(facts))


def _listener(evidence: Mapping[str, Any], facts: Mapping[str, str]) -> LayerReport:
    tried = _Try.of(evidence, "listener")
    if tried.ok:
        return LayerReport("seccomp listener", "works", f"a blocked call is named (tried with {tried.value})")
    why = "another listener already watches this process" if tried.code == errno.EBUSY else "Linux 5.7 or later has it"
    detail = f"{tried.text}: {why}; a blocked call ends the code without being named"
    return LayerReport("seccomp listener", "degraded", detail, remedies.for_seccomp(facts))


def _landlock(evidence: Mapping[str, Any]) -> LayerReport:
    tried = _Try.of(evidence, "landlock")
    without = "writes are held by read-only mounts alone"
    if not tried.ok:
        return LayerReport("landlock", "degraded", f"{tried.text}; {without}")
    if tried.value < 2:
        what = "this Linux has it switched off or lacks it" if tried.value == 0 else "ABI 1 is too old"
        return LayerReport("landlock", "degraded", f"{what}; {without}", remedies.for_landlock(evidence["facts"]))
    holds = [what for abi, what in _LANDLOCK if abi <= tried.value]
    lacks = [f"{what} (ABI {abi})" for abi, what in _LANDLOCK if abi > tried.value]
    rest = f"; not yet: {', '.join(lacks)}" if lacks else ""
    return LayerReport("landlock", "works", f"ABI {tried.value}: {', '.join(holds)}{rest}")


def _temporary(evidence: Mapping[str, Any]) -> LayerReport:
    tried = _Try.of(evidence, "temporary")
    if tried.ok:
        return LayerReport("temporary workspace", "works", f"a directory in {tried.value} took a file")
    return LayerReport("temporary workspace", "missing", tried.text, "export TMPDIR=/var/tmp")


def _interpreters(evidence: Mapping[str, Any]) -> LayerReport:
    tried = _Try.of(evidence, "interpreters")
    if not tried.ok:
        return LayerReport("interpreters", "missing", tried.text)
    found = [name for name, path in tried.value.items() if path]
    absent = [name for name, path in tried.value.items() if not path]
    if not absent:
        return LayerReport("interpreters", "works", ", ".join(found))
    detail = f"{', '.join(found)}; not on this host: {', '.join(absent)}"
    return LayerReport("interpreters", "degraded", detail, remedies.for_interpreters(absent))


def box_layer(said: Mapping[str, Any] | None, words: str) -> LayerReport:
    """The last layer: one true run of ``true`` in a box.

    Args:
        said: what ``kern-sandbox exec --json -- true`` printed, if it was JSON.
        words: what it said otherwise.
    """
    if said is None:
        return LayerReport("a box", "missing", words or "no answer")
    if "error" in said:
        return LayerReport("a box", "missing", str(said["error"]["message"]))
    if not said["success"]:
        fault = said["fault"] or {"type": "no fault", "message": _ending(said["exit_code"])}
        return LayerReport("a box", "missing", f"{fault['type']}: {fault['message']}")
    return LayerReport("a box", "works", f"ran `true` in {said['duration_ms']} ms: exit status 0, no fault")


def _ending(exit_code: int) -> str:
    if exit_code > 128:
        return f"ended by {signal.Signals(exit_code - 128).name}"
    return f"exit status {exit_code} ({os.strerror(exit_code)})"
