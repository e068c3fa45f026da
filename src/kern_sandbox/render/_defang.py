"""A fixed list of words that frame a model's context, broken so that they frame nothing."""

from __future__ import annotations

import re

__all__ = ["defang"]

_TAGS = (
    "system", "system-reminder", "system_prompt", "instructions?", "developer", "user", "assistant", "human",
    "tools?", "tool_results?", "tool_response", "tool_calls?", "tool_use", "function_results?", "function_calls?",
    "function_response", "results?", "output", "invoke", "parameter", "thinking", "think", "context", "documents?",
    "search_results?", "env", "environment_details", "s", "start_of_turn", "end_of_turn", "bos", "eos", "pad", "unk",
)  # fmt: skip
_LESS = "[<\N{FULLWIDTH LESS-THAN SIGN}\N{SMALL LESS-THAN SIGN}]"
_TAG = re.compile(
    f"{_LESS}(?= {{0,4}}/? {{0,4}}(?:antml:|[|]|img(?![\\w.-])|(?:{'|'.join(_TAGS)})(?![\\w.-]))|{_LESS}/?SYS>)",
    re.IGNORECASE,
)
"""The first character of an opening or closing tag, of ``<|token|>`` and of ``<<SYS>>``."""
_BRACKETED = re.compile(
    r"\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\])", re.IGNORECASE
)
_TURN = re.compile(
    r"^([ \t]{0,8})(?=(?:Human|Assistant|System|User|Developer|Tool)[ \t]{0,4}:)", re.IGNORECASE | re.MULTILINE
)
_IMAGE = re.compile(r"!(?=\[)")


def defang(text: str) -> str:
    """The text with tags and tokens that models or their clients read as framing, and Markdown images, broken."""
    text = _BRACKETED.sub("(", _TAG.sub("\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}", text))
    return _IMAGE.sub("! ", _TURN.sub(r"\1(quoted) ", text))
