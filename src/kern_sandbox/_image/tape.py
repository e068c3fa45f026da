"""Tar as strangers write it: headers that cannot fill the memory, and all ways in which damage shows."""

from __future__ import annotations

import gzip
import tarfile
import zlib

from ..errors import LayerRefused

try:
    from lzma import LZMAError
except ImportError:  # a Python that was built without it reads no such archive either
    LZMAError = EOFError  # type: ignore[assignment,misc] # stands for none of its own

__all__ = ["DAMAGE", "SPARSE", "Header"]

DAMAGE = (
    tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError, gzip.BadGzipFile, LZMAError, zlib.error,
)  # fmt: skip
"""What ``tarfile`` and the decompressors raise over content that is damaged, or was made to confuse them."""
SPARSE = "an entry is a sparse file, which layers do not have"
_HEADER_LIMIT = 1 << 20
_EXTRA = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class Header(tarfile.TarInfo):
    """A header of an archive that anybody may have made.

    Its extensions are read into memory only if they are small. A sparse file, which the OCI specification advises
    against, is refused before its map is read: both map and holes come to any size at next to no bytes.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Header:
        """As of ``TarInfo``.

        Raises:
            LayerRefused: the extensions are large, or the file is sparse.
        """
        header = super().frombuf(buf, encoding, errors)
        if header.type in _EXTRA and header.size > _HEADER_LIMIT:
            raise LayerRefused(f"an entry has {header.size} bytes of name and attributes")
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise LayerRefused(SPARSE)
        return header

    def _proc_gnusparse_00(self, *_: object) -> None:
        raise LayerRefused(SPARSE)

    _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00
