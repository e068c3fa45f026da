"""From what was seen outside the box to a word: pure functions, by name, for the manifests.

A judge returns how the claim was broken, or ``""``. It raises `Unclear` where the case did not get
as far as its attack.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from ._conditions import CONDITIONS
from ._older import Unusable
from ._text import TEXT_JUDGES, raw_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kern_sandbox import ExecutionResult

    from ._cases import Case
    from ._look import Look
    from ._stage import Scene
    from ._targets import Room

__all__ = ["JUDGES", "Evidence", "Judge", "Unclear", "finished_mark"]

_DENIED = {"EPERM", "ENOSYS", "EACCES"}
_READ_AT_MOST = 1 << 20


class Unclear(Exception):
    """The evidence says nothing about the claim."""


@dataclass(frozen=True)
class Evidence:
    """What there is to judge by.

    Attributes:
        case: what was run.
        results: what its calls gave.
        rendered: its text as a model would get it.
        scene: the host's side, still standing.
        room: the workspace, still open.
        raced: what the host read of the workspace while the case ran.
    """

    case: Case
    results: Sequence[ExecutionResult]
    rendered: str
    scene: Scene
    room: Room
    raced: Sequence[bytes] = ()

    @property
    def result(self) -> ExecutionResult:
        """What its last call gave."""
        return self.results[-1]

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The judge's parameters."""
        return self.case.parameters

    @property
    def blocked(self) -> str:
        """The call for which the sandbox stopped the code, or ``""``."""
        fault = self.result.fault
        return (fault.detail or "?") if fault is not None and fault.type == "escape_blocked" else ""

    def require_end(self) -> None:
        """Raise `Unclear` unless the code ran to its end, or was stopped for a forbidden call."""
        if finished_mark(self.scene.token) not in self.result.stdout and not self.blocked:
            tail = (self.result.stdout + self.result.stderr)[-300:]
            raise Unclear(f"it did not run to its end: exit {self.result.exit_code}, {self.result.fault}, {tail!r}")


Judge = Callable[[Evidence], str]


def finished_mark(token: str) -> str:
    """What the last line of an adversarial case prints."""
    return f"finished {token}"


# --- what came out, what was changed, who was reached ------------------------------------------------------------


def _kept(evidence: Evidence) -> str:
    """No secret of the host is in anything that the box gave back."""
    secrets = dict(evidence.scene.secrets)
    also = evidence.parameters.get("also", "")
    if also:
        secrets = _other_secrets(also, evidence.scene)
    gone = _everything(evidence)
    found = [name for name, secret in secrets.items() if os.fsencode(secret) in gone]
    if not found:
        evidence.require_end()
    return f"came out: {', '.join(found)}" if found else ""


def _other_secrets(name: str, scene: Scene) -> dict[str, str]:
    """What a case is after that is no canary: names of the host and its sockets, or the beginning of a file."""
    if name == "host name":
        return {name: socket.gethostname()}
    if name == "socket names":
        return {kind: str(scene.values[kind]) for kind in ("abstract", "unix_path")}
    begins = _begin(name)
    if len(begins.strip(b"\0")) < 4:
        raise Unusable(f"this host has nothing in {name}")
    return {name: os.fsdecode(repr(begins)[2:-1].encode())}


def _begin(path: str) -> bytes:
    """The first bytes of a file, so few that they do not change from one reading to the next."""
    try:
        with open(path, "rb") as file:
            return file.read(12)
    except OSError:
        return b""


def _everything(evidence: Evidence) -> bytes:
    data = (
        evidence.result.stdout_bytes
        + evidence.result.stderr_bytes
        + raw_text(evidence.result).encode("utf-8", "replace")
    )
    for folder, _, names in os.walk(evidence.room.workspace):
        for name in names:
            data += _content(os.path.join(folder, name))
    return data


def _content(path: str) -> bytes:
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(_READ_AT_MOST)
    except OSError:
        return b""


