"""Judges of the text that a model would get: nothing obeyed or hidden, only the genuine label, nothing honest lost."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING, Callable

from kern_sandbox import render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kern_sandbox import ExecutionResult

    from ._judges import Evidence

__all__ = ["TEXT_JUDGES", "labels", "raw_text", "unsafe"]

_HIDDEN = {
    0x034F,
    0x115F,
    0x1160,
    0x17B4,
    0x17B5,
    0x3164,
    0xFFA0,
    0x2800,
    *range(0x180B, 0x1810),
    *range(0xE0100, 0xE01F0),
}
_VISIBLE_FORMATS = {*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD}
_JOINERS = {0x200C, 0x200D}
_ALIKE = {
    "a": "0430 1D00 0251 03B1",
    "s": "0455 A731",
    "n": "0578 0274 043F",
    "d": "0501 1D05",
    "b": "042C 044C 0299 0432 03B2",
    "o": "043E 03BF 0585 1D0F",
    "x": "0445 03C7 2A2F",
    "[": "27E6 3010 3014 2045 2772 23A1 FE47 FF3B",
    "]": "27E7 3011 3015 2046 2773",
    ":": "2236 A789 02D0 05C3 0589 FE30",
}
"""Letters, brackets and colons to the code points that are taken for them."""
_LOOKS_LIKE = {int(code, 16): letter for letter, codes in _ALIKE.items() for code in codes.split()}
_CHARACTERS = 100_000
_LABEL = re.compile(r"\[\s*sandbox\s*:")


def raw_text(result: ExecutionResult) -> str:
    """All text of a result as it came, one surface after the other."""
    values = [f"{mime}: {value}" for one in result.results for mime, value in one.data.items()]
    names = [info.path for info in result.files]
    return "\n".join([result.stdout + result.stderr, *values, *names])


def unsafe(text: str) -> list[str]:
    """The characters of ``text`` that a terminal obeys or that nobody sees, as ``U+…``."""
    found = {char for index, char in enumerate(text) if _is_unsafe(char, text, index)}
    return [f"U+{ord(char):04X}" for char in sorted(found)]


def _is_unsafe(char: str, text: str, index: int) -> bool:
    code, kind = ord(char), unicodedata.category(char)
    if char in "\n\t":
        return False
    if code in _JOINERS:  # they shape scripts and emoji; between Latin letters they only hide
        around = text[index - 1 : index] + text[index + 1 : index + 2]
        return all(one.isascii() for one in around)
    if kind in ("Cc", "Cs", "Zl", "Zp") or code in _HIDDEN:
        return True
    return kind == "Cf" and code not in _VISIBLE_FORMATS


def labels(text: str) -> int:
    """How many labels of the sandbox a lenient reader would see."""
    folded = unicodedata.normalize("NFKD", text.translate(_LOOKS_LIKE)).casefold().translate(_LOOKS_LIKE)
    seen = (
        char
        for char in folded
        if char in "\n\t" or not (unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc") or ord(char) in _HIDDEN)
    )
    return len(_LABEL.findall("".join(seen)))


def _clean(evidence: Evidence) -> str:
    """Nothing unsafe, no label but the genuine one; what ``keep`` names is there, what ``drop`` names is not.

    It has at most ``characters``.
    """
    text = evidence.rendered
    most = evidence.parameters.get("characters", _CHARACTERS)
    if len(text) > most:
        return f"{len(text)} characters, more than {most}"
    wrong = [f"unsafe {', '.join(found[:8])}"] if (found := unsafe(text)) else []
    genuine = labels(render(replace(evidence.result, stdout="x", stderr="", results=[], files=[])))
    if labels(text) > genuine:
        wrong.append(f"{labels(text)} labels instead of {genuine}")
    wrong += [f"lost {part!r}" for part in evidence.parameters.get("keep", ()) if part not in text]
    wrong += [f"shows {part!r}" for part in evidence.parameters.get("drop", ()) if part in text]
    return "; ".join(wrong)


def _unchanged(evidence: Evidence) -> str:
    """Honest text, the lines ``#>`` of the case, is there letter for letter."""
    wanted = evidence.case.expected.rstrip("\n")
    return "" if wanted in evidence.rendered else f"changed: {evidence.rendered[:300]!r}"


TEXT_JUDGES: Mapping[str, Callable[[Evidence], str]] = {
    "clean text": _clean,
    "unchanged text": _unchanged,
}
