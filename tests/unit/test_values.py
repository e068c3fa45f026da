"""The host decodes what a box sends as values: any bytes, without harm."""

from __future__ import annotations

import base64
import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern_sandbox._box.values import decode_values
from kern_sandbox.results import ExecutionResult, Result

PNG = b"\x89PNG\r\n\x1a\n" + bytes(5)
JPEG = b"\xff\xd8\xff\xe0" + bytes(5)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def frame(data: Any, in_base64: Any = (), **more: Any) -> bytes:
    return json.dumps({"data": data, "b64": in_base64, **more}).encode() + b"\n"


def data_of(raw: bytes) -> list[dict[str, Any]]:
    return [dict(result.data) for result in decode_values(raw)]


def assert_sound(results: list[Result]) -> None:
    """Every value is of its documented type, and the whole survives a strict encoder."""
    for result in results:
        assert result.data
        for mime, value in result.data.items():
            if mime in ("image/png", "image/jpeg"):
                assert isinstance(value, bytes)
            elif mime != "application/json":
                assert isinstance(value, str)
                value.encode()
    json.dumps(ExecutionResult(results=results).to_dict(), allow_nan=False).encode()


def test_each_mime_type_has_its_python_type() -> None:
    """Bytes for the two image types, data for JSON, text for the rest."""
    sent = {
        "text/plain": "p",
        "image/png": b64(PNG),
        "image/jpeg": b64(JPEG),
        "application/json": {"a": [1, 2.5, None, True]},
        "image/svg+xml": "<svg/>",
        "application/vnd.vega.v5+json": "{}",
    }
    (data,) = data_of(frame(sent, ["image/png", "image/jpeg"]))
    assert data == {**sent, "image/png": PNG, "image/jpeg": JPEG}


@pytest.mark.parametrize(
    ("mime", "value", "in_base64"),
    [
        ("image/png", b64(PNG), []),
        ("image/png", b64(b"GIF89a"), ["image/png"]),
        ("image/png", b64(PNG) + "*", ["image/png"]),
        ("image/png", "é", ["image/png"]),
        ("image/png", [1], ["image/png"]),
        ("image/png", b64(PNG), "image/png"),
        ("image/png", b64(PNG), {"image/png": 1}),
        ("image/jpeg", b64(PNG), ["image/jpeg"]),
        ("image/jpeg", "not bytes", ["image/jpeg"]),
        ("application/json", None, []),
        ("text/html", 1, []),
        ("text/html", ["<b>"], []),
        ("text/html", None, []),
        ("application/vnd.vega.v5+json", {}, []),
        ("", "x", []),
        ("text", "x", []),
        ("text/", "x", []),
        ("Text/Plain", "x", []),
        ("text/plain; charset=utf-8", "x", []),
        ("text/plain\n", "x", []),
        ("text/\u202e", "x", []),
        ("[sandbox: oom]", "x", []),
        ("text/" + "x" * 101, "x", []),
    ],
)
def test_a_form_of_the_wrong_type_is_dropped_alone(mime: str, value: Any, in_base64: Any) -> None:
    """Its neighbours stay."""
    assert data_of(frame({mime: value, "text/markdown": "m"}, in_base64)) == [{"text/markdown": "m"}]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\n\n",
        b"{}\n",
        b"null\n",
        b"[]\n",
        b'"data"\n',
        b'{"data": []}\n',
        b'{"data": {}}\n',
        b'{"data": {"text/plain": "cut',
        b'{"data": {"text/plain": "cut\n',
        b'{"data": {"text/plain": "\xff"}}\n',
        '{"data": {"text/plain": "é"}}\n'.encode(),
        b'{"data": {"text/plain": "a"}, \n',
        b'{"data": {"text/plain": "a"}} x\n',
        b"\xff\xff\xff\xff\n",
        b"\x80\x04cos\nsystem\n(S'true'\ntR.\n",
        b'{"data": {"application/json": ' + b"[" * 100_000 + b"\n",
        b'{"data": {"application/json": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n",
        b'{"data": {"application/json": ' + b'{"a":' * 100_000 + b"\n",
        b'{"data": {"application/json": ' + b'["\\"]",' * 100 + b"1" + b"]" * 100 + b"}}\n",
        b'{"data": {"text/plain": "' + b"x" * (9 << 20) + b'"}}\n',
    ],
)
def test_what_is_no_frame_is_skipped(bad: bytes) -> None:
    """And what stands around it is not."""
    good = frame({"text/plain": "good"})
    assert data_of(good + (bad if bad.endswith(b"\n") else bad + b"\n") + good) == [{"text/plain": "good"}] * 2
    assert decode_values(bad) == []


def test_a_frame_must_be_whole() -> None:
    """The last one of a process that died while it wrote is not."""
    assert decode_values(frame({"text/plain": "a"})[:-1]) == []


def test_brackets_in_text_are_not_depth() -> None:
    """Neither are quotes and backslashes in text ends of it."""
    for text in ("[" * 1000, '"' + "[" * 100, "\\" + "[" * 100, '\\"' + "{" * 100, '\\\\"' + "[" * 100):
        assert data_of(frame({"text/plain": text})) == [{"text/plain": text}]


