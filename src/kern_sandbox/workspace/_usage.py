"""How much of the disk a workspace takes, counted by names that untrusted code has made and may be making."""

from __future__ import annotations

import os
import stat
from contextlib import closing

from ._beneath import READ_DIR_FLAGS
from ._walk import Descent, Lost, open_forced, unlock

__all__ = ["usage"]

_NAME = 512
"""What a name counts by itself: an empty file or a link takes an inode that the blocks do not show."""
_SECTOR = 512
_TO_LOOK = stat.S_IRUSR | stat.S_IXUSR


def usage(handle: int, enough: int) -> int:
    """Bytes that everything below a directory takes: allocated blocks, hard links once, and 512 for each name.

    A directory of this user's that may not be read is made readable to its owner first, so nothing hides in it.

    Args:
        handle: the directory; ``O_PATH`` will do.
        enough: the count may stop above this.

    Raises:
        OSError: for what is not the tree's doing, e.g. EMFILE.
    """
    total = 0
    twins: set[tuple[int, int]] = set()
    with closing(Descent(_open_top(handle))) as descent:
        while True:
            total += _count(descent, twins)
            if total > enough or not _advance(descent):
                return total


def _open_top(handle: int) -> int:
    try:
        return os.open(".", READ_DIR_FLAGS, dir_fd=handle)
    except PermissionError:  # code may close the workspace itself
        unlock(handle, os.fstat(handle).st_mode | _TO_LOOK)
        return os.open(".", READ_DIR_FLAGS, dir_fd=handle)


def _count(descent: Descent, twins: set[tuple[int, int]]) -> int:
    """What the names in the deepest directory count."""
    with os.scandir(descent.top.fd) as entries:
        return sum(_look(entry, descent.top.subdirs, twins) for entry in entries)


def _look(entry: os.DirEntry[str], subdirs: list[str], twins: set[tuple[int, int]]) -> int:
    """What one name counts; a directory is noted, and so is a file with several names."""
    try:
        about = entry.stat(follow_symlinks=False)
    except OSError:  # gone by now
        return 0
    if stat.S_ISDIR(about.st_mode):
        subdirs.append(entry.name)
    elif about.st_nlink > 1:
        if (about.st_dev, about.st_ino) in twins:
            return _NAME
        twins.add((about.st_dev, about.st_ino))
    return about.st_blocks * _SECTOR + _NAME


def _advance(descent: Descent) -> bool:
    """Go to the next directory not yet counted; ``False`` at the end."""
    while True:
        if descent.top.subdirs:
            if descent.enter(descent.top.subdirs.pop(), _open_to_look):
                return True
        elif len(descent.levels) == 1:
            return False
        else:
            _leave(descent)


def _leave(descent: Descent) -> None:
    try:
        descent.leave()
    except Lost:  # a box moved it; it is counted where it is now, or in the count at the end of the call
        return


def _open_to_look(name: str, dir_fd: int) -> int:
    """Root may look everywhere as it is; others may where the directory is theirs."""
    return open_forced(name, dir_fd, 0 if os.geteuid() == 0 else _TO_LOOK)
