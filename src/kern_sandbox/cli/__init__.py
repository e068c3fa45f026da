"""The command ``kern-sandbox``: a face of the library for a terminal and for scripts."""

from __future__ import annotations

from ._main import main

__all__ = ["main"]
