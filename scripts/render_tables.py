"""Make ``src/kern_sandbox/render/_tables.py``: what the renderer knows about Unicode, as committed data.

    python scripts/render_tables.py            # print the module
    python scripts/render_tables.py --write    # put it where it belongs

Python's own ``unicodedata`` says which characters are a letter in another dress (fullwidth, accented, circled,
stroked, small capital), by decomposition and by name. Letters of other scripts that merely look alike are listed
here by hand; ``docs/concepts/rendering.md`` says what that misses.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

TARGET = Path(__file__).resolve().parent.parent / "src" / "kern_sandbox" / "render" / "_tables.py"

ALIKE = {
    "s": "24 35 A7 1BD 455 54F 10BD 10FD 13D5 13DA A4E2 16F3A 10296 10420 118C1",
    "a": "40 251 3B1 430 13AA 15C5 A4EE 16F40 102A0 237A 2376 2227 22C0",
    "n": "14B 19E 3B7 3BD 438 43F 578 57C 2C9B A4E0 10513 1018E 2229 22C2",
    "d": "F0 189 501 13A0 13E7 146F 15DE 15EA 20AB 2202 A4D2 A4D3",
    "b": "36 38 DF 184 3B2 431 432 44A 44C 463 48D 13CF 13F4 1472 1473 15AF 15F7 A4D0 A7B4 10282 102A1 10301",
    "o": "3B8 3BF 3C3 3F4 43E 473 4E9 585 5E1 647 6BE 6C1 6D5 6FF 665 6F5 C02 C82 D02 D82 B20 D20 101D 10FF 12D0 13A4"
    " 13BE 13EB 1D11 2296 229D 2299 229A 25CB 25CE 25EF 236C 2C9F 2D31 2D41 2D54 2D59 3007 3147 A4F3 AB3D AB3E"
    " 1040C 10404 10292 102AB 10516 104C2 118B5 118C8 118D7 118E0 1D21A 1F714 2B55 2B58 1F7E0",
    "x": "D7 3C7 445 4B3 1541 157D 166D 166E 16B7 2573 2715 2716 2717 2718 274C 274E 2A09 292B 292C 2A2F 2A30 2CAD 2D5D"
    " A4EB AB53 AB56 10196 10290 102B4 10317 10322 10527 118EC",
    "[": "",
    ":": "589 5C3 703 704 903 A83 1361 1363 1365 1366 16EC 1803 1809 205A 205D 2236 2237 22EE 2D0 2F8 A789 A4FD"
    " A6F4 FE30",
}
"""Character of the label to what looks like it in other scripts and among symbols, as code points."""

LATIN = (
    r"(?:LATIN|MODIFIER|FULLWIDTH LATIN|OUTLINED LATIN|LATIN SUBSCRIPT|SUPERSCRIPT LATIN)(?: SMALL| CAPITAL)?"
    r" LETTER (?:SMALL CAPITAL |REVERSED |TURNED |INVERTED |SIDEWAYS |OPEN |LONG |SCRIPT |BARRED )*{0}(?: WITH .*)?"
)
DRESSED = (
    r".*(?:CIRCLED|SQUARED|PARENTHESIZED|BRACKETED|INDICATOR SYMBOL|OUTLINED)(?: LATIN)?(?: SMALL| CAPITAL)? LETTER {0}"
)
BRACKET = r".*LEFT (?!.*(?:ANGLE|CURLY|PARENTHESIS)).*(?:BRACKET|CEILING|FLOOR)(?: UPPER CORNER| EXTENSION)?.*"
COLON = r"(?!.*SEMICOLON).*COLON(?: EQUALS?)?"
NAMED = {letter: f"{LATIN}|{DRESSED}".format(letter.upper()) for letter in "sandbox"} | {"[": BRACKET, ":": COLON}

BETWEEN = (
    (0x09, 0x0A), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x202F, 0x202F), (0x205F, 0x205F),
    (0x3000, 0x3000),  # white space
    *((ord(char), ord(char)) for char in "*_~`\\-.|/#=+\xb7\xb0\xb4\xa8^"),  # emphasis and separators
    (0x200C, 0x200D), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF),  # what the keep-list keeps
    (0x2010, 0x2015), (0x2022, 0x2022), (0x2026, 0x2027), (0x2043, 0x2044),  # dashes, dots
    (0x2190, 0x21FF), (0x2300, 0x23FF), (0x2400, 0x2426), (0x2500, 0x27BF), (0x2B00, 0x2BFF), (0xFFFD, 0xFFFD),
    (0x1F000, 0x1F0FF), (0x1F200, 0x1FAFF),  # symbols, pictures of control characters, emoji
)  # fmt: skip
"""What a reader looks past between the characters of a label, besides marks."""

IGNORABLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Code points that show nothing: default-ignorable ones and annotation marks. No category: Cf has visible ones."""


