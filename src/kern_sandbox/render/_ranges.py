"""Sets of characters, from ``"41-5A 61"`` to a class of a regular expression."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

__all__ = ["char_class", "codes_of"]


def codes_of(text: str) -> frozenset[int]:
    """The code points that a string of ranges names, in hexadecimal."""
    return frozenset(code for word in text.split() for code in _range(word))


def _range(word: str) -> range:
    first, _, last = word.partition("-")
    return range(int(first, 16), int(last or first, 16) + 1)


def char_class(codes: AbstractSet[int]) -> str:
    """A character class that matches exactly one of ``codes``."""
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _spans(codes)) + "]"


def _spans(codes: AbstractSet[int]) -> Iterator[tuple[int, int]]:
    for code in codes:
        if code - 1 not in codes:
            last = code
            while last + 1 in codes:
                last += 1
            yield code, last
