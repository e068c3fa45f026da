"""The table on the terminal and the bar while it is made."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, TextIO

from ._cases import FAMILIES
from ._run import BAD, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NOTHING", "Progress", "cell", "one_line", "summary", "table"]

NOTHING = "\N{EN DASH}"
_BAR = 24
_SHOWN = 200


class Progress:
    """A bar on a terminal; elsewhere one line for each tenth."""

    def __init__(self, to: TextIO, total: int) -> None:
        self._to = to
        self._total = total
        self._done = 0
        self._bad = 0
        self._terminal = to.isatty()

    def step(self, row: Row) -> None:
        """One row is done."""
        self._done += 1
        self._bad += row.bad
        share = self._done / self._total
        words = f"{self._done}/{self._total}" + (f", {self._bad} bad" if self._bad else "")
        if self._terminal:
            bar = "█" * round(share * _BAR)
            self._to.write(f"\r\x1b[K{bar:░<{_BAR}} {words}  {row.case.id} on {row.target}"[: _width() + 4])
        elif self._done * 10 // self._total != (self._done - 1) * 10 // self._total:
            self._to.write(f"{words}\n")
        self._to.flush()

    def end(self) -> None:
        """All rows are done."""
        if self._terminal:
            self._to.write("\r\x1b[K")
            self._to.flush()


def _width() -> int:
    try:
        return os.get_terminal_size(2).columns - 1
    except OSError:
        return 79


def cell(rows: Sequence[Row]) -> str:
    """What a family did on a target, in a word or two: ``34``, ``31/34``, or a dash."""
    asked = [row for row in rows if row.word != "skipped"]
    good = sum(row.word not in BAD for row in asked)
    if not asked:
        return NOTHING
    return str(good) if good == len(asked) else f"{good}/{len(asked)}"


def table(rows: Sequence[Row], absent: Mapping[str, str]) -> str:
    """Families by targets, then each row that is bad on kern_sandbox, and what could not run."""
    targets = list(dict.fromkeys(row.target for row in rows))
    families = [family for family in FAMILIES if any(row.case.claim.family == family for row in rows)]
    widths = [max(len(name), 9) for name in targets]
    lines = ["family      " + "  ".join(f"{name:>{width}}" for name, width in zip(targets, widths))]
    for family in families:
        cells = [
            cell([row for row in rows if row.case.claim.family == family and row.target == name]) for name in targets
        ]
        lines.append(f"{family:11} " + "  ".join(f"{text:>{width}}" for text, width in zip(cells, widths)))
    lines.append("")
    lines += [f"{row.word}: {row.case.id} on {row.target}: {one_line(row.detail)}" for row in rows if row.bad]
    lines += [f"cannot run: {name}: {one_line(reason)}" for name, reason in absent.items()]
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """Counts of kern_sandbox's own rows, and what stands behind those that held."""
    ours = [row for row in rows if row.ours]
    words = Counter(row.word for row in ours)
    lines = ["kern_sandbox: " + (", ".join(f"{count} {word}" for word, count in sorted(words.items())) or "not asked")]
    held = [row for row in ours if row.word == "held"]
    if held:
        proved = sum(row.proved for row in held)
        lines.append(f"of {len(held)} attacks that failed, {proved} work on their control")
    dead = sorted({row.case.id for row in held if row.control not in ("breached", "")})
    if dead:
        lines.append(f"controls that did not work here, which therefore prove nothing: {', '.join(dead)}")
    skipped = Counter(row.detail for row in ours if row.word == "skipped")
    lines += [f"{count} skipped: {one_line(reason)}" for reason, count in sorted(skipped.items())]
    lines.append(f"{about['seconds']:g} s on Linux {about['linux']}, uid {about['uid']}, cgroups {about['cgroups']}")
    return "\n".join(lines) + "\n"


def one_line(text: str) -> str:
    """``text`` on one line that no terminal obeys."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
