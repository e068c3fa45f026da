"""The eval harness on real boxes: what holds, what is breached where a layer is away, and that nothing is left."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kern_sandbox.cli import main
from kern_sandbox.evals import _cases
from kern_sandbox.evals._run import run_all
from kern_sandbox.evals._targets import Exec, Forked
from support import leaks, need_boxes

if TYPE_CHECKING:
    from pathlib import Path

    from kern_sandbox.evals._targets import Target

BY_ID = {case.id: case for case in _cases.load()}
SOME = (
    "escape/path-plain",
    "escape/inherited-read",
    "escape/filter-threads",
    "escape/capabilities-main",
    "syscalls/keyctl",
    "filesystem/link-final",
    "filesystem/left-setuid",
    "filesystem/next-tmp",
    "network/tcp-loopback",
    "network/unix-abstract",
    "resources/left-session",
    "leaks/environ-own",
    "forgery/exit-oom",
    "benign/sqlite",
    "benign/shell-tools",
)
"""At least one of each kind of judge that an attack on a plain process of any user can breach."""


@pytest.fixture(autouse=True)
def _boxes() -> None:
    need_boxes()


@pytest.mark.parametrize("target", [Exec(), Forked()], ids=lambda target: str(target.name))
def test_boxes_hold_and_the_same_attacks_work_on_their_controls(target: Target) -> None:
    rows = list(run_all([BY_ID[name] for name in SOME], [target], jobs=2))
    assert not [(row.case.id, row.word, row.detail) for row in rows if row.bad]
    attacks = [row for row in rows if row.case.claim.family != "benign"]
    assert not [(row.case.id, row.about_control) for row in attacks if not row.proved]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("network/tcp-loopback", {"network": True}),
        ("network/no-interface", {"network": True}),
        ("escape/capabilities-main", {"cap_drop": []}),
        ("resources/output-flood", {"max_output_bytes": 64 << 20}),
    ],
)
def test_a_box_that_is_weakened_in_one_respect_is_breached(name: str, options: dict[str, object]) -> None:
    case = BY_ID[name]
    (row,) = run_all([replace(case, claim=replace(case.claim, options=options))], [Exec()])
    assert (row.word, row.bad) == ("breached", True)


def test_a_file_that_is_shown_writable_is_seen_to_be_changed() -> None:
    """The judge looks at the host's file, and not at what the code says."""
    case = BY_ID["filesystem/shown-write"]
    (row,) = run_all([case], [Exec()])
    assert (row.word, row.control) == ("held", "breached")


def test_the_command_writes_its_reports_and_leaves_nothing_behind(tmp_path: Path) -> None:
    words = ["eval", "--target", "exec", "--case", "escape/path-*", "--case", "benign/hello", "--jobs", "2"]
    files = ["--jsonl", str(tmp_path / "rows"), "--html", str(tmp_path / "page.html")]
    main(words)
    with leaks():
        assert main([*words, *files]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert {row["verdict"] for row in rows} == {"held", "worked"}
    assert "kern_sandbox kept every claim" in (tmp_path / "page.html").read_text()
