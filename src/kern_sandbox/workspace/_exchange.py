"""A new tree in the place of the old one, in a directory that stays the same directory.

The workspace is mounted in boxes and may be somebody's working directory, so its names are exchanged, not itself. The
new tree is built in a directory in it (the same file system, whatever that is); then the old names move in there, and
the new ones out. Where that breaks off, the old names go back: at once, or, if the process was killed, when the
workspace is next opened. A lock that ends with the process tells the two apart.

A box may make a directory of such a name, in the hope that its content is taken for the old tree and put in the place
of what it cannot write. So a stage has the set-uid bit, which does nothing to a directory, and which no box can set.

    .kern-restore-…/new       the new tree, until it is whole
                   /old       the old names
                   /moving    is there while new names may be among those of the workspace
                   /done      the old names, once all of the new ones are in place: nothing goes back any more
                   /undone-…  new names that had to leave again
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ._arguments import STAGE_PREFIX, is_ours
from ._beneath import READ_DIR_FLAGS
from ._walk import empty_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._beneath import Owner

__all__ = ["exchange", "finish_broken", "open_root", "stage"]

_MARKED, _PLAIN = stat.S_ISUID | 0o700, 0o700


@contextmanager
def stage(root: int, owner: Owner | None) -> Iterator[int]:
    """A locked directory below ``root`` for one restore, as a descriptor.

    It goes when this ends, unless old names are still in it: those are for ``finish_broken``.
    """
    import fcntl  # late: it is of Unix only, and so are boxes

    name = STAGE_PREFIX + os.urandom(8).hex()
    os.mkdir(name, 0o700, dir_fd=root)
    fd = -1
    try:
        fd = os.open(name, READ_DIR_FLAGS, dir_fd=root)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if owner is not None:
            os.fchown(fd, *owner)
        os.fchmod(fd, _MARKED)
        for part in ("new", "old"):
            os.mkdir(part, 0o755, dir_fd=fd)
        yield fd
    finally:
        if fd < 0 or not _holds_old(fd):
            _remove(root, name, fd)
            _unmark(fd)
        if fd >= 0:
            os.close(fd)


def _unmark(staged: int) -> None:
    """Wherever a box may have moved it: it must not be taken for a stage again."""
    if staged >= 0:
        os.fchmod(staged, _PLAIN)


def _holds_old(staged: int) -> bool:
    if not _is_folder("old", staged):
        return False
    with _opened(staged, "old") as old:
        return bool(os.listdir(old))


def _is_folder(name: str, dir_fd: int) -> bool:
    """Whether it is there and a directory; boxes may have put anything under a name."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _remove(root: int, name: str, staged: int) -> None:
    if staged >= 0:
        empty_directory(staged)
    with suppress(OSError):  # a box may have moved it; what it held is gone
        os.rmdir(name, dir_fd=root)


@contextmanager
def open_root(handle: int) -> Iterator[int]:
    """The directory ``handle``, which may be ``O_PATH``, opened for reading."""
    with _opened(handle, ".") as fd:
        yield fd


def exchange(root: int, staged: int) -> None:
    """Put what is in ``new`` into the place of everything in ``root``, or change nothing.

    Raises:
        OSError: a name could not be moved; the old ones are back.
    """
    with _opened(staged, "new") as new, _opened(staged, "old") as old:
        try:
            _move_all(root, old)
            os.mkdir("moving", dir_fd=staged)
            _move_all(new, root)
            os.rename("old", "done", src_dir_fd=staged, dst_dir_fd=staged)
        except BaseException:  # whatever happened, the old tree comes back
            _take_back(root, staged)
            raise


def finish_broken(root: int) -> None:
    """Bring back the old tree where a restore was killed in the middle, and remove what it left.

    Raises:
        OSError: that cannot be done.
    """
    for name in os.listdir(root):
        if name.startswith(STAGE_PREFIX):
            _finish_one(root, name)


def _finish_one(root: int, name: str) -> None:
    import fcntl  # late: it is of Unix only, and so are boxes

    try:
        staged = os.open(name, READ_DIR_FLAGS, dir_fd=root)
    except OSError:
        return  # a box's own file under such a name, or gone
    try:
        fcntl.flock(staged, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(staged).st_mode & stat.S_ISUID:
            _take_back(root, staged)
        elif _holds_old(staged):
            return  # not known to be ours
        _remove(root, name, staged)
        _unmark(staged)
    except BlockingIOError:
        return  # another process is at it
    finally:
        os.close(staged)


def _take_back(root: int, staged: int) -> None:
    """The old names go back; may be repeated, from wherever it was broken off."""
    if not _is_folder("old", staged):
        return
    aside = f"undone-{os.urandom(8).hex()}"
    os.mkdir(aside, 0o700, dir_fd=staged)
    with _opened(staged, aside) as undone, _opened(staged, "old") as old:
        if _is_folder("moving", staged):
            _move_all(root, undone)
            os.rename("moving", f"{STAGE_PREFIX}moving", src_dir_fd=staged, dst_dir_fd=undone)
        for name in os.listdir(old):
            with suppress(FileNotFoundError):  # nobody has taken the name meanwhile
                os.rename(name, name, src_dir_fd=root, dst_dir_fd=undone)
            os.rename(name, name, src_dir_fd=old, dst_dir_fd=root)


@contextmanager
def _opened(dir_fd: int, name: str) -> Iterator[int]:
    fd = os.open(name, READ_DIR_FLAGS, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def _move_all(source: int, target: int) -> None:
    for name in os.listdir(source):
        if not is_ours(name):
            with suppress(FileNotFoundError):  # a box that runs may have removed it
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
