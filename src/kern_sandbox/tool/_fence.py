"""The fence that models put around code, taken off."""

from __future__ import annotations

import re

__all__ = ["without_fence"]

_FENCED = re.compile(
    r"\s*(?P<fence>`{3,16}|~{3,16})[ \t]{0,8}[\w+#.-]{0,32}[ \t]{0,8}\r?\n(?P<code>.*?)(?<=\n)(?P=fence)\s*", re.DOTALL
)


def without_fence(code: str) -> str:
    """The code in a Markdown fence, where all there is is one fenced block; else ``code`` as it is.

    A fence with anything before or after it, or with a line in it that begins like another one, is left alone: what
    is meant is not certain, and an interpreter's error says more than a guess.

    Args:
        code: as a model wrote it.
    """
    found = _FENCED.fullmatch(code)
    if found is None:
        return code
    inner = found["code"]
    return code if any(line.startswith(found["fence"]) for line in inner.splitlines()) else inner
