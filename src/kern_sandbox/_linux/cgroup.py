"""Limits on a box by cgroups, and what Linux counted: one interface over v2, v1, and hosts where neither can be had.

``probe`` finds out by trying what this process can enforce. It must be called by a single-threaded process that has no
children yet and that no limit is meant for: on a systemd machine it moves its caller into a scope of its own.
"""

from __future__ import annotations

from . import cgroup_tree, cgroup_v1, cgroup_v2
from .cgroup_group import CgroupHost, Group
from .cgroup_tree import Evidence, Limits

__all__ = ["CgroupHost", "Evidence", "Group", "Limits", "probe", "sweep"]


def probe() -> CgroupHost:
    """Returns the host object that enforces most here, after removing what dead servers left behind. Never raises.

    Where nothing works its mode is ``"none"``, its groups enforce nothing, and ``reasons`` tells what would change it.
    """
    try:
        owner = cgroup_tree.this_process()
        mounts = cgroup_tree.parse_mounts(cgroup_tree.read("/proc/self/mountinfo"))
        paths = cgroup_tree.parse_own_paths(cgroup_tree.read("/proc/self/cgroup"))
    except (OSError, ValueError) as error:
        return CgroupHost.nothing(f"/proc cannot be read: {error}")
    try:
        return _best(owner, mounts, paths)
    except OSError as error:
        return CgroupHost.nothing(f"{error.filename}: {error.strerror}")


def sweep() -> list[str]:
    """Removes what dead servers left near this process, and returns what was found. Never raises.

    ``probe`` does the same; but what a killed server's boxes held may only be free a moment later.
    """
    try:
        owner = cgroup_tree.this_process()
        mounts = cgroup_tree.parse_mounts(cgroup_tree.read("/proc/self/mountinfo"))
        paths = cgroup_tree.parse_own_paths(cgroup_tree.read("/proc/self/cgroup"))
    except (OSError, ValueError):
        return []
    found: list[str] = []
    for mount in mounts:
        names = {""} if mount.version == 2 else mount.controllers
        places = {cgroup_tree.own_directory(mount, paths[name]) for name in names if name in paths}
        for place in places - {None}:
            found += cgroup_tree.collect_stale(str(place), mount.point, owner.namespace)
    return found


def _best(owner: cgroup_tree.Owner, mounts: list[cgroup_tree.Mount], paths: dict[str, str]) -> CgroupHost:
    """Tries v2 and then v1; v1 is left alone where v2 already enforces what no box should be without."""
    if not mounts:
        return CgroupHost.nothing("no cgroup file system is mounted; run: sudo mount -t cgroup2 none /sys/fs/cgroup")
    second = cgroup_v2.probe(owner, mounts, paths)
    if second.enforces >= {"memory", "pids"} or all(mount.version == 2 for mount in mounts):
        return second
    first = cgroup_v1.probe(owner, mounts, paths)
    if second.enforces and len(second.enforces) >= len(first.enforces):
        first.close()
        return second
    second.close()
    return first
