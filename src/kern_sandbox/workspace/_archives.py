"""``snapshot`` and ``restore``: between a workspace and an archive that lies outside of it."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from .._places import absolute
from ..errors import SpecError, WorkspaceError
from ._arguments import clipped
from ._beneath import SAFE_FLAGS, Owner, require_regular
from ._exchange import exchange, finish_broken, open_root, stage
from ._refusals import in_words, refused
from ._restore import read_archive
from ._snapshot import write_archive
from ._tar import BadArchive
from ._usage import usage
from ._walk import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Limits", "load", "outside", "save"]

_MAKE_IT = "The directory that it is to lie in has to be there: make it first"
_NO_ARCHIVE = "Name an archive of this machine, such as Sandbox.snapshot() writes; nothing was changed"


class Limits(NamedTuple):
    """How much may be unpacked.

    Attributes:
        size: of all files together, bytes.
        entries: files and directories.
        disk: what the new tree may take of the disk, bytes; ``None`` for no ceiling.
    """

    size: int
    entries: int
    disk: int | None


def outside(path: object, workspace: str, option: str) -> str:
    """``path`` as an absolute path, which must not lead into the workspace, where boxes could redirect it.

    Raises:
        SpecError: it is no path.
        WorkspaceError: it lies in the workspace.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise SpecError(f"{option}={path!r} is not accepted. Accepted: the path of an archive")
    folder = os.path.realpath(os.path.dirname(absolute(text)))
    if folder == workspace or folder.startswith(workspace.rstrip("/") + "/"):
        hint = "Keep archives outside of the workspace"
        raise WorkspaceError(f"use {clipped(text)!r} as an archive: boxes can write there", path=text, hint=hint)
    return os.path.join(folder, os.path.basename(text))


def save(root: int, target: str, max_bytes: int, max_entries: int) -> list[str]:
    """Write what is below ``root`` to ``target``; see ``Workspace.snapshot``."""
    attempted = f"write the snapshot {clipped(target)!r}"
    with open_root(root) as readable, in_words(attempted, target, _MAKE_IT), _replacing(target) as out:
        try:
            return write_archive(readable, out, max_bytes, max_entries)
        except LimitExceeded as error:
            raise refused(attempted, target, None, f"There are more than {error} in the workspace") from None


def load(root: int, source: str, limits: Limits, owner: Owner | None) -> None:
    """Replace what is below ``root`` by what is in ``source``; see ``Workspace.restore``.

    Args:
        root: the workspace.
        source: the archive.
        limits: the most that it may hold.
        owner: whom new files belong to.
    """
    attempted = f"restore the workspace from {clipped(source)!r}"
    with in_words(attempted, source, _NO_ARCHIVE), _reading(source) as file, open_root(root) as readable:
        finish_broken(readable)
        with stage(readable, owner) as staged:
            with _bad_archives(attempted, source, limits.size):
                _unpack(file, staged, owner, limits)
            exchange(readable, staged)


@contextmanager
def _bad_archives(attempted: str, source: str, max_bytes: int) -> Iterator[None]:
    """What is wrong with an archive becomes a WorkspaceError."""
    try:
        yield
    except BadArchive as error:
        raise WorkspaceError(f"{attempted}: {error}", path=source, hint="Nothing was changed") from None
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        hint = f"It holds more than {max_bytes} bytes of files (max_bytes, workspace_mb); nothing was changed"
        raise refused(attempted, source, errno.EFBIG, hint) from error


def _unpack(file: IO[bytes], staged: int, owner: Owner | None, limits: Limits) -> None:
    new = os.open("new", os.O_RDONLY | os.O_DIRECTORY | SAFE_FLAGS, dir_fd=staged)
    try:
        read_archive(file, new, owner, limits.size, limits.entries)
        if limits.disk is not None and usage(new, limits.disk) > limits.disk:
            raise OSError(errno.EFBIG, "the tree takes more than the workspace's ceiling")
    finally:
        os.close(new)


@contextmanager
def _replacing(target: str) -> Iterator[IO[bytes]]:
    """A new file that takes the name ``target`` when this ends well, and is gone if not."""
    temporary = os.path.join(os.path.dirname(target), f".kern-snapshot-{os.urandom(8).hex()}")
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as out:
            yield out
        os.replace(temporary, target)
    except BaseException:  # whatever happened, no half-written archive stays
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def _reading(source: str) -> Iterator[IO[bytes]]:
    """A regular file, opened without waiting for whoever is at the other end of anything else."""
    with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
        require_regular(os.fstat(file.fileno()))
        yield file
