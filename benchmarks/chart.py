"""The medians as an SVG: bars on a logarithmic scale.

Written here rather than by a library: it needs nothing, and two runs differ by their figures only.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from .measure import BARE, BWRAP, OURS, PEER
from .report import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .measure import Row

PANELS = (
    ("Python: print(1)", (
        ("cell", OURS, "kern_sandbox, kernel cell"),
        ("burst", OURS, "kern_sandbox, from prewarm"),
        ("print sustained", OURS, "kern_sandbox, fresh box"),
        ("oneshot sustained", OURS, "kern_sandbox, one shot"),
        ("print sustained", BARE, "python3, no sandbox"),
        ("print sustained", BWRAP, "bubblewrap, python3"),
        ("cell", PEER, "kern-sandbox 0.2.49, kernel cell"),
        ("burst", PEER, "kern-sandbox 0.2.49, from prewarm"),
        ("print sustained", PEER, "kern-sandbox 0.2.49"),
    )),
    ("A program: true", (
        ("true sustained", OURS, "kern_sandbox, fresh box"),
        ("true sustained", BARE, "no sandbox"),
        ("true sustained", BWRAP, "bubblewrap"),
        ("true sustained", PEER, "kern-sandbox 0.2.49"),
    )),
    ("import pandas", (
        ("pandas preload", OURS, "kern_sandbox, with preload"),
        ("pandas", OURS, "kern_sandbox, fresh box"),
        ("pandas", BARE, "python3, no sandbox"),
        ("pandas", BWRAP, "bubblewrap, python3"),
        ("pandas", PEER, "kern-sandbox 0.2.49"),
    )),
)  # fmt: skip
"""Title, and the cells that are shown below it with their words. A cell that was not measured is left out."""

COLOURS = {OURS: "#0b6e4f", BWRAP: "#c08a2d", PEER: "#8c4a5c", BARE: "#8a8f98"}
WIDTH, LEFT, RIGHT, LINE, BAR = 860, 270, 80, 24, 15


class Scale(NamedTuple):
    """A logarithmic axis from one power of ten to another, in milliseconds."""

    low: int
    high: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Scale:
        """The powers of ten around all ``values``, with room for the shortest bar to be seen."""
        low, high = math.floor(math.log10(min(values)) - 0.2), math.ceil(math.log10(max(values)))
        return cls(low, max(high, low + 1))

    def x(self, value: float) -> float:
        """Where a value is in the picture."""
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)


def svg(rows: Sequence[Row], caption: str) -> str:
    """The picture; ``caption`` says when and where."""
    medians = {(row.key, who): stats.median for row in rows for who, stats in row.cells.items()}
    panels = [(title, [bar for bar in bars if bar[:2] in medians]) for title, bars in PANELS]
    panels = [(title, bars) for title, bars in panels if bars]
    if not panels:
        raise ValueError("nothing that the chart shows was measured")
    scale = Scale.over([medians[bar[:2]] for _, bars in panels for bar in bars])
    parts, y = [], 62
    for title, bars in panels:
        parts.append(f'<text x="16" y="{y + 14}" class="title">{escape(title)}</text>')
        y += LINE
        for key, who, words in bars:
            parts += _bar(y, words, medians[key, who], scale, who)
            y += LINE
        y += 14
    top = [
        '<text x="16" y="26" class="head">Milliseconds per call, median, logarithmic: shorter is faster</text>',
        f'<text x="16" y="44" class="small">{escape(caption)}</text>',
    ]
    return _page(y + 26, [*top, *_grid(scale, y), *parts])


def _bar(y: int, words: str, value: float, scale: Scale, who: str) -> list[str]:
    end = max(scale.x(value), LEFT + 1)
    weight = ' class="own"' if who == OURS else ""
    return [
        f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end"{weight}>{escape(words)}</text>',
        f'<rect x="{LEFT}" y="{y + 1}" width="{end - LEFT:.1f}" height="{BAR}" rx="2" fill="{COLOURS[who]}"/>',
        f'<text x="{end + 6:.1f}" y="{y + 13}"{weight}>{number(value)}</text>',
    ]


def _grid(scale: Scale, bottom: int) -> list[str]:
    found = []
    for power in range(scale.low, scale.high + 1):
        x = scale.x(10**power)
        found.append(f'<line x1="{x:.1f}" y1="58" x2="{x:.1f}" y2="{bottom}" stroke="#e3e5e8"/>')
        found.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" class="small">{10**power:g} ms</text>')
    return found


def _page(height: int, parts: Sequence[str]) -> str:
    style = (
        "text{font:13px system-ui,sans-serif;fill:#1c1f23}.head{font-size:16px;font-weight:600}"
        ".own{font-weight:600}.title{font-weight:600;fill:#4a4f57}.small{font-size:11px;fill:#5b616a}"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' role="img" aria-label="Milliseconds per call">'
    )
    return "\n".join(
        [head, f"<style>{style}</style>", '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>", ""]
    )
