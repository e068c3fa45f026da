"""What the sandbox says in its own name: a label with what happened and what to do next. No word here is the box's."""

from __future__ import annotations

import re

from ..results import ExecutionResult, SandboxFault
from ._neutral import one_line

__all__ = ["hint", "label"]

_MESSAGE_LIMIT = 240

_NEXT = {
    "timeout": (
        "Nothing of it runs any more, and files in the workspace are kept. Do less in one call (smaller steps, partial "
        "results in files), or ask for a longer timeout."
    ),
    "oom": "Use less memory (read in chunks, keep fewer copies, free what is done), or ask for a higher memory limit.",
    "killed": "No limit of the box did this. Run it again if the result is still needed.",
    "escape_blocked": (
        "A box never offers this call, whatever the code wants it for. Find a way without it: no mounts, namespaces, "
        "kernel modules or tracing of other processes."
    ),
    "exec_failed": (
        "Check the name, use a program that is there, or ask for an image or a setup that brings the missing package."
    ),
    "disk_full": "Use less of it: delete files that are no longer needed, or write less.",
    "startup_failed": "The code did not run, and is not the cause. Tell the reason to whoever runs this sandbox.",
}
"""Fault to what a model or a person can do about it."""

_HINTS = (
    (
        re.compile(r"^(?:ModuleNotFoundError|ImportError): No module named|^Error: Cannot find module", re.MULTILINE),
        "A package is not installed in this box: do without it, or ask for it to be added.",
    ),
    (
        re.compile(
            r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
            r"|Could not resolve host|getaddrinfo (?:ENOTFOUND|EAI_AGAIN)"
        ),
        "This box has no way to that host: work with what is in the workspace, or ask for the host to be allowed.",
    ),
    (
        re.compile(r"No space left on device"),
        "A file system of this box is full (/tmp has 64 MiB unless tmpfs= says otherwise): write below /workspace.",
    ),
    (
        re.compile(r"Read-only file system"),
        "The file system of this box is read-only there: write below /workspace or /tmp.",
    ),
)
"""Last words of a program to what they usually mean in a box."""

_LAST_WORDS = 2000


def label(fault: SandboxFault) -> str:
    """The line that only the sandbox writes: first on the page, and in no other place."""
    return f"[sandbox: {fault.type}] {one_line(fault.message, _MESSAGE_LIMIT).rstrip('.')}. {_NEXT[fault.type]}"


def hint(result: ExecutionResult, stderr: str) -> str | None:
    """What the code's last words usually mean, where it failed and the sandbox did not act."""
    if result.success or result.fault is not None:
        return None
    return next((words for pattern, words in _HINTS if pattern.search(stderr[-_LAST_WORDS:])), None)
