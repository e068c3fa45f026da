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
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ..errors import SessionClosed, WorkspaceError
from ..forksafe import ForkSafeLock
from ._arguments import checked_limit, clipped, content_of, is_ours, refused_path, resolved, text_of, vetted
from ._beneath import (
    READ_DIR_FLAGS,
    STEP_FLAGS,
    Owner,
    make_parents,
    mode_for,
    open_directory,
    open_regular,
    read_up_to,
    write_new,
)
from ._ceiling import Ceiling, Guard
from ._changes import FileKey, Snapshot, changes
from ._exchange import finish_broken, open_root
from ._places import make_temporary, owner_for
from ._refusals import in_words, refused
from ._walk import Directory, LimitExceeded, Walk, empty_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_ENTRIES", "Snapshot", "Workspace"]

MAX_ENTRIES = 250_000
"""Names of any kind below a directory that ``list_files`` and ``scan`` look at."""

_TEMP_PREFIX = ".kern-write-"
_OPENED = {
    errno.ENOENT: "Create the directory first",
    errno.ENOTDIR: "It must be a directory",
    errno.EACCES: "You must be able to enter it, and every directory above it",
}


class Workspace:
    """A directory that boxes share; every access walks from a held directory descriptor.

    Paths are relative to the workspace, with ``/`` between components; ``/workspace/x``, as code in a box says it,
    and ``./x`` mean ``x``. One Workspace serves many threads at once, and ``close()`` does not wait for calls that
    are under way: they end as if a box had removed the files.

    Attributes:
        path: absolute, without symbolic links.
        temporary: whether ``close()`` removes the directory and everything in it.
    """

    def __init__(self, path: str | os.PathLike[str] | None, limit: int | None = None) -> None:
        """Open a directory, or make one.

        Args:
            path: an existing directory, kept on close; or ``None`` for a new one with mode 0700.
            limit: what it may take of the disk, bytes; ``None`` for no ceiling.

        Raises:
            SpecError: ``path`` is not text, or empty, or holds a NUL.
            WorkspaceError: ``path`` does not exist or is not a directory, or none could be made.
        """
        self.temporary = path is None
        self.path = make_temporary() if path is None else resolved(path)
        self._lock = ForkSafeLock()
        self._pid = os.getpid()
        self._writing: set[str] = set()
        self._fd = -1
        self._ceiling = None if limit is None else Ceiling(limit, self._held, self.path)
        try:
            self._fd = os.open(self.path, STEP_FLAGS)
        except OSError as error:
            raise refused("open the workspace", self.path, error.errno, _OPENED.get(error.errno or 0, "")) from error
        status = os.fstat(self._fd)
        self._identity = (status.st_dev, status.st_ino)
        if not self.temporary:
            self._finish_broken()

    @property
    def fd(self) -> int:
        """The directory itself (``O_PATH``), valid until ``close()``."""
        if self._fd < 0:
            raise SessionClosed(
                f"using the workspace {self.path} of a Sandbox that is closed", hint="Make a new Sandbox"
            )
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
            WorkspaceError: the path is refused, something else than a regular file stands there, the ceiling leaves
                no room, or the operating system failed (disk full, no permission).
        """
        body = content_of(data)
        parts = vetted(path)
        if path.startswith("~") and len(parts) > 1:
            raise refused_path(path, "'~' is not expanded; './~/…' writes to a directory of that name")
        with self._root("write", path) as root:
            if self._ceiling is not None:
                self._ceiling.make_room(len(body))
            owner = owner_for(os.fstat(root))
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
            raise refused(f"read {clipped(path)!r} in the workspace", path, errno.EFBIG, hint)
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
            walk = Walk(open_directory(root, parts), _shows_all if parts else is_ours, MAX_ENTRIES)
            try:
                found = [above + path for place in walk for path, _ in self._shown(place)]
            except LimitExceeded as error:
                raise refused(
                    "list the workspace", subdir or self.path, None, f"There are more than {error}; list a subdirectory"
                ) from None
        return sorted(found)

    def snapshot(self, dest: str | os.PathLike[str], max_bytes: int = 4 << 30) -> list[str]:
        """Write every file and directory into a tar.gz at ``dest``, which appears whole or not at all.

        The same names, modes and contents give the same bytes. What a box does meanwhile is in it or not; a file that
        becomes shorter while it is read, or a directory that moves, is an error.

        Args:
            dest: a path outside of the workspace; a file there is replaced.
            max_bytes: the most that the files may hold in all, holes not counted.

        Returns:
            The paths that were left out, sorted: links, FIFOs, sockets, devices, what this user cannot read, and
            names with a line break.

        Raises:
            SpecError: an argument is of another type.
            WorkspaceError: ``dest`` is refused or cannot be written, the files hold more than ``max_bytes``, there are
                more than ``MAX_ENTRIES`` names, or the workspace changed while it was read.
        """
        from ._archives import outside, save  # late: it loads tarfile and gzip

        limit, target = checked_limit(max_bytes), outside(dest, self.path, "dest")
        with self._root("take a snapshot of", self.path) as root:
            return save(root, target, limit, MAX_ENTRIES)

    def restore(self, src: str | os.PathLike[str], max_bytes: int = 4 << 30) -> None:
        """Replace everything in the workspace by what is in a tar.gz, or change nothing.

        A process that is killed meanwhile leaves the old tree, or one that becomes the old tree when the workspace is
        next opened. A box that runs meanwhile sees the exchange, and what it adds may be lost.

        Args:
            src: a path outside of the workspace; of a snapshot, or of any tar.gz of plain files and directories.
            max_bytes: the most that the files may hold in all, holes not counted.

        Raises:
            SpecError: an argument is of another type.
            WorkspaceError: ``src`` cannot be read; it is damaged; it holds a link, a device, an absolute path, ``..``
                or a name twice, more than ``max_bytes`` or more than ``MAX_ENTRIES`` members; or the disk is full.
        """
        from ._archives import Limits, load, outside  # late: it loads tarfile and gzip

        limit, source = checked_limit(max_bytes), outside(src, self.path, "src")
        with self._root("restore", self.path) as root:
            disk = None if self._ceiling is None else self._ceiling.limit
            load(root, source, Limits(limit, MAX_ENTRIES, disk), owner_for(os.fstat(root)))

    def guard(self) -> Guard:
        """The ceiling over a call that is about to begin.

        Raises:
            WorkspaceError: the workspace is so far above its ceiling that no call may run.
        """
        return Guard(self._ceiling)

    def _finish_broken(self) -> None:
        """Bring back what a killed ``restore`` had moved away; a directory that cannot be listed has none."""
        try:
            with suppress(PermissionError), open_root(self._fd) as root:
                finish_broken(root)
        except OSError as error:
            os.close(self._fd)
            hint = "Move what lies in its .kern-restore- directories back by hand"
            raise refused("finish what a killed restore left in the workspace", self.path, error.errno, hint) from error

    def scan(self) -> Snapshot:
        """Take down what is in the workspace now, for ``changes``; what a box does meanwhile raises nothing."""
        files: dict[str, FileKey] = {}
        try:
            with self._lock:
                root = os.open(".", READ_DIR_FLAGS, dir_fd=self.fd)
            walk = Walk(root, is_ours, MAX_ENTRIES)
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

    changes = staticmethod(changes)

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
        with in_words(what, path):
            root = self._held()
            try:
                yield root
            finally:
                os.close(root)

    def _held(self) -> int:
        """A descriptor of the directory that is the caller's to close."""
        with self._lock:
            return os.dup(self.fd)

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
            raise refused("remove the temporary workspace", self.path, error.errno, hint) from error
        if not emptied:
            raise refused("remove the temporary workspace", self.path, errno.ENOTEMPTY, hint)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._fd < 0 else "temporary" if self.temporary else "kept"
        return f"<Workspace {self.path!r} {state}>"


def _shows_all(_: str) -> bool:
    return False


def _exists(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return True
