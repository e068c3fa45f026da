"""What the egress proxy has recorded of a call, as values of its result and as notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..results import EgressEvent

__all__ = ["egress_events", "egress_notes"]

_MOST_NOTES = 5


def egress_events(evidence: Mapping[str, Any]) -> list[EgressEvent]:
    """The events in the fork server's final frame, in the order in which their first connections ended."""
    return [EgressEvent(*row) for row in (evidence.get("egress") or {}).get("rows", ())]


def egress_notes(evidence: Mapping[str, Any]) -> list[str]:
    """A line for each host that was refused or out of reach, so that who reads the result learns why it failed."""
    notes = [_note(event) for event in egress_events(evidence) if event.reason]
    more = len(notes) - _MOST_NOTES
    if more > 0:
        notes[_MOST_NOTES:] = [f"egress: and {more} more, in result.egress"]
    unlisted = (evidence.get("egress") or {}).get("more", 0)
    if unlisted:
        notes.append(f"egress: {unlisted} connections to further hosts are not listed")
    return notes


def _note(event: EgressEvent) -> str:
    what = f"{event.host} port {event.port}" if event.host else "a request"
    if event.verdict == "refused":
        return f"egress: {what} was refused: {event.reason}"
    return f"egress: {what} is allowed, but there was {event.reason}"
