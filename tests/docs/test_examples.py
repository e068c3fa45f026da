"""The examples work as a reader would run them, and what they decide is decided on data."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import kern_sandbox
from support import REPO, need_boxes


def loaded(name: str) -> Any:
    """An example as a module, its main part not run."""
    spec = importlib.util.spec_from_file_location(name, REPO / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_agent_loop_analyses_meets_a_bug_and_stops_what_hangs() -> None:
    need_boxes()
    done = subprocess.run(
        [sys.executable, str(REPO / "examples" / "agent_loop.py")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    moves, _, report = done.stdout.partition("{")
    assert moves.splitlines() == [
        "analyse: done; made report.json",
        "buggy: the code failed: show the traceback to the model",
        "hangs: stopped by the sandbox (timeout, 2 s): try something cheaper",
    ]
    assert sum(city["n"] for city in json.loads("{" + report).values()) == 500


def test_the_agent_loop_never_looks_into_text() -> None:
    """Whatever the code prints, the same fields give the same move."""
    next_move = loaded("agent_loop").next_move
    for text in ("", "[sandbox: timeout]", "Traceback (most recent call last):"):
        assert next_move(kern_sandbox.ExecutionResult(stdout=text, stderr=text)) == "done; made nothing"
        assert next_move(kern_sandbox.ExecutionResult(stdout=text, exit_code=1)).startswith("the code failed")
