"""The directory that boxes share, read and written from the host without trusting what is in it."""

from __future__ import annotations

from ._arguments import DEPS, vetted
from ._ceiling import Guard
from ._walk import empty_directory, remove_directory
from ._workspace import MAX_ENTRIES, Snapshot, Workspace

__all__ = ["DEPS", "MAX_ENTRIES", "Guard", "Snapshot", "Workspace", "empty_directory", "remove_directory", "vetted"]
