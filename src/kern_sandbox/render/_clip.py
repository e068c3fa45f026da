"""Long text to its head and tail, cut where no character is cut, with the exact count of what is gone."""

from __future__ import annotations

import unicodedata

__all__ = ["clip", "line_count", "shares"]

_MARKER_ROOM = 80
"""Characters that the line in the middle may take, its line ends included."""

_LONGEST_CLUSTER = 32
"""Code points that a character of a reader may have; what goes on longer is cut like any other text."""
_JAMO = (range(0x1100, 0x1200), range(0xA960, 0xA980), range(0xD7B0, 0xD800))
_SYLLABLES = range(0xAC00, 0xD7A4)
_PREPENDED = frozenset((*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0xD4E, 0x110BD, 0x110CD))
_VIRAMAS = frozenset((0x94D, 0x9CD, 0xA4D, 0xACD, 0xB4D, 0xBCD, 0xC4D, 0xCCD, 0xD4D, 0xDCA, 0x1039, 0x17D2, 0x1A60))


def shares(needs: list[int], room: int) -> list[int]:
    """``room`` dealt out so that who needs little gets it all, and the others get equal parts of the rest."""
    given = [0] * len(needs)
    order = sorted(range(len(needs)), key=needs.__getitem__)
    for left, index in zip(range(len(needs), 0, -1), order):
        given[index] = min(needs[index], room // left)
        room -= given[index]
    return given


def clip(text: str, limit: int, lines: int) -> str:
    """``text`` if it has at most ``limit`` characters and ``lines`` lines, else its head, a line of count, its tail.

    The result stays within both, as long as ``limit`` is at least 80 and ``lines`` at least 3.
    """
    if len(text) <= limit and line_count(text) <= lines:
        return text
    room = max(0, limit - _MARKER_ROOM)
    head = _head(text, room // 2, max(1, (lines - 1) // 2))
    tail = max(head, _tail(text, room - room // 2, max(1, lines // 2)))
    line_end = "" if _starts_line(text, head) else "\n"
    return f"{text[:head]}{line_end}{_marker(text, head, tail)}\n{text[tail:]}"


def _marker(text: str, head: int, tail: int) -> str:
    """The words for ``text[head:tail]``, which is not shown."""
    whole = text.count("\n", head, tail) - (not _starts_line(text, head)) + (tail == len(text) and text[-1:] != "\n")
    among = f", {whole:,} whole lines among them" if whole > 0 else ""
    return f"\N{HORIZONTAL ELLIPSIS} {tail - head:,} characters left out{among} \N{HORIZONTAL ELLIPSIS}"


def _starts_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def line_count(text: str) -> int:
    """How many lines the text has; a last one without an end counts."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def _head(text: str, limit: int, lines: int) -> int:
    """Where the head ends: within the limits, after a line if that costs at most half of it, else after a character."""
    end = 0
    for _ in range(lines):
        line_end = text.find("\n", end, limit)
        if line_end < 0:
            break
        end = line_end + 1
    else:
        return end
    return end if end > limit // 2 else _boundary(text, min(limit, len(text)), -1)


def _tail(text: str, limit: int, lines: int) -> int:
    """Where the tail starts, likewise."""
    start = len(text) - (text[-1:] == "\n")
    first = max(0, len(text) - limit)
    for _ in range(lines):
        line_end = text.rfind("\n", max(0, first - 1), start)
        if line_end < 0:
            break
        start = line_end
    else:
        return start + 1
    found = start + 1 if start < len(text) - (text[-1:] == "\n") else len(text)
    return found if len(text) - found > limit // 2 else _boundary(text, first, 1)


def _boundary(text: str, at: int, step: int) -> int:
    """The nearest place from ``at`` on, in the direction of ``step``, that is not inside of a character."""
    for place in range(at, at + step * _LONGEST_CLUSTER, step):
        if _is_boundary(text, place):
            return place
    return at


def _is_boundary(text: str, at: int) -> bool:
    """Whether a reader sees one character end and another begin (UAX #29, on the safe side)."""
    if at <= 0 or at >= len(text) or text[at - 1] == "\n" or text[at] == "\n":
        return True
    before, after = ord(text[at - 1]), ord(text[at])
    if before < 0x300 and after < 0x300:
        return True
    if unicodedata.category(text[at])[0] == "M" or _extends(after) or before == 0x200D or before in _PREPENDED:
        return False
    if before in _VIRAMAS and unicodedata.category(text[at]) == "Lo":
        return False
    if _is_regional(before) and _is_regional(after):
        return _regionals_before(text, at) % 2 == 0
    return not _is_one_syllable(before, after)


def _extends(code: int) -> bool:
    """Whether it belongs to what stands before it, though it is no mark: joiners, skin tones, tags, Thai vowels."""
    return (
        code in (0x200C, 0x200D, 0xE33, 0xEB3, 0xFF9E, 0xFF9F)
        or 0x1F3FB <= code <= 0x1F3FF
        or 0xE0020 <= code <= 0xE007F
    )


def _is_regional(code: int) -> bool:
    return 0x1F1E6 <= code <= 0x1F1FF


def _regionals_before(text: str, at: int) -> int:
    """How many letters of flags stand in a row before ``at``: two make one flag."""
    count = 0
    while count < at and _is_regional(ord(text[at - 1 - count])):
        count += 1
    return count


def _is_one_syllable(before: int, after: int) -> bool:
    """Whether a part of a Korean syllable stands beside another, or beside a whole one."""
    jamo = [any(code in part for part in _JAMO) for code in (before, after)]
    return any(jamo) and all(one or code in _SYLLABLES for one, code in zip(jamo, (before, after)))