def within(code: int, ranges: Iterable[tuple[int, int]]) -> bool:
    """Whether ``code`` is in one of the ranges."""
    return any(first <= code <= last for first, last in ranges)


def assigned() -> list[int]:
    """The code points that are characters, without ideographs and Korean syllables, which look like nothing here."""
    blocks = ((0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0x17000, 0x18CFF), (0x20000, 0x3FFFF))
    skipped = {code for first, last in blocks for code in range(first, last + 1)}
    everything = (code for code in range(sys.maxunicode + 1) if code not in skipped)
    return [code for code in everything if unicodedata.category(chr(code)) not in {"Cn", "Co", "Cs"}]


def is_mark(code: int) -> bool:
    """Whether the character is a visible mark without a width of its own."""
    return unicodedata.category(chr(code)) in {"Mn", "Me"} and not within(code, IGNORABLE)


def bare(char: str) -> str:
    """The character without its dress: compatibility forms, accents, parentheses and case."""
    parts = unicodedata.normalize("NFKD", char)
    return "".join(part for part in parts if not unicodedata.combining(part)).strip("()").casefold()


def reads_as(code: int, alike: dict[str, str]) -> str | None:
    """The character of the label that ``code`` may be taken for."""
    char, name = chr(code), unicodedata.name(chr(code), "")
    if is_mark(code):
        return None
    plain = bare(char)
    if plain in NAMED:
        return plain
    if char in alike or plain in alike:
        return alike.get(char) or alike[plain]
    if plain.isdigit() and len(plain) == 1 and unicodedata.digit(plain) == 0:
        return "o"
    if not re.search("LETTER|SYMBOL|BRACKET|CEILING|FLOOR|COLON", name):
        return None
    return next((letter for letter, names in NAMED.items() if re.fullmatch(names, name)), None)


def looks() -> dict[str, list[int]]:
    """Every character of the label to the code points that read as it, and ``"db"`` to those that read as both."""
    alike = {chr(int(code, 16)): letter for letter, codes in ALIKE.items() for code in codes.split()}
    alike |= {bare(char): letter for char, letter in alike.items() if len(bare(char)) == 1}
    found: dict[str, list[int]] = {letter: [] for letter in [*NAMED, "db"]}
    for code in assigned():
        read = "db" if bare(chr(code)) == "db" else reads_as(code, alike)
        if read is not None and not within(code, IGNORABLE):
            found[read].append(code)
    return found


def spans(codes: Iterable[int]) -> list[tuple[int, int]]:
    """The code points as ranges."""
    found: list[tuple[int, int]] = []
    for code in sorted(set(codes)):
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


def constant(name: str, codes: Iterable[int]) -> str:
    """The code points as a Python string under a name, laid out as the formatter would."""
    words = [f"{first:X}" if first == last else f"{first:X}-{last:X}" for first, last in spans(codes)]
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) > 108:
            lines.append(line)
            line = ""
        line += f"{word} "
    lines.append(line)
    if len(lines) == 1:
        return f'{name} = "{lines[0]}"'
    return "\n".join([f"{name} = (", *(f'    "{line}"' for line in lines), ")"])


def tables() -> dict[str, list[int]]:
    """Name of a constant to its code points."""
    seen = looks()
    taken = {code for codes in seen.values() for code in codes}
    marks = [code for code in assigned() if is_mark(code)]
    between = [code for first, last in BETWEEN for code in range(first, last + 1) if code not in taken]
    named = {"[": "OPENING", ":": "COLON", "db": "DB"}
    made = {named.get(letter, f"LETTER_{letter.upper()}"): codes for letter, codes in seen.items()}
    ignorable = [code for first, last in IGNORABLE for code in range(first, last + 1)]
    return {**made, "MARKS": marks, "BETWEEN": between, "IGNORABLE": ignorable}


def module() -> str:
    """The text of the module."""
    head = '''"""What the renderer knows about Unicode. Made by ``scripts/render_tables.py``; do not edit."""

from __future__ import annotations

'''
    rows = [f'VERSION = "{unicodedata.unidata_version}"', '"""The version of Unicode that this was made from."""\n']
    rows += [constant(name, codes) for name, codes in tables().items()]
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        TARGET.write_text(module(), encoding="ascii")
    else:
        sys.stdout.write(module())
