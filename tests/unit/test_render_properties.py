"""What holds for any text at all that a box may write."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from kern_sandbox import neutralise
from reader import reads_a_label

PIECES = [
    *"[]sandbox:( \n\t\r\b\0\x07\x18\x1b\x7f\x9b\x9c\x9d;0KJm1",
    "[sandbox: oom]",
    "[sandbox",
    "\x1b[",
    "\x1b]0;",
    "\x1b\\",
    "\x1b[2K",
    "\u200b",
    "\u200c",
    "\u200d",
    "\u202e",
    "\u3164",
    "\u2800",
    "\ufe0f",
    "\ufe00",
    "\u0301",
    "\u0336",
    "\u094d",
    "\u0915",
    "\u0645",
    "\u2764",
    "\U0001f525",
    "\U0001f3f4",
    "\U0001f3fd",
    "\U000e0067",
    "\U000e007f",
    "\U000e0101",
    "\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\u20e3",
    "\u6f22",
    "\u180b",
    "\u1820",
    "\u2211",
    "\ud800",
    "\udcff",
    "\ue000",
    "\ufdd0",
    "\ufeff",
    "\u0430",
    "\uff1a",
    "\u3010",
    "\u33c8",
    "<system>",
    "![",
    "Human:",
    "[INST]",
    "<|",
    "</s>",
]
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=16).map("".join)
ANY = st.one_of(HOSTILE, st.text(st.characters()), st.builds("{}{}".format, HOSTILE, st.text(st.characters())))

WORDS = [
    "plain",
    "na\u00efve",
    "x = y[0]",
    "- item",
    "# title",
    "\u00ab\u00bb",
    "100 %",
    "\U0001f600",
    "\U0001f469\U0001f3fd\u200d\U0001f4bb",
    "\u2764\ufe0f\u200d\U0001f525",
    "1\ufe0f\u20e3",
    "\U0001f1e9\U0001f1ea",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0915\u094d\u200d\u0937",
    "\u0c85\u0c95\u0ccd\u200c",
    "\u65e5\u672c\u8a9e",
    "\u3010\u91cd\u8981\u3011",
    "\ud55c\uad6d\uc5b4",
    "\u0e44\u0e17\u0e22",
    "\u250c\u2500\u2510",
    "\u2502 \u2502",
    "\u2588\u2593\u2591",
    "\u2022",
    "e\u0301",
    "\u28ff",
]
LEGITIMATE = st.lists(st.sampled_from(WORDS)).flatmap(
    lambda words: st.lists(st.sampled_from([" ", "\n", "\t", ", "]), min_size=len(words), max_size=len(words)).map(
        lambda gaps: "".join(word + gap for word, gap in zip(words, gaps))
    )
)


@settings(max_examples=400)
@given(ANY, st.booleans())
def test_any_text_comes_out_safe_to_show_to_store_and_to_send(text: str, strict: bool) -> None:
    shown = neutralise(text, strict=strict)
    shown.encode("utf-8")
    kinds = {unicodedata.category(char) for char in shown if char not in "\t\n"}
    assert not kinds & {"Cc", "Cs", "Co", "Zl", "Zp"}
    assert not set(shown) & set("\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\u3164")


@settings(max_examples=400)
@given(ANY, st.booleans())
def test_a_second_pass_changes_nothing(text: str, strict: bool) -> None:
    shown = neutralise(text, strict=strict)
    assert neutralise(shown, strict=strict) == shown


@settings(max_examples=400)
@given(HOSTILE)
def test_nothing_that_comes_out_reads_as_a_label(text: str) -> None:
    assert not reads_a_label(neutralise(text))
    assert not reads_a_label(neutralise(f"{text}[sandbox: oom]{text}"))


@given(LEGITIMATE)
def test_what_people_write_in_any_script_stays_as_it_is(text: str) -> None:
    assert neutralise(text) == text


@given(st.binary())
def test_bytes_are_utf8_with_replacement(data: bytes) -> None:
    assert neutralise(data) == neutralise(data.decode("utf-8", "replace"))


@given(HOSTILE, HOSTILE)
def test_lines_do_not_change_each_other(first: str, second: str) -> None:
    """As long as a label does not stretch over both."""
    both = neutralise(f"{first}]\n]{second}")
    assert both == neutralise(f"{first}]") + "\n" + neutralise(f"]{second}")
