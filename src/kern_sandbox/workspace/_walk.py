"""Listing and emptying directory trees that untrusted code has arranged and may still be rearranging.

Every step goes from an open directory to one name in it that is not followed if it is a link, or back to the parent
it came from. Nothing here recurses, and a walk holds a bounded number of descriptors however deep the tree is.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from ._beneath import READ_DIR_FLAGS, STEP_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Callable

__all__ = [
    "Descent",
    "Directory",
    "LimitExceeded",
    "Lost",
    "Walk",
    "empty_directory",
    "open_forced",
    "remove_directory",
    "unlock",
]

OPEN_LEVELS = 32
"""Directories of one path that stay open; above them the way back is ``..``, checked against what was entered."""

MAX_PREFIX_CHARS = 64 << 20
"""Characters of directory prefixes that one walk hands out; bounds the memory that deep trees of long names cost."""

SWEEP_BATCH = 4096
"""Non-empty directories remembered per look into a directory that is being emptied."""

# What a name in somebody else's tree may answer at any time: gone, not ours to read, or no longer a directory.
_ORDINARY = frozenset({errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP})


class Lost(Exception):
    """The way back up is not the way down any more: a directory was moved during the walk."""


class LimitExceeded(Exception):
    """The tree is larger than the walk may be; the text names the limit."""


class _Level:
    """One directory on the way down."""

    __slots__ = ("fd", "identity", "name", "stuck", "subdirs")

    def __init__(self, fd: int, name: str) -> None:
        status = os.fstat(fd)
        self.fd = fd
        self.name = name
        self.identity = (status.st_dev, status.st_ino)
        self.subdirs: list[str] = []
        self.stuck: set[str] = set()


class Descent:
    """The way from a root to one directory below it, of which only the deepest part is held open.

    Takes over ``root_fd`` and closes it in ``close()``.
    """

    def __init__(self, root_fd: int) -> None:
        self.levels = [_Level(root_fd, "")]

    @property
    def top(self) -> _Level:
        """The deepest directory; always open."""
        return self.levels[-1]

    def enter(self, name: str, opened: Callable[[str, int], int] | None = None) -> bool:
        """Go into the subdirectory ``name``; ``False`` if it is gone, unreadable or no directory.

        Args:
            name: one component.
            opened: how it is opened, from its name and its parent, where not as it stands.
        """
        try:
            fd = (opened or _open_plain)(name, self.top.fd)
        except OSError as error:
            if error.errno in _ORDINARY:
                return False
            raise
        self.levels.append(_Level(fd, name))
        if len(self.levels) > OPEN_LEVELS + 1:
            self._shut(self.levels[-OPEN_LEVELS - 1])
        return True

    def leave(self) -> str:
        """Go back to the parent.

        Returns:
            The name of the directory left.

        Raises:
            Lost: the parent cannot be found again; the way is the root alone then.
        """
        parent, left = self.levels[-2], self.top
        if parent.fd < 0:
            parent.fd = self._climb(left.fd, parent.identity)
        self._shut(self.levels.pop())
        return left.name

    def _climb(self, fd: int, expected: tuple[int, int]) -> int:
        with suppress(OSError):
            above = os.open("..", READ_DIR_FLAGS, dir_fd=fd)
            status = os.fstat(above)
            if (status.st_dev, status.st_ino) == expected:
                return above
            os.close(above)
        while len(self.levels) > 1:
            self._shut(self.levels.pop())
        raise Lost

    def _shut(self, level: _Level) -> None:
        if level.fd >= 0:
            os.close(level.fd)
            level.fd = -1

    def close(self) -> None:
        """Close every descriptor of the way, the root's too."""
        for level in self.levels:
            self._shut(level)


def _open_plain(name: str, dir_fd: int) -> int:
    return os.open(name, READ_DIR_FLAGS, dir_fd=dir_fd)


def _open_to_empty(name: str, dir_fd: int) -> int:
    return open_forced(name, dir_fd, stat.S_IRWXU)


def open_forced(name: str, dir_fd: int, rights: int) -> int:
    """Open a directory of ours for reading, giving its owner ``rights`` over it where they were taken away."""
    try:
        fd = _open_plain(name, dir_fd)
    except PermissionError:
        handle = os.open(name, STEP_FLAGS, dir_fd=dir_fd)
        try:
            unlock(handle, os.fstat(handle).st_mode | rights)
        finally:
            os.close(handle)
        fd = _open_plain(name, dir_fd)
    mode = os.fstat(fd).st_mode
    if mode & rights != rights:
        with suppress(OSError):
            os.fchmod(fd, (mode | rights) & 0o777)
    return fd


def unlock(handle: int, mode: int) -> None:
    """Set the mode of a directory held by ``O_PATH``, which fchmod(2) refuses; only /proc leads to exactly it."""
    os.chmod(f"/proc/self/fd/{handle}", mode & 0o777)


class Directory(NamedTuple):
    """A directory of the tree.

    Attributes:
        fd: open while the walk stands here, and the ``DirEntry`` methods work only then.
        prefix: its path below the root with a final slash, or ``""``.
        files: its regular files, in the file system's order.
        others: the names of what is neither a regular file nor a directory.
    """

    fd: int
    prefix: str
    files: list[os.DirEntry[str]]
    others: list[str]


