"""The blocks of a tar archive: POSIX ``ustar`` headers, ``pax`` records, and GNU's sparse format 1.0 in them.

Written in one form, so that the same tree gives the same bytes; read strictly, since an archive may come from anybody.
"""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Callable, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["BLOCK", "BadArchive", "Member", "headers", "map_of", "members", "padding", "read_map"]

BLOCK = 512
_MAX_META = 64 << 20
"""Bytes of long names and records in all that an archive may hold; they are read into memory one at a time."""
_MAX_RECORDS = 1 << 16
_MAX_PIECES = 1 << 20
_END = bytes(BLOCK)
_LARGEST_OCTAL = 8**11
_SPARSE = "GNU.sparse."

Piece = tuple[int, int]
"""Offset and length of a stretch of a file that is not a hole."""
Read = Callable[[int], bytes]


class BadArchive(Exception):
    """The archive is damaged, or holds what is never unpacked; the text says what."""


class Member(NamedTuple):
    """A file or directory in an archive.

    Attributes:
        path: as it stands there.
        folder: whether it is a directory.
        mode: permission bits.
        stored: bytes that follow its header, without the padding.
        size: of the file when it is unpacked.
        sparse: whether what follows begins with the map of the pieces that are not holes.
    """

    path: bytes
    folder: bool
    mode: int
    stored: int = 0
    size: int = 0
    sparse: bool = False


def padding(size: int) -> int:
    """How many bytes fill the last block."""
    return -size % BLOCK


# Writing


def headers(member: Member) -> bytes:
    """Everything of a member that stands in front of its content."""
    records: list[tuple[str, bytes]] = []
    if member.sparse:
        records += [(f"{_SPARSE}major", b"1"), (f"{_SPARSE}minor", b"0"), (f"{_SPARSE}name", member.path)]
        records.append((f"{_SPARSE}realsize", b"%d" % member.size))
    elif len(member.path) > 100:
        records.append(("path", member.path))
    if member.stored >= _LARGEST_OCTAL:
        records.append(("size", b"%d" % member.stored))
    if records and not _is_text(member.path):
        records.insert(0, ("hdrcharset", b"BINARY"))
    body = b"".join(_record(name.encode(), value) for name, value in records)
    front = b"" if not body else _header(b"././@PaxHeader", b"x", 0o644, len(body)) + body + bytes(padding(len(body)))
    return front + _header(member.path[:100], b"5" if member.folder else b"0", member.mode, member.stored)


def map_of(pieces: Sequence[Piece], size: int) -> bytes:
    """The map in front of a sparse file's pieces; one of no length at its end stands for a final hole."""
    shown = list(pieces)
    if not shown or sum(shown[-1]) < size:
        shown.append((size, 0))
    text = b"%d\n" % len(shown) + b"".join(b"%d\n%d\n" % piece for piece in shown)
    return text + bytes(padding(len(text)))


def _is_text(path: bytes) -> bool:
    try:
        return bool(path.decode("utf-8") or True)
    except UnicodeDecodeError:
        return False


def _record(name: bytes, value: bytes) -> bytes:
    """A pax record, whose first field is its own length."""
    rest = len(name) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, name, value)


def _header(name: bytes, kind: bytes, mode: int, size: int) -> bytes:
    """One header block; time, owner and group are zero."""
    shown = size if size < _LARGEST_OCTAL else 0
    block = bytearray(BLOCK)
    for at, field in (
        (0, name), (100, b"%07o" % mode), (108, b"%07o" % 0), (116, b"%07o" % 0), (124, b"%011o" % shown),
        (136, b"%011o" % 0), (148, b" " * 8), (156, kind), (257, b"ustar\x0000"), (329, b"%07o" % 0),
        (337, b"%07o" % 0),
    ):  # fmt: skip
        block[at : at + len(field)] = field
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


# Reading


class _Extra:
    """What the headers in front of a member's own say about it."""

    def __init__(self) -> None:
        self.name: bytes | None = None
        self.records: dict[str, bytes] = {}


