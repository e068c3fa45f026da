"""The three standard streams of a process that is a command."""

from __future__ import annotations

import os

__all__ = ["fill_standard_streams"]


def fill_standard_streams() -> None:
    """Open the null device for what was closed by whoever started us: no file of ours may get its number."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, and so this one
