"""What callers hand in, checked before anything is touched; of a path, on its text alone."""

from __future__ import annotations

import os
import sys

from ..checks import bad
from ..errors import SpecError, WorkspaceError

__all__ = [
    "DEPS",
    "INSIDE",
    "STAGE_PREFIX",
    "checked_limit",
    "clipped",
    "content_of",
    "is_ours",
    "refused_path",
    "resolved",
    "text_of",
    "vetted",
]

INSIDE = "/workspace"
"""What code in a box calls the workspace; accepted in front of a path."""

STAGE_PREFIX = ".kern-restore-"
"""How the directory is named in which ``restore`` builds a tree before it takes the place of the old one."""

DEPS = ".deps"
"""Where a box sees the product of ``setup``; never listed."""
_MAX_NAME = 255
_MAX_PATH = 4095


def refused_path(path: str, rule: str) -> WorkspaceError:
    """The error for a path that is refused as it stands."""
    return WorkspaceError(f"use the path {clipped(path)!r} in the workspace: {rule}", path=clipped(path))


def clipped(path: str) -> str:
    """The path as an error holds it: one that somebody made very long does not fill a message."""
    return path if len(path) <= 200 else path[:197] + "..."


def vetted(path: object, *, directory: bool = False) -> list[bytes]:
    """The components of a path that stays in the workspace as far as its text can tell.

    Args:
        path: what the caller gave.
        directory: whether it names a directory: ``""``, ``"."`` and a final slash are accepted, and mean the
            workspace or nothing.

    Raises:
        SpecError: ``path`` is not text.
        WorkspaceError: naming the rule that refused it.
    """
    if not isinstance(path, str):
        raise bad("path", path, "a str, relative to the workspace")
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise refused_path(path, "it holds a surrogate that stands for no byte") from None
    raw = _relative(raw, directory)
    parts = raw.split(b"/")
    for broken, rule in (
        (raw.startswith(b"/"), f"it is absolute; paths are relative to the workspace, which boxes see at {INSIDE}"),
        (b"\0" in raw, "it holds a NUL"),
        (len(raw) > _MAX_PATH, f"it is longer than {_MAX_PATH} bytes"),
        (max(map(len, parts)) > _MAX_NAME, f"a component is longer than {_MAX_NAME} bytes"),
        (b".." in parts, "'..' is refused"),
        (raw in (b"", b".") and not directory, "it names no file"),
        (raw and (b"" in parts or b"." in parts), "it has an empty component or one that is '.'"),
    ):
        if broken:
            raise refused_path(path, rule)
    return parts if raw else []


def _relative(raw: bytes, directory: bool) -> bytes:
    """The path without the ways of saying "in the workspace", and a directory's without its final slash."""
    for start in (f"{INSIDE}/".encode(), b"./"):
        if raw.startswith(start):
            raw = raw[len(start) :]
            break
    if not directory:
        return raw
    if raw in (b".", INSIDE.encode()):
        return b""
    return raw[:-1] if len(raw) > 1 and raw.endswith(b"/") else raw


def is_ours(name: str) -> bool:
    """Whether a name at the top of a workspace is the engine's: where ``setup`` is shown, or a tree in the making."""
    return name == DEPS or name.startswith(STAGE_PREFIX)


def text_of(name: str) -> str:
    """A name as os.scandir gives it, decoded as UTF-8 whatever the locale of this process."""
    if sys.getfilesystemencoding() == "utf-8":
        return name
    return os.fsencode(name).decode("utf-8", "surrogateescape")


def content_of(data: object) -> bytes:
    """The bytes to write: ``data`` itself, or text as UTF-8."""
    if isinstance(data, bytes):
        return data
    if not isinstance(data, str):
        raise bad("data", data, "str or bytes")
    try:
        return data.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SpecError(f"data is not text that UTF-8 can hold: {error}; pass bytes") from None


def checked_limit(max_bytes: object) -> int:
    """``max_bytes`` if it can limit anything."""
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0:
        raise SpecError(f"max_bytes={max_bytes!r} is not accepted. Accepted: a whole number, 0 or more")
    return max_bytes


def resolved(path: object) -> str:
    """The workspace option as an absolute path without symbolic links."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise SpecError(f"workspace={path!r} is not accepted. Accepted: None, or the path of an existing directory")
    return os.path.realpath(text)
