"""What a value looks like: from any object to the MIME forms that a notebook would show, as JSON text.

Values come from code that nobody has read: a repr may raise, lie, recurse without end or be huge, and each such
failure costs its own form only. Stdlib only, Python 3.8 or later; loaded by `show`.
"""

import sys
from binascii import b2a_base64

try:
    from _json import encode_basestring_ascii as quoted
except ImportError:  # an interpreter without the accelerator
    from json.encoder import encode_basestring_ascii as quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional

    Bundle = Dict[str, Any]

MAX_VALUE_BYTES = 8 << 20
MAX_TEXT_BYTES = 1 << 20
MAX_JSON_DEPTH = 50
MAX_JSON_NODES = 200_000
MAX_TYPES = 32

TEXT, JSON, PNG = "text/plain", "application/json", "image/png"
METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_",
    PNG: "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    JSON: "_repr_json_",
}


def parts_of(value: object, options: "Dict[str, Any]") -> "Dict[str, str]":
    """The forms of ``value`` that keep what their MIME type promises: MIME type to JSON text, plain text first.

    Args:
        value: any object.
        options: IPython's ``raw`` (``value`` is MIME data), ``include`` and ``exclude`` (MIME types).
    """
    bundle = as_bundle(value) if options.get("raw") else bundle_of(value)
    include, exclude = options.get("include"), options.get("exclude") or ()
    return encoded({m: form for m, form in bundle.items() if (not include or m in include) and m not in exclude})


def attempt(what: "Callable[..., Any]", *args: object, **options: object) -> "Any":
    """What ``what`` gives, or ``None`` if it raises anything but an interrupt."""
    try:
        return what(*args, **options)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a repr's SystemExit, too, costs only its own value
        return None


def is_figure(value: object) -> bool:
    """Whether this is a matplotlib figure; matplotlib is not imported to find out."""
    figures: "Any" = sys.modules.get("matplotlib.figure")
    figure = getattr(figures, "Figure", None)
    return figure is not None and issubclass(type(value), figure)


def bundle_of(value: object) -> "Bundle":
    """Every form in which ``value`` offers itself, not yet checked."""
    kind = type(value)
    if is_figure(value):
        return dict({TEXT: text_of(value)}, **attempt(figure_bundle, value) or {})
    if issubclass(kind, type):
        return {TEXT: text_of(value)}
    bundle = as_bundle(attempt(own_form, value, "_repr_mimebundle_", include=None, exclude=None))
    for mime, method in METHODS.items():
        form = attempt(own_form, value, method) if mime not in bundle else None
        if form is not None:
            bundle[mime] = form
    if type(bundle.get(TEXT)) is not str:
        bundle[TEXT] = text_of(value)
    return bundle


def own_form(value: "Any", method: str, **options: object) -> "Any":
    """What a ``_repr_*_`` method gives, without the metadata that may come with it.

    Looked up on the type: an object whose ``__getattr__`` answers to every name has no forms.
    """
    if getattr(type(value), method, None) is None:
        return None
    form = getattr(value, method)(**options)
    return form[0] if type(form) is tuple and len(form) == 2 else form


def as_bundle(form: "Any") -> "Bundle":
    """A copy of ``form`` if it is MIME data, else nothing."""
    if not issubclass(type(form), dict):
        return {}
    return {key: value for key, value in list(dict.items(form))[:MAX_TYPES] if type(key) is str and len(key) < 128}


def figure_bundle(figure: "Any") -> "Bundle":
    """The figure as PNG; nothing for an empty one, as in a notebook."""
    if not figure.axes and not figure.lines:
        return {}
    import io
    import warnings

    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure.savefig(buffer, format="png", bbox_inches="tight")
    return {PNG: buffer.getvalue()}


def text_of(value: object) -> str:
    """``repr(value)`` within limits, or a word on why there is none."""
    kind = type(value)
    try:
        return repr(beginning(value))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a repr raises costs only this text
        why = attempt(str, error)
        words = ": " + exact(why)[:1000] if why else ""
        return "<%s object, whose repr raised %s%s>" % (name_of(kind), name_of(type(error)), words)


def beginning(value: "Any") -> "Any":
    """As much of a huge string or list as can be shown: its whole repr could be more than the memory there is."""
    if type(value) in (str, bytes, bytearray, list, tuple) and len(value) > MAX_TEXT_BYTES:
        return value[:MAX_TEXT_BYTES]
    return value


def name_of(kind: type) -> str:
    """The type's name, whatever its metaclass says."""
    name: str = type.__dict__["__name__"].__get__(kind)
    return name


def exact(text: str) -> str:
    """The same text without the methods of a subclass."""
    return str.__str__(text)


def encoded(bundle: "Bundle") -> "Dict[str, str]":
    """The forms that keep what their MIME type promises, as JSON text, text first, within a value's limit."""
    parts: "Dict[str, str]" = {}
    left_out: "List[str]" = []
    used = 0
    for mime in sorted(bundle, key=lambda name: name != TEXT):
        text = attempt(json_text, mime, bundle[mime])
        if text is None:
            continue
        if used + len(text) > MAX_VALUE_BYTES:
            left_out.append("[%s left out: a value may have 8 MiB]" % mime)
            continue
        parts[mime] = text
        used += len(text)
    if left_out:
        words = quoted("\n".join(left_out))
        parts[TEXT] = parts[TEXT][:-1] + "\\n" + words[1:] if TEXT in parts else words
    return parts


def json_text(mime: str, value: "Any") -> "Optional[str]":
    """``value`` as JSON text if it is of the type that ``mime`` stands for."""
    if issubclass(type(value), (bytes, bytearray, memoryview)) and not mime.startswith("text/"):
        return quoted(b2a_base64(value, newline=False).decode("ascii"))
    if mime == JSON:
        return strict_json(value)
    if mime.endswith("json") and issubclass(type(value), (dict, list)):
        return quoted(strict_json(value))
    if not issubclass(type(value), str):
        return None
    return quoted(shortened(exact(value)) if mime == TEXT else exact(value))


def shortened(text: str) -> str:
    """The text, or its beginning and a line that says so."""
    if len(text) * 4 <= MAX_TEXT_BYTES:
        return text
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= MAX_TEXT_BYTES:
        return text
    kept = data[: MAX_TEXT_BYTES - 100].decode("utf-8", "ignore")
    return "%s\n[cut: only the first %d characters are shown]" % (kept, len(kept))


def strict_json(value: "Any") -> str:
    """JSON that every parser takes; raises `ValueError` or `TypeError` for what JSON has no form for."""
    import json

    return json.dumps(plain(value, MAX_JSON_DEPTH, iter(range(MAX_JSON_NODES))), allow_nan=False)


def plain(value: "Any", depth: int, left: "Iterator[int]") -> "Any":
    """Containers rebuilt of builtins, floats that JSON lacks as text; bounded in depth and in number."""
    if depth == 0 or next(left, None) is None:
        raise ValueError("too deep or too large")
    kind = type(value)
    if issubclass(kind, dict):
        return {exact(str(key)): plain(item, depth - 1, left) for key, item in dict.items(value)}
    if issubclass(kind, (list, tuple)):
        return [plain(item, depth - 1, left) for item in value]
    if issubclass(kind, float):
        text = float.__repr__(value)
        return text if text in ("nan", "inf", "-inf") else value
    return value
