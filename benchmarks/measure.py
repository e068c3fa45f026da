"""Timing by turns: every subject once, then every subject again, so that a busy moment hits all alike."""

from __future__ import annotations

import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Callable, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OURS = "kern_sandbox"
BWRAP = "bubblewrap"
PEER = "kern-sandbox 0.2.49"
BARE = "no sandbox"
WHO = (OURS, BWRAP, PEER, BARE)

REST_S = 0.05
"""Between two subjects, seconds: what one leaves to be cleaned up, or prepares ahead, is not the next one's."""

Run = Callable[[int], "list[float]"]
"""Does a thing so many times in a row and gives the milliseconds of each time."""
Subjects = dict[tuple[str, str], Run]
"""Key of a row and who, to what is run."""


class Stats(NamedTuple):
    """Figures of one cell: the median, the 5th and 95th percentile, and of how many values."""

    median: float
    low: float
    high: float
    values: int


class Row(NamedTuple):
    """One line of the table: what was measured, in which unit, and each one's figures."""

    key: str
    label: str
    unit: str
    cells: dict[str, Stats]


class Missing(Exception):
    """Something cannot be measured here; the text says why."""


def stats(values: Iterable[float]) -> Stats:
    """The figures of some values; at least one."""
    ordered = sorted(values)
    edge = len(ordered) // 20
    median, low, high = statistics.median(ordered), ordered[edge], ordered[-1 - edge]
    return Stats(round(median, 3), round(low, 3), round(high, 3), len(ordered))


def by_turns(subjects: Mapping[tuple[str, str], Run], rounds: int, length: int = 1) -> dict[tuple[str, str], Stats]:
    """``rounds`` values of every subject, ``length`` calls in a row before it is the next one's turn.

    One round before that does not count.
    """
    times: dict[tuple[str, str], list[float]] = {name: [] for name in subjects}
    for turn in range(max(1, rounds // length) + 1):
        for name, run in subjects.items():
            time.sleep(REST_S)
            spent = run(length)
            if turn:
                times[name] += spent
    return {name: stats(values) for name, values in times.items()}


def rows(labels: Mapping[str, str], found: Mapping[tuple[str, str], Stats], unit: str = "ms") -> list[Row]:
    """The lines of the table that ``labels`` names, in its order; one of which nothing was found is left out."""
    made = [
        Row(key, label, unit, {who: found[key, who] for who in WHO if (key, who) in found})
        for key, label in labels.items()
    ]
    return [row for row in made if row.cells]


def spawned(argv: Sequence[str]) -> Run:
    """A program of the host, started and waited for."""

    def run(times: int) -> list[float]:
        spent = []
        for _ in range(times):
            start = time.perf_counter()
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            spent.append((time.perf_counter() - start) * 1000)
        return spent

    return run
