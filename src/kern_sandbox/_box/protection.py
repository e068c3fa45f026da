"""Paths below a writable mount that the code in a box must not change, whether they exist or not.

Each is mounted read-only over itself, anew in every box. What does not exist has nothing to mount on, and so stands
on the host as a *placeholder* for as long as a Sandbox needs it: an empty directory or a small file with the sticky
bit and no write bits, locked by everybody who needs it, and removed by the last.

The directories on the way are mounted over themselves, writable: Linux lets a directory be renamed that has a mount
inside it, but none that is one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import MountRefused, SpecError
from .plan import Bind

__all__ = ["Placeholder", "Protection", "remove_placeholder"]

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MARK, _MARKED_BITS = stat.S_ISVTX, stat.S_ISVTX | 0o222
_TRIES = 20
_PAUSE_S = 0.02
"""Between two tries at a lock: another Sandbox holds it for a moment, code in a box for as long as it likes."""


class Placeholder(NamedTuple):
    """Something of ours on the host; ``fd`` has it open, and holds a shared lock on it."""

    path: str
    fd: int


class _Part(NamedTuple):
    """One part of a path, where it is, and what a placeholder there holds."""

    name: str
    path: str
    text: str | None


class Protection:
    """What a Sandbox protects, looked up on the host and, where absent, put there.

    Args:
        wanted: paths in the box, with the text of a placeholder or ``None`` for a directory.
        binds: what a box shows of the host.

    Attributes:
        frozen: what is read-only in a box. Where a part of a wanted path is absent, that part; where it is a file,
            that file.
        pinned: the directories between a writable mount and what is frozen, from the outside in.
        placeholders: what stands on the host for it.

    Raises:
        SpecError: a path that is not below a writable mount, or that cannot be looked at or held.
        MountRefused: a symbolic link, a device, a FIFO or a socket is in the way.
    """

    def __init__(self, wanted: Mapping[str, str | None], binds: Sequence[Bind]) -> None:
        self.placeholders: list[Placeholder] = []
        frozen: list[str] = []
        pinned: list[str] = []
        try:
            for path, text in wanted.items():
                bind = _holding(path, binds)
                try:
                    end = self._walk(bind, path[len(bind.target) :].strip("/").split("/"), text)
                except OSError as error:
                    words = f"protecting {path!r} in {bind.source!r}"
                    raise SpecError(words, errno=error.errno, hint="A box may have changed its mode") from error
                frozen.append(f"{bind.target}/{'/'.join(end)}")
                pinned += [f"{bind.target}/{'/'.join(end[:depth])}" for depth in range(1, len(end))]
        except BaseException:  # whatever it was, nothing of ours may stay behind
            self.release()
            raise
        self.frozen = tuple(dict.fromkeys(frozen))
        self.pinned = tuple(path for path in sorted(set(pinned)) if path not in self.frozen)

    def release(self) -> None:
        """Take the placeholders away; only where no box can be alive."""
        while self.placeholders:
            remove_placeholder(self.placeholders.pop())

    def hand_over(self) -> None:
        """Somebody else with the same descriptors removes the placeholders."""
        while self.placeholders:
            os.close(self.placeholders.pop().fd)

    def _walk(self, bind: Bind, parts: Sequence[str], text: str | None) -> list[str]:
        """As much of a path as exists, or is made to; no link is followed."""
        place, done = os.open(bind.source, _LOOK | os.O_DIRECTORY), list[str]()
        try:
            if bind.identity not in (None, _identity(os.fstat(place))):
                raise MountRefused(f"protecting a path in {bind.source!r}: it was replaced meanwhile")
            for part in parts:
                done.append(part)
                path = "/".join((bind.source, *done))
                last = len(done) == len(parts)
                about = self._there(place, _Part(part, path, text if last else None))
                if not stat.S_ISDIR(about.st_mode) or last or _is_placeholder(about):
                    break
                below = os.open(part, _LOOK | os.O_DIRECTORY, dir_fd=place)
                os.close(place)
                place = below
            return done
        finally:
            os.close(place)

    def _there(self, place: int, wanted: _Part) -> os.stat_result:
        """What a name is; a placeholder is put there if it is nothing, and held if it is one."""
        for _ in range(_TRIES):
            try:
                about = os.stat(wanted.name, dir_fd=place, follow_symlinks=False)
            except FileNotFoundError:
                _put(place, wanted)
                continue
            if not stat.S_ISDIR(about.st_mode) and not stat.S_ISREG(about.st_mode):
                words = f"protecting {wanted.path!r}: it is a symbolic link or not a file, and cannot be protected"
                raise MountRefused(words, path=wanted.path, hint="Replace it with what it stands for, or leave it out")
            if not _is_placeholder(about) or self._hold(place, wanted, about):
                return about
        words = f"protecting {wanted.path!r}: it comes and goes, or a program in a box has it locked"
        raise SpecError(words, errno=errno.EAGAIN, hint="End what uses it, or remove it")

    def _hold(self, place: int, wanted: _Part, about: os.stat_result) -> bool:
        """Lock a placeholder; ``False`` if it has gone before it was locked, or is locked by somebody else."""
        if any(_identity(os.fstat(one.fd)) == _identity(about) for one in self.placeholders):
            return True
        try:
            fd = os.open(wanted.name, _READ, dir_fd=place)
        except FileNotFoundError:
            return False
        self.placeholders.append(Placeholder(wanted.path, fd))
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if _still(place, wanted.name, fd):
                return True
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        os.close(self.placeholders.pop().fd)
        return False


def remove_placeholder(one: Placeholder) -> None:
    """Remove it, unless another Sandbox needs it, somebody has put something into it, or it is another file by now."""
    folder, name = os.path.split(one.path)
    try:
        fcntl.flock(one.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        place = os.open(folder, _LOOK | os.O_DIRECTORY)
        try:
            if _still(place, name, one.fd):
                directory = stat.S_ISDIR(os.fstat(one.fd).st_mode)
                (os.rmdir if directory else os.unlink)(name, dir_fd=place)
        finally:
            os.close(place)
    except OSError:
        pass  # it is wanted, filled or gone: in each case it is not ours to remove
    finally:
        os.close(one.fd)


def _holding(path: str, binds: Sequence[Bind]) -> Bind:
    """The writable mount that ``path`` lies in."""
    around = [bind for bind in binds if path.startswith(bind.target + "/")]
    inmost = max(around, key=lambda bind: len(bind.target), default=None)
    if inmost is None or not inmost.writable:
        raise SpecError(f"protect has {path!r}: only what lies below a writable mount or /workspace needs protection")
    return inmost


def _put(place: int, wanted: _Part) -> None:
    """Make a placeholder, marked from its first moment."""
    try:
        if wanted.text is None:
            os.mkdir(wanted.name, 0o555 | _MARK, dir_fd=place)
            return
        fd = os.open(wanted.name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444 | _MARK, dir_fd=place)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(wanted.text)
    except FileExistsError:
        return  # somebody else was faster
    except OSError as error:
        raise SpecError(f"protecting {wanted.path!r}: making a placeholder", errno=error.errno) from error


def _is_placeholder(about: os.stat_result) -> bool:
    return about.st_mode & _MARKED_BITS == _MARK


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _still(place: int, name: str, fd: int) -> bool:
    """Whether ``name`` is the open file ``fd``."""
    try:
        return _identity(os.stat(name, dir_fd=place, follow_symlinks=False)) == _identity(os.fstat(fd))
    except FileNotFoundError:
        return False
