"""Evidence to verdict, purely: what the supervisor saw becomes an exit code, a fault and notes, or an error."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from ..errors import (
    CgroupUnavailable,
    HostError,
    InternalError,
    NamespacesUnavailable,
    SandboxError,
    SessionClosed,
    StartError,
)
from ..results import SandboxFault
from .egress import egress_notes

__all__ = ["LARGE_FILES", "Facts", "Judgement", "host_hint", "judge", "raise_failure"]

EXIT_TIMEOUT = 124
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_ESCAPE = 159  # 128 + SIGSYS
EXIT_KILLED = 137  # 128 + SIGKILL
EXIT_FILE_SIZE = 153  # 128 + SIGXFSZ

LARGE_FILES = "Files of this process, also those in memory, may be no larger: raise `ulimit -f`"
"""What to do about EFBIG."""
_PRELOAD_HINT = (
    "preload= names modules that the box's Python can import: "
    'setup="pip install …" brings them in, or mounts= with PYTHONPATH in env='
)
_HOST_HINTS = {
    errno.EPERM: "Policy forbids unprivileged user namespaces here; `kern-sandbox doctor` names the setting to change",
    errno.EACCES: "A security module forbids unprivileged user namespaces; `kern-sandbox doctor` names the profile",
    errno.ENOSPC: (
        "The number of namespaces (or their depth of 32) is used up: see `sysctl user.max_user_namespaces` and "
        "user.max_net_namespaces, and whether zombies hold namespaces"
    ),
    errno.EUSERS: "The depth of 32 user namespaces is used up",
    errno.EINVAL: "This kernel was built without user namespaces",
    errno.EAGAIN: "The host's limit of processes is reached (`ulimit -u`, the enclosing cgroup's pids.max)",
    errno.ENOMEM: "The host is out of memory",
}


class Facts(NamedTuple):
    """What the call asked for, for the words of a verdict."""

    program: str
    userland: str
    timeout_s: float
    memory_mb: int | None
    pids: int
    workspace_mb: int | None = None


class Judgement(NamedTuple):
    """How the program ended, and whether the sandbox acted."""

    exit_code: int
    fault: SandboxFault | None
    notes: list[str]


def host_hint(code: int | None) -> str:
    """What a person can do when the kernel refuses namespaces with ``code``."""
    return _HOST_HINTS.get(code or 0, "`kern-sandbox doctor` says what this host can do")


def raise_failure(reason: Mapping[str, Any]) -> NoReturn:
    """Raise the error for a box that could not be made.

    Args:
        reason: ``failed`` (the stage), ``errno``, ``text``, ``path``; for stage ``host`` also ``kind`` and ``hint``.
    """
    stage, code, text = str(reason["failed"]), reason.get("errno"), str(reason.get("text") or "")
    kinds: dict[str, type[SandboxError]] = {"CgroupUnavailable": CgroupUnavailable, "HostError": HostError}
    if stage == "host":
        raise kinds.get(str(reason.get("kind")), HostError)(text, errno=code, hint=str(reason.get("hint") or ""))
    path = reason.get("path")
    if code in (errno.EMFILE, errno.ENFILE):
        raise HostError(f"making a box: {text}", path=path, hint="The host's limit of open files: raise `ulimit -n`")
    if stage == "engine":
        raise InternalError(f"making a box: {text}", hint="Call again")
    if stage == "closed":
        raise SessionClosed("using a Sandbox that is closed", hint="Make a new one")
    if stage == "preload":
        raise StartError(stage, text, hint=_PRELOAD_HINT)
    if stage in ("namespaces", "nesting"):
        raise NamespacesUnavailable(f"making the namespaces of a box: {text}", path=path, hint=host_hint(code))
    raise StartError(stage, text, path=path, hint=_stage_hint(stage, code))


def _stage_hint(stage: str, code: int | None) -> str:
    if stage == "mounts" and code in (errno.EPERM, errno.EACCES):
        return "The mode of a directory above it, or the host's security policy, forbids it: see `kern-sandbox doctor`"
    if code == errno.EFBIG:
        return LARGE_FILES
    if code in (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN):
        return "The host is out of a resource; free some and call again"
    if stage == "working directory":
        return "The code's user must be able to enter it; cwd= names a directory as the box shows it"
    return ""


def judge(evidence: Mapping[str, Any], facts: Facts) -> Judgement:
    """The verdict on one call.

    Args:
        evidence: the fork server's final frame.
        facts: the call's own parameters.

    Raises:
        StartError, NamespacesUnavailable, InternalError: there was no program to judge.
    """
    notes = [str(note) for note in evidence.get("notes", ())]
    notes += egress_notes(evidence)
    if evidence.get("pids_refused"):
        notes.append(f"the box reached its limit of {facts.pids} processes: a fork or thread was refused")
    if evidence.get("failed") == "exec":
        return _not_executed(evidence, facts, notes)
    if evidence.get("failed"):
        raise_failure(evidence)
    if not evidence.get("ready") and evidence.get("ending") == "timeout":
        raise StartError("start", "the box was not ready in time", hint="The host is overloaded; call again")
    ended = _ended_by_sandbox(evidence, facts)
    if ended is not None:
        return Judgement(*ended, notes)
    return _ended_itself(evidence, facts, notes)


def _not_executed(evidence: Mapping[str, Any], facts: Facts, notes: list[str]) -> Judgement:
    code = evidence.get("errno") or 0
    missing = code == errno.ENOENT
    what = "was not found" if missing else f"cannot be executed ({os.strerror(code)})"
    message = f"{facts.program} {what} in {facts.userland}"
    exit_code = EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE
    return Judgement(exit_code, SandboxFault("exec_failed", message, facts.program), notes)


def _ended_by_sandbox(evidence: Mapping[str, Any], facts: Facts) -> tuple[int, SandboxFault] | None:
    ending = evidence.get("ending")
    if ending == "escape":
        call = str(evidence.get("escape"))
        return EXIT_ESCAPE, SandboxFault("escape_blocked", f"the code made a forbidden system call: {call}", call)
    if ending == "timeout":
        limit = f"{facts.timeout_s:g} s"
        return EXIT_TIMEOUT, SandboxFault("timeout", f"the code did not end within {limit} and was stopped", limit)
    if ending in ("killed", "cancelled"):
        return EXIT_KILLED, SandboxFault("killed", "the caller stopped the code", "caller")
    if ending == "disk_full":
        return EXIT_KILLED, _disk_full(facts, "the code was stopped")
    return None


def _ended_itself(evidence: Mapping[str, Any], facts: Facts, notes: list[str]) -> Judgement:
    status = evidence.get("status")
    exit_code = EXIT_KILLED if status is None else _exit_code(int(status))
    fault = None
    if evidence.get("oom_kills"):
        limit = f"{facts.memory_mb} MiB"
        fault = SandboxFault("oom", f"the code needed more memory than the box has ({limit})", limit)
    elif evidence.get("disk_full"):
        fault = _disk_full(facts, "it was when the code ended")
    elif status is None:
        fault = SandboxFault("killed", "the box was killed from outside", "init")
    elif not evidence.get("named", True) and os.WIFSIGNALED(int(status)) and exit_code == EXIT_ESCAPE:
        fault = SandboxFault("escape_blocked", "the code made a forbidden system call", "unknown")
    elif exit_code == EXIT_KILLED and os.WIFSIGNALED(int(status)):
        fault = SandboxFault("killed", "the code was killed by SIGKILL, not by a limit of the box", "SIGKILL")
    if exit_code == EXIT_FILE_SIZE and facts.workspace_mb is not None and os.WIFSIGNALED(int(status or 0)):
        notes.append("SIGXFSZ ended the program: Linux sends it to who makes one file larger than a box may")
    return Judgement(exit_code, fault, notes)


def _disk_full(facts: Facts, what: str) -> SandboxFault:
    limit = f"{facts.workspace_mb} MiB"
    return SandboxFault("disk_full", f"the workspace became larger than its ceiling ({limit}); {what}", limit)


def _exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
