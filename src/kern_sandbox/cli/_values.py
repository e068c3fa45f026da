"""Values of flags from words of the shell. What is refused says what would be accepted; argparse names the flag."""

from __future__ import annotations

import argparse

from .._places import absolute
from ..errors import SpecError

__all__ = ["count", "mebibytes", "mount", "number", "pair", "tmpfs", "whole"]


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def count(text: str) -> int:
    """How often, or how many at once: 1 or more."""
    if whole(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def number(text: str) -> float:
    """A number, which may have a fraction."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, e.g. 2 or 1.5") from None


def mebibytes(text: str) -> int | None:
    """A whole number of MiB without a unit, or ``none``."""
    try:
        return None if text == "none" else int(text)
    except ValueError:
        words = f"{text!r} is not a whole number of MiB (512, without a unit), nor none"
        raise argparse.ArgumentTypeError(words) from None


def pair(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` in two."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def tmpfs(text: str) -> tuple[str, str]:
    """``PATH=SIZE`` in two, or ``none`` and nothing."""
    path, equals, size = text.partition("=")
    if text != "none" and not (equals and path and size):
        raise argparse.ArgumentTypeError(f"{text!r} is not PATH=SIZE, e.g. /tmp=512m, nor none")
    return path, size


def mount(text: str) -> tuple[str, tuple[str, str]]:
    """``DIR:TARGET[:MODE]``; a relative ``DIR`` is one of the directory that the shell is in."""
    parts = text.split(":")
    mode = parts.pop() if parts[-1] in ("ro", "rw") else "ro"
    if len(parts) != 2 or not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not DIR:TARGET, DIR:TARGET:ro or DIR:TARGET:rw")
    try:
        return absolute(parts[0]), (parts[1], mode)
    except SpecError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
