"""What a reader makes of a text: the judge of the renderer, written without looking at how the renderer works."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["reads_a_label"]

_SEQUENCES = (
    r"(?:\x1b[\]PX^_k]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)",
    r"(?:\x1b\[|\x9b)[0-9:;<=>?]*[ -/]*[@-~]",
    r"\x1b[()*+ #%][ -~]|\x1b[0-9A-Za-z=>~]",
)
# fmt: off
_LOOKS = {
    "s": "\u0455\ua731\u13da\ua4e2\u054f5$", "a": "\u0430\u03b1\u1d00\ua4ee\u0251@", "n": "\u0274\u0578\ua4e0",
    "d": "\u1d05\u0501\ua4d3\u0111", "b": "\u0299\u0184\ua4d0\u0180", "o": "\u043e\u03bf\u1d0f\u0585\ua4f30\xf8\xba",
    "x": "\u0445\u03c7\ua4eb\xd7",
    "[": "\u27e6\u301a\u3010\u3014\u2045\u2772\u23a1\u300c\u230a\u2308\u3016\u3018\u298b",
    ":": "\u2236\ua789\u02d0\u05c3\u0589\u0703\u16ec\u02f8\u205d",
}
# fmt: on
_FOLDS = {look: letter for letter, looks in _LOOKS.items() for look in looks}
_FAULTS = "timeout|oom|killed|disk|escape|exec|startup"
_LABEL = re.compile(rf"\[sandbox(?::|(?:{_FAULTS}))")


def reads_a_label(text: str) -> bool:
    """Whether somebody who sees the text on a terminal, or a model that folds letters, may take it for our label."""
    for pattern in _SEQUENCES:
        text = re.sub(pattern, "", text)
    lines = re.split("[\n\x0b\x0c\x85\u2028\u2029]", text.replace("\r\n", "\n"))
    return bool(_LABEL.search("".join(map(_letter, "\n".join(map(_overwritten, lines))))))


def _overwritten(line: str) -> str:
    """The line after its returns and backspaces, one column for each character."""
    if not re.search("[\r\b]", line):
        return line
    columns: list[str] = []
    at = 0
    for char in line:
        if char in "\r\b":
            at = 0 if char == "\r" else max(0, at - 1)
        else:
            columns[at : at + 1] = [char]
            at += 1
    return "".join(columns)


def _letter(char: str) -> str:
    """What the character is to a reader: a letter, a bracket, a colon, or nothing."""
    name = unicodedata.name(char, "")
    last = name.rpartition(" LETTER ")[2]
    if re.search("REGIONAL INDICATOR|SQUARED|CIRCLED|PARENTHESIZED", name) and len(last) == 1:
        return last.lower()
    if "FILLER" in name:
        return ""
    folded = _FOLDS.get(char) or "".join(
        part for part in unicodedata.normalize("NFKD", char).casefold() if unicodedata.category(part)[0] not in "MC"
    )
    folded = "".join(_FOLDS.get(part, part) for part in folded)
    return "" if re.fullmatch(r"[\W_]*", folded) and not re.search(r"[\[\]:(){}<>\"',;&!?]", folded) else folded
