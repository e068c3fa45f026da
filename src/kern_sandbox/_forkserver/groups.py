"""Cgroups kept off a call's path: one stands ready before it is needed, and goes after its box has ended."""

from __future__ import annotations

import collections
import os

from .._linux import cgroup_tree
from .._linux.cgroup import CgroupHost, Group, Limits

__all__ = ["Groups"]

_READY = 2


class Groups:
    """Groups by the limits that they enforce."""

    def __init__(self, host: CgroupHost) -> None:
        self.host = host
        self._ready: dict[Limits, collections.deque[Group]] = {}
        self._ended: collections.deque[Group] = collections.deque()
        self._homes = _own_directories()

    def homes(self, group: Group) -> list[int]:
        """Freshly opened ``cgroup.procs`` of this process's own cgroups, one for each directory of ``group``."""
        return [os.open(f"{self._home(path)}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for path in group.directories]

    def _home(self, path: str) -> str:
        device = os.stat(path).st_dev
        return next(home for home in self._homes if os.stat(home).st_dev == device)

    def take(self, limits: Limits) -> Group:
        """A group that no process was ever in."""
        ready = self._ready.setdefault(limits, collections.deque())
        return ready.popleft() if ready else self.host.make(limits)

    def put_away(self, group: Group) -> None:
        """``group``'s box has ended; remove it when there is time."""
        self._ended.append(group)

    def forget(self, limits: Limits) -> None:
        """No Sandbox with these limits is left."""
        self._ended.extend(self._ready.pop(limits, ()))

    def tidy(self) -> bool:
        """Do one piece of the work that can wait; ``False`` when there is none, or only work that must wait."""
        for limits, ready in self._ready.items():
            if len(ready) < _READY:
                ready.append(self.host.make(limits))
                return True
        for _ in range(len(self._ended)):
            group = self._ended.popleft()
            if group.remove():
                return True
            self._ended.append(group)
        return False

    @property
    def busy(self) -> bool:
        """Whether an ended group still has to go."""
        return bool(self._ended)

    def close(self) -> None:
        """Remove everything."""
        self.host.close()


def _own_directories() -> list[str]:
    """Where this process itself is, in every cgroup hierarchy that is mounted."""
    paths = cgroup_tree.parse_own_paths(cgroup_tree.read("/proc/self/cgroup"))
    found: list[str] = []
    for mount in cgroup_tree.parse_mounts(cgroup_tree.read("/proc/self/mountinfo")):
        names = {""} if mount.version == 2 else mount.controllers
        directories = (cgroup_tree.own_directory(mount, paths[name]) for name in sorted(names) if name in paths)
        found += [directory for directory in directories if directory is not None]
    return found
