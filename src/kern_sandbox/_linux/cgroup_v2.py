"""Groups on cgroup v2: one tree, of which a subtree must be ours (Linux' ``admin-guide/cgroup-v2``, "Delegation").

A cgroup that hands controllers to its children must hold no process itself (the root excepted), and the user's own
process is never moved. So the places tried are, in this order: the server's cgroup where it is alone in it, the cgroup
above where that is delegated, a scope from systemd, and as root the cgroup above or the top of the tree.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from . import cgroup_tree, systemd_scope
from .cgroup_group import CgroupHost, CounterFile, Group, Setting, TreeHost
from .cgroup_tree import CONTROLLERS, CPU_PERIOD_US, Evidence, Limits, Mount, Owner

_SCOPE_TIMEOUT_S = 20.0
"""A tenth of a second on a calm machine; one that is busy, as after a login, must not cost the boxes their limits."""
_LEAF = "supervisor"
_NO_SUCH_FILE = (errno.ENOENT,)

_HAND_OVER = (
    "{own} holds other processes, so it cannot be divided; move them to a leaf of their own first: "
    "mkdir {own}/main && for p in $(cat {own}/cgroup.procs); do echo $p > {own}/main/cgroup.procs; done"
)
_SWAP_ESCAPES = (
    "swap is on and not accounted, so a box may use it beyond its memory limit; run: sudo swapoff -a, "
    "or remove swapaccount=0 from the kernel's command line"
)
_NOT_OURS = "{own} does not belong to this user; in a systemd unit, Delegate=yes would change that"
_READ_ONLY = "{own} is mounted read-only, as in a container; start the container with a writable /sys/fs/cgroup"
_NOT_IN_LINUX = "this Linux runs without the {name} controller; add cgroup_enable={name} to the kernel's command line"
_NOT_IN_CONTAINER = "{name} is not handed to the part of the cgroup tree at {place}; the container's engine decides"
_NOT_BY_USER_MANAGER = (
    "{name} is not delegated to your systemd user manager; run: sudo mkdir -p /etc/systemd/system/user@.service.d && "
    "printf '[Service]\\nDelegate=cpu memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && "
    "sudo systemctl daemon-reload && sudo systemctl restart user@{uid}.service (ends this user's session)"
)
_NOT_HANDED_DOWN = "{name} is not handed down to {place}; run: echo +{name} | sudo tee {above}/cgroup.subtree_control"


class V2Group(Group):
    """A box's cgroup on v2."""

    def __init__(self, directory: str, counts: frozenset[str]) -> None:
        super().__init__((directory,))
        self._directory = directory
        self._counts = counts

    def _read_counters(self) -> Evidence:
        at = self._directory
        oom_kills = refused = 0
        if "memory" in self._counts:
            oom_kills = cgroup_tree.counter(cgroup_tree.read(f"{at}/memory.events"), "oom_kill")
        if "pids" in self._counts:
            refused = cgroup_tree.counter(cgroup_tree.read(f"{at}/pids.events"), "max")
        stat = cgroup_tree.read_or_none(f"{at}/cpu.stat")
        return Evidence(
            oom_kills=oom_kills,
            pids_refused=refused,
            max_memory_bytes=cgroup_tree.number_or_none(f"{at}/memory.peak"),
            max_pids=cgroup_tree.number_or_none(f"{at}/pids.peak"),
            cpu_ms=None if stat is None else cgroup_tree.counter(stat, "usage_usec") // 1000,
        )

    def _counter_files(self) -> list[CounterFile]:
        files = [CounterFile("cpu_ms", f"{self._directory}/cpu.stat", "usage_usec", 1000)]
        if "memory" in self._counts:
            files.append(CounterFile("oom_kills", f"{self._directory}/memory.events", "oom_kill"))
        if "pids" in self._counts:
            files.append(CounterFile("pids_refused", f"{self._directory}/pids.events", "max"))
        return files


class V2Host(TreeHost):
    """Makes V2Groups below one directory; where the server itself had to move to a leaf, ``close`` moves it back."""

    def __init__(self, root: str, controllers: frozenset[str], reasons: dict[str, str], leaf: str | None) -> None:
        super().__init__("v2", controllers, reasons, (root,))
        self.root = root
        self._leaf = leaf

    def _group(self, name: str) -> Group:
        return V2Group(f"{self.root}/{name}", self.enforces)

    def _settings(self, group: Group, limits: Limits) -> list[Setting]:
        return settings(group.directories[0], limits)

    def close(self) -> None:
        """Removes what this object made; see ``CgroupHost.close``."""
        super().close()
        if self._leaf is not None:
            _leave_leaf(self._leaf)


