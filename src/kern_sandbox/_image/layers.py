"""Layers into a tree: decompressed, verified, and each entry vetted before anything is made of it."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import os
import sys
import tarfile
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from ..errors import DigestMismatch, ImageError, LayerRefused
from .tape import DAMAGE, SPARSE, Header

if TYPE_CHECKING:
    from .tree import Parts, Tree

__all__ = ["Allowance", "apply_layer"]

_MAX_DEPTH = 256
_DISTRUST = "No honest tool writes that: do not use this image, or build it anew"
_SPECIAL = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)


class Allowance:
    """What an image may come to, unpacked: so that a small download cannot fill the disk.

    Args:
        size: bytes of all layers.
        entries: files, directories and links of all layers.
    """

    def __init__(self, size: int = 64 << 30, entries: int = 4_000_000) -> None:
        self.size = size
        self.entries = entries

    def take(self, size: int, entries: int = 0) -> None:
        """Raises ``LayerRefused`` once it is used up."""
        self.size -= size
        self.entries -= entries
        if self.size < 0 or self.entries < 0:
            raise LayerRefused("the image is larger than any that is unpacked")


class Layer(NamedTuple):
    """A layer's file, and what it must be.

    Attributes:
        path: of the blob.
        digest: by which the image names it.
        diff_id: digest of its content unpacked, or ``""`` where the image does not say.
        image: for messages.
    """

    path: str
    digest: str
    diff_id: str
    image: str


def apply_layer(layer: Layer, tree: Tree, allowance: Allowance) -> None:
    """Apply one layer.

    Raises:
        LayerRefused: it holds an entry that is never unpacked, or is no layer at all.
        DigestMismatch: its content is not what the image says.
        ImageError: it needs a library that is not installed.
        OSError: the disk is full, or fails.
    """
    what = f"unpacking layer {layer.digest} of {layer.image}"
    tree.begin_layer()
    with open(layer.path, "rb") as file:
        content = _Content(_decompressed(file, what), allowance)
        try:
            _apply(content, tree, allowance)
            while content.read(1 << 18):
                pass
        except DAMAGE as error:
            raise LayerRefused(f"{what}: it is damaged ({error})", hint="Pull or save the image anew") from error
        except LayerRefused as error:
            raise LayerRefused(f"{what}: {error.attempted}", hint=error.hint or _DISTRUST) from error.__cause__
    found = f"sha256:{content.hash.hexdigest()}"
    if layer.diff_id and found != layer.diff_id:
        words = f"{what}: its content has the digest {found} and was named {layer.diff_id}"
        raise DigestMismatch(words, hint="It was damaged or changed on its way: pull or save the image anew")


class _Content(io.RawIOBase):
    """The unpacked bytes of a layer, hashed and counted on their way."""

    def __init__(self, source: IO[bytes], allowance: Allowance) -> None:
        super().__init__()
        self.hash = hashlib.sha256()
        self._source = source
        self._allowance = allowance

    def read(self, size: int | None = -1) -> bytes:
        """Some bytes."""
        piece = self._source.read(size if size is not None else -1)
        self.hash.update(piece)
        self._allowance.take(len(piece))
        return piece


def _decompressed(file: IO[bytes], what: str) -> IO[bytes]:
    """By the first bytes: the declared type is often wrong, and the digest has been verified."""
    magic = file.read(6)
    file.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file))
    if magic.startswith(b"\x28\xb5\x2f\xfd") or (magic[1:4] == b"\x2a\x4d\x18" and magic[:1] >= b"\x50"):
        return _zstd(file, what)
    if magic.startswith((b"BZh", b"\xfd7zXZ")):
        raise LayerRefused(f"{what}: it is compressed in a way that the OCI specification does not have")
    return file


def _zstd(file: IO[bytes], what: str) -> IO[bytes]:
    if sys.version_info >= (3, 14):
        module: Any = importlib.import_module("compression.zstd")
        return cast("IO[bytes]", module.ZstdFile(file))
    try:
        library: Any = importlib.import_module("zstandard")
    except ImportError:
        words = f"{what}: it is compressed with zstd, which this Python cannot read"
        raise ImageError(words, hint="pip install 'kern-sandbox[zstd]', or use Python 3.14 or later") from None
    reader = library.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file, read_across_frames=True)
    return cast("IO[bytes]", _Translated(reader, library.ZstdError))


class _Translated(io.RawIOBase):
    """A reader whose own kind of error becomes one that is expected here."""

    def __init__(self, source: Any, kind: type[Exception]) -> None:
        super().__init__()
        self._source = source
        self._kind = kind

    def read(self, size: int | None = -1) -> bytes:
        """Some bytes."""
        try:
            return bytes(self._source.read(size))
        except self._kind as error:
            raise EOFError(str(error)) from error


def _apply(content: _Content, tree: Tree, allowance: Allowance) -> None:
    with tarfile.open(
        fileobj=cast("IO[bytes]", content), mode="r|", bufsize=1 << 18, tarinfo=Header, encoding="utf-8",
        errors="surrogateescape",
    ) as archive:  # fmt: skip
        for entry in archive:
            known = tree.size
            try:
                _place(archive, entry, tree)
            except LayerRefused as error:
                raise LayerRefused(f"its entry {entry.name!r:.200} is refused: {error.attempted}") from error.__cause__
            allowance.take(0, max(1, tree.size - known))  # with the directories above it, where those are new
            archive.members.clear()  # type: ignore[attr-defined] # else it keeps every header of a large layer


def _place(archive: tarfile.TarFile, entry: tarfile.TarInfo, tree: Tree) -> None:
    parts = _parts(entry.name)
    if entry.isdir():
        tree.directory(parts)
        return
    if not parts:
        raise LayerRefused("it would take the place of the root")
    if tree.whiteout(parts):
        return
    if entry.issparse():
        raise LayerRefused(SPARSE)
    if entry.isreg():
        source = archive.extractfile(entry)
        assert source is not None
        tree.file(parts, entry.mode, entry.mtime, source)
    elif entry.issym():
        tree.symlink(parts, _bytes(entry.linkname))
    elif entry.islnk():
        target = _parts(entry.linkname)
        if not target:
            raise LayerRefused("a hard link to the root")
        tree.hard_link(parts, target)
    elif entry.type in _SPECIAL:
        tree.skip(parts)
    else:
        raise LayerRefused(f"it is of the unknown kind {entry.type!r}")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _parts(name: str) -> Parts:
    """The components of a name, below the root.

    Raises:
        LayerRefused: it is absolute, goes up, or is no name.
    """
    raw = _bytes(name)
    if raw.startswith(b"/"):
        raise LayerRefused(f"{os.fsdecode(raw)!r:.200} is absolute")
    parts = tuple(part for part in raw.split(b"/") if part not in (b"", b"."))
    if b".." in parts:
        raise LayerRefused(f"{os.fsdecode(raw)!r:.200} goes up by '..'")
    if b"\0" in raw or any(len(part) > 255 for part in parts) or len(parts) > _MAX_DEPTH:
        raise LayerRefused("its name is none that a file system takes")
    return parts
