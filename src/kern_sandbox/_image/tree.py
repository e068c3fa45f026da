"""A root file system in the making: entries of layers, applied by descriptors so that none can lead out of it.

Nobody else writes to the tree meanwhile. A parent is opened by openat2 below the root: a link on the way is followed
where it is relative and stays inside, and refused otherwise.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import IO

from .._linux.fds import open_flags, open_inside
from ..errors import LayerRefused
from ..workspace import remove_directory

__all__ = ["Tree"]


_DIRECTORY = open_flags("O_PATH", "O_DIRECTORY")
_NEW = open_flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_CLOEXEC")
_OPEN_TO_ALL = 0o755
"""A box's user is nobody whom the image knows, and the tree is read-only to it."""
_CHUNK = 1 << 18
_LATEST = 1 << 33
_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_OWN_MARKS = b".wh..wh."
_MAX_DEPTH = 512
"""Of directories, links followed: what walks a tree goes no deeper than Python's own stack and descriptors last."""

Parts = tuple[bytes, ...]


class Tree:
    """Layers are applied in order; ``begin_layer`` before each. Every refusal is a ``LayerRefused`` with its reason."""

    def __init__(self, root: str) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        os.fchmod(self._root, _OPEN_TO_ALL)
        self._depth = _place(self._root).count("/")
        self._own: set[Parts] = set()
        self._open: tuple[Parts, int] | None = None

    def close(self) -> None:
        """Let the descriptors go."""
        self._forget()
        os.close(self._root)

    @property
    def size(self) -> int:
        """Names that this layer has made so far, all of which are kept in memory."""
        return len(self._own)

    def begin_layer(self) -> None:
        """What whiteouts hide is what was there before now."""
        self._own.clear()

    # Entries

    def directory(self, parts: Parts) -> None:
        """A directory; one that is there keeps its content, anything else makes place."""
        if not parts:
            return
        parent = self._parent(parts)
        if not stat.S_ISDIR(_kind(parent, parts[-1])):
            self._make_place(parent, parts)
            os.mkdir(parts[-1], 0o755, dir_fd=parent)
        os.chmod(parts[-1], _OPEN_TO_ALL, dir_fd=parent)
        self._made(parts)

    def file(self, parts: Parts, mode: int, mtime: float, content: IO[bytes]) -> None:
        """A regular file, readable by all: a box's user is nobody whom the image knows."""
        parent = self._parent(parts)
        self._make_place(parent, parts)
        fd = os.open(parts[-1], _NEW, 0o600, dir_fd=parent)
        try:
            while piece := content.read(_CHUNK):
                _write(fd, piece)
            os.fchmod(fd, 0o755 if mode & 0o111 else 0o644)
            seconds = max(0, min(int(mtime), _LATEST))
            os.utime(fd, (seconds, seconds))
        finally:
            os.close(fd)
        self._made(parts)

    def symlink(self, parts: Parts, target: bytes) -> None:
        """A symbolic link, as it is: a box follows it in its own root."""
        if not target or b"\0" in target or len(target) >= 4096:
            raise LayerRefused("a symbolic link without a usable target")
        parent = self._parent(parts)
        self._make_place(parent, parts)
        os.symlink(target, parts[-1], dir_fd=parent)
        self._made(parts)

    def hard_link(self, parts: Parts, target: Parts) -> None:
        """Another name of a file of this layer or of one before."""
        parent = self._parent(parts)
        try:
            source = self._open_directory(target[:-1])
        except OSError as error:
            raise LayerRefused(f"a hard link to {_shown(target)}, which is not in the image") from error
        try:
            if not stat.S_ISREG(_kind(source, target[-1])) and not stat.S_ISLNK(_kind(source, target[-1])):
                raise LayerRefused(f"a hard link to {_shown(target)}, which is no file of the image")
            if target != parts:
                self._make_place(parent, parts)
                os.link(target[-1], parts[-1], src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(source)
        self._made(parts)

    def skip(self, parts: Parts) -> None:
        """What is never made (a device, a FIFO) still takes the place of what was there."""
        self._make_place(self._parent(parts), parts)

    def whiteout(self, parts: Parts) -> bool:
        """Do what ``parts`` says, if it is a mark: hide a name, or all that was in its directory.

        Returns:
            Whether it is a mark.
        """
        name = parts[-1]
        if not name.startswith(_WHITEOUT):
            return False
        hidden = name[len(_WHITEOUT) :]
        if name != _OPAQUE and name.startswith(_OWN_MARKS):
            return True  # notes of an old storage driver to itself
        if hidden in (b"", b".", b".."):
            raise LayerRefused("a whiteout without a name")
        try:
            folder = self._open_directory(parts[:-1])
        except FileNotFoundError:
            return True
        except OSError as error:
            raise _refusal(error) from error
        self._forget()
        try:
            names = os.listdir(f"/proc/self/fd/{folder}") if name == _OPAQUE else [os.fsdecode(hidden)]
            for each in names:
                self._hide(folder, (*parts[:-1], os.fsencode(each)))
        finally:
            os.close(folder)
        return True

    # How

    def _hide(self, folder: int, parts: Parts) -> None:
        """Remove what layers before this one put at ``parts``."""
        name = parts[-1]
        kind = _kind(folder, name)
        if parts not in self._own:
            _remove(folder, name, kind)
        elif stat.S_ISDIR(kind):
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                for each in os.listdir(inner):
                    self._hide(inner, (*parts, os.fsencode(each)))
            finally:
                os.close(inner)

    def _made(self, parts: Parts) -> None:
        """It is this layer's, and so are the directories that it lies in."""
        while parts and parts not in self._own:
            self._own.add(parts)
            parts = parts[:-1]

    def _make_place(self, parent: int, parts: Parts) -> None:
        kind = _kind(parent, parts[-1])
        if kind:
            _remove(parent, parts[-1], kind)

    def _open_directory(self, parts: Parts) -> int:
        return open_inside(self._root, b"/".join(parts) or b".", _DIRECTORY)

    def _parent(self, parts: Parts) -> int:
        """The directory that holds ``parts``, made if need be; open until another is asked for."""
        above = parts[:-1]
        if self._open is not None and self._open[0] == above:
            return self._open[1]
        self._forget()
        try:
            fd = self._open_directory(above)
        except FileNotFoundError:
            fd = self._make_parents(above)
        except OSError as error:
            raise _refusal(error) from error
        self._open = (above, fd)
        if _place(fd).count("/") > self._depth + _MAX_DEPTH:
            raise LayerRefused(f"it lies below more than {_MAX_DEPTH} directories, through symbolic links")
        return fd

    def _make_parents(self, parts: Parts) -> int:
        try:
            for depth in range(1, len(parts) + 1):
                self._make_one(parts[:depth])
            return self._open_directory(parts)
        except OSError as error:
            raise _refusal(error) from error

    def _make_one(self, parts: Parts) -> None:
        folder = self._open_directory(parts[:-1])
        try:
            os.mkdir(parts[-1], 0o755, dir_fd=folder)
            os.chmod(parts[-1], _OPEN_TO_ALL, dir_fd=folder)
        except FileExistsError:
            return
        finally:
            os.close(folder)

    def _forget(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None


def _place(folder: int) -> str:
    """The path of an open directory."""
    try:
        return os.readlink(f"/proc/self/fd/{folder}")
    except OSError as error:
        raise _refusal(error) from error


def _kind(folder: int, name: bytes) -> int:
    """The mode of ``name``, 0 if there is nothing."""
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return 0


def _remove(folder: int, name: bytes, kind: int) -> None:
    if stat.S_ISDIR(kind):
        remove_directory(name, dir_fd=folder)
    elif kind:
        os.unlink(name, dir_fd=folder)


def _write(fd: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _shown(parts: Parts) -> str:
    return repr(os.fsdecode(b"/".join(parts)))[:200]


def _refusal(error: OSError) -> Exception:
    """The refusal for a parent that cannot be opened; a full disk and the like stay what they are."""
    reasons = {
        errno.EXDEV: "it leads out of the image, through a symbolic link",
        errno.ELOOP: "it leads through too many symbolic links",
        errno.ENOTDIR: "it lies below something that is no directory",
        errno.ENOENT: "it lies below a symbolic link that leads nowhere",
        errno.ENAMETOOLONG: "its name is too long for a file system",
    }
    return LayerRefused(reasons[error.errno]) if error.errno in reasons else error
