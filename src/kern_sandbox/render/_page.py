"""``render`` and ``blocks``: a result as one page, the sandbox's own word first, everything within a budget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple, Union

from ..checks import bad, flag, whole
from ..results import ExecutionResult, FileInfo, Result
from ._clip import clip, line_count, shares
from ._images import MAX_SIDE, image_size
from ._neutral import neutralise, one_line
from ._words import hint, label

__all__ = ["DEFAULT_LIMIT", "DEFAULT_LINES", "ImagePart", "TextPart", "blocks", "render"]

DEFAULT_LIMIT = 20_000
DEFAULT_LINES = 500
_LEAST_LIMIT, _MOST_LIMIT = 2_000, 1 << 30
_LEAST_LINES, _MOST_LINES = 40, 1 << 30
_MOST_FILES = 100
_MOST_IMAGES = 8
_MOST_IMAGE_BYTES = 3_750_000
_NOTE_LIMIT = 400
_IMAGES = ("image/png", "image/jpeg")
_TEXTS = ("text/plain", "text/markdown", "text/latex")
_NO_OUTPUT = "(no output)"


class TextPart(NamedTuple):
    """Text of a rendered result."""

    text: str


class ImagePart(NamedTuple):
    """An image of a rendered result: a whole PNG or JPEG, of a size that clients take."""

    mime: str
    data: bytes


Part = Union[TextPart, ImagePart]


class _Section(NamedTuple):
    title: str
    text: str


def render(
    result: ExecutionResult, *, limit: int = DEFAULT_LIMIT, lines: int = DEFAULT_LINES, strict: bool = False
) -> str:
    """The result as text for a model or a person.

    First the sandbox's own label, only where the sandbox acted; then the exit code where it is not 0, standard
    output, standard error, values, changed files and notes, as far as there are any. All that a box can influence is
    neutralised. Each part that is too long keeps its head and tail, and says exactly how much is left out.

    Args:
        result: what a call returned.
        limit: characters of the whole text, at least 2,000.
        lines: its lines, at least 40.
        strict: as in `neutralise`.

    Raises:
        SpecError: an argument is not accepted.
    """
    if not isinstance(result, ExecutionResult):
        raise bad("result", result, "an ExecutionResult, which run_code and run return")
    whole("limit", limit, _LEAST_LIMIT, _MOST_LIMIT)
    whole("lines", lines, _LEAST_LINES, _MOST_LINES)
    flag("strict", strict)
    stderr = _own_stderr(result)
    head = _head(result, stderr)
    sections = [
        _Section(section.title, neutralise(section.text, strict=strict).strip("\n"))
        for section in _sections(result, stderr)
    ]
    shown = [section for section in sections if section.text]
    if not {"stdout", "stderr", "value", "values"}.intersection(section.title for section in shown):
        head.append(_NO_OUTPUT)
    if not head and [section.title for section in shown] == ["stdout"]:
        return neutralise(clip(shown[0].text, limit, lines), strict=strict)
    body = neutralise(_fitted(shown, limit - sum(map(len, head)) - 8, lines - len(head) - 1), strict=strict)
    return "\n\n".join(filter(None, ["\n".join(head), body]))


def blocks(
    result: ExecutionResult, *, limit: int = DEFAULT_LIMIT, lines: int = DEFAULT_LINES, strict: bool = False
) -> list[Part]:
    """The result as parts of a message: its text as of `render`, then its images.

    At most eight images, each of at most 3.75 MB and 8,000 pixels a side, and only what is a whole PNG or JPEG: a
    client that is sent another may refuse the conversation from then on. The text names every image, these or not.

    Raises:
        SpecError: as `render`.
    """
    text = TextPart(render(result, limit=limit, lines=lines, strict=strict))
    images = [
        ImagePart(mime, data)
        for value in result.results
        for mime, data in value.data.items()
        if mime in _IMAGES and isinstance(data, bytes) and not _unfit(mime, data)
    ]
    return [text, *images[:_MOST_IMAGES]]


# Parts of the page


def _head(result: ExecutionResult, stderr: str) -> list[str]:
    """The lines in the sandbox's own words."""
    head = [label(result.fault)] if result.fault is not None else []
    if result.exit_code != 0:
        head.append(f"exit code: {result.exit_code}")
    words = hint(result, stderr)
    return head + ([f"hint: {words}"] if words else [])