class Walk:
    """Every directory below a root that holds regular files, or every one, the root first.

    What vanishes, cannot be read or is a link is left out. Takes over ``root_fd``.

    Args:
        root_fd: opened for reading.
        skip: says of a name in the root itself whether it is left out.
        max_entries: how many names of any kind are looked at.
        every: whether directories without regular files are of interest too.

    Attributes:
        complete: ``False`` once a part was missed because it was moved during the walk.
        missed: directories that could not be entered, where ``every`` one is of interest.

    Raises:
        LimitExceeded: while iterating.
        OSError: while iterating, for what is not the tree's doing, e.g. EMFILE.
    """

    def __init__(self, root_fd: int, skip: Callable[[str], bool], max_entries: int, *, every: bool = False) -> None:
        self.complete = True
        self.missed: list[str] = []
        self._every = every
        self._root_fd = root_fd
        self._skip = skip
        self._max_entries = self._entries_left = max_entries
        self._chars_left = MAX_PREFIX_CHARS

    def __iter__(self) -> Iterator[Directory]:
        with closing(Descent(self._root_fd)) as descent:
            skip = self._skip
            while True:
                files, others = self._read(descent.top, skip)
                if files or self._every:
                    prefix = self._prefix(descent, len(files) + self._every * (1 + len(others)))
                    yield Directory(descent.top.fd, prefix, files, others)
                if not self._advance(descent):
                    return
                skip = _nothing

    def _read(self, level: _Level, skip: Callable[[str], bool]) -> tuple[list[os.DirEntry[str]], list[str]]:
        """The regular files and the rest of a directory; its subdirectories become ``level.subdirs``."""
        files: list[os.DirEntry[str]] = []
        others: list[str] = []
        with os.scandir(level.fd) as entries:
            for entry in entries:
                self._entries_left -= 1
                if self._entries_left < 0:
                    raise LimitExceeded(f"{self._max_entries} entries")
                if not skip(entry.name):
                    _sort_in(entry, files, level.subdirs, others)
        return files, others

    def _prefix(self, descent: Descent, files: int) -> str:
        prefix = "".join(f"{level.name}/" for level in descent.levels[1:])
        self._chars_left -= len(prefix) * files
        if self._chars_left < 0:
            raise LimitExceeded(f"{MAX_PREFIX_CHARS} characters of directory names in the paths")
        return prefix

    def _advance(self, descent: Descent) -> bool:
        """Go to the next directory not yet read; ``False`` at the end."""
        while True:
            if descent.top.subdirs:
                name = descent.top.subdirs.pop()
                if descent.enter(name):
                    return True
                if self._every:
                    self.missed.append(self._prefix(descent, 1) + name)
            elif len(descent.levels) == 1:
                return False
            else:
                self._leave(descent)

    def _leave(self, descent: Descent) -> None:
        try:
            descent.leave()
        except Lost:
            self.complete = False


def _nothing(_: str) -> bool:
    return False


def _sort_in(entry: os.DirEntry[str], files: list[os.DirEntry[str]], subdirs: list[str], others: list[str]) -> None:
    try:
        if entry.is_file(follow_symlinks=False):
            files.append(entry)
        elif entry.is_dir(follow_symlinks=False):
            subdirs.append(entry.name)
        else:
            others.append(entry.name)
    except OSError:  # file systems without d_type stat here, and the entry may be anything by now
        return


def empty_directory(handle: int, passes: int = 5) -> bool:
    """Remove everything in a directory, whatever its names, modes, kinds, number and depth.

    Args:
        handle: the directory; ``O_PATH`` will do.
        passes: how often to begin again when something appeared or moved meanwhile.

    Returns:
        Whether the directory is empty.
    """
    with suppress(OSError):
        unlock(handle, stat.S_IRWXU)
    with closing(Descent(os.open(".", READ_DIR_FLAGS, dir_fd=handle))) as descent:
        return any(_emptied(descent) for _ in range(passes))


def remove_directory(path: str | bytes, dir_fd: int | None = None) -> None:
    """Remove a directory with all that is in it, however deep; whoever else removes it does not disturb.

    Args:
        path: its name.
        dir_fd: the directory that it lies in, as for ``os.open``.

    Raises:
        OSError: something in it cannot be removed.
    """
    try:
        fd = os.open(path, STEP_FLAGS, dir_fd=dir_fd)
    except FileNotFoundError:
        return
    try:
        empty_directory(fd)
        os.rmdir(path, dir_fd=dir_fd)
    except FileNotFoundError:
        return
    finally:
        os.close(fd)


def _emptied(descent: Descent) -> bool:
    """Go through the whole tree once; ``False`` if something is left."""
    descent.top.stuck.clear()
    try:
        return _empty_once(descent)
    except Lost:
        return False


def _empty_once(descent: Descent) -> bool:
    while True:
        level = descent.top
        level.subdirs = level.subdirs or _sweep(level)
        if level.subdirs:
            name = level.subdirs.pop()
            if not descent.enter(name, _open_to_empty):
                level.stuck.add(name)
        elif len(descent.levels) == 1:
            return not level.stuck
        else:
            _remove_left(descent)


def _remove_left(descent: Descent) -> None:
    name = descent.leave()
    try:
        os.rmdir(name, dir_fd=descent.top.fd)
    except FileNotFoundError:
        return
    except OSError:
        descent.top.stuck.add(name)


def _sweep(level: _Level) -> list[str]:
    """Remove all but the non-empty directories and return (some of) those; what cannot go becomes ``stuck``."""
    found: list[str] = []
    with os.scandir(level.fd) as entries:
        for entry in entries:
            if entry.name in level.stuck or _removed(entry, level.fd):
                continue
            if entry.is_dir(follow_symlinks=False):
                found.append(entry.name)
            else:
                level.stuck.add(entry.name)
            if len(found) >= SWEEP_BATCH:
                break
    return found


def _removed(entry: os.DirEntry[str], dir_fd: int) -> bool:
    remove = os.rmdir if entry.is_dir(follow_symlinks=False) else os.unlink
    try:
        remove(entry.name, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
