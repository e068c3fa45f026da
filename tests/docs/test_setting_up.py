"""What pages say about setting up works for somebody who has a clone, an empty environment and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support import REPO, repo_files

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [path for path in repo_files() if path.suffix == ".md" and "tests" not in path.relative_to(REPO).parts]
OURS = {
    "kern-sandbox", "langchain-kern-sandbox", "llama-index-tools-kern-sandbox", "npm:pi-kern-sandbox",
}  # fmt: skip
SATISFIED = ("kern-sandbox[cli]", "kern-sandbox[profiles]", "kern-sandbox[zstd]")
"""Extras for whoever has the package: pip then takes the one that is there."""
_INSTALL = re.compile(r"\b(?:pip|pi|npm) install ((?:[^\s`#]+ ?)+)")


def named(text: str) -> list[str]:
    """What the install commands of a page name, options left out."""
    words = [word.strip("'\"") for found in _INSTALL.findall(text) for word in found.split()]
    return [word for word in words if not word.startswith("-")]


def unpublished(text: str) -> list[str]:
    """Distributions of this repository that a page takes from an index, where they are not."""
    return [word for word in named(text) if word not in SATISFIED and re.split(r"[\[<>]", word)[0] in OURS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_nothing_of_this_repository_is_installed_from_an_index(page: Path) -> None:
    assert not unpublished(page.read_text(encoding="utf-8"))


def test_an_index_is_found_and_a_clone_accepted() -> None:
    said = "`pip install kern-sandbox`\npip install -U 'langchain-kern-sandbox[deepagents]' # both\n"
    found = unpublished(f"{said}pi install npm:pi-kern-sandbox")
    assert found == ["kern-sandbox", "langchain-kern-sandbox[deepagents]", "npm:pi-kern-sandbox"]
    assert not unpublished("pip install . ./integrations/langchain && pip install 'kern-sandbox[cli]' mcp")
    assert not unpublished("pip install kern-sandbox==0.2.49")


def test_every_directory_that_is_installed_can_be() -> None:
    places = {word for page in PAGES for word in named(page.read_text(encoding="utf-8")) if "integrations/" in word}
    found = {re.sub(r".*(?=integrations/)", "", word).partition("[")[0] for word in places}
    assert found == {f"integrations/{name}" for name in ("langchain", "llamaindex", "node", "pi")}
    for place in found:
        assert (REPO / place / "pyproject.toml").exists() or (REPO / place / "package.json").exists()


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_command_is_named_alone_only_where_it_is_on_the_path(page: str) -> None:
    text = (REPO / page).read_text(encoding="utf-8")
    alone = re.search(r"(^|`)kern-sandbox [a-z]", text, re.MULTILINE)
    assert alone is not None
    assert 0 < text.find(". .venv/bin/activate") < alone.start()
