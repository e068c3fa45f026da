"""The words for what a call on the workspace could not do."""

from __future__ import annotations

import errno
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import WorkspaceError
from ._arguments import clipped
from ._beneath import NotRegular

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["in_words", "refused"]

KINDS = {
    stat.S_IFDIR: ("a directory", errno.EISDIR),
    stat.S_IFLNK: ("a symbolic link", errno.ELOOP),
    stat.S_IFIFO: ("a FIFO", errno.EOPNOTSUPP),
    stat.S_IFSOCK: ("a socket", errno.EOPNOTSUPP),
    stat.S_IFCHR: ("a character device", errno.EOPNOTSUPP),
    stat.S_IFBLK: ("a block device", errno.EOPNOTSUPP),
}

HINTS = {
    errno.ELOOP: "A part of the path is a symbolic link, and links in the workspace are never followed",
    errno.ENOTDIR: "A part of the path is not a directory",
    errno.ENOENT: "list_files() tells what there is; a box may have removed it",
    errno.ENOSPC: "The disk is full; no file was changed",
    errno.EDQUOT: "The disk quota is used up; no file was changed",
    errno.EFBIG: "It is larger than this process may write (RLIMIT_FSIZE); no file was changed",
    errno.EACCES: "Its mode, or that of a directory above it, denies this user; a box may have set it",
}


def refused(attempted: str, path: str, code: int | None, hint: str) -> WorkspaceError:
    """The error for a call that could not be done."""
    return WorkspaceError(attempted, errno=code, path=clipped(path), hint=hint)


@contextmanager
def in_words(attempted: str, path: str, missing: str = HINTS[errno.ENOENT]) -> Iterator[None]:
    """What is done inside fails as a WorkspaceError that says ``attempted``, and ``missing`` where nothing is there."""
    try:
        yield
    except NotRegular as error:
        kind, code = KINDS.get(error.args[0], ("of an unknown kind", errno.EOPNOTSUPP))
        raise refused(attempted, path, code, f"It is {kind}; only regular files are read and written") from None
    except OSError as error:
        if isinstance(error, WorkspaceError):
            raise
        hint = missing if error.errno == errno.ENOENT else HINTS.get(error.errno or 0, "")
        raise refused(attempted, path, error.errno, hint) from error
