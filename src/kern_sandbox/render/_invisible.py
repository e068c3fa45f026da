"""Characters that show nothing go, unless a script or an emoji needs them just there; marks are capped."""

from __future__ import annotations

import re
import unicodedata

from ._ranges import char_class, codes_of
from ._tables import IGNORABLE, MARKS

__all__ = ["drop_invisible"]

_MARKS_PER_BASE = 4
_ZWNJ, _ZWJ, _KEYCAP, _BLACK_FLAG = "\u200c", "\u200d", "\u20e3", "\U0001f3f4"
_FLAGS = tuple(
    "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f" for region in ("gbeng", "gbsct", "gbwls")
)
"""Tag characters of the only flags that are spelt with them and in use: England, Scotland, Wales."""
_SOMETIMES = codes_of("200C-200D 180B-180F FE00-FE0F E0020-E007F E0100-E01EF")
"""What a neighbour may need: joiners, selectors of Mongolian, variation selectors, tags."""
_JOINING = codes_of(
    "600-8FF 900-DFF 1000-109F 1780-18AF A840-A87F A8E0-A8FF A9E0-A9FF AA60-AA7F 10A00-10A5F 10D00-10D3F 11000-116CF "
    "1E900-1E95F"
)
"""Scripts in which a joiner changes how its neighbours look."""
_ARABIC = codes_of("600-77F 840-8FF")
_MONGOLIAN = codes_of("1820-18AA")
_EMOJI = codes_of(
    "A9 AE 203C 2049 2122 2139 2190-21FF 2300-23FF 24C2 25A0-27BF 2900-297F 2B00-2BFF 3030 303D 3297 3299 1F000-1FAFF"
)
_IDEOGRAPHS = codes_of("3400-4DBF 4E00-9FFF F900-FAFF 20000-3FFFD")

_MARK = char_class(codes_of(MARKS))
_HIDDEN = char_class(_SOMETIMES)
_EITHER = char_class(codes_of(MARKS) | _SOMETIMES)
_NEVER = re.compile(char_class(codes_of(IGNORABLE) - _SOMETIMES))
_AFTER_ASCII = re.compile(f'{_HIDDEN}(?<=[\\0-"$-)+-/:-\\x7f]{_HIDDEN}){_HIDDEN}*')
"""Nothing of ASCII but the keys 0 to 9, # and * has need of what follows: the usual case, and the cheap one."""
_RUN = re.compile(f"{_MARK}{{0,{_MARKS_PER_BASE}}}{_HIDDEN}{_EITHER}*|{_MARK}{{{_MARKS_PER_BASE + 1}}}{_EITHER}*")
"""Marks and invisible characters on one base, where something may have to go."""
_HIDDEN_RUN = re.compile(f"{_HIDDEN}+")
_ONE_MARK = re.compile(_MARK)


def drop_invisible(text: str) -> str:
    """The text without what cannot be seen in it, and with at most four marks on one base."""
    if text.isascii():
        return text
    text = _NEVER.sub("", text).replace("\N{BRAILLE PATTERN BLANK}", " ")
    return _RUN.sub(_thinned, _AFTER_ASCII.sub("", text))


def _thinned(match: re.Match[str]) -> str:
    """One run with its first four marks, and of the rest what those that are left, or the base, have need of."""
    before = match.string[match.start() - 1 : match.start()]
    after = match.string[match.end() : match.end() + 1]
    run = match.group()
    excess = [mark.start() for mark in _ONE_MARK.finditer(run)][_MARKS_PER_BASE:]
    if excess:
        run = run[: excess[0]] + _ONE_MARK.sub("", run[excess[0] :])
    whole = _HIDDEN_RUN.sub(_needed, f"{before}{run}{after}")
    return whole[len(before) : len(whole) - len(after)]


def _needed(match: re.Match[str]) -> str:
    """Of invisible characters between two that are visible: one selector for the left one, one joiner for both."""
    run, text = match.group(), match.string
    before = text[match.start() - 1 : match.start()]
    after = text[match.end() : match.end() + 1]
    if before == _BLACK_FLAG and run.startswith(_FLAGS):
        return next(flag for flag in _FLAGS if run.startswith(flag))
    selector = run[0] if before and _selects(ord(before), ord(run[0]), after) else ""
    joiner = next((char for char in run if char in (_ZWNJ, _ZWJ)), "")
    return selector + (joiner if before and _joins(joiner, ord(before), after) else "")


def _selects(base: int, selector: int, after: str) -> bool:
    """Whether the base has forms to select from with this selector."""
    if selector in (0xFE0E, 0xFE0F):
        return base in _EMOJI or (chr(base) in "0123456789#*" and after == _KEYCAP)
    if 0xFE00 <= selector <= 0xFE02 and base > 0x7F and unicodedata.category(chr(base)) == "Sm":
        return True
    if 0x180B <= selector <= 0x180F:
        return base in _MONGOLIAN
    return base in _IDEOGRAPHS and (selector <= 0xFE02 or selector >= 0xE0100) and selector >= 0xFE00


def _joins(joiner: str, base: int, after: str) -> bool:
    """Whether the joiner is one that a reader of the script, or of the emoji, would miss."""
    following = ord(after) if after else 0
    if joiner == _ZWJ and base in _EMOJI:
        return following in _EMOJI
    if base not in _JOINING:
        return False
    ends_a_form = unicodedata.category(chr(base)) == "Mn" or (joiner == _ZWJ and base in _ARABIC)
    return following in _JOINING or ends_a_form