def members(read: Read) -> Iterator[Member]:
    """Every member in order, until the end mark. Whoever takes one reads its content and padding before the next.

    Args:
        read: gives exactly as many bytes of the archive as it is asked for, or raises ``BadArchive``.

    Raises:
        BadArchive: while iterating.
    """
    extra, left = _Extra(), _MAX_META
    while True:
        block = read(BLOCK)
        if block == _END:
            if extra.records or extra.name is not None:
                raise BadArchive("it ends after the header of a member that is not there")
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise BadArchive(f"a header is damaged ({error})") from None
        if info.size < 0:
            raise BadArchive("a header has a negative size")
        if info.type in (b"x", b"g", b"L"):
            left -= info.size + BLOCK
            if info.size > _MAX_RECORDS or left < 0:
                raise BadArchive(f"long names are larger than {_MAX_RECORDS} bytes, or than {_MAX_META} in all")
            _take_extra(info.type, read(info.size + padding(info.size))[: info.size], extra)
            continue
        yield _member(info, extra)
        extra = _Extra()


def _take_extra(kind: bytes, body: bytes, extra: _Extra) -> None:
    if kind == b"L":
        extra.name = body.rstrip(b"\0")
        return
    records = _records(body)
    if kind == b"x":
        extra.records.update(records)
    elif any(name in ("path", "size", "linkpath") or name.startswith(_SPARSE) for name in records):
        raise BadArchive("a global header names or measures members")


def _records(body: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    while body:
        digits, space, _ = body[:10].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        name, equals, value = body[len(digits) + 1 : length].partition(b"=")
        if not equals or value[-1:] != b"\n" or length > len(body):
            raise BadArchive("a pax record is damaged")
        found[name.decode("utf-8", "surrogateescape")] = value[:-1]
        body = body[length:]
    return found


def _member(info: tarfile.TarInfo, extra: _Extra) -> Member:
    """A member from its own header and what stood in front of it."""
    records = extra.records
    path = records.get("path", extra.name)
    if path is None:
        path = info.name.encode("utf-8", "surrogateescape")
    stored = _number(records["size"]) if "size" in records else info.size
    sparse = any(name.startswith(_SPARSE) for name in records)
    if sparse:
        if (records.get(f"{_SPARSE}major"), records.get(f"{_SPARSE}minor")) != (b"1", b"0"):
            raise BadArchive(f"{path!r} is a sparse file of another format than GNU 1.0")
        path = records.get(f"{_SPARSE}name", path)
    if info.type not in (b"0", b"\0", b"5"):
        raise BadArchive(f"{path!r} is {_KINDS.get(info.type, 'of an unknown kind')}; only files and directories go in")
    folder = info.type == b"5"
    if folder and (stored or sparse):
        raise BadArchive(f"{path!r} is a directory with content")
    size = _number(records.get(f"{_SPARSE}realsize", b"")) if sparse else stored
    return Member(path, folder, info.mode & 0o777, stored, size, sparse)


_KINDS = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a character device", b"4": "a block device", b"6": "a FIFO",
    b"7": "a contiguous file", b"K": "a long link", b"S": "a sparse file of GNU's old format",
}  # fmt: skip


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise BadArchive(f"{text[:20]!r} stands where a size should")
    return int(text)


def read_map(read: Read, member: Member) -> list[Piece]:
    """The pieces of a sparse member, whose map stands at the beginning of its content.

    Raises:
        BadArchive: it is damaged, or its pieces overlap, lie outside the file, or are not as long as what follows.
    """
    text, taken = b"", 0

    def number() -> int:
        nonlocal text, taken
        while b"\n" not in text:
            if len(text) > 20 or taken + BLOCK > member.stored:
                raise BadArchive(f"the map of the sparse file {member.path!r} is damaged")
            text += read(BLOCK)
            taken += BLOCK
        line, _, text = text.partition(b"\n")
        return _number(line)

    count = number()
    if count > _MAX_PIECES:
        raise BadArchive(f"the sparse file {member.path!r} has more than {_MAX_PIECES} pieces")
    pieces = [(number(), number()) for _ in range(count)]
    ends = [0, *(sum(piece) for piece in pieces)]
    ordered = all(piece[0] >= end for piece, end in zip(pieces, ends))
    if not ordered or ends[-1] > member.size or taken + sum(length for _, length in pieces) != member.stored:
        raise BadArchive(f"the map of the sparse file {member.path!r} does not fit it")
    return pieces
