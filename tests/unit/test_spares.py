"""Which boxes are made ahead, decided without making any."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from kern_sandbox._box.plan import Bind
from kern_sandbox._forkserver.owners import Owner
from kern_sandbox._forkserver.spares import Spares

WORKSPACE = Bind("/w", "/workspace")


class House:
    """A stem with a template, boxes that are names, and a clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("kern_sandbox._forkserver.spares.time", SimpleNamespace(monotonic=lambda: self.now))
        self.template: Any = SimpleNamespace(key="k", ready=True, wishes={}, waiting=set(), spares=deque())
        self.stem: Any = SimpleNamespace(
            key="k", ready=True, wishes={}, waiting=set(), spares=deque(), template=self.template, hopeless=False,
            nested=True,
        )  # fmt: skip
        self.owners: dict[str, Owner] = {}
        self.boxes: dict[int, Any] = {}
        self.limits: list[float] = []
        stems: dict[str, Any] = {"k": self.stem}
        self.spares = Spares(self._ahead, stems, self.owners, self.boxes)

    def owner(self, name: str, **known: Any) -> Owner:
        self.owners[name] = Owner(name, "k", WORKSPACE, [], **known)
        return self.owners[name]

    def _ahead(self, source: Any, name: str, limit_s: float) -> Any:
        self.limits.append(limit_s)
        box = SimpleNamespace(owner=name, siblings=source.spares, call=None, stem_key="k")
        self.boxes[len(self.boxes)] = box
        return box

    def serve(self, source: Any, owner: str) -> None:
        """One call of ``owner`` by a box of ``source``."""
        self.owners[owner].calls += 1
        self.spares.wish(SimpleNamespace(stem_key="k", owner=owner, siblings=source.spares))  # type: ignore[arg-type]

    def fill(self, source: Any) -> int:
        """How many boxes are made when there is all the time in the world."""
        return sum(1 for _ in iter(lambda: self.spares.refill(source), False))


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    return House(monkeypatch)


def names(source: Any) -> list[str]:
    return [box.owner for box in source.spares]


def test_after_a_first_call_one_box_waits_for_whoever_comes(house: House) -> None:
    house.owner("a")
    house.serve(house.template, "a")
    assert house.fill(house.template) == 1
    assert names(house.template) == [""]


def test_after_a_second_call_one_box_is_the_sandbox_s_own_and_comes_before_the_common_one(house: House) -> None:
    house.owner("a")
    for _ in range(2):
        house.serve(house.template, "a")
        house.fill(house.template)
    assert names(house.template) == ["", "a"]
    assert [box.owner for box in house.spares.taken(house.template, "a")] == ["a", ""]
    assert not house.template.spares


def test_nobody_gets_a_box_that_is_another_s(house: House) -> None:
    house.owner("a", calls=1)
    house.owner("b")
    house.serve(house.template, "a")
    house.fill(house.template)
    assert names(house.template) == ["a"]
    assert not list(house.spares.taken(house.template, "b"))


def test_where_call_follows_call_two_are_kept(house: House) -> None:
    house.owner("a", calls=5, hurried=True)
    house.serve(house.template, "a")
    assert house.fill(house.template) == 2


def test_prewarmed_boxes_are_of_the_template_wait_longer_and_are_filled_up(house: House) -> None:
    house.owner("a", prewarm=5)
    house.spares.begin(house.template)
    house.spares.begin(house.stem)
    assert (house.fill(house.template), house.fill(house.stem)) == (6, 1)
    assert sorted(names(house.template)) == ["", *"aaaaa"]
    assert max(house.limits) > min(house.limits)
    list(zip(range(2), house.spares.taken(house.template, "a")))
    house.serve(house.template, "a")
    assert house.fill(house.template) == 2


def test_without_a_template_prewarmed_boxes_are_of_the_stem(house: House) -> None:
    house.stem.hopeless = True
    house.owner("a", prewarm=3)
    house.spares.begin(house.stem)
    assert house.fill(house.stem) == 4


def test_in_a_burst_none_is_made_while_there_are_some(house: House) -> None:
    house.owner("a", prewarm=4)
    house.spares.begin(house.template)
    house.fill(house.template)
    house.spares.called()
    list(zip(range(1), house.spares.taken(house.template, "a")))
    house.serve(house.template, "a")
    assert house.fill(house.template) == 0
    house.now += 1
    assert house.fill(house.template) == 1


def test_a_session_for_one_call_has_one_box_before_it_and_none_after(house: House) -> None:
    house.owner("a", once=True)
    house.spares.begin(house.template)
    assert house.fill(house.template) == 2
    list(house.spares.taken(house.template, "a"))
    house.serve(house.template, "a")
    assert house.fill(house.template) == 0


def test_a_closed_sandbox_wishes_for_nothing(house: House) -> None:
    house.owner("a", prewarm=4)
    house.spares.begin(house.template)
    house.owners.clear()
    assert house.fill(house.template) == 1
    house.spares.wish(SimpleNamespace(stem_key="k", owner="a", siblings=house.template.spares))  # type: ignore[arg-type]
    assert house.fill(house.template) == 0


@pytest.mark.parametrize("state", ["not ready", "busy"])
def test_a_source_that_cannot_take_more_is_left_alone(house: House, state: str) -> None:
    house.owner("a", prewarm=4)
    house.spares.begin(house.template)
    house.template.ready = state != "not ready"
    house.template.waiting = {1, 2} if state == "busy" else set()
    assert house.fill(house.template) == 0
    house.template.ready, house.template.waiting = True, set()
    assert house.fill(house.template) > 0


def test_there_is_a_most(house: House) -> None:
    for number in range(4):
        house.owner(str(number), prewarm=100)
    house.spares.begin(house.template)
    assert house.fill(house.template) == 256
