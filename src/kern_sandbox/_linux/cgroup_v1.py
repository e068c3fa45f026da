"""Groups on cgroup v1: one hierarchy per controller, open to root only (Linux' ``admin-guide/cgroup-v1``).

A unified hierarchy beside them is left alone: joining it would cost a box more than its ``cgroup.kill`` is worth
(docs/decisions/0004-cgroups.md).
"""

from __future__ import annotations

import errno
import os

from . import cgroup_tree
from .cgroup_group import CgroupHost, CounterFile, Group, Setting, TreeHost
from .cgroup_tree import CONTROLLERS, CPU_PERIOD_US, Evidence, Limits, Mount, Owner

_NO_SUCH_FILE = (errno.ENOENT,)

_ONLY_ROOT = (
    "on cgroup v1 only root can make groups; boot with cgroup v2: "
    "add systemd.unified_cgroup_hierarchy=1 to the kernel's command line"
)


class V1Group(Group):
    """A box's cgroups on v1: one directory per hierarchy that is used, by controller."""

    def __init__(self, by_controller: dict[str, str], counts: frozenset[str]) -> None:
        super().__init__(tuple(dict.fromkeys(by_controller.values())))
        self.by_controller = by_controller
        self._counts = counts

    def _read_counters(self) -> Evidence:
        memory, pids, cpu = (self.by_controller.get(name, "") for name in ("memory", "pids", "cpuacct"))
        oom_kills = refused = 0
        if "memory" in self._counts:
            oom_kills = cgroup_tree.counter(cgroup_tree.read(f"{memory}/memory.oom_control"), "oom_kill")
        if "pids" in self._counts:
            refused = cgroup_tree.counter(cgroup_tree.read_or_none(f"{pids}/pids.events") or "", "max")
        used_ns = cgroup_tree.number_or_none(f"{cpu}/cpuacct.usage")
        return Evidence(
            oom_kills=oom_kills,
            pids_refused=refused,
            max_memory_bytes=cgroup_tree.number_or_none(f"{memory}/memory.max_usage_in_bytes"),
            max_pids=cgroup_tree.number_or_none(f"{pids}/pids.peak"),
            cpu_ms=None if used_ns is None else used_ns // 1_000_000,
        )

    def _counter_files(self) -> list[CounterFile]:
        memory, pids, cpu = (self.by_controller.get(name, "") for name in ("memory", "pids", "cpuacct"))
        files = [CounterFile("cpu_ms", f"{cpu}/cpuacct.usage", unit=1_000_000)]
        if "memory" in self._counts:
            files.append(CounterFile("oom_kills", f"{memory}/memory.oom_control", "oom_kill"))
        if "pids" in self._counts:
            files.append(CounterFile("pids_refused", f"{pids}/pids.events", "max"))
        return files


class V1Host(TreeHost):
    """Makes V1Groups below one directory per hierarchy."""

    def __init__(self, by_controller: dict[str, str], reasons: dict[str, str]) -> None:
        limiting = [name for name in CONTROLLERS if name in by_controller]
        super().__init__("v1", limiting, reasons, tuple(dict.fromkeys(by_controller.values())))
        self._by_controller = by_controller

    def _group(self, name: str) -> Group:
        return V1Group({each: f"{root}/{name}" for each, root in self._by_controller.items()}, self.enforces)

    def _settings(self, group: Group, limits: Limits) -> list[Setting]:
        assert isinstance(group, V1Group)
        return settings(group.by_controller, limits)


def settings(by_controller: dict[str, str], limits: Limits) -> list[Setting]:
    """Returns what puts limits in force, in an order that Linux accepts: memory before memory with swap.

    Without swap accounting (no ``memsw`` file) swappiness 0 alone keeps a group's own reclaim from swapping.
    A refused CPU quota means that a cgroup above has a tighter one, which then holds (EINVAL, v1 only).
    """
    found = []
    if limits.memory_bytes is not None and "memory" in by_controller:
        memory, size = by_controller["memory"], str(limits.memory_bytes)
        found += [
            Setting("memory", f"{memory}/memory.limit_in_bytes", size),
            Setting("memory", f"{memory}/memory.memsw.limit_in_bytes", size, _NO_SUCH_FILE),
            Setting("memory", f"{memory}/memory.swappiness", "0", _NO_SUCH_FILE),
            Setting("memory", f"{memory}/memory.kmem.tcp.limit_in_bytes", size, _NO_SUCH_FILE),
        ]
    if limits.pids is not None and "pids" in by_controller:
        found.append(Setting("pids", f"{by_controller['pids']}/pids.max", str(limits.pids)))
    if limits.cpus is not None and "cpu" in by_controller:
        cpu, quota = by_controller["cpu"], str(cgroup_tree.cpu_quota_us(limits.cpus))
        found += [
            Setting("cpu", f"{cpu}/cpu.cfs_period_us", str(CPU_PERIOD_US)),
            Setting("cpu", f"{cpu}/cpu.cfs_quota_us", quota, (errno.EINVAL,)),
        ]
    return found


def probe(owner: Owner, mounts: list[Mount], paths: dict[str, str]) -> CgroupHost:
    """Returns a host below our own cgroup in each v1 hierarchy, or one of mode ``"none"``. Never raises."""
    bases, tops = _bases(mounts, paths)
    name = cgroup_tree.new_name(owner)
    reasons: dict[str, str] = {}
    made: dict[str, str] = {}
    for controller, base in bases.items():
        cgroup_tree.collect_stale(base, tops[controller], owner.namespace)
        failed = _make_root(f"{base}/{name}")
        if failed:
            reasons[controller] = failed
        else:
            made[controller] = f"{base}/{name}"
    missing = [each for each in CONTROLLERS if each not in bases]
    reasons.update({each: f"no cgroup v1 hierarchy with {each} is visible here" for each in missing})
    return _settled(made, {each: reason for each, reason in reasons.items() if each in CONTROLLERS})


def _settled(made: dict[str, str], reasons: dict[str, str]) -> CgroupHost:
    host = V1Host(made, reasons)
    failed = host.try_out() if host.enforces else "no hierarchy can be used"
    if failed is None and host.enforces:
        return host
    host.close()
    return CgroupHost("none", frozenset(), {each: reasons.get(each, str(failed)) for each in CONTROLLERS})


def _bases(mounts: list[Mount], paths: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns our own cgroup's directory and the mount point, by controller."""
    bases: dict[str, str] = {}
    tops: dict[str, str] = {}
    for mount in mounts:
        for name in (mount.controllers & {*CONTROLLERS, "cpuacct"}) - bases.keys():
            directory = cgroup_tree.own_directory(mount, paths[name]) if name in paths else None
            if directory is not None and os.path.isdir(directory):
                bases[name], tops[name] = directory, mount.point
    return bases, tops


def _make_root(directory: str) -> str | None:
    """Makes our directory in one hierarchy, which co-mounted controllers share; returns what failed."""
    try:
        os.mkdir(directory)
    except FileExistsError:
        return None
    except PermissionError:
        return _ONLY_ROOT
    except OSError as error:
        return f"mkdir {directory}: {os.strerror(error.errno or 0)}"
    return None
