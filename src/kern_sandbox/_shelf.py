"""Directories that take long to make: each is made once under a key, then shared by processes and collected.

A shelf is a directory below the cache. On it, ``KEY`` is finished and never changes, ``KEY.making`` is being made,
``KEY.gone`` is on its way out, and ``KEY.lock`` is held by whoever makes or removes ``KEY``. Only a rename finishes an
entry, so what a killed process leaves is never taken for one; the next maker or collector removes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING, Callable, NamedTuple

from ._linux.libc import sync_file_system
from ._places import cache_directory
from .errors import HostError, SandboxError
from .workspace import remove_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["UNUSED_S", "Collected", "Held", "Shelf"]

UNUSED_S = 30 * 24 * 3600.0
"""How long an entry is kept that nobody takes, seconds, unless its collector says otherwise."""
_LOOK_AGAIN_S = 0.05
_MAKING, _GONE, _LOCK = ".making", ".gone", ".lock"


_ELSEWHERE = "Set XDG_CACHE_HOME to a directory that can be written"
_FULL = "Free some space there (`kern-sandbox gc` removes what nothing needs), or set XDG_CACHE_HOME to another disk"


@contextlib.contextmanager
def _in_words(attempted: str) -> Iterator[None]:
    """What Linux refuses inside is a HostError that says what to do; an error of ours stays as it is."""
    try:
        yield
    except SandboxError:
        raise
    except OSError as error:
        if error.errno is None:  # Linux gives every one of its own a number
            raise
        hint = _FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else _ELSEWHERE
        path = error.filename if isinstance(error.filename, str) else cache_directory()
        raise HostError(attempted, errno=error.errno, path=path, hint=hint) from error


class Held(NamedTuple):
    """An entry in use: no collector takes it until it is let go of, or the process ends."""

    path: str
    fd: int

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the entry."""
        about = os.fstat(self.fd)
        return about.st_dev, about.st_ino

    def release(self) -> None:
        """Let go of it."""
        os.close(self.fd)


class Collected(NamedTuple):
    """What a collector removed: how many entries, and the bytes on disk that they took."""

    entries: int
    size: int


class Shelf:
    """One kind of entries.

    Args:
        name: of the kind; a directory of that name in the cache, with mode 0700, holds them.
    """

    def __init__(self, name: str) -> None:
        self.path = os.path.join(cache_directory(), name)

    def take(self, key: str) -> Held | None:
        """Hold the finished entry ``key``; ``None`` where there is none."""
        path = os.path.join(self.path, key)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not _lock(fd, fcntl.LOCK_SH) or not _is_at(path, fd):  # a collector has just come first
            os.close(fd)
            return None
        with contextlib.suppress(OSError):  # a cache that may only be read serves as well
            os.utime(fd)
        return Held(path, fd)

    @_in_words("writing the cache")
    def make(self, key: str, build: Callable[[str], None], waiting: Callable[[], None]) -> Held:
        """Hold the entry ``key``, built by this process unless another one does it first.

        Args:
            key: letters and digits.
            build: fills the empty directory that it is given; what it raises is raised, and nothing is kept.
            waiting: called again and again while another process builds; raises to give up.

        Raises:
            HostError: the cache cannot be read or written.
        """
        held = self.take(key)
        while held is None:
            with self._alone(key, waiting):
                held = self.take(key) or self._built(key, build)
        return held

    @_in_words("writing the cache")
    def collect(self, unused_s: float) -> Collected:
        """Remove what killed processes left, and every entry that nobody holds and nobody took for ``unused_s``.

        Raises:
            HostError: the cache cannot be written.
        """
        names = os.listdir(self.path) if os.path.isdir(self.path) else []
        entries, size = 0, 0
        for key in sorted({name.partition(".")[0] for name in names}):
            with contextlib.suppress(_Busy), self._alone(key, _give_up):
                remove_directory(os.path.join(self.path, key + _MAKING))
                remove_directory(os.path.join(self.path, key + _GONE))
                removed = self._retire(key, unused_s)
                entries, size = entries + (removed is not None), size + (removed or 0)
        return Collected(entries, size)

    def _built(self, key: str, build: Callable[[str], None]) -> Held | None:
        making = os.path.join(self.path, key + _MAKING)
        remove_directory(making)
        os.mkdir(making, 0o700)
        try:
            build(making)
            sync_file_system(making)
            os.rename(making, os.path.join(self.path, key))
        except BaseException:  # whatever happened, half an entry is none
            remove_directory(making)
            raise
        return self.take(key)

    def _retire(self, key: str, unused_s: float) -> int | None:
        """Remove a finished entry if it may go; the bytes that it took."""
        path = os.path.join(self.path, key)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if time.time() - os.fstat(fd).st_mtime < unused_s or not _lock(fd, fcntl.LOCK_EX):
                return None
            size = _size(path)
            os.rename(path, path + _GONE)
            remove_directory(path + _GONE)
            return size
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _alone(self, key: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Be the only one, among processes and threads, that makes or removes ``key``."""
        path = os.path.join(self.path, key + _LOCK)
        fd = _locked_file(path, waiting)
        try:
            yield
        finally:
            if not os.path.lexists(os.path.join(self.path, key)):
                with contextlib.suppress(FileNotFoundError):  # the cache has been removed
                    os.unlink(path)
            fcntl.flock(fd, fcntl.LOCK_UN)  # a process forked meanwhile has the same lock
            os.close(fd)


class _Busy(Exception):
    """Another process has the lock."""


def _give_up() -> None:
    raise _Busy


def _locked_file(path: str, waiting: Callable[[], None]) -> int:
    """Lock the file at ``path``, which a collector may have removed by the time that the lock is had."""
    while True:
        fd = _lock_file(path)
        try:
            while not _lock(fd, fcntl.LOCK_EX):
                waiting()
                time.sleep(_LOOK_AGAIN_S)  # Linux has no way to wait for a lock and for something else
            if _is_at(path, fd):
                return fd
        except BaseException:  # whatever happened, the descriptor must not outlive it
            os.close(fd)
            raise
        os.close(fd)


def _lock_file(path: str) -> int:
    """Open the lock's file; the directories above it are made, and are their owner's alone."""
    shelf = os.path.dirname(path)
    os.makedirs(shelf, exist_ok=True)
    for folder in (os.path.dirname(shelf), shelf):
        os.chmod(folder, 0o700)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
            raise
        return how == fcntl.LOCK_SH  # a file system without locks: its entries can be read, and are never removed
    return True


def _is_at(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _size(path: str) -> int:
    """Bytes on disk."""
    total = 0
    for folder, folders, files, fd in os.fwalk(path, follow_symlinks=False):
        del folder, folders
        total += sum(os.stat(name, dir_fd=fd, follow_symlinks=False).st_blocks * 512 for name in files)
    return total