def settings(directory: str, limits: Limits) -> list[Setting]:
    """Returns what puts limits in force. Without swap in this Linux there is no ``memory.swap.max`` and no need."""
    found = []
    if limits.memory_bytes is not None:
        found += [
            Setting("memory", f"{directory}/memory.max", str(limits.memory_bytes)),
            Setting("memory", f"{directory}/memory.swap.max", "0", _NO_SUCH_FILE),
        ]
    if limits.pids is not None:
        found.append(Setting("pids", f"{directory}/pids.max", str(limits.pids)))
    if limits.cpus is not None:
        quota = cgroup_tree.cpu_quota_us(limits.cpus)
        found.append(Setting("cpu", f"{directory}/cpu.max", f"{quota} {CPU_PERIOD_US}"))
    return found


class _Search:
    """One look for a place: where we are, and why the places tried so far do not do."""

    def __init__(self, owner: Owner, mount: Mount, own: str) -> None:
        self.owner = owner
        self.mount = mount
        self.own = own
        self.notes: list[str] = []

    def nothing(self) -> CgroupHost:
        return CgroupHost.nothing("; ".join(self.notes))


def probe(owner: Owner, mounts: list[Mount], paths: dict[str, str]) -> CgroupHost:
    """Returns a host in the first place that enforces all it could, else in the best one. Never raises."""
    search = _start(owner, mounts, paths)
    if isinstance(search, CgroupHost):
        return search
    wanted = {"memory", "pids"} & _controllers(search.mount.point)
    best: CgroupHost | None = None
    for place in _places(search):
        host = _settle(place, search)
        if host is None:
            continue
        best = _better_of(best, host)
        if best.enforces >= wanted:
            break
    return best or search.nothing()


def _better_of(one: CgroupHost | None, other: CgroupHost) -> CgroupHost:
    """Returns the host that enforces more, the first if in doubt, and closes the other."""
    if one is None:
        return other
    worse, better = (one, other) if len(other.enforces) > len(one.enforces) else (other, one)
    worse.close()
    return better


def _start(owner: Owner, mounts: list[Mount], paths: dict[str, str]) -> _Search | CgroupHost:
    mount = next((each for each in mounts if each.version == 2), None)
    own = cgroup_tree.own_directory(mount, paths[""]) if mount is not None and "" in paths else None
    if mount is None or own is None or not os.path.isdir(own):
        return CgroupHost.nothing("our own cgroup is not visible in any cgroup v2 mount")
    if not _controllers(mount.point) & set(CONTROLLERS):
        return CgroupHost.nothing(f"the cgroup v2 tree at {mount.point} carries no controllers")
    if os.statvfs(own).f_flag & os.ST_RDONLY:
        return CgroupHost.nothing(_READ_ONLY.format(own=own))
    return _Search(owner, mount, own)


def _places(search: _Search) -> Iterator[str]:
    """Yields directories worth trying, best first; asking systemd for one moves the server."""
    own, above, systemd = search.own, os.path.dirname(search.own), systemd_scope.runs_here()
    inside = own != search.mount.point
    alone = _is_top(own) or cgroup_tree.pids_in(own) == [search.owner.pid]
    if alone and (_is_delegated(own) or not systemd):
        yield own
    elif not alone:
        search.notes.append((_HAND_OVER if os.access(own, os.W_OK) else _NOT_OURS).format(own=own))
    if inside and (_is_delegated(above) or not systemd):
        yield above
    if systemd:
        yield from _scope(search)
    if systemd and os.geteuid() == 0:
        yield from dict.fromkeys((above if inside else own, search.mount.point))


def _scope(search: _Search) -> Iterator[str]:
    unit = f"{cgroup_tree.new_name(search.owner)}.scope"
    answer = systemd_scope.adopt(search.owner.pid, unit, _SCOPE_TIMEOUT_S)
    place = cgroup_tree.own_directory(search.mount, answer.path) if answer.path else None
    if place is None:
        search.notes.insert(0, answer.reason or f"the scope {unit} is not visible in {search.mount.point}")
        return
    search.own = place
    yield place


