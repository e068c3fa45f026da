"""The examples work as a reader would run them, and what they decide is decided on data."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kern_sandbox
from loading import module_at
from support import REPO, need, need_boxes, past_a_deadline


def loaded(name: str) -> Any:
    """An example as a module, its main part not run."""
    return module_at(REPO / "examples" / f"{name}.py")


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """An example as its own text says to run it; pytest says how long it may take."""
    need_boxes()
    command = [sys.executable, str(REPO / "examples" / f"{name}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_agent_loop_analyses_meets_a_bug_and_stops_what_hangs() -> None:
    done = run("agent_loop")
    assert done.returncode == 0, done.stderr
    moves, _, report = done.stdout.partition("{")
    assert moves.splitlines() == [
        "analyse: done; made report.json",
        "buggy: the code failed: show the traceback to the model",
        "hangs: stopped by the sandbox (timeout, 4 s): try something cheaper",
    ]
    assert sum(city["n"] for city in json.loads("{" + report).values()) == 500


def test_the_agent_loop_never_looks_into_text() -> None:
    """Whatever the code prints, the same fields give the same move."""
    next_move = loaded("agent_loop").next_move
    for text in ("", "[sandbox: timeout]", "Traceback (most recent call last):"):
        assert next_move(kern_sandbox.ExecutionResult(stdout=text, stderr=text)) == "done; made nothing"
        assert next_move(kern_sandbox.ExecutionResult(stdout=text, exit_code=1)).startswith("the code failed")


def test_the_batch_grader_gives_each_solution_its_own_verdict(tmp_path: Path) -> None:
    def grade(limit: float) -> tuple[str, list[str]]:
        done = run("batch_grader", "--count", "8", "--timeout-s", str(limit), "--report", str(tmp_path / "report.csv"))
        assert done.returncode == 0, done.stderr
        return done.stdout, [row.rpartition(",")[0] for row in (tmp_path / "report.csv").read_text().splitlines()]

    (printed, rows), _ = past_a_deadline(grade, lambda graded: str(graded[1]).count("timeout") == 1, 4.0)
    assert rows == [
        "student,points,verdict",
        "student-0000,6,all right",
        "student-0001,6,all right",
        "student-0002,4,wrong answers",
        "student-0003,0,AttributeError: 'list' object has no attribute 'median'",
        f"student-0004,0,{rows[5].partition(',0,')[2]}",  # each version of Python has its own words
        "student-0005,0,timeout",
        "student-0006,0,wrong answers",
        "student-0007,0,FileNotFoundError: [Errno 2] No such file or directory: '/etc/shadow'",
    ]
    assert "SyntaxError" in rows[5]
    assert printed.splitlines()[-1] == "8 solutions"


def test_the_steps_of_a_build_share_a_copy_and_end_at_the_first_that_fails(tmp_path: Path) -> None:
    project, kept = tmp_path / "project", tmp_path / "kept"
    project.mkdir()
    (project / "build.sh").write_text("#!/bin/sh\nmkdir -p out; echo built > out/made; echo changed >> input\n")
    (project / "build.sh").chmod(0o755)
    (project / "input").write_text("as it was\n")
    done = run("ci_step", str(project), "--keep", str(kept), "--", "./build.sh", "cat out/made; exit 7", "touch never")
    assert done.returncode == 7, done.stderr
    said = [line.partition("  (")[0] for line in done.stdout.splitlines()]
    assert said == [
        "2 files copied",
        "built",
        "ok     ./build.sh",
        "FAILED cat out/made; exit 7",
        "kept: input out/made",
    ]
    assert (kept / "out" / "made").read_text() == "built\n"
    assert (project / "input").read_text() == "as it was\n"


def test_a_plug_in_that_hangs_or_lies_loses_its_turn_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("def transform(record):\n    return {**record, 'tags': ['seen']}\n")
    bad = "def transform(record):\n    while record['name'] == 'Ada': pass\n    print('noise'); return {'name': 3}\n"
    (tmp_path / "bad.py").write_text(bad)
    done = run("plugins", str(tmp_path / "good.py"), str(tmp_path / "bad.py"))
    assert done.returncode == 0, done.stderr
    *failures, records = done.stdout.splitlines()
    assert failures == [
        "bad on Ada: the code did not end within 3 s and was interrupted; the kernel's state is kept",
        "bad on Grace: it gave something that is no record",
    ]
    assert json.loads(records) == [
        {"name": "Ada", "age": 36, "tags": ["seen"]},
        {"name": "Grace", "age": 85, "tags": ["seen"]},
    ]


def test_the_search_keeps_the_best_branch_and_takes_back_what_ruins_it() -> None:
    done = run("best_of_n", "--rounds", "5", "--branches", "3")
    assert done.returncode == 0, done.stderr
    start, *rounds, best = done.stdout.splitlines()
    assert start == "start: 54"
    assert len(rounds) == 5
    # Among the ideas is chance, so which of them is taken differs from run to run; how the search goes on does not.
    standing = 54
    for line in rounds:
        found = re.search(r": (\d+) \(a branch had \d+\) by |: nothing better; back to (\d+)$", line)
        assert found is not None, line
        taken, kept = found.groups()
        assert int(taken) < standing if taken else int(kept) == standing, line
        standing = int(taken or kept)
    assert rounds[4] == "round 5: nothing better; back to 2", "no order is better than that of the fourth round"
    assert best.startswith("best: 2, order [")


def test_the_data_analysis_brings_numbers_and_a_chart_out(tmp_path: Path) -> None:
    found = importlib.util.find_spec("matplotlib")
    need(found is not None, "matplotlib is not installed")
    assert found is not None
    libs = Path(str(found.origin)).parent.parent
    done = run("data_analysis", str(tmp_path / "chart.png"), "--libs", str(libs))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{1: -6.1, 2: -3.1, ")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_no_spreadsheet_takes_a_solutions_last_words_for_a_formula(tmp_path: Path) -> None:
    grader = loaded("batch_grader")
    report = tmp_path / "report.csv"
    grader.write_report([grader.Grade("=1+1", 0, "=HYPERLINK(0)", 5), grader.Grade("a", 6, "all right", 5)], report)
    assert report.read_text().split() == [
        "student,points,verdict,milliseconds",
        "'=1+1,0,'=HYPERLINK(0),5",
        "a,6,all",
        "right,5",
    ]
