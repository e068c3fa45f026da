"""What the tests of archives share."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kern_sandbox.workspace import Workspace

Tree = dict[str, Any]


def tree(top: str | Path) -> Tree:
    """Path to content and mode; a directory's content is ``None``."""
    found: Tree = {}
    for folder, names, files in os.walk(os.fsencode(top)):
        for name in [*names, *files]:
            path = os.path.join(folder, name)
            content = None if os.path.isdir(path) else Path(os.fsdecode(path)).read_bytes()
            found[os.fsdecode(os.path.relpath(path, os.fsencode(top)))] = (content, os.lstat(path).st_mode & 0o777)
    return found


def fill(space: Workspace) -> None:
    space.write_file("b/c/deep.txt", "deep")
    space.write_file("a.bin", bytes(range(256)) * 9)
    space.write_file("b/run.sh", "#!/bin/sh\n")
    os.chmod(Path(space.path, "b/run.sh"), 0o755)
    os.mkdir(Path(space.path, "empty"), 0o700)
    os.mkdir(Path(space.path, "long"), 0o755)
    space.write_file("long/" + "n" * 200, b"long")
    Path(os.fsdecode(os.fsencode(space.path) + b"/\xff\xfe")).write_bytes(b"bytes")


def packed(*members: tuple[str, dict[str, Any], bytes], pax: dict[str, str] | None = None) -> bytes:
    """An archive of members: name, fields of its ``TarInfo``, content."""
    return gzip.compress(packed_raw(*members, pax=pax))


def packed_raw(*members: tuple[str, dict[str, Any], bytes], pax: dict[str, str] | None = None) -> bytes:
    """As ``packed``, not compressed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers=pax or {}) as archive:
        for name, fields, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def plain(name: str, content: bytes = b"x") -> tuple[str, dict[str, Any], bytes]:
    return name, {}, content


def of_type(name: str, kind: bytes, target: str = "") -> tuple[str, dict[str, Any], bytes]:
    return name, {"type": kind, "linkname": target}, b""


def negative(data: bytes) -> bytes:
    """The archive with a size of -512 in its first header, and the right checksum."""
    changed = bytearray(data)
    changed[124:136] = b"\xff" * 10 + b"\xfe\x00"
    repair(changed)
    return bytes(changed)


def repair(data: bytearray) -> None:
    """Make the checksum of every block that could be a header right, so that what it says is looked at."""
    for start in range(0, len(data) - 511, 512):
        block = data[start : start + 512]
        if any(block):
            block[148:156] = b" " * 8
            data[start + 148 : start + 156] = b"%06o\0 " % sum(block)
