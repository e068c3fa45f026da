"""The directory that boxes share, read and written from the host without trusting what is in it."""

from __future__ import annotations

from ._walk import empty_directory
from ._workspace import DEPS, MAX_ENTRIES, Snapshot, Workspace

__all__ = ["DEPS", "MAX_ENTRIES", "Snapshot", "Workspace", "empty_directory"]
