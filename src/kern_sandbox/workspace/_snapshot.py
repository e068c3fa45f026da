"""Writing a workspace into an archive, without trusting what is in it."""

from __future__ import annotations

import errno
import gzip
import os
import stat
from typing import IO, TYPE_CHECKING, NamedTuple

from ..errors import WorkspaceError
from ._arguments import clipped, is_ours, text_of
from ._beneath import READ_DIR_FLAGS, NotRegular, open_regular
from ._refusals import refused
from ._tar import BLOCK, Member, headers, map_of, padding
from ._walk import Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["write_archive"]

_HOLE = 64 << 10
"""What is stored as a hole: aligned stretches of this many zero bytes, whatever the file system made of them."""
_ZEROS = bytes(_HOLE)
_MAX_PATH = 4095
_NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR})
_LEFT_OUT = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP})


class _Survey(NamedTuple):
    """What an archive will hold, each list unsorted."""

    folders: list[tuple[bytes, int]]
    files: list[bytes]
    left_out: list[str]


def write_archive(root: int, out: IO[bytes], max_bytes: int, max_entries: int) -> list[str]:
    """Write everything below ``root`` as a tar.gz whose bytes depend on names, modes and contents only.

    Returns:
        The paths that were left out, sorted: links, FIFOs, sockets, devices, what cannot be read, and names that no
        archive of ours holds.

    Raises:
        LimitExceeded: there are more than ``max_entries`` names.
        WorkspaceError: the files hold more than ``max_bytes``, or changed while they were read.
        OSError: from writing.
    """
    survey = _survey(root, max_entries)
    left = max_bytes
    members = [(path, mode) for path, mode in survey.folders] + [(path, None) for path in survey.files]
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=out, mtime=0) as tape:
        for path, mode in sorted(members, key=lambda member: member[0]):
            if mode is not None:
                tape.write(headers(Member(path, True, mode | stat.S_IRWXU)))
            else:
                left -= _write_file(root, path, tape, survey.left_out, left)
        tape.write(bytes(2 * BLOCK))
    return sorted(survey.left_out)


def _survey(root: int, max_entries: int) -> _Survey:
    survey = _Survey([], [], [])
    walk = Walk(os.open(".", READ_DIR_FLAGS, dir_fd=root), is_ours, max_entries, every=True)
    for place in walk:
        survey.left_out.extend(text_of(place.prefix + name) for name in place.others)
        above = os.fsencode(place.prefix)
        if above and _fits(above):
            survey.folders.append((above, os.fstat(place.fd).st_mode & 0o777))
        elif above:
            survey.left_out.append(text_of(place.prefix))
        for entry in place.files:
            path = above + os.fsencode(entry.name)
            if _fits(path):
                survey.files.append(path)
            else:
                survey.left_out.append(text_of(place.prefix + entry.name))
    survey.left_out.extend(f"{text_of(path)}/" for path in walk.missed)
    if not walk.complete:
        raise _changed("", "directories were moved")
    return survey


def _fits(path: bytes) -> bool:
    """Whether ``restore`` would take it back."""
    return b"\n" not in path and len(path) <= _MAX_PATH


def _changed(path: str, how: str) -> WorkspaceError:
    hint = "Take the snapshot while no box runs"
    return WorkspaceError(f"read the workspace: {how} meanwhile", path=clipped(path) or None, hint=hint)


def _write_file(root: int, path: bytes, tape: gzip.GzipFile, left_out: list[str], left: int) -> int:
    """Write one file; returns how many bytes of content that were. What vanished is as if it had never been there."""
    name = path.decode("utf-8", "surrogateescape")
    try:
        fd = open_regular(root, path.split(b"/"))
    except NotRegular:
        left_out.append(name)
        return 0
    except OSError as error:
        if error.errno in _LEFT_OUT:
            left_out.append(name)
        elif error.errno not in _NO_FILE:
            raise
        return 0
    try:
        about = os.fstat(fd)
        pieces = _pieces(fd, about.st_size, left)
        stored = sum(length for _, length in pieces)
        if stored > left:
            hint = "The files hold more than max_bytes; pass a larger limit"
            raise refused("take a snapshot of the workspace", name, errno.EFBIG, hint)
        front = map_of(pieces, about.st_size) if stored < about.st_size else b""
        whole = len(front) + stored
        mode = about.st_mode & 0o777
        tape.write(headers(Member(path, False, mode, whole, about.st_size, bool(front))) + front)
        for offset, length in pieces:
            _copy(fd, offset, length, tape, name)
        tape.write(bytes(padding(whole)))
        return stored
    finally:
        os.close(fd)


def _pieces(fd: int, size: int, enough: int) -> Sequence[tuple[int, int]]:
    """What is not a hole; the whole file if the holes are not worth it. Stops looking beyond ``enough`` bytes."""
    pieces: list[tuple[int, int]] = []
    at = stored = 0
    while at < size and stored <= enough:
        start = _next_data(fd, at)
        if start is None:
            break
        at = start - start % _HOLE
        block = os.pread(fd, min(_HOLE, size - at), at)
        if block != _ZEROS[: len(block)]:
            stored += len(block)
            _append(pieces, at, len(block))
        at += _HOLE
    return pieces if stored > enough or size - stored >= _HOLE else [(0, size)] if size else []


def _append(pieces: list[tuple[int, int]], at: int, length: int) -> None:
    """Add a piece, or make the last one longer."""
    if pieces and sum(pieces[-1]) == at:
        pieces[-1] = (pieces[-1][0], pieces[-1][1] + length)
    else:
        pieces.append((at, length))


def _next_data(fd: int, at: int) -> int | None:
    """Where, from ``at`` on, the file system holds something; ``None`` if nowhere."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def _copy(fd: int, offset: int, length: int, tape: gzip.GzipFile, name: str) -> None:
    while length:
        data = os.pread(fd, min(length, 1 << 20), offset)
        if not data:
            raise _changed(name, "a file became shorter")
        tape.write(data)
        offset, length = offset + len(data), length - len(data)
