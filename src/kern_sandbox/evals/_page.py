"""One HTML page that needs nothing else: families by targets, each cell opening its cases."""

from __future__ import annotations

import os
import string
from collections import defaultdict
from html import escape
from typing import TYPE_CHECKING, Any

from ._cases import FAMILIES
from ._report import NOTHING, cell
from ._run import BAD, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["page"]

_TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.html")


def page(rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """The page for ``rows``; every text that a case or a box can influence is escaped."""
    with open(_TEMPLATE, encoding="utf-8") as file:
        template = string.Template(file.read())
    groups: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.case.claim.family, row.target].append(row)
    targets = list(dict.fromkeys(row.target for row in rows))
    families = [family for family in FAMILIES if any(family == known for known, _ in groups)]
    return template.substitute(
        headline=_headline(rows),
        about=_about(about),
        matrix=_matrix(groups, families, targets),
        families="\n".join(_family(groups, family, targets) for family in families),
    )


def text(value: object) -> str:
    """``value`` as HTML text in which control and format characters are shown as their numbers."""
    shown = "".join(
        char
        if char.isprintable() or char in "\n\t"
        else f"\N{LEFT-POINTING ANGLE BRACKET}U+{ord(char):04X}\N{RIGHT-POINTING ANGLE BRACKET}"
        for char in str(value)
    )
    return escape(shown, quote=True)


def _headline(rows: Sequence[Row]) -> str:
    ours = [row for row in rows if row.ours]
    bad = [row for row in ours if row.bad]
    proved = sum(row.proved for row in ours)
    held = sum(row.word == "held" for row in ours)
    worked = sum(row.word == "worked" for row in ours)
    if not bad and not held + worked:
        return '<p class="verdict">kern_sandbox was not asked.</p>'
    good = [f"{held} attacks failed"] * bool(held) + [f"{worked} honest snippets worked"] * bool(worked)
    words = (
        f"{len(bad)} of {len(ours)} cases went wrong on kern_sandbox"
        if bad
        else f"kern_sandbox kept every claim: {', '.join(good)}"
    )
    about = f"{proved} of the {held} attacks that failed were seen to work on a control." if held else ""
    return f'<p class="verdict {"bad" if bad else "good"}">{text(words)}.</p><p class="soft">{about}</p>'


def _about(about: Mapping[str, Any]) -> str:
    names = (
        "kern_sandbox",
        "commit",
        "date",
        "distribution",
        "linux",
        "machine",
        "python",
        "uid",
        "cgroups",
        "seconds",
    )
    rows = "".join(
        f"<dt>{name}</dt><dd>{text(about[name])}</dd>" for name in names if about.get(name) not in (None, "")
    )
    absent = "".join(f"<dt>{text(name)} cannot run</dt><dd>{text(why)}</dd>" for name, why in about["absent"].items())
    return f"<dl>{rows}{absent}</dl>"


def _matrix(groups: Mapping[tuple[str, str], Sequence[Row]], families: Sequence[str], targets: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in targets)
    body = ""
    for family in families:
        cells = "".join(
            _cell(groups.get((family, target), ()), f"{family}-{targets.index(target)}") for target in targets
        )
        body += f'<tr><th scope="row">{text(family)}</th>{cells}</tr>\n'
    return f'<table class="matrix"><tr><th></th>{head}</tr>\n{body}</table>'


def _cell(rows: Sequence[Row], anchor: str) -> str:
    said = cell(rows)
    if said == NOTHING:
        return f'<td class="none">{said}</td>'
    kind = "bad" if any(row.bad for row in rows) else "other" if any(row.word in BAD for row in rows) else "good"
    return f'<td class="{kind}"><a href="#{anchor}">{said}</a></td>'


def _family(groups: Mapping[tuple[str, str], Sequence[Row]], family: str, targets: Sequence[str]) -> str:
    """A section for each target; the one that a cell points to is shown, and those that need a look."""
    parts = []
    for index, target in enumerate(targets):
        rows = sorted(groups.get((family, target), ()), key=lambda row: (not row.bad, row.case.id, row.number))
        if rows:
            shown = ' class="open"' if any(row.bad for row in rows) else ""
            head = (
                f'<h2>{text(family)} <span class="soft">on {text(target)} · <a href="#top">to the table</a></span></h2>'
            )
            inner = "\n".join(map(_row, rows))
            parts.append(f'<section id="{family}-{index}"{shown}>{head}\n{inner}</section>')
    return "\n".join(parts)


def _row(row: Row) -> str:
    kind = _kind(row)
    number = f" ({row.number})" if row.number > 1 else ""
    facts = [
        ("claim", row.case.claim.claim),
        ("sources", ", ".join(row.case.claim.sources)),
        ("verdict", row.detail or row.word),
    ]
    if row.about_control:
        facts.append(("control", row.about_control))
    listed = "".join(f"<dt>{name}</dt><dd>{text(value)}</dd>" for name, value in facts)
    output = f"<p class=soft>the end of what it printed</p><pre>{text(row.output)}</pre>" if row.output else ""
    code = text("\n".join(row.case.calls).strip()[:4000])
    name = row.case.id.partition("/")[2] + number
    return (
        f'<details><summary><span class="tag {kind}">{row.word}</span><code>{text(name)}</code>'
        f"<span>{text(row.case.title)}</span></summary><div><dl>{listed}</dl><pre>{code}</pre>{output}</div></details>"
    )


def _kind(row: Row) -> str:
    if row.word == "skipped":
        return "none"
    if row.word in BAD:
        return "bad" if row.ours else "other"
    return "good"
