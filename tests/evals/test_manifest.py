"""Every claim has a case, every case a claim, and every row of the catalogue a claim or a reason."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kern_sandbox.evals import _cases
from kern_sandbox.evals._abilities import missing
from kern_sandbox.evals._judges import JUDGES
from support import need

CASES = _cases.load()
SOURCES = _cases.sources()
CLAIMS = list({case.claim.id: case.claim for case in CASES}.values())


def test_manifests_and_files_cover_each_other() -> None:
    assert _cases.problems(judges=JUDGES) == []


def test_there_are_cases_in_number_in_every_family() -> None:
    families = [case.claim.family for case in CASES]
    assert len(CASES) >= 200
    assert families.count("benign") >= 60
    assert set(families) == set(_cases.FAMILIES)


def test_all_scenarios_of_the_public_benchmark_and_all_kinds_of_text_attack_are_listed() -> None:
    names = [source.id for source in SOURCES]
    assert sum(name.startswith("SEB-") for name in names) == 18
    assert [name for name in names if re.fullmatch(r"C\d\d", name)] == [f"C{number:02}" for number in range(1, 32)]
    assert sum(bool(re.fullmatch(r"B\d\d", name)) for name in names) == 68


def test_each_reason_for_having_no_case_is_a_sentence() -> None:
    assert not [source for source in SOURCES if source.uncovered and len(source.uncovered.split()) < 3]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: str(claim.id))
def test_each_attack_names_its_control_or_why_it_has_none(claim: _cases.Claim) -> None:
    control = claim.control
    assert (control.target in ("subprocess", "raw text", "exec")) != (len(control.why_none.split()) >= 3)
    assert claim.claim.endswith(".")
    assert claim.sources


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: str(claim.id))
def test_what_a_claim_needs_and_sets_up_is_known(claim: _cases.Claim) -> None:
    known = {"box", "root", "limits", "x86_64", "landlock 6"}
    programs = {"node", "git", "gcc", "make", "perl", "sqlite3", "numpy", "pandas", "matplotlib"}
    assert set(claim.needs) <= known | programs
    assert set(claim.not_on) <= {"kernel"}
    assert set(claim.scene) <= {"shown", "meeting", "neighbour", "once", "racing"}


def test_snippets_are_code_in_their_language() -> None:
    shells = [case for case in CASES if case.language == "bash"]
    for case in CASES:
        if case.language == "python":
            assert [ast.parse(call) for call in case.calls], case.id
    together = "\n".join(f"function case_{number} {{\n{case.calls[0]}\n}}" for number, case in enumerate(shells))
    checked = subprocess.run(["bash", "-n"], input=together, capture_output=True, text=True)
    assert checked.stderr == ""


def test_a_need_that_is_not_met_is_said() -> None:
    assert "harm the host" in missing(["box"], boxed=False)
    assert missing(["box"], boxed=True) == ""
    assert "no-such-program" in missing(["bash", "no-such-program"], boxed=True)
    need(shutil.which("bash", path="/usr/bin:/bin") is not None, "bash is not installed")
    assert missing(["bash"], boxed=True) == ""


# --- planted holes ----------------------------------------------------------------------------------------------

ROW: dict[str, Any] = {
    "id": "one", "claim": "It holds.", "sources": ["B01"], "judge": "works", "cases": ["first.py"],
}  # fmt: skip


def plant(top: Path, *rows: dict[str, Any], files: tuple[str, ...] = ("first.py",)) -> list[str]:
    """Write a family and say what is wrong with it."""
    folder = top / "escape"
    folder.mkdir()
    (folder / "claims.json").write_text(json.dumps(rows))
    (top / "sources.json").write_text(json.dumps({"B01": "leaks", "B02": ["more", "nobody can try it here"]}))
    for name in files:
        (folder / name).write_text("# Does one thing.\npass\n")
    return _cases.problems(str(top), ["works"])


def test_a_family_without_holes_is_accepted(tmp_path: Path) -> None:
    assert plant(tmp_path, ROW) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sources": ["B99"]}, "does not list it"),
        ({"sources": ["B02"]}, "a reason why it has none"),
        ({"sources": []}, "source B01 has no claim"),
        ({"judge": "nobody"}, "no judge 'nobody'"),
        ({"cases": []}, "claim escape/one has no case"),
    ],
)
def test_a_planted_hole_is_found(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in "\n".join(plant(tmp_path, {**ROW, **change}))


def test_a_file_of_no_claim_is_found(tmp_path: Path) -> None:
    assert plant(tmp_path, ROW, files=("first.py", "second.sh")) == ["case escape/second.sh is of no claim"]


def test_a_claim_that_is_there_twice_is_found(tmp_path: Path) -> None:
    assert set(plant(tmp_path, ROW, ROW)) == {"case escape/first is there twice", "claim escape/one is there twice"}


def test_a_claim_whose_case_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"first\.py"):
        plant(tmp_path, ROW, files=())


def test_a_key_that_no_claim_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jugde"):
        plant(tmp_path, {**ROW, "jugde": "works"})
