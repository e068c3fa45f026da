"""What a terminal obeys, as a terminal would: sequences out, carriage returns and backspaces played, controls shown."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["play"]

_ERASE = re.compile(r"(?:\x1b\[|\x9b)0?[JK]")
_ERASE_LINE = re.compile(r"(?:\x1b\[|\x9b)2K")
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}[@-~]"  # CSI: colours, cursor, modes
    r"|(?:\x1b[\]PX^_k]|[\x90\x98\x9d-\x9f])[^\x00-\x08\x0a-\x1f\x7f-\x9f]{0,65536}(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, …
    r"|\x1b[ -/]{1,16}[0-~]"  # character sets
    r"|\x1b[0-OQ-WYZ\\`-jl-~]"  # everything of two characters
)
"""Each has a bound: what goes on longer, or is cut off by a line's end, is taken for output with a broken start."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_PICTURES: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\0\b\t\n\r"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys((0x0B, 0x0C, 0x85, 0x2028, 0x2029), "\n"),
}
_ERASED = "\0"
"""Stands for "erase to the end of the line" between the steps; a NUL of the text has become a picture by then."""
_MOVES = re.compile("[\0\b\r]")
_MARKS_PER_CELL = 8


def play(text: str) -> str:
    """The text as it would stand on a terminal that obeys nothing but line ends, returns, backspaces and erasing."""
    if not _CONTROL.search(text):
        return text
    text = text.replace("\0", "\N{SYMBOL FOR NULL}").replace("\r\n", "\n")
    text = _ERASE_LINE.sub("\r" + _ERASED, _ERASE.sub(_ERASED, text))
    text = _SEQUENCE.sub("", text).translate(_PICTURES)
    if not _MOVES.search(text):
        return text
    return "\n".join(_played(line) if _MOVES.search(line) else line for line in text.split("\n"))


def _played(line: str) -> str:
    """One line, its returns, backspaces and erasures carried out over cells."""
    cells: list[str] = []
    at = 0
    for char in line:
        if char == "\r":
            at = 0
        elif char == "\b":
            at = max(0, at - 1)
        elif char == _ERASED:
            del cells[at:]
        else:
            at = _put(cells, at, char)
    return "".join(cells)


def _put(cells: list[str], at: int, char: str) -> int:
    """Write one character at a column; returns the next column. The right half of a wide one is an empty cell."""
    width = _width(char)
    if width == 0 and at:
        base = at - 1 if cells[at - 1] or at == 1 else at - 2
        if len(cells[base]) <= _MARKS_PER_CELL:
            cells[base] += char
        return at
    if at < len(cells) and not cells[at]:
        cells[at - 1] = " "
    new = [char, ""][: max(1, width)]
    after = at + len(new)
    if after < len(cells) and not cells[after]:
        cells[after] = " "
    cells[at:after] = new
    return after


def _width(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
