"""What was in a workspace at two times, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..results import FileInfo

__all__ = ["FileKey", "Snapshot", "changes"]

FileKey = tuple[int, int, int, int]
"""Inode, size, mtime_ns, ctime_ns: a file whose key is the same has not been written to."""


@dataclass(frozen=True)
class Snapshot:
    """What was in a workspace at one time.

    Attributes:
        files: every regular file's path and key.
        complete: whether everything was seen. Beyond ``MAX_ENTRIES``, and where a box moved directories or took
            away the permission to read the workspace itself, only a part was.
    """

    files: Mapping[str, FileKey] = field(default_factory=dict)
    complete: bool = True


def changes(before: Snapshot, after: Snapshot) -> list[FileInfo]:
    """What differs between two snapshots, sorted by path.

    A file that an incomplete snapshot does not name may have been there all the same: "created" is said only
    when ``before`` is complete, and "deleted" only when ``after`` is.
    """
    found = []
    for path, key in after.files.items():
        old = before.files.get(path)
        if old is None and before.complete:
            found.append(FileInfo(path, key[1], "created"))
        elif old is not None and old != key:
            found.append(FileInfo(path, key[1], "modified"))
    if after.complete:
        found += [FileInfo(path, 0, "deleted") for path in before.files if path not in after.files]
    return sorted(found, key=lambda info: info.path)
