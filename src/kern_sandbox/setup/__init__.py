"""Setup layers: what ``setup="pip install pandas"`` leaves, made once and shown to every box that asks for it."""

from __future__ import annotations

from ._layer import Setup, collect

__all__ = ["Setup", "collect"]
