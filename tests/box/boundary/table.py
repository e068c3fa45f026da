"""``python -m tests.box.boundary.table``: every claim on this host, for kern_sandbox, bubblewrap and a plain process.

Options: a prefix of claims to run (``B23``), ``--json`` for one JSON object a line.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[3] / "src")]

from .claims import Claim, Verdict, judge  # noqa: E402 - the path comes first
from .probes import CLAIMS  # noqa: E402
from .targets import Bubblewrap, Engine, Subprocess, bubblewrap_works  # noqa: E402


class Line(NamedTuple):
    """One claim on this host."""

    claim: Claim
    engine: Verdict
    weakened: list[tuple[str, Verdict]]
    others: dict[str, Verdict]

    @property
    def word(self) -> str:
        """The verdict as a reader wants it: a claim that holds without a control that works proves nothing."""
        if self.engine.word != "held" or self.control:
            return self.engine.word
        return "control dead"

    @property
    def control(self) -> str:
        """Where the attack works."""
        everywhere = [*self.weakened, *self.others.items()]
        return next((name for name, verdict in everywhere if verdict.word == "breached"), "")


def lines(claims: Sequence[Claim] = tuple(CLAIMS)) -> Iterator[Line]:
    """Run every claim on every target."""
    bubblewrap = bubblewrap_works()
    for claim in claims:
        engine = judge(claim, Engine())
        weakened = [
            ("without " + ", ".join(names), judge(claim, Engine(*names)))
            for names in (claim.without, *claim.more)
            if names
        ]
        others: dict[str, Verdict] = {}
        for target in (Bubblewrap(), Subprocess()):
            if claim.engine_only or (target.name == "bwrap" and not bubblewrap):
                others[target.name] = Verdict("not applicable")
            else:
                others[target.name] = judge(claim, target)
        yield Line(claim, engine, weakened, others)


def main(arguments: Sequence[str]) -> int:
    """Print the table; the exit status is 1 if a claim that must hold is breached."""
    wanted = tuple(argument for argument in arguments if argument != "--json") or ("",)
    total: Counter[str] = Counter()
    failed = False
    for line in lines([claim for claim in CLAIMS if claim.id.startswith(wanted)]):
        total[line.word] += 1
        failed |= line.word == "breached" and not line.claim.known
        sys.stdout.write((_json(line) if "--json" in arguments else _text(line)) + "\n")
        sys.stdout.flush()
    if "--json" not in arguments:
        sys.stdout.write(", ".join(f"{count} {word}" for word, count in sorted(total.items())) + "\n")
    return int(failed)


def _text(line: Line) -> str:
    others = " ".join(f"{name}: {verdict.word}" for name, verdict in line.others.items())
    about = line.engine.detail if line.word != "held" else f"control: {line.control}"
    return f"{line.claim.id:22} {line.word:15} {line.claim.sentence}\n{'':38} {others} | {about[:160]}"


def _json(line: Line) -> str:
    verdicts = {"kern_sandbox": line.engine, **dict(line.weakened), **line.others}
    return json.dumps({
        "id": line.claim.id, "claim": line.claim.sentence, "verdict": line.word, "known": line.claim.known,
        "control": line.control, "targets": {name: verdict._asdict() if hasattr(verdict, "_asdict") else vars(verdict)
                                             for name, verdict in verdicts.items()},
    })  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
