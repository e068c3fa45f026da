"""Whether bytes that a box calls an image are one that a reader's client will take."""

from __future__ import annotations

__all__ = ["MAX_SIDE", "image_size"]

MAX_SIDE = 8000
"""Pixels; what is wider or taller is refused by clients, or costs them their memory."""

_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_PNG_END = b"IEND\xaeB`\x82"


def image_size(mime: str, data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, or ``None`` where this is no whole PNG or JPEG."""
    size = _png_size(data) if mime == "image/png" else _jpeg_size(data)
    return size if size and min(size) > 0 else None


def _png_size(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(_PNG) or not data.endswith(_PNG_END):
        return None
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """From the first frame header; each segment before it says its own length."""
    if not data.startswith(b"\xff\xd8\xff") or not data.endswith(b"\xff\xd9"):
        return None
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big") if marker != 0xFF else 1
    return None
