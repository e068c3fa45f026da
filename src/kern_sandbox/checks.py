"""How a value that a caller gives is checked: what every option and every argument of a call have in common."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Callable

from .errors import SpecError

__all__ = [
    "LANGUAGES",
    "bad",
    "check_argv",
    "check_callback",
    "check_code",
    "check_cwd",
    "check_env",
    "check_stdin",
    "check_timeout",
    "flag",
    "number",
    "printable",
    "short",
    "size_of",
    "whole",
]

LANGUAGES = ("python", "bash", "sh", "node")
_MAX_TIMEOUT_S = 7 * 24 * 3600.0
_MAX_ENV_BYTES = 1 << 20
_MAX_CODE = 4_000_000
_MAX_STRING = 128 << 10  # MAX_ARG_STRLEN, linux/binfmts.h
_USE_A_FILE = "Write a file to the workspace instead"
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def bad(option: str, value: object, accepted: str) -> SpecError:
    """The error for an option whose value is not accepted."""
    return SpecError(f"{option}={short(value)} is not accepted. Accepted: {accepted}")


def short(value: object) -> str:
    """The repr of ``value``, at most 120 characters of it."""
    try:
        text = repr(value)
    except Exception as error:  # a caller's __repr__ may raise anything, and the message must still come
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


def printable(text: str) -> str:
    """``text`` with a blank for each character that a terminal would obey or not show."""
    return "".join(char if char.isprintable() else " " for char in text)


def whole(option: str, value: object, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad(option, value, f"a whole number from {low} to {high}")
    return value


def number(option: str, value: object, low: float, high: float) -> float:
    """A finite number above ``low`` and at most ``high``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise bad(option, value, f"a finite number above {low:g} and at most {high:g}")
    if not low < value <= high:
        raise bad(option, value, f"a finite number above {low:g} and at most {high:g}")
    return float(value)


def flag(option: str, value: object) -> bool:
    """True or False, and nothing that merely reads as one."""
    if not isinstance(value, bool):
        raise bad(option, value, "True or False")
    return value


def _encodes(text: str) -> bool:
    """Whether ``text`` can be a C string of the box: no NUL, no surrogate but those that stand for single bytes."""
    try:
        return "\0" not in text and bool(text.encode("utf-8", "surrogateescape") or True)
    except UnicodeEncodeError:
        return False


def check_timeout(value: object, option: str = "timeout_s") -> float:
    """Seconds of wall clock for one call: finite, above 0, at most seven days."""
    return number(option, value, 0.0, _MAX_TIMEOUT_S)


def check_code(code: object, language: object) -> str:
    """The snippet as text, for a language that is known."""
    if language not in LANGUAGES:
        raise bad("language", language, "one of " + ", ".join(LANGUAGES))
    if not isinstance(code, str):
        raise bad("code", code, "a str")
    if len(code) > _MAX_CODE:
        raise SpecError(f"code has {len(code)} characters: at most {_MAX_CODE} are taken. {_USE_A_FILE}")
    return code


def check_argv(argv: object) -> list[str]:
    """A program and its arguments: a non-empty list of str without NUL; never one shell string."""
    if isinstance(argv, (str, bytes)) or not isinstance(argv, (list, tuple)) or not argv:
        raise bad("argv", argv, 'a non-empty list of str, e.g. ["ls", "-l"]; for a shell line use ["sh", "-c", line]')
    for item in argv:
        if not isinstance(item, str) or not _encodes(item):
            raise bad("argv", argv, "its items are str without NUL and lone surrogates")
        if len(os.fsencode(item)) >= _MAX_STRING:
            raise SpecError(f"argv has an item of {len(item)} characters: Linux takes less than 128 KiB. {_USE_A_FILE}")
    if not argv[0]:
        raise bad("argv", argv, "the program's name is not empty")
    return list(argv)


def check_env(env: object, option: str = "env") -> dict[str, str]:
    """Variables for the code: str names without ``=`` or NUL, str values without NUL, 1 MiB in all."""
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise bad(option, env, "a mapping of str to str")
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise SpecError(f"{option} has the name {short(name)}: a name is a non-empty str without '=' and NUL")
        if not isinstance(value, str) or not _encodes(name + value):
            given = "" if isinstance(value, str) else f" is of type {type(value).__name__}, which"
            accepted = "a value is a str without NUL and lone surrogates"
            raise SpecError(f"{option}[{short(name)}]{given} is not accepted. Accepted: {accepted}")
        if len(os.fsencode(name + value)) + 1 >= _MAX_STRING:
            raise SpecError(f"{option}[{short(name)}] is too long: Linux takes less than 128 KiB. {_USE_A_FILE}")
    if sum(len(name) + len(value) for name, value in env.items()) > _MAX_ENV_BYTES:
        raise SpecError(f"{option} holds more than {_MAX_ENV_BYTES} characters. {_USE_A_FILE}")
    return dict(env)


def check_stdin(stdin: object) -> bytes | None:
    """What the code reads from standard input: ``None`` (empty), str (UTF-8) or bytes."""
    if stdin is None:
        return None
    if isinstance(stdin, str):
        if not _encodes(stdin.replace("\0", "")):
            raise bad("stdin", stdin, "a str without lone surrogates, or bytes")
        return stdin.encode("utf-8", "surrogateescape")
    if isinstance(stdin, (bytes, bytearray, memoryview)):
        return bytes(stdin)
    raise bad("stdin", stdin, "None, str or bytes")


def check_callback(option: str, callback: Callable[[str], object] | None) -> Callable[[str], object] | None:
    """A function that takes text, or ``None``."""
    if callback is not None and not callable(callback):
        raise bad(option, callback, "None or a function that takes a str")
    return callback


def check_cwd(cwd: str | None) -> str | None:
    """An absolute directory as the box shows it, or ``None``."""
    if cwd is not None and (not isinstance(cwd, str) or not cwd.startswith("/") or "\0" in cwd):
        raise bad("cwd", cwd, "None or an absolute path as the box shows it, e.g. /workspace/src")
    return cwd


def size_of(option: str, text: object) -> int:
    """Bytes from a size with a unit: ``"512m"``, ``"64k"``, ``"1g"``.

    Raises:
        SpecError: no unit, not a whole number, or not above zero.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,9})([kmg])", text.lower()) if isinstance(text, str) else None
    if match is None:
        raise bad(option, text, 'a whole number with a unit k, m or g, e.g. "512m"')
    return int(match[1]) * _UNITS[match[2]]
