"""Every snippet of the README and the documentation does what its page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import snippets
from command import SITE
from support import REPO, need, need_boxes, pages

RUNNER = Path(snippets.__file__)


def run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the page's blocks with ``folder`` as the working directory, and a cache below it; pytest says how long."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(_with_command(folder / "bin"))])
    env = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, str(RUNNER), str(page)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def _with_command(folder: Path) -> Path:
    """A directory with the command, for a tree that is tested without being installed."""
    folder.mkdir(exist_ok=True)
    command = folder / "kern-sandbox"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={SITE} exec {sys.executable} -m kern_sandbox "$@"\n')
    command.chmod(0o755)
    return folder


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPO)))
def test_every_snippet_of_the_page_works(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if any(block.runs for block in snippets.blocks(text)):
        need_boxes()
        need(not snippets.missing(text), f"not installed: {', '.join(snippets.missing(text))}")
        done = run(page, tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPO)))
def test_every_snippet_of_the_page_is_run_or_says_why_not(page: Path) -> None:
    wrong = snippets.unlawful(page.read_text(encoding="utf-8"))
    assert not wrong


GOOD = """
```python
def double(n):
    return 2 * n


x = double(10)
```
Text, and the next block knows x:
```python
print(x + 1)
```
<!-- output -->
```text
21
```
<!-- not run: it would end the test -->
```python
raise SystemExit(3)
```
"""


def test_blocks_of_a_page_share_a_namespace_and_their_output_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(GOOD)
    assert not snippets.unlawful(GOOD)
    assert run(page, tmp_path).returncode == 0
    page.write_text(GOOD.replace("21", "22"))
    assert "it printed\n21" in run(page, tmp_path).stderr


def test_a_page_can_say_what_it_needs() -> None:
    assert snippets.missing("<!-- needs: sys no-such-program no_such_module -->\n# Title") == [
        "no-such-program",
        "no_such_module",
    ]
    assert not snippets.missing("# Title\n<!-- needs: no-such-program -->")


def test_a_failing_block_fails_its_page_with_the_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nfirst = 1\nsecond = first / 0\n```\n")
    done = run(page, tmp_path)
    assert done.returncode == 1
    assert 'File "page.md", line 5' in done.stderr
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    "page",
    [
        "```sh\nls\n```\n",
        "```\nprint(1)\n```\n",
        "```bash\nls\n```\n",
        "<!-- not run: -->\n```python\n1\n```\n",
        "<!-- output -->\n```text\n1\n```\n",
        "- a list\n\n  ```console\n  $ ls\n  ```\n",
        "```python\nfor n in range(3):\n    n\nprint(n)\n```\n",
        "```python\nfor n in range(3):\n    n\n\n    n\n```\n",
    ],
)
def test_a_block_that_would_slip_past_the_runner_is_found(page: str) -> None:
    assert snippets.unlawful(page)