def _settle(place: str, search: _Search) -> CgroupHost | None:
    """Tries to make groups below a directory; ``None``, with a note, where that cannot be."""
    kind = (cgroup_tree.read_or_none(f"{place}/cgroup.type") or "domain").strip()
    if kind != "domain":
        search.notes.append(f"{place} is of type {kind!r}, which holds no memory limits")
        return None
    cgroup_tree.collect_stale(place, search.mount.point, search.owner.namespace)
    root = f"{place}/{cgroup_tree.new_name(search.owner)}"
    leaf = f"{place}/{_LEAF}" if place == search.own and not _is_top(place) else None
    try:
        if leaf is not None:
            _enter_leaf(leaf)
        refused = _hand_down(place)
        os.mkdir(root)
        refused.update(_hand_down(root))
    except OSError as error:
        search.notes.append(f"{error.filename}: {os.strerror(error.errno or 0)}")
        if leaf is not None:
            _leave_leaf(leaf)
        return None
    return _tried_out(V2Host(root, frozenset(_handed_down(root)), refused, leaf), place, search)


def _tried_out(host: V2Host, place: str, search: _Search) -> CgroupHost | None:
    failed = host.try_out() if host.enforces else f"{place} hands down no controller"
    if failed is not None or not host.enforces:
        search.notes.append(failed or "; ".join(host.reasons.values()))
        host.close()
        return None
    for name in set(CONTROLLERS) - host.enforces - host.reasons.keys():
        host.reasons[name] = _why_missing(name, place, search)
    if "memory" in host.enforces and _swap_escapes(host):
        host.reasons["swap"] = _SWAP_ESCAPES
    return host


def _swap_escapes(host: V2Host) -> bool:
    """Tells whether a box could grow into swap that Linux does not account (``swapaccount=0``)."""
    swaps = cgroup_tree.read_or_none("/proc/swaps") or ""
    return len(swaps.splitlines()) > 1 and not os.path.exists(f"{host.root}/memory.swap.max")


def _why_missing(name: str, place: str, search: _Search) -> str:
    top = search.mount.point
    if name not in _controllers(top):
        return (_NOT_IN_LINUX if _is_top(top) else _NOT_IN_CONTAINER).format(name=name, place=top)
    uid = os.geteuid()
    if f"/user@{uid}.service/" in place:
        return _NOT_BY_USER_MANAGER.format(name=name, uid=uid)
    return _NOT_HANDED_DOWN.format(name=name, place=place, above=os.path.dirname(place))


def _controllers(directory: str) -> set[str]:
    return set((cgroup_tree.read_or_none(f"{directory}/cgroup.controllers") or "").split())


def _handed_down(directory: str) -> set[str]:
    found = (cgroup_tree.read_or_none(f"{directory}/cgroup.subtree_control") or "").split()
    return set(found) & set(CONTROLLERS)


def _hand_down(directory: str) -> dict[str, str]:
    """Gives a directory's controllers to its children, each on its own; returns those that Linux refused, and why."""
    refused = {}
    for name in CONTROLLERS:
        if name not in _controllers(directory) or name in _handed_down(directory):
            continue
        try:
            cgroup_tree.write(f"{directory}/cgroup.subtree_control", f"+{name}")
        except OSError as error:
            refused[name] = f"{error.filename}: {error.strerror}"
    return refused


def _is_top(directory: str) -> bool:
    """Tells the real root of the tree, the one cgroup that may both hold processes and hand down controllers."""
    return not os.path.exists(f"{directory}/cgroup.type")


def _is_delegated(directory: str) -> bool:
    """Tells whether systemd marked a directory as given away (docs/CGROUP_DELEGATION.md)."""
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(directory, name) == b"1":
                return True
        except OSError:
            continue
    return False


def _enter_leaf(leaf: str) -> None:
    """Moves the calling process to a leaf, so that the cgroup it was in may hand down controllers."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(leaf)
    cgroup_tree.write(f"{leaf}/cgroup.procs", "0")


def _leave_leaf(leaf: str) -> None:
    """Undoes ``_enter_leaf`` where Linux lets us; in a systemd scope the rest goes with the scope."""
    above = os.path.dirname(leaf)
    for name in _handed_down(above):
        cgroup_tree.write_if_possible(f"{above}/cgroup.subtree_control", f"-{name}")
    if cgroup_tree.write_if_possible(f"{above}/cgroup.procs", "0"):
        try:
            cgroup_tree.remove_one(leaf)
        except OSError:
            return
