"""What the README says works when it is pasted, and the example runs with nothing but this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import snippets

HERE = Path(__file__).parent.parent
README = HERE / "README.md"


def test_no_block_of_the_readme_slips_past_the_runner() -> None:
    assert not snippets.unlawful(README.read_text(encoding="utf-8"))


def test_every_snippet_of_the_readme_runs() -> None:
    done = subprocess.run([sys.executable, snippets.__file__, str(README)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_example_runs_and_shows_a_bug_being_mended() -> None:
    done = subprocess.run([sys.executable, str(HERE / "examples" / "analyst.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "write_file: Wrote sales.csv, 54 bytes.",
        "run_code: KeyError: 'amount'",
        "run_code: Lima 42",
        "answer: Lima sold the most: 42.",
    ]
