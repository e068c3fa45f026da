"""Every link of a page leads somewhere, every page can be reached, and the site can be built."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import REPO, need, repo_files

PAGES = [path for path in repo_files() if path.suffix == ".md" and "tests" not in path.relative_to(REPO).parts]
_FENCE = re.compile(r"^ *```.*?^ *``` *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_SCHEME = re.compile(r"[a-z]+:")


def links(text: str) -> list[str]:
    """Where the links of a page lead, those in code left out."""
    return _LINK.findall(_CODE.sub("`code`", _FENCE.sub("", text)))


def anchors(text: str) -> set[str]:
    """The names of a page's headings, as code hosts and the site make them."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead(page: Path) -> list[str]:
    """The links that lead nowhere."""
    found = []
    for link in links(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if _SCHEME.match(link):
            continue
        if not target.is_file() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_link_of_the_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert not dead(page)


def test_a_dead_link_is_found_and_a_live_one_accepted(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A title, with `code`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n[a](other.md) [b](other.md#a-title-with-code) [c](#page) [d](https://a.example/) `[e](no.md)`\n"
        "[f](gone.md) [g](other.md#gone) [h](#gone)\n"
    )
    assert dead(page) == ["gone.md", "other.md#gone", "#gone"]


def test_every_page_of_the_documentation_is_linked_from_another() -> None:
    reached = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in links(page.read_text(encoding="utf-8"))
        if not _SCHEME.match(link) and link[0] != "#"
    }
    assert not [
        page for page in PAGES if REPO / "docs" in page.parents and page not in {*reached, REPO / "docs/index.md"}
    ]


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    need(importlib.util.find_spec("myst_parser") is not None, "the extra docs is not installed")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--conf-dir", "docs", "--doctree-dir", str(tmp_path / "trees"), ".", str(tmp_path / "site")]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "docs" / "quickstart.html").read_text(encoding="utf-8")
    assert 'href="guides/agents.html"' in page
    assert "docs/index.html" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
