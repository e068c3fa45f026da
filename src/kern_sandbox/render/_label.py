"""What reads as the sandbox's own label, ``[sandbox: …]``, in text that is not the sandbox's."""

from __future__ import annotations

import re
from typing import get_args

from ..results import FaultType
from . import _tables as tables
from ._ranges import char_class, codes_of

__all__ = ["rewrite_labels"]

_QUOTED = "(quoted) "
"""Stands for the opening bracket: not a bracket, not the word, no delimiter that what stands beside it could use."""

_FOLDS = {
    **dict.fromkeys(codes_of(tables.BETWEEN) | codes_of(tables.MARKS), " "),
    **dict.fromkeys(codes_of(tables.OPENING), "["),
    **dict.fromkeys(codes_of(tables.COLON), ":"),
    **dict.fromkeys(codes_of(tables.DB), "\1"),
    **{code: letter for letter in "sandbox" for code in codes_of(getattr(tables, f"LETTER_{letter.upper()}"))},
}
"""Every character to one that it reads as: the skeleton of a text has the text's own offsets."""

_OPENING = re.compile(char_class(codes_of(tables.OPENING)))
_FAULTS = "|".join(kind.partition("_")[0] for kind in get_args(FaultType))
_LABEL = re.compile(rf"\[ *s *a *n *(?:d *b|\x01) *o *x *(?::| (?:{_FAULTS}))", re.IGNORECASE)


def rewrite_labels(text: str) -> str:
    """The text with the bracket of everything that reads as a label of the sandbox replaced by a word."""
    if not _OPENING.search(text):
        return text
    kept, end = [], 0
    for match in _LABEL.finditer(text.translate(_FOLDS)):
        kept += [text[end : match.start()], _QUOTED]
        end = match.start() + 1
    return "".join(kept) + text[end:]
