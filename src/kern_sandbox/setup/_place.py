"""The directory in a workspace on which a layer is mounted."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING

from ..errors import StartError
from ..workspace import DEPS

if TYPE_CHECKING:
    from ..workspace import Workspace

__all__ = ["Place"]

_MADE_HERE = 0o1711
"""Of a directory that one of us makes, and may therefore remove: nobody else's is sticky and for its owner only."""
_TOLD_BY = 0o1066
_TRIES = 100


class Place:
    """``.deps`` of a workspace, for as long as a Sandbox shows a layer there.

    It is made where it is missing, and the last Sandbox that uses it removes it again if it was made so. A directory
    that was there before stays, hidden by the layer.

    Raises:
        StartError: something else than a directory is there.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._pid = os.getpid()
        self._kept = not workspace.temporary
        self._parent = os.dup(workspace.fd)
        self._fd = -1
        try:
            for _ in range(_TRIES):
                self._fd = self._opened()
                if self._fd >= 0:
                    return
            raise OSError(errno.ESTALE, "it is removed again and again")
        except OSError as error:
            os.close(self._parent)
            taken = error.errno in (errno.ENOTDIR, errno.ELOOP)
            words = f"showing the setup's layer at /workspace/{DEPS}"
            words += ": something else than a directory is there" if taken else ", for which a directory is made"
            hint = "Remove it; a box may have put it there" if taken else "The workspace must be writable"
            raise StartError("setup", words, errno=error.errno, path=f"{workspace.path}/{DEPS}", hint=hint) from error

    def close(self) -> None:
        """The Sandbox needs it no longer. Closing twice does nothing."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        with contextlib.suppress(OSError):  # another Sandbox uses it, or it is not empty
            made_here = os.fstat(fd).st_mode & _TOLD_BY == _MADE_HERE & _TOLD_BY
            if made_here and self._kept and self._pid == os.getpid():
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), os.stat(DEPS, dir_fd=self._parent, follow_symlinks=False)):
                    os.rmdir(DEPS, dir_fd=self._parent)
        os.close(fd)
        os.close(self._parent)

    def _opened(self) -> int:
        """A descriptor with a shared lock; -1 where it was removed by its last user just now."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(DEPS, _MADE_HERE, dir_fd=self._parent)
        try:
            fd = os.open(DEPS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._parent)
        except FileNotFoundError:
            return -1
        with contextlib.suppress(OSError):  # without locks it stays where it is
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        try:
            if os.path.samestat(os.fstat(fd), os.stat(DEPS, dir_fd=self._parent, follow_symlinks=False)):
                return fd
        except FileNotFoundError:
            pass  # its last user was faster
        os.close(fd)
        return -1
