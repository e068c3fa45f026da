"""Opening and creating files below a directory in which untrusted code may rename anything at any moment.

Every step goes from one open directory to one name in it, and no step follows a link. So whatever is exchanged or
replaced meanwhile, a call can be refused, but it cannot leave the tree.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from .._linux.fds import open_beneath, open_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "READ_DIR_FLAGS",
    "STEP_FLAGS",
    "NotRegular",
    "Owner",
    "make_parents",
    "mode_for",
    "open_directory",
    "open_regular",
    "read_up_to",
    "write_new",
]

Owner = tuple[int, int]
"""Uid and gid."""

# Bytes asked for at once: a file may grow while it is read, and its size may be a lie.
_LEAST, _MOST = 64 << 10, 16 << 20


SAFE_FLAGS = open_flags("O_NOFOLLOW", "O_CLOEXEC")
PROBE_FLAGS = SAFE_FLAGS | open_flags("O_PATH")
STEP_FLAGS = PROBE_FLAGS | open_flags("O_DIRECTORY")
READ_FLAGS = SAFE_FLAGS | open_flags("O_RDONLY", "O_NONBLOCK", "O_NOCTTY")
READ_DIR_FLAGS = READ_FLAGS | open_flags("O_DIRECTORY")

# Where the stepwise walk, which is as strict, is tried too. EPERM: seccomp profiles older than openat2 answer so.
# ENOTDIR: openat2 says it of a link in the last place as well, and the stepwise walk tells the two apart.
_ASK_AGAIN = frozenset({errno.ENOSYS, errno.EPERM, errno.ENOTDIR})


class NotRegular(Exception):
    """Something else than a regular file; the argument is the file type part of its mode."""


def open_under(root_fd: int, parts: Sequence[bytes], flags: int) -> int:
    """Open ``parts`` below ``root_fd`` without following any link.

    Raises:
        OSError: as ``open``; ELOOP where a component is a symbolic link.
    """
    try:
        return open_beneath(root_fd, b"/".join(parts), flags | SAFE_FLAGS)
    except OSError as error:
        if error.errno not in _ASK_AGAIN:
            raise
    return _open_stepwise(root_fd, parts, flags | SAFE_FLAGS)


def _open_stepwise(root_fd: int, parts: Sequence[bytes], flags: int) -> int:
    """``open_under`` for Linux before 5.6: one component at a time, each refused if it is a link."""
    current = os.dup(root_fd)
    try:
        for name in parts[:-1]:
            current = _step(current, name)
        return _open_at(current, parts[-1], flags)
    finally:
        os.close(current)


def _step(dir_fd: int, name: bytes) -> int:
    """Open the directory ``name`` and close ``dir_fd``; on an error ``dir_fd`` stays open."""
    deeper = _open_at(dir_fd, name, STEP_FLAGS)
    os.close(dir_fd)
    return deeper


def _open_at(dir_fd: int, name: bytes, flags: int) -> int:
    """Open one name; a link answers ELOOP, as openat2 does, and not the ENOTDIR of ``O_DIRECTORY``."""
    try:
        return os.open(name, flags, dir_fd=dir_fd)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(name)) from None
        raise


def open_regular(root_fd: int, parts: Sequence[bytes]) -> int:
    """Open a regular file for reading; anything else is looked at without being opened.

    Raises:
        OSError: as ``open_under``.
        NotRegular: it is something else; also when it became so between look and open.
    """
    handle = open_under(root_fd, parts, PROBE_FLAGS)
    try:
        require_regular(os.fstat(handle))
    finally:
        os.close(handle)
    fd = open_under(root_fd, parts, READ_FLAGS)
    try:
        require_regular(os.fstat(fd))
    except NotRegular:
        os.close(fd)
        raise
    return fd


def require_regular(status: os.stat_result) -> None:
    """Raise ``NotRegular`` for what is not a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(stat.S_IFMT(status.st_mode))


def make_parents(root_fd: int, parts: Sequence[bytes], owner: Owner | None) -> int:
    """Open the directory ``parts`` below ``root_fd``, creating what is missing with mode 0755 and ``owner``."""
    with suppress(FileNotFoundError):
        return open_under(root_fd, parts, STEP_FLAGS) if parts else os.dup(root_fd)
    current = os.dup(root_fd)
    try:
        for name in parts:
            current = _step_making(current, name, owner)
    except BaseException:  # whatever happened, the descriptor must not outlive it
        os.close(current)
        raise
    return current


def _step_making(dir_fd: int, name: bytes, owner: Owner | None) -> int:
    with suppress(FileNotFoundError):
        return _step(dir_fd, name)
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=dir_fd)
        _finish_directory(dir_fd, name, owner)
    return _step(dir_fd, name)


def _finish_directory(dir_fd: int, name: bytes, owner: Owner | None) -> None:
    """Give a directory just made its owner and mode, unless somebody has put another thing in its place."""
    made = os.open(name, READ_DIR_FLAGS, dir_fd=dir_fd)
    try:
        if os.fstat(made).st_uid != os.geteuid():
            return
        os.fchmod(made, 0o755)
        if owner is not None:
            os.fchown(made, *owner)
    finally:
        os.close(made)


def open_directory(root: int, parts: Sequence[bytes]) -> int:
    """Open a directory for listing; no ``parts`` mean the root itself."""
    return open_under(root, parts, READ_DIR_FLAGS) if parts else os.open(".", READ_DIR_FLAGS, dir_fd=root)


def mode_for(parent: int, name: bytes) -> int:
    """The mode of the file that takes the place of ``name``."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    require_regular(status)
    return status.st_mode & 0o777


def write_new(parent: int, name: str, body: bytes, mode: int, owner: Owner | None) -> None:
    """Create a file that no one else can open until it is whole; what is left after an error is the caller's."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE_FLAGS, 0o600, dir_fd=parent)
    try:
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(fd, rest) :]
        if owner is not None:
            os.fchown(fd, *owner)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def read_up_to(fd: int, limit: int) -> bytes | None:
    """The content, or ``None`` if it is longer than ``limit``, of which at most one byte more is read."""
    size = os.fstat(fd).st_size
    if size > limit:
        return None
    content = bytearray()
    while len(content) <= limit:
        expected = max(size - len(content) + 1, _LEAST)
        piece = os.read(fd, min(limit + 1 - len(content), expected, _MOST))
        if not piece:
            return bytes(content)
        content += piece
    return None