def _only_these(evidence: Evidence) -> str:
    """Nothing is in the workspace but ``files``."""
    evidence.require_end()
    extra = set(os.listdir(evidence.room.workspace)) - set(evidence.parameters["files"])
    return f"in the workspace: {', '.join(sorted(extra))}" if extra else ""


def _differ(evidence: Evidence) -> str:
    """No word that one call printed is among those of another."""
    evidence.require_end()
    mark = finished_mark(evidence.scene.token)
    words = [set(result.stdout.replace(mark, "").split()) for result in evidence.results]
    again = set.intersection(*words)
    return f"came again: {', '.join(sorted(again))}" if again else ""


def _whole(evidence: Evidence) -> str:
    """The victim's directory is as it was."""
    changed = evidence.scene.changed()
    if not changed:
        evidence.require_end()
    return f"changed on the host: {', '.join(changed)}" if changed else ""


def _unheard(evidence: Evidence) -> str:
    """No listener of the host was sent this case's token."""
    if evidence.scene.stage.heard(evidence.scene.token):
        return "a listener of the host heard from it"
    evidence.require_end()
    return ""


def _gone(evidence: Evidence) -> str:
    """No process of the case is left; ``fault`` names the verdict that goes with it."""
    left = evidence.scene.survivors()
    for pid in left:
        os.kill(pid, 9)
    if left:
        return f"{len(left)} processes outlived the call"
    if "fault" in evidence.parameters:
        return _verdict(evidence)
    evidence.require_end()
    return ""


def _alive(evidence: Evidence) -> str:
    """The host's own process runs on."""
    if not evidence.scene.neighbour_answers():
        return "it ended a process of the host"
    evidence.require_end()
    return ""


# --- the verdict ------------------------------------------------------------------------------------------------


def _verdict(evidence: Evidence) -> str:
    """Fault and exit status are exactly those that the case must have; ``null`` for no fault."""
    fault = evidence.result.fault
    wanted = evidence.parameters
    got = {
        "fault": fault.type if fault else None,
        "detail": fault.detail if fault else "",
        "exit": evidence.result.exit_code,
    }
    wrong = [
        f"{name} {got[name]!r} instead of {wanted[name]!r}"
        for name in got
        if name in wanted and got[name] != wanted[name]
    ]
    text = wanted.get("kept")
    if text and text not in evidence.result.stdout:
        wrong.append("output from before is lost")
    return "; ".join(wrong)


def _finishes(evidence: Evidence) -> str:
    """Honest work goes on: the last call runs to its end without a fault."""
    if finished_mark(evidence.scene.token) in evidence.result.stdout and evidence.result.fault is None:
        return ""
    return f"exit {evidence.result.exit_code}, {evidence.result.fault}: {evidence.result.stderr[-200:]!r}"


# --- the process as the host sees it ----------------------------------------------------------------------------


def _last(evidence: Evidence) -> Look:
    if not evidence.scene.looks:
        raise Unclear(f"nobody came to be looked at: {evidence.result.fault} {evidence.result.stderr[-300:]!r}")
    return evidence.scene.looks[-1]


def _seen(evidence: Evidence) -> str:
    """Every condition named in ``all`` holds for the process, as the host sees it."""
    if evidence.blocked:
        return ""
    last = _last(evidence)
    if not last.status:
        raise Unclear("the host may not look at the process")
    first = evidence.scene.looks[0]
    said = [CONDITIONS[name](first, last) for name in evidence.parameters["all"]]
    return "; ".join(filter(None, said))


def _answer(evidence: Evidence) -> str:
    """The sandbox names the call in its fault, or the call was refused while a filter lay on the process.

    ``denied`` names further errors that are a refusal.
    """
    if evidence.blocked:
        return ""
    last = _last(evidence)
    _, name, error = last.said.split()
    if error not in _DENIED | set(evidence.parameters.get("denied", ())):
        return f"{name} was reached: {error}"
    if "2" not in last.filters:
        raise Unclear(f"{name}: {error} from Linux itself; no filter is on the process")
    return ""


