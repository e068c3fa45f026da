"""Text that a box can influence, made safe to put in front of a model or on a terminal: a fixed row of linear steps.

Each step leaves nothing for an earlier one to do, and the label is looked for last: what a step removes cannot put
one together behind its back. All of them together are idempotent.
"""

from __future__ import annotations

import re

from ._defang import defang
from ._invisible import drop_invisible
from ._label import rewrite_labels
from ._terminal import play

__all__ = ["neutralise", "one_line"]

_UNREADABLE = re.compile(
    "[\ud800-\udfff\ufdd0-\ufdef\ue000-\uf8ff\ufffe\uffff\U000f0000-\U0010ffff]|[{}]".replace(
        "{}", "".join(chr((plane << 16) + last) for plane in range(1, 15) for last in (0xFFFE, 0xFFFF))
    )
)
"""Surrogates, noncharacters and private use: no two readers agree on what they show."""


def neutralise(text: str | bytes, *, strict: bool = False) -> str:
    """Make text from a box safe to show: what it says stays, what it could do to its reader goes.

    Escape sequences are removed as a terminal would read them, carriage returns and backspaces are played, other
    control characters become pictures of themselves, invisible and bidirectional characters go, and what reads as
    the sandbox's own label is rewritten. Total, linear and idempotent; the result encodes to UTF-8.

    Args:
        text: anything; bytes are taken as UTF-8.
        strict: also defang tool-framing tags, special tokens of models and Markdown images. A fixed list, for
            readers that cannot tell framing from content themselves.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = drop_invisible(play(_UNREADABLE.sub("\N{REPLACEMENT CHARACTER}", text)))
    return rewrite_labels(defang(text) if strict else text)


def one_line(text: str, limit: int = 200) -> str:
    """Neutralised text for the middle of a line, such as a file's name: newlines are shown, length is capped."""
    shown = neutralise(text[: 8 * limit]).replace("\n", "\N{SYMBOL FOR NEWLINE}").replace("\t", " ")
    return shown if len(shown) <= limit and len(text) <= 8 * limit else shown[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"