def _sections(result: ExecutionResult, stderr: str) -> list[_Section]:
    said = result.fault is not None and stderr.strip() == result.fault.message.strip()
    places = iter(range(_MOST_IMAGES))
    values = [text for text in (_value(value, places) for value in result.results) if text]
    return [
        _Section("stdout", result.stdout),
        _Section("stderr", "" if said else stderr),
        _Section("value" if len(values) == 1 else "values", "\n".join(values)),
        _Section("files", _files(list(result.files))),
        _Section("notes", _notes(result)),
    ]


def _own_stderr(result: ExecutionResult) -> str:
    """The code's standard error; the engine's own lines at its end have a place of their own."""
    notes = "".join(f"kern: note: {note}\n" for note in result.runtime_notes)
    return result.stderr[: -len(notes)] if notes and result.stderr.endswith(notes) else result.stderr


def _value(value: Result, places: Iterator[int]) -> str:
    """One rich value: its best text form, and the names of what cannot be shown as text."""
    text = next((form for form in map(value.data.get, _TEXTS) if isinstance(form, str)), None)
    if text is None and "application/json" in value.data:
        text = _json(value.json)
    images = [_image(mime, data, places) for mime, data in value.data.items() if mime in _IMAGES]
    if text is None and not images:
        images = [f"({one_line(str(mime), 80)}, not shown as text)" for mime in list(value.data)[:1]]
    return "\n".join([*([text] if text else []), *images])


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except (RecursionError, ValueError, TypeError):
        return "(application/json, not shown as text)"


def _image(mime: str, data: object, places: Iterator[int]) -> str:
    if not isinstance(data, bytes):
        return f"({mime}, not an image)"
    size = image_size(mime, data)
    pixels = f", {size[0]} \N{MULTIPLICATION SIGN} {size[1]}" if size else ""
    why = _unfit(mime, data) or ("" if next(places, None) is not None else "one too many, not shown")
    return f"({mime}{pixels}, {len(data):,} bytes{': ' + why if why else ''})"


def _unfit(mime: str, data: bytes) -> str:
    """Why the image cannot be handed on, or nothing."""
    size = image_size(mime, data)
    if size is None:
        return "not a whole image, not shown"
    if len(data) > _MOST_IMAGE_BYTES or max(size) > MAX_SIDE:
        return "too large, not shown"
    return ""


def _files(files: list[FileInfo]) -> str:
    shown = [_file(file) for file in files[:_MOST_FILES]]
    if len(files) > _MOST_FILES:
        shown.append(f"and {len(files) - _MOST_FILES:,} more")
    return "\n".join(shown)


def _file(file: FileInfo) -> str:
    size = "" if file.change == "deleted" else f" ({file.size:,} bytes)"
    return f"{file.change}: {one_line(file.path)}{size}"


def _notes(result: ExecutionResult) -> str:
    notes = [one_line(note, _NOTE_LIMIT) for note in result.runtime_notes]
    if result.truncated:
        notes.append("output went beyond what a box may write; the rest was dropped")
    return "\n".join(f"- {note}" for note in notes)


def _fitted(sections: list[_Section], limit: int, lines: int) -> str:
    """The sections below their titles, each clipped to its share of what is left."""
    titles = sum(len(section.title) + 4 for section in sections)
    rooms = shares([len(section.text) for section in sections], limit - titles)
    heights = shares([line_count(section.text) for section in sections], lines - 2 * len(sections))
    fitted = [
        f"{section.title}:\n{clip(section.text, room, height)}"
        for section, room, height in zip(sections, rooms, heights)
    ]
    return "\n\n".join(fitted)
