"""Making and removing cgroups ahead and behind: what Linux refuses there ends nobody's box."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from kern_sandbox import CgroupUnavailable
from kern_sandbox._forkserver.groups import Groups
from kern_sandbox._forkserver.server import Server
from kern_sandbox._linux.cgroup import CgroupHost, Group, Limits

LIMITS = Limits(pids=9)


class Refusing(CgroupHost):
    """A host on which Linux makes no more groups."""

    def __init__(self) -> None:
        super().__init__("none", frozenset(), {})
        self.full = False

    def make(self, limits: Limits) -> Group:
        if self.full:
            raise CgroupUnavailable("making a box's cgroup")
        return Group()


class Stuck(Group):
    """A group that Linux does not remove."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def remove(self) -> bool:
        raise self.error


def test_groups_are_made_ahead_until_linux_refuses_and_then_the_call_is_told() -> None:
    host = Refusing()
    groups = Groups(host)
    groups.take(LIMITS)
    assert groups.tidy(urgent_only=False)
    host.full = True
    assert not groups.tidy(urgent_only=False)
    groups.take(LIMITS)  # the one that was made ahead
    with pytest.raises(CgroupUnavailable):
        groups.take(LIMITS)


@pytest.mark.parametrize("error", [CgroupUnavailable("removing a box's cgroup"), OSError(24, "Too many open files")])
def test_a_group_that_linux_does_not_remove_is_left(error: Exception) -> None:
    groups = Groups(Refusing())
    groups.put_away(Stuck(error))
    assert groups.again_s is not None
    assert groups.tidy(urgent_only=False)
    assert groups.again_s is None


class Busy(Group):
    """A group in which something is still alive, as far as Linux says."""

    def remove(self) -> bool:
        return False


def test_a_group_that_is_in_use_is_asked_for_less_and_less_often() -> None:
    groups = Groups(Refusing())
    groups.put_away(Busy())
    first, pauses = groups.again_s, [0.0]
    for _ in range(20):
        assert not groups.tidy(urgent_only=False)
        pauses.append(groups.again_s or 0.0)
    assert first == 0.01
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0
    groups.put_away(Group())
    assert groups.again_s == first


@pytest.mark.parametrize(("calls", "wait"), [(False, 0.01), (True, None)])
def test_while_a_call_runs_nobody_wakes_up_for_what_waits_for_its_end(calls: bool, wait: float | None) -> None:
    groups = Groups(Refusing())
    groups.put_away(Busy())
    box = SimpleNamespace(call=object() if calls else None, held=False, due=math.inf)
    nursery = SimpleNamespace(refill=lambda: False, dues=list)
    server = SimpleNamespace(boxes={1: box}, nursery=nursery, groups=groups, sweeps=[], gate=SimpleNamespace(dues=[]))
    waited = Server._wait(server)  # type: ignore[arg-type]  # all that it needs
    assert (waited == math.inf) is (wait is None)
    assert wait is None or waited == 2 * wait, "it has been tried once meanwhile"