def test_json_within_the_depth_is_kept() -> None:
    """Fifty levels are."""
    value: Any = 1
    for _ in range(50):
        value = [value]
    assert data_of(frame({"application/json": value})) == [{"application/json": value}]


def test_many_tiny_values_do_not_fill_the_hosts_memory() -> None:
    """A frame of millions of empty lists is dropped; one before it is not."""
    flood = b'{"data": {"application/json": [' + b"[]," * 2_000_000 + b"1]}}\n"
    assert data_of(frame({"text/plain": "a"}) + flood) == [{"text/plain": "a"}]


def test_numbers_beyond_json_or_python_become_text() -> None:
    """No float is infinite, and no number is so long that reading it takes minutes."""
    numbers = b"NaN, Infinity, -Infinity, 1e999, -1e999, 1.5, -7, " + b"9" * 3_000_000
    (data,) = data_of(b'{"data": {"application/json": [' + numbers + b"]}}\n")
    assert data["application/json"] == ["nan", "inf", "-inf", "inf", "-inf", 1.5, -7, "9" * 3_000_000]


def test_lone_surrogates_are_replaced() -> None:
    """In text, in JSON, in its keys; a pair is the character it stands for."""
    sent = {"text/plain": "a\ud800b\udc00😀", "application/json": {"\udfff": ["\ud800"]}}
    (data,) = data_of(frame(sent))
    assert data == {"text/plain": "a\ufffdb\ufffd😀", "application/json": {"\ufffd": ["\ufffd"]}}


def test_values_beyond_the_limit_are_one_note() -> None:
    """As many as allowed, and a word that there were more."""
    raw = b"".join(frame({"text/plain": str(n)}) for n in range(300))
    texts = [result.text for result in decode_values(raw, max_values=3)]
    assert texts == ["0", "1", "2", "[no more values are shown: at most 3]"]
    assert len(decode_values(raw)) == 101


def test_the_guests_note_is_the_last_value() -> None:
    """It may come when the limit is reached, and nothing follows it."""
    shown = frame({"text/plain": "a"})
    raw = shown + frame({"text/plain": "note"}, note=True) + shown
    assert [result.text for result in decode_values(raw, max_values=1)] == ["a", "note"]


def test_bytes_beyond_the_limit_are_not_read() -> None:
    """A frame that begins within it is not whole."""
    raw = frame({"text/plain": "a"}) * 2
    assert len(decode_values(raw, max_bytes=len(raw))) == 2
    assert len(decode_values(raw, max_bytes=len(raw) - 1)) == 1


def test_a_flood_of_lines_is_not_read_to_its_end() -> None:
    """Lines that say nothing are counted, too."""
    assert decode_values(b"\n" * 100_000 + frame({"text/plain": "a"})) == []


def test_a_frame_with_an_id_replaces_the_one_before() -> None:
    """In its place."""
    raw = frame({"text/plain": "0"}, id="a") + frame({"text/plain": "other"}) + frame({"text/plain": "1"}, id="a")
    assert [result.text for result in decode_values(raw)] == ["1", "other"]
    odd = frame({"text/plain": "x"}, id=["a"]) + frame({"text/plain": "y"}, id=None) + frame({"text/plain": "z"}, id={})
    assert [result.text for result in decode_values(odd)] == ["x", "y", "z"]


def test_a_caller_near_the_recursion_limit_gets_a_list() -> None:
    """Too little stack costs the value, not the call."""
    raw = frame({"application/json": [[[[1]]]], "text/plain": "a"})

    def deep(left: int) -> list[Result]:
        return deep(left - 1) if left else decode_values(raw)

    def room() -> int:
        try:
            return 1 + room()
        except RecursionError:
            return 0

    assert decode_values(raw)  # what a first call compiles needs more stack than any other (Python 3.9)
    gc.disable()  # who listens to it, as hypothesis does, would fail for want of stack
    try:
        for spare in range(16, 60):
            assert isinstance(deep(room() - spare), list)
    finally:
        gc.enable()


MIMES = (
    st.sampled_from(["text/plain", "image/png", "image/jpeg", "application/json", "text/html", "x", "a/b"]) | st.text()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.just(b64(PNG)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
FRAMES = st.builds(frame, st.dictionaries(MIMES, JSON) | JSON, st.lists(MIMES) | JSON)


@given(st.binary())
def test_any_bytes_give_a_list(raw: bytes) -> None:
    """Never an exception."""
    assert_sound(decode_values(raw))


@given(st.lists(FRAMES))
def test_any_frames_give_sound_values(frames: list[bytes]) -> None:
    """Of the types that are documented, whatever stands in the frame."""
    assert_sound(decode_values(b"".join(frames)))


@given(st.lists(FRAMES, min_size=1), st.data())
def test_mutated_frames_give_sound_values(frames: list[bytes], data: st.DataObject) -> None:
    """A slice of any bytes put anywhere into frames costs at most frames."""
    raw = b"".join(frames)
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, len(raw)))
    junk = data.draw(st.binary() | st.sampled_from([b'"', b"\\", b"[", b"}", b"\n", b"NaN", b"1e999", b"\\ud800"]))
    assert_sound(decode_values(raw[:start] + junk + raw[end:]))
