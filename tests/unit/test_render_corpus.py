"""Every string of the corpus: attacks on a reader of a box's output, and text that has to stay as it is."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import NamedTuple

import pytest

from kern_sandbox import neutralise
from reader import reads_a_label


class Case(NamedTuple):
    """One string: the kind of its expectation, the row of the catalogue that it stems from, what is to come out."""

    id: str
    row: int
    text: str
    want: str | None

    @property
    def kind(self) -> str:
        return self.id.partition("-")[0]


CORPUS = [
    Case(row["id"], row["row"], row["text"], row.get("want"))
    for row in json.loads((Path(__file__).parent.parent / "data" / "render_corpus.json").read_text(encoding="ascii"))
]


def of(*kinds: str) -> pytest.MarkDecorator:
    """The corpus' strings of these kinds, as a test's parameter."""
    cases = [case for case in CORPUS if case.kind in kinds]
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


@of("spoof")
def test_what_reads_as_a_label_does_not_afterwards(case: Case) -> None:
    assert reads_a_label(case.text)
    shown = neutralise(case.text)
    assert "(quoted) " in shown
    assert not reads_a_label(shown)


@of("control", "hide")
def test_what_moves_a_terminal_or_hides_is_gone_and_the_rest_is_there(case: Case) -> None:
    assert neutralise(case.text) == case.want != case.text or case.text == "a\tb"


@of("keep")
def test_what_people_write_stays_as_it_is(case: Case) -> None:
    assert neutralise(case.text) == case.text
    assert not reads_a_label(case.text)


@of("frame")
def test_framing_is_broken_on_request_only(case: Case) -> None:
    assert neutralise(case.text, strict=True) == case.want
    assert "\u2039" not in neutralise(case.text)


@pytest.mark.parametrize("strict", [False, True])
def test_the_corpus_comes_out_encodable_without_controls_and_once_and_for_all(strict: bool) -> None:
    for case in CORPUS:
        shown = neutralise(case.text, strict=strict)
        assert neutralise(shown, strict=strict) == shown, case.id
        assert shown.encode("utf-8").decode("utf-8") == shown, case.id
        assert not [char for char in shown if unicodedata.category(char) == "Cc" and char not in "\t\n"], case.id


def test_the_corpus_is_large_and_covers_every_row_that_a_renderer_can_do_something_about() -> None:
    assert len(CORPUS) >= 150
    assert len({case.id for case in CORPUS}) == len(CORPUS)
    # 20, 27 and 23's budget concern the page, see test_render_page.py; 29 to 31 nobody can do anything about.
    assert {*range(1, 27)} - {20} <= {case.row for case in CORPUS}
