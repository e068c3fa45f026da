"""The server's settings: variables of its environment, checked at start, as options of a Sandbox."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from ..errors import SpecError
from ..sandbox import Sandbox

__all__ = ["PREFIX", "Settings", "listed", "settings"]

PREFIX = "KERN_MCP_"
_OUTPUT_BYTES = 4 << 20
"""What the server keeps of a call's output; of it a model gets less."""


class Settings(NamedTuple):
    """What the variables say.

    Attributes:
        options: of the Sandbox.
        kernel: whether Python keeps its state between calls.
    """

    options: dict[str, Any]
    kernel: bool


def _memory(text: str) -> int | None:
    return None if text == "none" else int(text)


def _several(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


class _Variable(NamedTuple):
    name: str
    option: str
    convert: Callable[[str], Any]
    accepted: str


_VARIABLES = (
    _Variable("IMAGE", "image", str, "an image, e.g. python:3.12-slim; without it the host's own system, read-only"),
    _Variable("SETUP", "setup", str, "a shell command run once with network, e.g. pip install pandas"),
    _Variable("MEMORY_MB", "memory_mb", _memory, "MiB of memory a call, 16 or more, or none; 512 without it"),
    _Variable("TIMEOUT", "timeout_s", float, "seconds a call may take; 30 without it"),
    _Variable("WORKSPACE", "workspace", str, "a directory to keep files in; without it a temporary one"),
    _Variable("PROFILES", "profiles", _several, "names from kern.toml, with commas between, e.g. vcpu:heavy"),
    _Variable("EGRESS", "egress_allow", _several, "hosts that code may reach, with commas between, e.g. example.org"),
)
_KERNEL = f"{PREFIX}KERNEL"
_KERNEL_WORDS = "1: Python keeps its variables between calls, and there is a tool reset; 0 or unset: it does not"


def listed() -> str:
    """Every variable and what it accepts, for a person."""
    rows = [(PREFIX + one.name, one.accepted) for one in _VARIABLES] + [(_KERNEL, _KERNEL_WORDS)]
    lines = [
        f"  {name}\n{textwrap.fill(words, 78, initial_indent='    ', subsequent_indent='    ')}" for name, words in rows
    ]
    return "\n".join(lines)


def settings(environ: Mapping[str, str]) -> Settings:
    """Read the variables; one that is empty is one that is not set.

    Raises:
        SpecError: a variable is not known, or has a value that is not accepted; the message names it.
    """
    given = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    known = [PREFIX + one.name for one in _VARIABLES] + [_KERNEL]
    for name in given:
        if name not in known:
            raise SpecError(f"there is no variable {name}: known are {', '.join(known)}")
    kernel = given.get(_KERNEL, "0")
    if kernel not in ("0", "1"):
        raise SpecError(f"{_KERNEL}={kernel!r} is not accepted. Accepted: {_KERNEL_WORDS}")
    options = {one.option: _value(one, given[PREFIX + one.name]) for one in _VARIABLES if PREFIX + one.name in given}
    return Settings({"max_output_bytes": _OUTPUT_BYTES, **options}, kernel == "1")


def _value(variable: _Variable, text: str) -> Any:
    name = PREFIX + variable.name
    try:
        value = variable.convert(text)
    except ValueError:
        raise SpecError(f"{name}={text[:120]!r} is not accepted. Accepted: {variable.accepted}") from None
    if variable.option != "workspace":  # which is looked at when it is used
        try:
            Sandbox(**{variable.option: value}).close()
        except SpecError as error:
            raise SpecError(f"{name}={text[:120]!r} is not accepted ({error}): {variable.accepted}") from None
    return value
