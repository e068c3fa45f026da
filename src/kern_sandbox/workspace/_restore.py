"""Reading an archive that anybody may have made into an empty directory: all of it is accepted, or nothing."""

from __future__ import annotations

import errno
import gzip
import os
import stat
import zlib
from typing import IO

from ..errors import WorkspaceError
from ._arguments import is_ours, vetted
from ._beneath import SAFE_FLAGS, STEP_FLAGS, Owner, make_parents, open_under
from ._tar import BadArchive, Member, members, padding, read_map

__all__ = ["read_archive"]

_CHUNK = 1 << 20
_MAX_TAIL = 1 << 20
"""Bytes of zeros after the end mark; GNU tar fills a record of 10 KiB."""
_MAX_PATHS = 64 << 20


class _Tape:
    """The uncompressed archive, from front to back."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = gzip.GzipFile(fileobj=file, mode="rb")

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes.

        Raises:
            BadArchive: there are not so many, or the compressed data is damaged.
        """
        found = self._some(size)
        while len(found) < size:
            more = self._some(size - len(found))
            if not more:
                raise BadArchive("it ends in the middle")
            found += more
        return found

    def _some(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except EOFError:
            raise BadArchive("it ends in the middle") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BadArchive(f"it is not gzip, or damaged ({error})") from None

    def end(self) -> None:
        """Read on to the checksum; nothing but zeros may come."""
        taken = 0
        while True:
            data = self._some(64 << 10)
            taken += len(data)
            if data.count(0) != len(data) or taken > _MAX_TAIL:
                raise BadArchive("something follows its end")
            if not data:
                return


class _Vetter:
    """Says of each member in turn where it goes, or why the archive is refused."""

    def __init__(self, max_entries: int) -> None:
        self._seen: set[bytes] = set()
        self._left = max_entries
        self._room = _MAX_PATHS

    def parts(self, path: bytes) -> list[bytes]:
        """The components; none for the workspace itself."""
        self._left -= 1
        self._room -= len(path)
        if self._left < 0 or self._room < 0:
            raise BadArchive("it has too many members, or their names are too long in all")
        if path.startswith(b"/"):
            raise BadArchive(f"{path!r} is an absolute path")
        if b"\n" in path:
            raise BadArchive(f"{path!r} has a line break in its name")
        try:
            parts = vetted(path.decode("utf-8", "surrogateescape"), directory=True)
        except WorkspaceError as error:
            raise BadArchive(error.attempted) from None
        if parts and is_ours(os.fsdecode(parts[0])):
            raise BadArchive(f"{path!r} has a name that the sandbox keeps for itself")
        key = b"/".join(parts)
        if key in self._seen:
            raise BadArchive(f"{path!r} is in it twice")
        self._seen.add(key)
        return parts


def read_archive(file: IO[bytes], root: int, owner: Owner | None, max_bytes: int, max_entries: int) -> None:
    """Unpack ``file`` into the empty directory ``root``.

    Raises:
        BadArchive: it is damaged, or holds something that is never unpacked.
        OSError: from reading or writing; EFBIG where the files would hold more than ``max_bytes``.
    """
    tape = _Tape(file)
    vetter = _Vetter(max_entries)
    folders: list[tuple[list[bytes], int]] = []
    left = max_bytes
    for member in members(tape.read):
        left -= member.stored
        if left < 0:
            raise OSError(errno.EFBIG, f"the files hold more than {max_bytes} bytes")
        parts = vetter.parts(member.path)
        try:
            if member.folder:
                os.close(make_parents(root, parts, owner))
                folders.append((parts, member.mode))
            else:
                _unpack(tape, member, root, parts, owner)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise BadArchive(f"{member.path!r} is a file in one place and a directory in another") from None
    tape.end()
    for parts, mode in folders:
        _set_mode(root, parts, mode)


def _unpack(tape: _Tape, member: Member, root: int, parts: list[bytes], owner: Owner | None) -> None:
    if not parts or member.path.endswith(b"/"):
        raise BadArchive(f"{member.path!r} is no name for a file")
    parent = make_parents(root, parts[:-1], owner)
    try:
        fd = os.open(parts[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE_FLAGS, 0o600, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        pieces = read_map(tape.read, member) if member.sparse else [(0, member.size)]
        for offset, length in pieces:
            _copy(tape, fd, offset, length)
        os.ftruncate(fd, member.size)
        tape.read(padding(member.stored))
        if owner is not None:
            os.fchown(fd, *owner)
        os.fchmod(fd, member.mode)
    finally:
        os.close(fd)


def _copy(tape: _Tape, fd: int, offset: int, length: int) -> None:
    while length:
        data = tape.read(min(length, _CHUNK))
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written
        length -= len(data)


def _set_mode(root: int, parts: list[bytes], mode: int) -> None:
    """Give a directory its mode, of which its owner's part is always whole: it has to be emptied one day."""
    if not parts:
        return
    handle = open_under(root, parts, STEP_FLAGS)
    try:
        os.chmod(f"/proc/self/fd/{handle}", mode | stat.S_IRWXU)
    finally:
        os.close(handle)
