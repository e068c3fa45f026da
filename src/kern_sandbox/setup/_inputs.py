"""What a setup command reads of the workspace: the files that its words name, and nothing else.

A box has written to a kept workspace before, and what the command makes is shared. So the box of the setup sees
copies of the named files only, and their content is part of the layer's key.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from ..errors import SpecError, WorkspaceError
from ..workspace import DEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..workspace import Workspace

__all__ = ["OWN", "named_files"]

OWN = ".kern-setup"
"""Scratch of the setup's box in its workspace."""

_MAX_FILES = 10_000
_MAX_BYTES = 256 << 20
_MAX_NAME = 4096


def named_files(command: str, workspace: Workspace) -> dict[str, bytes]:
    """Path in the workspace to content, for each file that is a word of ``command``, or below a directory that is.

    A directory is meant only where a word reads as a path (``./lib``, ``/workspace/lib``, ``lib/``).

    Raises:
        SpecError: more than 10,000 files or 256 MiB are named.
    """
    found: dict[str, bytes] = {}
    room = _MAX_BYTES
    for path in dict.fromkeys(_paths(command, workspace)):
        content = _content(workspace, path, room)
        if content is not None:
            found[path] = content
            room -= len(content)
        if room < 0 or len(found) > _MAX_FILES:
            raise SpecError(
                f"setup names more of the workspace than {_MAX_FILES} files or {_MAX_BYTES >> 20} MiB: name less"
            )
    return found


def _content(workspace: Workspace, path: str, room: int) -> bytes | None:
    """A file's content; ``None`` where there is no regular file, which is the command's to complain about."""
    try:
        return workspace.read_file(path, room + 1)
    except (WorkspaceError, SpecError):
        return None


def _paths(command: str, workspace: Workspace) -> Iterator[str]:
    for word in _words(command):
        inside = _inside(word)
        if inside is None:
            continue
        if inside:
            yield inside
        if "/" in word or word.startswith("."):
            try:
                yield from (path for path in workspace.list_files(inside) if not path.startswith(f"{OWN}/"))
            except (WorkspaceError, SpecError):
                continue  # it is no directory


def _inside(word: str) -> str | None:
    """A word as a path relative to the workspace; ``None`` where it leads elsewhere."""
    if len(word) > _MAX_NAME or "\0" in word or "://" in word:
        return None
    if word.startswith("/"):
        if word.rstrip("/") != "/workspace" and not word.startswith("/workspace/"):
            return None
        word = word[len("/workspace") :]
    parts = [part for part in word.split("/") if part not in ("", ".")]
    return None if ".." in parts or parts[:1] in ([DEPS], [OWN]) else "/".join(parts)


def _words(command: str) -> Iterator[str]:
    """The words of a shell command, and the parts of them in which options carry a path."""
    try:
        words = shlex.split(command, comments=False)
    except ValueError:  # quotes that only the shell understands
        words = command.split()
    for word in words:
        for part in re.split(r"[;&|<>()`]", word):
            yield part
            yield re.sub(r"\[[^\]]*\]\Z", "", part)  # ./library[extra]
            yield part.rpartition("=")[2]
            yield re.sub(r"\A-[a-z]", "", part)  # -rrequirements.txt
