"""What a box asked for and what became of it: counted, bounded in number and size, and without any payload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["UNDECIDED", "Ledger", "Record"]

UNDECIDED = "no connection: the box ended first"
"""The reason of a connection that is being made: what it will have been if nothing more becomes of it."""

_MOST_ROWS = 100
_MOST_TEXT = 24_000  # names and reasons, so that all of it fits into one frame


@dataclass
class Record:
    """One connection or request while it lives; ``verdict`` is ``"allowed"`` or ``"refused"``.

    ``number`` says which of its box's connections it is; ``told`` is what a reader of the ledger knows of it: the row,
    and the bytes in both directions.
    """

    number: int = 0
    host: str = ""
    port: int = 0
    verdict: str = "refused"
    reason: str = ""
    up: int = 0
    down: int = 0
    told: tuple[tuple[str, int, str, str], int, int] | None = None

    @property
    def row(self) -> tuple[str, int, str, str]:
        """What makes it like others."""
        return self.host, self.port, self.verdict, self.reason

    def allow(self) -> None:
        """The policy lets it pass."""
        self.verdict, self.reason = "allowed", ""

    def refuse(self, reason: str) -> None:
        """The policy, or the protocol, does not."""
        self.verdict, self.reason = "refused", reason


class Ledger:
    """The records of one box, those that are alike as one row. Who reads it gets what is new since the last time."""

    def __init__(self) -> None:
        self._opened = 0
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[tuple[str, int, str, str], list[int]] = {}
        self._first: dict[tuple[str, int, str, str], int] = {}
        self._more = 0
        self._text = 0

    def open(self) -> Record:
        """The record of a connection that begins now."""
        self._opened += 1
        return Record(self._opened)

    def close(self, record: Record) -> None:
        """``record``'s connection has ended."""
        if record.host or record.reason:
            self._add(record)

    def _add(self, record: Record) -> None:
        """Enter what is new of ``record``: all of it where its row is another one than has been told."""
        key = record.row
        known, up, down = record.told or (None, 0, 0)
        counts = (0, record.up - up, record.down - down) if known == key else (1, record.up, record.down)
        if not any(counts):
            return
        record.told = (key, record.up, record.down)
        if key not in self._rows:
            size = len(record.host) + len(record.reason)
            if len(self._rows) >= _MOST_ROWS or self._text + size > _MOST_TEXT:
                self._more += 1
                return
            self._text += size
            self._first[key] = record.number
        self._first[key] = min(self._first[key], record.number)
        row = self._rows.setdefault(key, [0, 0, 0])
        for place, value in enumerate(counts):
            row[place] += value

    def take(self, alive: Iterable[Record] = ()) -> dict[str, Any]:
        """What is new: rows as the fields of ``EgressEvent``, and how many records found no room.

        Rows stand in the order in which the first connection of each began, whichever ended first.

        Args:
            alive: the records whose connections have not ended.
        """
        for record in alive:
            if record.host and record.reason != UNDECIDED:
                self._add(record)
        rows = sorted(self._rows.items(), key=lambda item: self._first[item[0]])
        wire = {"rows": [[*key, *row] for key, row in rows], "more": self._more}
        self._clear()
        return wire
