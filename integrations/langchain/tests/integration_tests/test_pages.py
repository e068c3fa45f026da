"""What the README and the guide show works as it stands there, and so do the examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2]
REPO = HERE.parents[1]
RUNNER = REPO / "tests" / "snippets.py"
ELSEWHERE = re.compile(r"<!-- not run: needs langchain;.*?-->\n")


def run(*command: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", [HERE / "README.md", REPO / "docs" / "LANGCHAIN-SHELL.md"], ids=lambda page: page.stem)
def test_the_snippets_of_a_page_work(page: Path, tmp_path: Path) -> None:
    text, marked = ELSEWHERE.subn("", page.read_text())
    assert marked or page.name == "README.md"
    (tmp_path / page.name).write_text(text)
    run(str(RUNNER), page.name, folder=tmp_path)


@pytest.mark.parametrize(
    ("example", "lines"),
    [
        ("analyst.py", ["0 ['sales.csv'] [] ", None, """0 [] ["{'a': 8, 'b': 4}"] """, "a sold 8, b sold 4"]),
        ("terminal.py", ["/workspace/build", "no newline", "<no output>", None, None, None, "[]", "one"]),
        ("deep_agent.py", ["[2, 3, 5, 7, 11, 13, 17, 19]", None, None]),
    ],
)
def test_an_example_says_what_it_should(example: str, lines: list[str | None], tmp_path: Path) -> None:
    said = run(str(HERE / "examples" / example), folder=tmp_path).splitlines()
    assert len(said) == len(lines), said
    assert [line for line, expected in zip(said, lines, strict=True) if expected] == [line for line in lines if line]
