"""One box's group, and the host object that makes groups: what is the same for both cgroup versions."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from ..errors import CgroupUnavailable
from . import cgroup_tree
from .cgroup_tree import CONTROLLERS, Evidence, Limits

Mode = Literal["v2", "v1", "none"]

_CLOSE_PATIENCE_S = 5.0
_TRIAL = Limits(memory_bytes=64 << 20, pids=8, cpus=1.0)


class CounterFile(NamedTuple):
    """Where Linux counts something of a group: the number behind ``key`` in a file, or its only one if that is empty.

    ``name`` is a field of ``Evidence``; ``unit`` of the number make one of the field's.
    """

    name: str
    path: str
    key: str = ""
    unit: int = 1


class Group:
    """The cgroup(s) of one box. This class itself, without directories, is the group of a host that has none."""

    def __init__(self, directories: Sequence[str] = ()) -> None:
        self.directories = tuple(directories)
        self._killed = False
        self._refused_when_killed: int | None = None

    def join_fds(self) -> list[int]:
        """Returns fresh close-on-exec descriptors, one per hierarchy, which the caller closes.

        A process with one thread, in any user namespace, that writes ``b"0"`` to each moves itself in: Linux checks who
        opened them. On v2 the first join after some 20 ms without one waits for an RCU grace period, often 5 to 20 ms:
        keep it off a call's path. ``clone3`` with ``CLONE_INTO_CGROUP`` and ``directories[0]`` does not wait.

        Raises:
            CgroupUnavailable: the group is gone.
        """
        try:
            return cgroup_tree.open_doors(self.directories)
        except OSError as error:
            raise cgroup_tree.unavailable("opening a box's cgroup", error) from None

    def evidence(self) -> Evidence:
        """Returns what was counted since the group was made.

        Raises:
            CgroupUnavailable: a counter of a limit in force cannot be read.
        """
        now = self._counted()
        return now if self._refused_when_killed is None else now._replace(pids_refused=self._refused_when_killed)

    def _counted(self) -> Evidence:
        try:
            return self._read_counters()
        except OSError as error:
            raise cgroup_tree.unavailable("reading a box's cgroup counters", error) from None

    def _read_counters(self) -> Evidence:
        return Evidence(0, 0, None, None, None)

    def counter_files(self) -> list[CounterFile]:
        """Returns the files of what goes on being counted, for a reader of its own; only those that are there."""
        return [file for file in self._counter_files() if os.path.exists(file.path)]

    def _counter_files(self) -> list[CounterFile]:
        return []

    def kill(self) -> None:
        """Kills every process in the group, without waiting for their end.

        One call is enough where there is ``cgroup.kill`` (v2, Linux 5.14). Elsewhere forks are refused from now on and
        everyone listed is killed; ``remove`` repeats that for a child whose fork was under way.
        """
        self._killed = True
        for directory in self.directories:
            if cgroup_tree.write_if_possible(f"{directory}/cgroup.kill", "1"):
                return
        if self.empty():
            return
        if self._refused_when_killed is None:
            with contextlib.suppress(CgroupUnavailable):  # who asks for evidence is told; this is for killing
                self._refused_when_killed = self._counted().pids_refused
        for directory in self.directories:
            cgroup_tree.write_if_possible(f"{directory}/pids.max", "0")
        for directory in self.directories:
            cgroup_tree.kill_listed(directory)

    def empty(self) -> bool:
        """Tells whether no living process is in the group; zombies do not count."""
        return not any(cgroup_tree.read_or_none(f"{each}/cgroup.procs") for each in self.directories)

    def remove(self) -> bool:
        """Removes the group; ``False`` where it is still in use: call again later. Removing twice is fine.

        Raises:
            CgroupUnavailable: Linux refuses for another reason.
        """
        if not self.empty():
            if self._killed:
                self.kill()
            return False
        try:
            return all(cgroup_tree.remove_one(each) for each in self.directories)
        except OSError as error:
            raise cgroup_tree.unavailable("removing a box's cgroup", error) from None


class CgroupHost:
    """Makes groups below one directory per hierarchy. This class itself is the host that cannot: mode ``"none"``.

    Attributes:
        mode: which cgroup version is used.
        enforces: which of ``"memory"``, ``"pids"``, ``"cpu"`` groups really limit.
        reasons: each that is not enforced → why, and the command that would change it; also ``"swap"`` where a memory
            limit is in force that swap can stretch.
    """

    def __init__(self, mode: Mode, enforces: frozenset[str], reasons: dict[str, str]) -> None:
        self.mode: Mode = mode
        self.enforces = enforces
        self.reasons = reasons

    @classmethod
    def nothing(cls, reason: str) -> CgroupHost:
        """Returns the host that enforces nothing, for one reason."""
        return CgroupHost("none", frozenset(), dict.fromkeys(CONTROLLERS, reason))

    def require(self, *names: str) -> None:
        """Insists that limits are enforced.

        Raises:
            CgroupUnavailable: one is not; the hint says why and what would change it.
        """
        for name in names:
            if name not in self.enforces:
                raise CgroupUnavailable(f"enforcing a {name} limit by cgroup", hint=self.reasons.get(name, ""))

    def make(self, limits: Limits) -> Group:
        """Makes the group of one box; limits that the host does not enforce are left out (see ``require``).

        Raises:
            CgroupUnavailable: Linux refuses; nothing is left behind.
        """
        del limits
        return Group()

    def close(self) -> None:
        """Kills and removes everything that this object made, within seconds. Never raises; may be repeated."""


class Setting(NamedTuple):
    """One value of one control file; ``forgiven`` are the error numbers that leave the limit as good as set."""

    controller: str
    path: str
    value: str
    forgiven: tuple[int, ...] = ()


def put_in_force(settings: Iterable[Setting]) -> None:
    """Writes settings in order.

    Raises:
        OSError: Linux refuses one, for a reason that is not forgiven.
    """
    for setting in settings:
        try:
            cgroup_tree.write(setting.path, setting.value)
        except OSError as error:
            if error.errno not in setting.forgiven:
                raise


class TreeHost(CgroupHost):
    """A host with directories: the part of making, trying out and removing that both versions share."""

    def __init__(self, mode: Mode, controllers: Iterable[str], reasons: dict[str, str], roots: Sequence[str]) -> None:
        super().__init__(mode, frozenset(controllers), reasons)
        self._roots = tuple(roots)
        self._made = 0

    def _group(self, name: str) -> Group:
        raise NotImplementedError

    def _settings(self, group: Group, limits: Limits) -> list[Setting]:
        raise NotImplementedError

    def make(self, limits: Limits) -> Group:
        """Makes the group of one box; see ``CgroupHost.make``."""
        self._made += 1
        group = self._group(f"box-{self._made}")
        try:
            for directory in group.directories:
                os.mkdir(directory)
            put_in_force(each for each in self._settings(group, limits) if each.controller in self.enforces)
        except OSError as error:
            _destroy_quietly(group.directories)
            raise cgroup_tree.unavailable("making a box's cgroup", error) from None
        return group

    def try_out(self) -> str | None:
        """Keeps in ``enforces`` only what Linux lets us set, and lets a child join; returns why nothing works, if so.

        The child is forked: joining needs rights that only an attempt shows (cgroup_attach_permissions in Linux).
        """
        group = self._group("trial")
        try:
            for directory in group.directories:
                os.mkdir(directory)
            settings = self._settings(group, _TRIAL)
            for controller in CONTROLLERS:
                self._try_setting(controller, [each for each in settings if each.controller == controller])
            code = _join_in_child(group)
        except OSError as error:
            return f"{error.filename}: {os.strerror(error.errno or 0)}"
        finally:
            _destroy_quietly(group.directories)
        return f"joining {group.directories[0]}: {os.strerror(code)}" if code else None

    def _try_setting(self, controller: str, settings: list[Setting]) -> None:
        if controller not in self.enforces:
            return
        try:
            put_in_force(settings)
        except OSError as error:
            self.enforces -= {controller}
            self.reasons[controller] = f"{error.filename}: {error.strerror}"

    def close(self) -> None:
        """Removes what this object made; see ``CgroupHost.close``."""
        _destroy_quietly(self._roots)


def _destroy_quietly(directories: Sequence[str]) -> None:
    """Kills and removes, as far as Linux lets us in bounded time; the next server's probe collects what is left."""
    try:
        cgroup_tree.destroy(directories, _CLOSE_PATIENCE_S)
    except OSError:
        return


def _join_in_child(group: Group) -> int:
    """Returns 0, or the error number with which a forked child failed to join."""
    fds = cgroup_tree.open_doors(group.directories)
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(_join_all(fds))
        _, status = os.waitpid(pid, 0)
    finally:
        for fd in fds:
            os.close(fd)
    return os.waitstatus_to_exitcode(status)


def _join_all(fds: list[int]) -> int:
    try:
        for fd in fds:
            os.write(fd, b"0")
    except OSError as error:
        return error.errno or errno.EIO
    return 0