# --- the workspace as the host finds it -------------------------------------------------------------------------


def _harmless_files(evidence: Evidence) -> str:
    """What is left has no set-id bit, is no device, and belongs to the workspace's owner."""
    owner = os.stat(evidence.room.workspace).st_uid
    wrong = []
    for entry in os.scandir(evidence.room.workspace):
        about = entry.stat(follow_symlinks=False)
        if about.st_mode & 0o6000 or stat.S_ISCHR(about.st_mode) or stat.S_ISBLK(about.st_mode):
            wrong.append(f"{entry.name} {stat.filemode(about.st_mode)}")
        elif about.st_uid != owner and not entry.name.startswith(".meeting"):
            wrong.append(f"{entry.name} of uid {about.st_uid}")
    if not wrong:
        evidence.require_end()
    return ", ".join(wrong)


def _verbs(evidence: Evidence) -> str:
    """The host's own verbs neither follow what the case left at ``paths`` nor hang on it."""
    evidence.require_end()
    if any(secret.encode() in got for got in evidence.raced for secret in evidence.scene.secrets.values()):
        return "read through a link while the case ran"
    for path in evidence.parameters["paths"]:
        got = _read_and_written(evidence.room, path)
        if any(secret.encode() in got for secret in evidence.scene.secrets.values()):
            return f"read through {path}"
        if got and evidence.parameters.get("refuse"):
            return f"read {path}"
    return _whole(evidence)


def _read_and_written(room: Room, path: str) -> bytes:
    """What the target's own verb reads at ``path``, which it is then asked to write."""
    got = b""
    with contextlib.suppress(Exception):  # any refusal is one, whatever the target raises
        got = room.read(path)
    with contextlib.suppress(Exception):  # and the same for writing
        room.write(path, "broken")
    return got


# --- honest code ------------------------------------------------------------------------------------------------


def _works(evidence: Evidence) -> str:
    """It ends with success, prints what it says that it prints, and nothing on standard error."""
    result, wanted = evidence.result, evidence.case.expected
    if result.fault is not None or result.exit_code:
        return f"exit {result.exit_code}, {result.fault}: {result.stderr[-300:]!r}"
    if wanted and result.stdout != wanted:
        return f"printed {result.stdout[:300]!r} instead of {wanted[:300]!r}"
    if result.code_stderr:
        return f"standard error: {result.code_stderr[:300]!r}"
    return _shows(evidence)


def _shows(evidence: Evidence) -> str:
    """The MIME types in ``shows`` are among its rich values, where the target has such."""
    wanted = set(evidence.parameters.get("shows", ()))
    if not wanted or not getattr(evidence.room, "sandbox", None):
        return ""
    missing = wanted - {mime for value in evidence.result.results for mime in value.data}
    return f"no {', '.join(missing)} among its values" if missing else ""


def _bounded(evidence: Evidence) -> str:
    """What is kept of its output is at most ``bytes``, and the result says that some is gone."""
    size = len(evidence.result.stdout_bytes)
    if size > evidence.parameters["bytes"]:
        return f"{size} bytes of output are kept"
    return "" if evidence.result.truncated else "nothing says that output is gone"


JUDGES: Mapping[str, Judge] = {
    "no secret comes out": _kept,
    "nothing is changed": _whole,
    "only these files": _only_these,
    "calls differ": _differ,
    "no listener hears": _unheard,
    "nothing is left": _gone,
    "the neighbour lives": _alive,
    "verdict": _verdict,
    "goes on": _finishes,
    "seen": _seen,
    "answer": _answer,
    "harmless files": _harmless_files,
    "verbs": _verbs,
    "works": _works,
    "output is bounded": _bounded,
    **TEXT_JUDGES,
}
"""By the name that a manifest uses."""
