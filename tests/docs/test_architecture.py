"""The page that says where each layer of a box is names files and functions that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kern_sandbox"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CLAIM = re.compile(r"`([\w/*.-]+\.py)`(?: \(((?:`\w+`(?:, )?)+)\))?")


def claims() -> list[tuple[str, str]]:
    """Files of the page, each with the names that stand in brackets behind it."""
    return [(file, names) for file, names in CLAIM.findall(PAGE) if not (ROOT / file).exists()]


def test_there_are_claims() -> None:
    assert len(claims()) > 10


@pytest.mark.parametrize(("file", "names"), claims())
def test_what_the_page_names_is_there(file: str, names: str) -> None:
    folder = "" if "/" in file else "**/"
    found = list(SOURCE.glob(f"{folder}{file}"))
    assert found, f"no {file} in the package"
    text = "".join(path.read_text(encoding="utf-8") for path in found)
    for name in re.findall(r"\w+", names):
        assert re.search(rf"^\s*(?:def|class) {name}\b", text, re.MULTILINE), f"{file} has no {name}"
