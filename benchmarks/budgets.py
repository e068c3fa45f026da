"""What the figures are meant to be, and whether they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .measure import BARE, BWRAP, OURS, PEER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .measure import Row

Cell = tuple[str, str]
"""Key of a row and who."""


class Budget(NamedTuple):
    """The median of ``cell``, as a ratio to that of ``base`` where there is one, is to be at most ``limit``."""

    text: str
    cell: Cell
    base: Cell | None
    limit: float
    unit: str


class Finding(NamedTuple):
    """A budget and its figure; ``None`` where it was not measured."""

    budget: Budget
    figure: float | None

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.figure is None:
            return "not measured"
        return "met" if self.figure <= self.budget.limit else "missed"


_TRUE, _PRINT = ("true sustained", OURS), ("print sustained", OURS)
_IMAGE, _PYTHON = ("image sustained", OURS), ("reference sustained", BARE)
BUDGETS = (
    Budget("`print(1)` in a fresh box, sustained, to bare `python3 -I -c 1`", _PRINT, _PYTHON, 0.35, "x"),
    Budget("the same from one image, to kern-sandbox 0.2.49", _IMAGE, ("image sustained", PEER), 1 / 8, "x"),
    Budget("`print(1)`, a burst from the pool", ("burst", OURS), None, 0.6, "ms"),
    Budget('`run(["true"])`, sustained, to `bwrap --unshare-all`', _TRUE, ("true sustained", BWRAP), 0.8, "x"),
    Budget("a kernel's cell", ("cell", OURS), None, 0.2, "ms"),
    Budget("100 concurrent calls, to one call, sustained", ("at once", OURS), _PRINT, 60, "x"),
    Budget("100 concurrent calls, to kern-sandbox 0.2.49", ("at once", OURS), ("at once", PEER), 1 / 5, "x"),
    Budget("`from kern_sandbox import Sandbox, run_code`", ("import", OURS), None, 40, "ms"),
    Budget("an idle prewarmed box", ("memory", OURS), None, 4, "MiB"),
)


def judge(rows: Sequence[Row]) -> list[Finding]:
    """Every budget beside what was measured."""
    medians = {(row.key, who): stats.median for row in rows for who, stats in row.cells.items()}

    def figure(budget: Budget) -> float | None:
        value = medians.get(budget.cell)
        if budget.base is None or value is None:
            return value
        base = medians.get(budget.base)
        return None if base is None else value / base

    return [Finding(budget, figure(budget)) for budget in BUDGETS]
