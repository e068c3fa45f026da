"""The import graph is drawn as the code is."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from loading import module_at
from support import REPO


@pytest.fixture(scope="module")
def maker() -> Any:
    return module_at(REPO / "scripts" / "import_graph.py")


def test_the_picture_shows_the_imports_of_today(maker: Any) -> None:
    picture = (REPO / "docs" / "imports.svg").read_text(encoding="utf-8")
    titles = {unescape(title) for title in re.findall("<title>(.*?)</title>", picture)} - {"rooms"}
    made = maker.boxes()
    arrows = {f"{box}->{other}" for box, others in made.items() for other in others}
    assert titles == set(made) | arrows, "run `make graph`"


def test_no_arrow_leads_back(maker: Any) -> None:
    made = maker.boxes()
    assert not [box for box in made if box in maker.reached(made, box)]


def test_an_import_that_a_longer_way_implies_is_not_drawn(maker: Any) -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert maker.reached(graph, "a") == {"b", "c"}
    assert "_linux" in maker.rooms()["_forkserver"]
    assert "_linux" not in maker.boxes()["_forkserver"]
