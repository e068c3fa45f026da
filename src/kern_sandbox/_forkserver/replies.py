"""What the fork server says when a box cannot be had, and what it does for a user who has died."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from ..errors import HostError, SandboxError
from . import wire

__all__ = ["SourceFailed", "evidence_of", "lost", "notes_of", "record_of", "refuse", "remove_tree"]

_WORDS = 16_000
_MOST_NOTES = 20
_NUMBERS = {"errno": 1 << 31, "status": 1 << 31, "cpu_ms": 1 << 53, "max_rss": 1 << 53}
_TEXTS = ("failed", "text", "path")
_FACTS = ("ready", "started")
_ROW = (str, int, str, str, int, int, int)  # the fields of EgressEvent
_MOST_ROWS = 100


class SourceFailed(Exception):
    """A stem could not be built; ``reason`` is what it said."""

    def __init__(self, reason: dict[str, Any]) -> None:
        super().__init__(reason.get("text"))
        self.reason = reason


def evidence_of(body: dict[str, Any]) -> dict[str, Any]:
    """What a frame of an init, a stem or a template may say, in the types that everybody counts on, and no more.

    Where modules are preloaded, or Python is an image's own, code that nobody has read may have written it.
    """
    evidence: dict[str, Any] = {name: True for name in _FACTS if name in body}
    for name, end in _NUMBERS.items():
        value = body.get(name)
        if name in body and (value is None or (type(value) is int and 0 <= value < end)):
            evidence[name] = value
    for name in _TEXTS:
        value = body.get(name)
        if name in body and (value is None or isinstance(value, str)):
            evidence[name] = value and value[-_WORDS:]
    if "failed" in evidence:
        evidence = {"errno": None, "text": "", "path": None, **evidence}
    return evidence


def notes_of(body: dict[str, Any]) -> list[str]:
    """What a template wants a call to be told."""
    notes = body.get("notes")
    return [note[:_WORDS] for note in notes[:_MOST_NOTES] if isinstance(note, str)] if isinstance(notes, list) else []


def record_of(body: dict[str, Any]) -> dict[str, Any]:
    """What the egress proxy may say of a box; it parses a box's bytes, so it may be foreign code that speaks."""
    rows, more = body.get("rows"), body.get("more")
    whole = [row for row in rows if _is_row(row)] if isinstance(rows, list) else []
    return {"rows": whole[:_MOST_ROWS], "more": more if type(more) is int and more >= 0 else 0}


def _is_row(row: object) -> bool:
    return isinstance(row, list) and [type(field) for field in row] == list(_ROW) and row[2] in ("allowed", "refused")


def lost(why: str | Exception) -> dict[str, Any]:
    """The reason for a box that a fault of ours took, or one of the host's: its error number tells them apart."""
    text = str(why) if isinstance(why, (str, SandboxError)) else f"{type(why).__name__}: {why}"
    return {"failed": "engine", "errno": getattr(why, "errno", None), "text": text, "path": None}


def remove_tree(path: str, identity: tuple[int, int]) -> None:
    """Remove a temporary workspace whose owner has died; nothing else that stands at its path by now."""
    from ..workspace._walk import empty_directory  # late: it loads threading, which slows every fork

    try:
        handle = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        about = os.fstat(handle)
        if (about.st_dev, about.st_ino) == identity:
            empty_directory(handle)
            os.rmdir(path)
        os.close(handle)
    except OSError as error:
        sys.stderr.write(f"kern-forkserver: removing {path!r}: {error}\n")


def refuse(call: socket.socket, error: OSError | HostError) -> None:
    """Tell the client why no box could be made at all."""
    body: dict[str, Any] = {"failed": "namespaces", "errno": error.errno, "text": str(error), "path": None}
    if isinstance(error, HostError):
        body.update(failed="host", text=error.attempted, hint=error.hint, kind=type(error).__name__)
    elif isinstance(error.filename, (str, bytes)):
        body.update(failed="mounts", text=error.strerror, path=os.fsdecode(error.filename))
    wire.reply(call, {"refused": body})
    call.close()
