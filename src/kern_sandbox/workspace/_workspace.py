"""The directory that boxes share, as the host reads and writes it.

Code in a box may have put anything there, and may be changing it right now. So the host goes from a directory that
it holds open to the names below it, follows no link, opens nothing that could block, and reads and replaces regular
files only. A name that leads elsewhere is refused; whatever stands outside is never opened.

Hard links need no rule of their own. A box cannot link to a file outside, because the kernel refuses links across
mounts (EXDEV), so a file with several names is as much the box's own as one with a single name. And writing never
changes an existing file: it puts a new one in the place of the name.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kern_sandbox.errors import SessionClosed, WorkspaceError
from kern_sandbox.results import FileInfo

from ._arguments import checked_limit, clipped, content_of, refused_path, resolved, text_of, vetted
from ._beneath import (
    READ_DIR_FLAGS,
    STEP_FLAGS,
    NotRegular,
    Owner,
    make_parents,
    mode_for,
    open_directory,
    open_regular,
    read_up_to,
    write_new,
)
from ._walk import Directory, LimitExceeded, Walk, empty_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MAX_ENTRIES", "Snapshot", "Workspace"]

MAX_ENTRIES = 250_000
"""Names of any kind below a directory that ``list_files`` and ``scan`` look at."""

DEPS = ".deps"
"""Where a box sees the product of ``setup``; never listed."""

_TEMP_PREFIX = ".kern-write-"

_KINDS = {
    stat.S_IFDIR: ("a directory", errno.EISDIR),
    stat.S_IFLNK: ("a symbolic link", errno.ELOOP),
    stat.S_IFIFO: ("a FIFO", errno.EOPNOTSUPP),
    stat.S_IFSOCK: ("a socket", errno.EOPNOTSUPP),
    stat.S_IFCHR: ("a character device", errno.EOPNOTSUPP),
    stat.S_IFBLK: ("a block device", errno.EOPNOTSUPP),
}

_HINTS = {
    errno.ELOOP: "A part of the path is a symbolic link, and links in the workspace are never followed",
    errno.ENOTDIR: "A part of the path is not a directory",
    errno.ENOENT: "list_files() tells what there is; a box may have removed it",
    errno.ENOSPC: "The disk is full; no file was changed",
    errno.EDQUOT: "The disk quota is used up; no file was changed",
    errno.EFBIG: "It is larger than this process may write (RLIMIT_FSIZE); no file was changed",
    errno.EACCES: "Its mode, or that of a directory above it, denies this user; a box may have set it",
}

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


class Workspace:
    """A directory that boxes share; every access walks from a held directory descriptor.

    Paths are relative to the workspace, with ``/`` between components; ``/workspace/x``, as code in a box says it,
    and ``./x`` mean ``x``. One Workspace serves many threads at once, and ``close()`` does not wait for calls that
    are under way: they end as if a box had removed the files.

    Attributes:
        path: absolute, without symbolic links.
        temporary: whether ``close()`` removes the directory and everything in it.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        """Open a directory, or make one.

        Args:
            path: an existing directory, kept on close; or ``None`` for a new one with mode 0700.

        Raises:
            SpecError: ``path`` is not text, or empty, or holds a NUL.
            WorkspaceError: ``path`` does not exist or is not a directory, or none could be made.
        """
        self.temporary = path is None
        self.path = _make_temporary() if path is None else resolved(path)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._writing: set[str] = set()
        self._fd = -1
        try:
            self._fd = os.open(self.path, STEP_FLAGS)
        except OSError as error:
            hint = "Create the directory first" if error.errno == errno.ENOENT else "It must be a directory"
            raise _refused("open the workspace", self.path, error.errno, hint) from error
        status = os.fstat(self._fd)
        self._identity = (status.st_dev, status.st_ino)

    @property
    def fd(self) -> int:
        """The directory itself (``O_PATH``), valid until ``close()``."""
        if self._fd < 0:
            raise SessionClosed(f"use the workspace {self.path}: it has been closed")
        return self._fd

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the directory that was opened; another one at its path is not the workspace."""
        return self._identity

    def check(self) -> None:
        """Make sure that ``path`` still leads to the directory that was opened.

        Raises:
            WorkspaceError: the directory has vanished, or another one stands in its place.
            SessionClosed: after ``close()``.
        """
        self.fd  # noqa: B018  raises after close()
        hint = "Create the directory again and open a new Sandbox on it"
        try:
            now = os.stat(self.path)
        except OSError as error:
            what = f"use the workspace {self.path}: it has been removed or renamed, or a directory above it has"
            raise WorkspaceError(what, errno=error.errno, path=self.path, hint=hint) from error
        if (now.st_dev, now.st_ino) != self._identity:
            what = f"use the workspace {self.path}: something else has been put in its place"
            raise WorkspaceError(what, path=self.path, hint="Open a new Sandbox on it, or put the old directory back")

    def write_file(self, path: str, data: str | bytes) -> None:
        """Put a file into the workspace, with the directories above it.

        The file appears, or replaces an old one, at once and whole: a box never sees half of it, and no file that
        shares the old one's data by a hard link changes. It has mode 0644, or the old file's without setuid and
        setgid. Where this process is root and the workspace is not, files and directories go to its owner.

        Args:
            path: where.
            data: what; text is written as UTF-8.

        Raises:
            SpecError: ``path`` or ``data`` is of another type, or ``data`` is text that UTF-8 cannot hold.
            WorkspaceError: the path is refused, something else than a regular file stands there, or the operating
                system failed (disk full, no permission).
        """
        body = content_of(data)
        parts = vetted(path)
        if path.startswith("~") and len(parts) > 1:
            raise refused_path(path, "'~' is not expanded; './~/…' writes to a directory of that name")
        with self._root("write", path) as root:
            owner = _owner_for(os.fstat(root))
            parent = make_parents(root, parts[:-1], owner)
            try:
                self._replace(parent, parts[-1], body, owner)
            finally:
                os.close(parent)

    def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """The content of a regular file.

        Args:
            path: which.
            max_bytes: the largest size that is accepted.

        Raises:
            SpecError: an argument is of another type, or ``max_bytes`` is negative.
            WorkspaceError: the path is refused, or leads through a link, or to something else than a regular file;
                the file does not exist, cannot be read, or holds (also as a sparse file) more than ``max_bytes``.
        """
        limit = checked_limit(max_bytes)
        parts = vetted(path)
        with self._root("read", path) as root:
            fd = open_regular(root, parts)
            try:
                content = read_up_to(fd, limit)
            finally:
                os.close(fd)
        if content is None:
            hint = f"It holds more than max_bytes={max_bytes}; pass a larger limit, or read it in a box"
            raise _refused(f"read {clipped(path)!r} in the workspace", path, errno.EFBIG, hint)
        return content

    def list_files(self, subdir: str = "") -> list[str]:
        """The regular files below a directory, at any depth, sorted, as paths relative to the workspace.

        Links, FIFOs, sockets and devices are left out, and so is what this user cannot read, what vanishes during
        the call, and ``.deps`` at the top. Bytes that are not UTF-8 appear as surrogate escapes, which every other
        method takes back.

        Args:
            subdir: where to begin; ``""`` is the workspace.

        Raises:
            SpecError: ``subdir`` is not text.
            WorkspaceError: ``subdir`` is refused or is no directory that can be read; or there are more than
                ``MAX_ENTRIES`` names below it, or so many in so deep directories that the paths alone fill 64 MiB.
        """
        parts = vetted(subdir, directory=True)
        above = b"".join(part + b"/" for part in parts).decode("utf-8", "surrogateescape")
        with self._root("list", subdir or self.path) as root:
            walk = Walk(open_directory(root, parts), "" if parts else DEPS, MAX_ENTRIES)
            try:
                found = [above + path for place in walk for path, _ in self._shown(place)]
            except LimitExceeded as error:
                raise _refused(
                    "list the workspace", subdir or self.path, None, f"There are more than {error}; list a subdirectory"
                ) from None
        return sorted(found)

    def scan(self) -> Snapshot:
        """Take down what is in the workspace now, for ``changes``; what a box does meanwhile raises nothing."""
        files: dict[str, FileKey] = {}
        try:
            with self._lock:
                root = os.open(".", READ_DIR_FLAGS, dir_fd=self.fd)
            walk = Walk(root, DEPS, MAX_ENTRIES)
            for place in walk:
                self._take_down(place, files)
        except (LimitExceeded, OSError):
            return Snapshot(files, complete=False)
        return Snapshot(files, walk.complete)

    def _take_down(self, place: Directory, files: dict[str, FileKey]) -> None:
        for path, entry in self._shown(place):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # it vanished, or its directory may be listed and not searched
                continue
            files[path] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def _shown(self, place: Directory) -> list[tuple[str, os.DirEntry[str]]]:
        """The files of a directory with their paths, without those that ``write_file`` has not yet named.

        Such a name is listed in ``_writing`` before it exists and until it has become the final one. So one that is
        in neither place is gone, and one that still exists is a box's own file.
        """
        shown = []
        for entry in place.files:
            if entry.name.startswith(_TEMP_PREFIX) and (
                entry.name in self._writing or not _exists(entry.name, place.fd)
            ):
                continue
            shown.append((text_of(place.prefix + entry.name), entry))
        return shown

    @staticmethod
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

    def close(self) -> None:
        """Let go of the directory; a temporary one is removed, except by a fork of the process that made it.

        Raises:
            WorkspaceError: a temporary directory could not be removed wholly. Closing again does nothing.
        """
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            if self.temporary and self._pid == os.getpid():
                self._remove(fd)
        finally:
            os.close(fd)

    @contextmanager
    def _root(self, verb: str, path: str) -> Iterator[int]:
        """The directory for one call, by a descriptor of its own; what the call cannot do is a WorkspaceError."""
        self.check()
        what = f"{verb} {clipped(path)!r} in the workspace"
        root = -1
        try:
            with self._lock:
                root = os.dup(self.fd)
            yield root
        except NotRegular as error:
            kind, code = _KINDS.get(error.args[0], ("of an unknown kind", errno.EOPNOTSUPP))
            raise _refused(what, path, code, f"It is {kind}; only regular files are read and written") from None
        except OSError as error:
            if isinstance(error, WorkspaceError):
                raise
            raise _refused(what, path, error.errno, _HINTS.get(error.errno or 0, "")) from error
        finally:
            if root >= 0:
                os.close(root)

    def _replace(self, parent: int, name: bytes, body: bytes, owner: Owner | None) -> None:
        mode = mode_for(parent, name)
        temporary = _TEMP_PREFIX + os.urandom(8).hex()
        self._writing.add(temporary)
        try:
            write_new(parent, temporary, body, mode, owner)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:  # whatever happened, no half-written file stays
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
        finally:
            self._writing.discard(temporary)

    def _remove(self, fd: int) -> None:
        hint = "Remove it by hand; a file in it may belong to another user"
        try:
            emptied = empty_directory(fd)
            now = os.lstat(self.path)
            if (now.st_dev, now.st_ino) == self._identity:
                os.rmdir(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _refused("remove the temporary workspace", self.path, error.errno, hint) from error
        if not emptied:
            raise _refused("remove the temporary workspace", self.path, errno.ENOTEMPTY, hint)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._fd < 0 else "temporary" if self.temporary else "kept"
        return f"<Workspace {self.path!r} {state}>"


def _refused(attempted: str, path: str, code: int | None, hint: str) -> WorkspaceError:
    return WorkspaceError(attempted, errno=code, path=clipped(path), hint=hint)


def _make_temporary() -> str:
    import tempfile  # late: a workspace with a path does not need it, and it loads compression modules

    try:
        return os.path.realpath(tempfile.mkdtemp(prefix="kern-workspace-"))
    except OSError as error:
        raise WorkspaceError(
            "make a temporary workspace", errno=error.errno, hint="Set TMPDIR, or name a directory as workspace"
        ) from error


def _exists(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _owner_for(workspace: os.stat_result) -> Owner | None:
    """Whom new files belong to, where that is not already this process's user."""
    if os.geteuid() == 0 and workspace.st_uid != 0:
        return workspace.st_uid, workspace.st_gid
    return None
