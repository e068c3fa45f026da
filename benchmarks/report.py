"""Figures as Markdown and JSON, and where they go in a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from .budgets import Finding, judge
from .measure import OURS, WHO, Row, Stats

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


class Report(NamedTuple):
    """One run.

    Attributes:
        machine: what the figures belong to, as words by name.
        rows: of the table.
        linux: of the table of what the operating system alone takes.
        missing: sentences about what could not be measured.
        leftovers: what was counted before and after, as lines.
    """

    machine: dict[str, str]
    rows: list[Row]
    linux: list[Row]
    missing: list[str]
    leftovers: list[str]

    def to_json(self) -> str:
        """Everything, and the budgets judged."""
        plain: dict[str, Any] = self._asdict()
        for name in ("rows", "linux"):
            plain[name] = [
                {**row._asdict(), "cells": {who: stats._asdict() for who, stats in row.cells.items()}}
                for row in getattr(self, name)
            ]
        plain["budgets"] = [
            {"text": each.budget.text, "figure": each.figure, "limit": each.budget.limit, "verdict": each.verdict}
            for each in judge(self.rows)
        ]
        return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"

    def to_markdown(self, chart: str | None = None) -> str:
        """What stands between the markers; ``chart`` is the picture's path as the page names it."""
        parts = ["\n".join(f"- {name}: {value}" for name, value in self.machine.items())]
        if chart is not None:
            parts.append(f"![The medians as bars, shorter is faster]({chart})")
        parts.append("### Budgets\n\n" + budgets(judge(self.rows)))
        parts.append("### Figures\n\n" + table(self.rows))
        if self.missing:
            parts.append("Not measured:\n\n" + "\n".join(f"- {line}" for line in self.missing))
        if self.linux:
            parts.append("### What Linux alone takes\n\n" + plain(self.linux))
        if self.leftovers:
            parts.append("### Left behind\n\n" + "\n".join(self.leftovers))
        return "\n\n".join(parts)


def number(value: float) -> str:
    """Three digits that count."""
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def cell(row: Row, who: str) -> str:
    """A median with its range, and for the others how many times ours it is."""
    stats = row.cells.get(who)
    if stats is None:
        return ""
    text = number(stats.median)
    if stats.values > 1:
        text += f" ({number(stats.low)}-{number(stats.high)})"
    if who == OURS:
        return f"**{text}**"
    own = row.cells.get(OURS)
    return text if own is None else f"{text}; {number(stats.median / own.median)}x"


def table(rows: Sequence[Row]) -> str:
    """Every row against everyone who is in one."""
    who = [name for name in WHO if any(name in row.cells for row in rows)]
    lines = [f"| | unit | {' | '.join(who)} |", f"|---|---|{'---|' * len(who)}"]
    lines += [f"| {row.label} | {row.unit} | {' | '.join(cell(row, name) for name in who)} |" for row in rows]
    return "\n".join(lines)


def plain(rows: Sequence[Row]) -> str:
    """Rows whose cells are no competitors."""
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    lines = [f"| | unit | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for row in rows:
        shown = (row.cells.get(name) for name in names)
        cells = (f"{number(s.median)} ({number(s.low)}-{number(s.high)})" if s else "" for s in shown)
        lines.append(f"| {row.label} | {row.unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def budgets(findings: Sequence[Finding]) -> str:
    """Each budget beside its figure."""
    lines = ["| budget | at most | figure | |", "|---|---|---|---|"]
    for finding in findings:
        unit = finding.budget.unit
        figure = "" if finding.figure is None else f"{number(finding.figure)} {unit}"
        verdict = f"**{finding.verdict}**" if finding.verdict == "missed" else finding.verdict
        lines.append(f"| {finding.budget.text} | {number(finding.budget.limit)} {unit} | {figure} | {verdict} |")
    return "\n".join(lines)


def update(page: str, text: str) -> str:
    """``page`` with ``text`` between its markers, and nothing else changed.

    Raises:
        ValueError: it has no such place, or more than one.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"the page needs one {BEGIN} and, after it, one {END}")
    head, tail = page.partition(BEGIN)[0], page.partition(END)[2]
    return f"{head}{BEGIN}\n{text}\n{END}{tail}"


def from_json(text: str) -> Report:
    """A report as ``to_json`` wrote it."""
    plain_report = json.loads(text)
    for name in ("rows", "linux"):
        plain_report[name] = [
            Row(row["key"], row["label"], row["unit"], {who: Stats(**stats) for who, stats in row["cells"].items()})
            for row in plain_report[name]
        ]
    del plain_report["budgets"]
    return Report(**plain_report)
