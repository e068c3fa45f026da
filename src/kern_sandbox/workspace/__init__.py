"""The directory that boxes share, read and written from the host without trusting what is in it."""

from __future__ import annotations

from ._ceiling import Guard
from ._workspace import MAX_ENTRIES, Snapshot, Workspace

__all__ = ["MAX_ENTRIES", "Guard", "Snapshot", "Workspace"]
