"""Making and removing cgroups ahead and behind: what Linux refuses there ends nobody's box."""

from __future__ import annotations

import pytest

from kern_sandbox import CgroupUnavailable
from kern_sandbox._forkserver.groups import Groups
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
    assert groups.busy
    assert groups.tidy(urgent_only=False)
    assert not groups.busy
