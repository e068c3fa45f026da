"""What a box asked for and what became of it: counted, bounded in number and size, and without any payload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Ledger", "Record"]

_MOST_ROWS = 100
_MOST_TEXT = 24_000  # names and reasons, so that all of it fits into one frame


@dataclass
class Record:
    """One connection or request while it lives; ``verdict`` is ``"allowed"`` or ``"refused"``."""

    host: str = ""
    port: int = 0
    verdict: str = "refused"
    reason: str = ""
    up: int = 0
    down: int = 0

    def allow(self) -> None:
        """The policy lets it pass."""
        self.verdict, self.reason = "allowed", ""

    def refuse(self, reason: str) -> None:
        """The policy, or the protocol, does not."""
        self.verdict, self.reason = "refused", reason


class Ledger:
    """The records of one box, those that are alike as one row."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int, str, str], list[int]] = {}
        self._more = 0
        self._text = 0

    def close(self, record: Record) -> None:
        """``record``'s connection has ended."""
        key = (record.host, record.port, record.verdict, record.reason)
        if key not in self._rows:
            size = len(record.host) + len(record.reason)
            if len(self._rows) >= _MOST_ROWS or self._text + size > _MOST_TEXT:
                self._more += 1
                return
            self._text += size
        row = self._rows.setdefault(key, [0, 0, 0])
        for place, value in enumerate((1, record.up, record.down)):
            row[place] += value

    def to_wire(self) -> dict[str, Any]:
        """The rows as the fields of ``EgressEvent`` in order, and how many records found no room."""
        return {"rows": [[*key, *row] for key, row in self._rows.items()], "more": self._more}
