"""Where this package keeps what is its own on the host."""

from __future__ import annotations

import os

__all__ = ["cache_directory"]


def cache_directory() -> str:
    """Where everything that can be made again is kept: ``kern-sandbox`` below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "kern-sandbox")
