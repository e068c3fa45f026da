"""Timing by turns: every subject once, then every subject again, so that a busy moment hits all alike."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Subject(NamedTuple):
    """Something that is timed; ``once`` does it one time."""

    name: str
    once: Callable[[], object]


class Row(NamedTuple):
    """One subject's figures in milliseconds, and its median as a ratio to the reference's."""

    name: str
    median_ms: float
    low_ms: float
    high_ms: float
    ratio: float


def by_turns(subjects: Sequence[Subject], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every subject, ``rounds`` times, after one round that does not count."""
    times: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    for turn in range(rounds + 1):
        for subject in subjects:
            start = time.perf_counter()
            subject.once()
            if turn:
                times[subject.name].append((time.perf_counter() - start) * 1000)
    return times


def in_runs(subjects: Sequence[Subject], rounds: int, length: int = 20) -> dict[str, list[float]]:
    """The same for sustained work: ``length`` calls of one subject back to back before the next one's turn."""
    times: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    for turn in range(rounds // length + 1):
        for subject in subjects:
            spent = _back_to_back(subject, length)
            if turn:
                times[subject.name] += spent
    return times


def _back_to_back(subject: Subject, length: int) -> list[float]:
    spent = []
    for _ in range(length):
        start = time.perf_counter()
        subject.once()
        spent.append((time.perf_counter() - start) * 1000)
    return spent


def rows(times: dict[str, list[float]], reference: str) -> list[Row]:
    """The figures: median, 5th and 95th percentile, ratio of medians to ``reference``'s."""
    base = statistics.median(times[reference])
    found = []
    for name, values in times.items():
        ordered = sorted(values)
        low, high = ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20]
        median = statistics.median(ordered)
        found.append(Row(name, round(median, 3), round(low, 3), round(high, 3), round(median / base, 3)))
    return found


def table(title: str, found: Sequence[Row], reference: str) -> str:
    """Rows for a person."""
    width = max(len(row.name) for row in found)
    head = f"{title}\n{'':{width}}  median ms      5 %     95 %   x {reference}"
    lines = [f"{r.name:{width}}  {r.median_ms:9.2f} {r.low_ms:8.2f} {r.high_ms:8.2f}  {r.ratio:7.2f}" for r in found]
    return "\n".join([head, *lines, ""])


def machine() -> dict[str, object]:
    """What the figures belong to."""
    return {
        "linux": platform.release(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "uid": os.getuid(),
        "load": os.getloadavg()[0],
    }


def dump(path: str, parts: dict[str, Sequence[Row]]) -> None:
    """Everything as JSON."""
    plain = {name: [row._asdict() for row in found] for name, found in parts.items()}
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"machine": machine(), "parts": plain}, file, indent=2)
