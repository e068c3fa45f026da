"""The renderer's time grows with the text and no faster: counted in steps, not in seconds."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kern_sandbox import ExecutionResult, neutralise, render
from kern_sandbox.render import _defang, _invisible, _label, _neutral, _terminal
from steps import steps_of_search
from support import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable

MODULES = (_defang, _invisible, _label, _neutral, _terminal)
PATTERNS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern)
}
HOSTILE = {
    "brackets": "[",
    "labels in labels": "[sandbox: ",
    "openings of a label": "[s a n ",
    "skeleton": "[s a n d b o x    ",
    "unfinished title": "\x1b]",
    "title": "\x1b]0;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "unfinished colour": "\x1b[9;",
    "parameters": "9;",
    "escapes": "\x1b",
    "charsets": "\x1b ",
    "marks": "\u0301",
    "marks and joiners": "\u0301\u200d",
    "joiners": "a\u200d",
    "joined": "\u0645\u200d",
    "invisible": "\u200b",
    "backspaces": "a\b",
    "returns": "\rabc",
    "erasures": "abc\x1b[2K",
    "wide": "\u6f22\r",
    "line ends": "\n",
    "tags": "<  /  ",
    "turns": "\n        ",
    "blanks": " ",
    "plain": "abc",
    "flags": "\U0001f1e6",
}
SIZE = 300


def grows(count: Callable[[str], int], piece: str, start: str = "") -> tuple[int, int]:
    """The steps for a text, and for one that is twice as long."""
    once = piece * (SIZE // len(piece) + 1)
    return count(start + once), count(start + once + once)


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_looks_at_a_text_more_often_the_longer_it_is(name: str) -> None:
    def count(text: str) -> int:
        return steps_of_search(PATTERNS[name], text)

    for label, piece in HOSTILE.items():
        for start in ("", "\x1b]", "["):
            once, twice = grows(count, piece, start)
            assert twice <= 2.1 * once + 50, (label, start)


@pytest.mark.parametrize(
    ("pattern", "hostile"), [("a*b", "a"), (r"\[[^\]]*\]", "["), (r" *x *", " "), (r"(?=a+b)c", "a")]
)
def test_the_count_finds_a_pattern_that_is_not_linear(pattern: str, hostile: str) -> None:
    once, twice = grows(lambda text: steps_of_search(re.compile(pattern), text), hostile)
    assert twice > 3 * once


@pytest.mark.parametrize("pattern", ["a+b?", "(?:a|bc)d", "[^a]x", "(?<=a)b(?!c)", "(?m)^[ab]c", "(?i)A[B-D]"])
def test_the_count_matches_what_the_engine_matches(pattern: str) -> None:
    from steps import _Matcher

    compiled = re.compile(pattern)
    for text in ("aab", "bcd", "yx", "abcab", "x\nac", "ad"):
        for at in range(len(text)):
            found = compiled.match(text, at)
            assert next(_Matcher(compiled, text).match(_Matcher(compiled, text).nodes, at), None) == (
                found.end() if found else None
            )


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of the renderer run."""
    count = 0
    ours = str(PACKAGE / "render")

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename.startswith(ours) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("label", HOSTILE)
def test_twice_the_text_runs_at_most_twice_the_lines(label: str) -> None:
    once, twice = grows(lambda text: lines_run(lambda: neutralise(text, strict=True)), HOSTILE[label])
    assert twice <= 2.1 * once + 50
    once, twice = grows(lambda text: lines_run(lambda: render(ExecutionResult(stdout=text * 99))), HOSTILE[label])
    assert twice <= 2.1 * once + 200
