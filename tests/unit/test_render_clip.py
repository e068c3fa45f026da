"""Long text keeps its head and tail, cut between what a reader sees as characters, and counts what is gone."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kern_sandbox.render._clip import _boundary, _is_boundary, clip, line_count, shares

CHARACTERS = [
    "a",
    "e\u0301",
    "\u6f22",
    "\U0001f469\U0001f3fd\u200d\U0001f4bb",
    "\U0001f1e9\U0001f1ea",
    "1\ufe0f\u20e3",
    "\u2764\ufe0f",
    "\u0915\u094d\u0937",
    "\u0915\u094d\u200d\u0937",
    "\u0e01\u0e33",
    "\u1100\u1161\u11a8",
    "\uac00\u11a8",
    "\uff76\uff9e",
    "\u06001",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\u0b95\u0bcd",
    "\u05e9\u05b8\u05c1",
]
"""What a reader takes for one character each."""
TEXTS = st.lists(st.sampled_from([*CHARACTERS, "\n", "word\n"]), max_size=400)


def taken_apart(clipped: str, text: str) -> tuple[str, str, int, int]:
    """Head, tail, and the counts of characters and whole lines between them."""
    found = re.search(
        r"(?:\A|\n)\u2026 ([\d,]+) characters left out(?:, ([\d,]+) whole lines among them)? \u2026\n", clipped
    )
    assert found
    head, tail = clipped[: found.start()], clipped[found.end() :]
    if text[: len(head) + 1] == f"{head}\n" and found.group()[0] == "\n":
        head += "\n"  # the line's own end, unless it was put there to end a line that was cut
    counts = [int((count or "0").replace(",", "")) for count in found.groups()]
    if len(head) + len(tail) + counts[0] > len(text):
        head = head[:-1]
    return head, tail, counts[0], counts[1]


@settings(max_examples=300)
@given(TEXTS, st.integers(80, 400), st.integers(3, 40))
def test_head_tail_and_counts_are_exact(pieces: list[str], limit: int, lines: int) -> None:
    text = "".join(pieces)
    clipped = clip(text, limit, lines)
    assert len(clipped) <= limit
    assert line_count(clipped) <= lines
    if len(text) <= limit and line_count(text) <= lines:
        assert clipped == text
        return
    head, tail, characters, whole_lines = taken_apart(clipped, text)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + characters + len(tail) == len(text)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    spans = [(start, end) for start, end in zip(starts, [*starts[1:], len(text)]) if start < end]
    gone = [span for span in spans if span[0] >= len(head) and span[1] <= len(text) - len(tail)]
    assert whole_lines == len(gone)


@settings(max_examples=300)
@given(TEXTS, st.integers(80, 400))
@example(["a"] * 80 + ["word\n"], 84)  # room for one character, and the last line's end is one
def test_no_character_of_a_reader_is_cut(pieces: list[str], limit: int) -> None:
    text = "".join(pieces)
    if len(text) > limit:
        head, tail, _, _ = taken_apart(clip(text, limit, 1000), text)
        ends = {0}
        for piece in pieces:
            for character in piece if piece == "word\n" else [piece]:
                ends.add(max(ends) + len(character))
        assert {len(head), len(text) - len(tail)} <= ends


@pytest.mark.parametrize("one", CHARACTERS)
def test_a_character_ends_where_the_next_one_begins(one: str) -> None:
    text = f"{one}b{one}"
    inside = {*range(1, len(one)), *range(len(one) + 2, len(text))}
    assert {at for at in range(len(text) + 1) if not _is_boundary(text, at)} == inside


def test_two_flags_or_syllables_are_two_characters() -> None:
    assert [at for at in range(5) if _is_boundary("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", at)] == [0, 2, 4]
    assert _is_boundary("\uac00\ub098", 1)
    assert not _is_boundary("\u1100\uac00", 1)


def test_what_has_no_end_is_cut_all_the_same() -> None:
    endless = "\U0001f469\u200d" * 1000
    assert _boundary(endless, 500, -1) == 500
    head, tail, gone, _ = taken_apart(clip(endless, 200, 10), endless)
    assert head
    assert tail
    assert len(head) + len(tail) + gone == 2000


def test_a_line_that_is_cut_is_not_counted_as_gone() -> None:
    text = "x" * 300 + "\n" + "y\n" * 200
    head, tail, gone, whole_lines = taken_apart(clip(text, 200, 100), text)
    assert 0 < len(head) < 300
    assert whole_lines == 200 - tail.count("\n")
    assert gone == len(text) - len(head) - len(tail)


def test_a_cut_prefers_the_end_of_a_line() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    head, tail, _, _ = taken_apart(clip(text, 500, 100), text)
    assert head.endswith("\n")
    assert tail.startswith("line ")


def test_who_needs_little_gets_it_and_the_others_share_the_rest() -> None:
    assert shares([5, 1000, 10, 1000], 215) == [5, 100, 10, 100]
    assert shares([1, 2], 100) == [1, 2]
    assert shares([], 100) == []
