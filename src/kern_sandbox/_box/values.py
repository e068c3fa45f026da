"""Decode the rich values that a box sent: total, bounded, and believing nothing of it.

Any bytes give a list. A frame is one line of ASCII JSON, ``{"data": {MIME: value}, "b64": [MIME, …]}``; what is
not one is skipped. Its writer is the code itself, if it wants to be: nothing here decides more than what is shown,
nothing is unpickled or evaluated, and neither time nor memory grows faster than the bytes that came.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from typing import TYPE_CHECKING, Any

from ..results import Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["decode_values"]

_MAX_LINES = 10_000  # frames that replace others do not count as values, but are read
_MAX_LINE_BYTES = (8 << 20) + (64 << 10)  # what the guest sends of one value, and its frame
_MAX_NODES = 1_000_000  # JSON values in a call; "[]," is 3 bytes and 64 in memory
_MAX_DEPTH = 64
_MAX_DIGITS = 400  # int() of a long text takes quadratic time before Python 3.11
_MAX_KEY = 256

_MIME = re.compile(r"[a-z]{1,32}/[a-z0-9][a-z0-9.+-]{0,99}")
_BRACKET = re.compile(rb"[\[\]{}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAGIC = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8"}


def decode_values(raw: bytes, *, max_values: int = 100, max_bytes: int = 32 << 20) -> list[Result]:
    """Turn what came through the results pipe into values.

    Args:
        raw: any bytes.
        max_values: how many values to return; one more says so if there would be more.
        max_bytes: how much of ``raw`` is read; a frame that is not whole within it is dropped.

    Returns:
        The values in the order in which they were first shown.
    """
    results: list[Result] = []
    places: dict[str, int] = {}
    for frame in _frames(raw[:max_bytes]):
        result = Result(_data_of(frame))
        key = frame.get("id")
        if not result.data:
            continue
        if isinstance(key, str) and key in places:
            results[places[key]] = result
        elif frame.get("note") is True:
            return [*results, result]
        elif len(results) == max_values:
            return [*results, Result({"text/plain": f"[no more values are shown: at most {max_values}]"})]
        else:
            if isinstance(key, str) and len(key) <= _MAX_KEY:
                places[key] = len(results)
            results.append(result)
    return results


def _frames(raw: bytes) -> Iterator[Mapping[str, Any]]:
    """Every line that is a JSON object with an object as its data, until the call's limits are reached."""
    start = 0
    nodes = 0
    for _ in range(_MAX_LINES):
        end = raw.find(b"\n", start)
        if end < 0:
            return
        line, start = raw[start:end], end + 1
        nodes += _nodes(line)
        if nodes > _MAX_NODES:
            return
        frame = _parsed(line)
        if isinstance(frame, dict) and isinstance(frame.get("data"), dict):
            yield frame


def _nodes(line: bytes) -> int:
    """How many JSON values the line has at most; it is exact up to the first syntax error."""
    if len(line) > _MAX_LINE_BYTES:
        return 0
    return line.count(b'"') + line.count(b",") + line.count(b"[") + line.count(b"{")


def _parsed(line: bytes) -> Any:
    """The line's JSON value, every float finite; ``None`` if it is not JSON, or too long or too deep."""
    if len(line) > _MAX_LINE_BYTES or not line.isascii() or _depth(line) > _MAX_DEPTH:
        return None
    try:
        return json.loads(line.decode("ascii"), parse_int=_number, parse_float=_number, parse_constant=_constant)
    except (ValueError, RecursionError):  # recursion: of a caller that is at its limit already
        return None


def _depth(line: bytes) -> int:
    """How deep brackets nest outside strings.

    A backslash stands only in a string: without the escaped ones and the escaped quotes, every second piece
    between quotes is a string. That holds up to the first syntax error, where parsing ends anyway.
    """
    outside = b"".join(line.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    depth = deepest = 0
    for bracket in _BRACKET.findall(outside):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _number(text: str) -> int | float | str:
    """A JSON number; as text where Python's or JSON's own range ends."""
    if len(text) > _MAX_DIGITS:
        return text
    if text.lstrip("-").isdigit():
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else str(value)


def _constant(name: str) -> str:
    """``NaN`` and the infinities, which are not JSON, as `ExecutionResult.to_dict` has them."""
    return str(float(name))


def _data_of(frame: Mapping[str, Any]) -> dict[str, Any]:
    """The frame's forms that are of their MIME type's type."""
    base64_types = frame.get("b64")
    in_base64 = base64_types if isinstance(base64_types, list) else []
    forms = {}
    for mime, value in frame["data"].items():
        if not _MIME.fullmatch(mime):
            continue
        form = _form(mime, value, mime in in_base64)
        if form is not None:
            forms[mime] = form
    return forms


def _form(mime: str, value: Any, in_base64: bool) -> Any:
    """The value as `Result.data` documents it, or ``None`` if it is not that."""
    if mime in _MAGIC:
        image = _image(value) if in_base64 else b""
        return image if image.startswith(_MAGIC[mime]) else None
    if mime == "application/json":
        return _clean(value)
    return _clean(value) if isinstance(value, str) else None


def _image(value: Any) -> bytes:
    """The bytes of base64 text; none if it is not that."""
    if not isinstance(value, str):
        return b""
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _clean(value: Any) -> Any:
    """The same JSON value with U+FFFD for every lone surrogate; as deep as `_MAX_DEPTH` at most."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
