"""Claims and their cases, as read from the manifests and the plain files beside them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["FAMILIES", "HERE", "Case", "Claim", "Control", "Source", "load", "problems", "sources"]

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")
FAMILIES = ("escape", "syscalls", "filesystem", "network", "resources", "leaks", "forgery", "text", "benign")
_LANGUAGES = {".py": "python", ".sh": "bash", ".js": "node"}
_KEYS = {
    "id",
    "claim",
    "sources",
    "judge",
    "with",
    "control",
    "needs",
    "scene",
    "options",
    "timeout_s",
    "not_on",
    "cases",
}
_NEXT_CALL = "---- next call ----"


class Control(NamedTuple):
    """Where an attack must work, or its result would prove nothing.

    Attributes:
        target: ``"subprocess"``, ``"exec"``, ``"raw text"`` (of the same call, not rendered), or ``""`` for nowhere.
        options: of the Sandbox, where the target is a weakened box.
        why_none: why there is no control; ``""`` where there is one.
    """

    target: str = ""
    options: Mapping[str, Any] = {}
    why_none: str = ""


@dataclass(frozen=True)
class Claim:
    """What a box promises, and how it is seen from outside whether it keeps it.

    Attributes:
        id: family and name, ``"network/loopback"``.
        claim: the behaviour, one sentence.
        sources: rows of the catalogue of threats, CVEs, field reports, scenarios of benchmarks; see ``sources.json``.
        judge: the name of a judge.
        parameters: of the judge.
        control: where the attack works.
        needs: abilities of this host, without which its cases say nothing.
        scene: what the host sets up besides the usual: ``shown``, ``meeting``, ``neighbour``, ``once``, ``racing``.
        options: of the Sandbox.
        timeout_s: of one call.
        not_on: targets that do not make this claim, and why.
    """

    id: str
    claim: str
    sources: tuple[str, ...]
    judge: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    control: Control = field(default_factory=Control)
    needs: tuple[str, ...] = ()
    scene: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 20.0
    not_on: Mapping[str, str] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The folder that it lies in."""
        return self.id.partition("/")[0]


@dataclass(frozen=True)
class Case:
    """One plain file.

    Attributes:
        id: family and file name without its suffix.
        claim: what it tests.
        language: as ``run_code`` names it.
        title: the file's first comment.
        calls: what is run, one call after the other in the same workspace; the last one is judged.
        expected: lines that it should print, from its comments ``#>``.
        parameters: of the judge, for this case.
    """

    id: str
    claim: Claim
    language: str
    title: str
    calls: tuple[str, ...]
    expected: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Source(NamedTuple):
    """Where a claim comes from; ``uncovered`` is the reason why nothing here tries it, or ``""``."""

    id: str
    title: str
    uncovered: str


def load(folder: str = HERE) -> list[Case]:
    """Every case below ``folder``, by family and name.

    Raises:
        OSError: a case that a manifest names is not there.
        ValueError: a manifest does not say what it must.
    """
    found = [case for family in FAMILIES for case in _family(folder, family)]
    return sorted(found, key=lambda case: (FAMILIES.index(case.claim.family), case.id))


def _family(folder: str, family: str) -> Iterable[Case]:
    path = os.path.join(folder, family, "claims.json")
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    for row in rows:
        claim = _claim(family, row)
        cases = row["cases"] if isinstance(row["cases"], dict) else {name: {} for name in row["cases"]}
        for name, parameters in cases.items():
            yield _case(os.path.join(folder, family, name), claim, parameters)


def _claim(family: str, row: Mapping[str, Any]) -> Claim:
    unknown = set(row) - _KEYS
    if unknown:
        raise ValueError(f"claim {row.get('id')!r} of {family}: {sorted(unknown)} is not a key of a claim")
    control = row.get("control", {"none": "an honest snippet has none"} if family == "benign" else "subprocess")
    return Claim(
        id=f"{family}/{row['id']}",
        claim=row["claim"],
        sources=tuple(row["sources"]),
        judge=row["judge"],
        parameters=row.get("with", {}),
        control=_control(control),
        needs=tuple(row.get("needs", ())),
        scene=tuple(row.get("scene", ())),
        options=row.get("options", {}),
        timeout_s=float(row.get("timeout_s", 20)),
        not_on=row.get("not_on", {}),
    )


def _control(said: str | Mapping[str, Any]) -> Control:
    if isinstance(said, str):
        return Control(said)
    if "none" in said:
        return Control(why_none=said["none"])
    return Control("exec", said["options"])


def _case(path: str, claim: Claim, parameters: Mapping[str, Any]) -> Case:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    name, suffix = os.path.splitext(os.path.basename(path))
    mark = "//" if suffix == ".js" else "#"
    lines = text.splitlines()
    expected = [line[len(mark) + 1 :].removeprefix(" ") for line in lines if line.startswith(f"{mark}>")]
    return Case(
        id=f"{claim.family}/{name}",
        claim=claim,
        language=_LANGUAGES[suffix],
        title=lines[0].removeprefix(mark).strip(),
        calls=tuple(text.split(f"{mark} {_NEXT_CALL}\n")),
        expected="".join(line + "\n" for line in expected),
        parameters={**claim.parameters, **parameters},
    )


def sources(folder: str = HERE) -> list[Source]:
    """Everything that a claim may name as its source, in the order of ``sources.json``."""
    with open(os.path.join(folder, "sources.json"), encoding="utf-8") as file:
        rows = json.load(file)
    return [Source(name, *(said if isinstance(said, list) else (said, ""))) for name, said in rows.items()]


def problems(folder: str = HERE, judges: Iterable[str] = ()) -> list[str]:
    """What keeps the manifests and the files from covering each other, one sentence each; empty where all is well.

    Args:
        folder: where the families lie.
        judges: names of judges that exist.
    """
    cases = load(folder)
    known = sources(folder)
    used = {name for case in cases for name in case.claim.sources}
    wrong = [f"{name} is named as a source, and sources.json does not list it" for name in used - {s.id for s in known}]
    for source in known:
        if not source.uncovered and source.id not in used:
            wrong.append(f"source {source.id} has no claim and no reason for it")
        if source.uncovered and source.id in used:
            wrong.append(f"source {source.id} has claims, and a reason why it has none")
    wrong += [f"case {case.id} has no title" for case in cases if len(case.title.split()) < 2]
    wrong += [f"case {case.id}: no judge {case.claim.judge!r}" for case in cases if case.claim.judge not in judges]
    wrong += _twice("case", [case.id for case in cases]) + _twice(
        "claim", list({id(c.claim): c.claim.id for c in cases}.values())
    )
    return sorted(wrong + _unclaimed(folder, {case.id for case in cases}))


def _twice(kind: str, names: Sequence[str]) -> list[str]:
    return [f"{kind} {name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]


def _unclaimed(folder: str, claimed: set[str]) -> list[str]:
    """Files of a family that no claim names, and claims without a case."""
    wrong = []
    for family in FAMILIES:
        names = os.listdir(os.path.join(folder, family)) if os.path.isdir(os.path.join(folder, family)) else []
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix in _LANGUAGES and f"{family}/{stem}" not in claimed:
                wrong.append(f"case {family}/{name} is of no claim")
        if "claims.json" in names:
            with open(os.path.join(folder, family, "claims.json"), encoding="utf-8") as file:
                wrong += [f"claim {family}/{row['id']} has no case" for row in json.load(file) if not row["cases"]]
    return wrong
