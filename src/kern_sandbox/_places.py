"""Where this package keeps what is its own on the host, and where a path of the caller's leads."""

from __future__ import annotations

import os

from .errors import SpecError

__all__ = ["absolute", "cache_directory"]


def cache_directory() -> str:
    """Where everything that can be made again is kept: ``kern-sandbox`` below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "kern-sandbox")


def absolute(path: str) -> str:
    """``os.path.abspath(path)``.

    Raises:
        SpecError: it is relative to a working directory that has been removed.
    """
    try:
        return os.path.abspath(path)
    except OSError as error:
        hint = "Go to one that is there, or name an absolute path"
        raise SpecError(f"finding {path!r}: this process's working directory is gone", hint=hint) from error
