"""What both cgroup versions share: their words, the names of our directories, and verbs on the cgroup file system.

Layout, in every hierarchy used: ``<base>/kern-<pid namespace>-<pid>-<start time>-<random>/box-<n>``. The middle
directory belongs to one server process, which its name identifies beyond doubt, so that several servers coexist and
what a killed one left behind can be told from what a living one uses.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import CgroupUnavailable

CONTROLLERS = ("memory", "pids", "cpu")
CPU_PERIOD_US = 100_000
CPU_QUOTA_FLOOR_US = 1_000  # Linux refuses less: kernel/sched/core.c, min_cfs_quota_period

_PIDFDS_AT_ONCE = 128
_KILL_PASSES = 8
_RETRY_S = 0.002
_STALE_PATIENCE_S = 0.1


@dataclass(frozen=True)
class Limits:
    """What one box may use; ``None`` is no limit of its own (those of the cgroups above still hold)."""

    memory_bytes: int | None = None
    pids: int | None = None
    cpus: float | None = None


class Evidence(NamedTuple):
    """What Linux counted for one box since its group was made. ``None``: not counted on this host."""

    oom_kills: int
    pids_refused: int
    max_memory_bytes: int | None
    max_pids: int | None
    cpu_ms: int | None


class Mount(NamedTuple):
    """One mounted cgroup hierarchy: where, which part of it, and its v1 controllers (empty for v2)."""

    point: str
    root: str
    version: int
    controllers: frozenset[str]


class Owner(NamedTuple):
    """One server process for ever: a reused pid has another start time, another container another pid namespace."""

    namespace: int
    pid: int
    start: int


_NAME = re.compile(r"kern-(\d+)-(\d+)-(\d+)-[0-9a-f]{8}(\.scope)?")
_OCTAL = re.compile(r"\\([0-7]{3})")


def parse_mounts(mountinfo: str) -> list[Mount]:
    """Returns the cgroup hierarchies in the text of ``/proc/self/mountinfo``, in its order (proc(5))."""
    mounts = []
    for line in mountinfo.splitlines():
        front, _, back = line.partition(" - ")
        fields, tail = front.split(), back.split()
        if len(fields) < 5 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if tail[0] == "cgroup2" else 1
        names = frozenset(tail[2].split(",")) - {"rw", "ro"} if version == 1 else frozenset[str]()
        mounts.append(Mount(_unescape(fields[4]), _unescape(fields[3]), version, names))
    return mounts


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match.group(1), 8)), text)


def parse_own_paths(text: str) -> dict[str, str]:
    """Returns controller → path from the text of ``/proc/<pid>/cgroup``; the unified hierarchy is under ``""``."""
    paths = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        paths.update(dict.fromkeys(names.split(","), path))
    return paths


def own_directory(mount: Mount, path: str) -> str | None:
    """Returns where a cgroup path is visible in a mount, or ``None`` where the mount shows another part of the tree."""
    if path.startswith("/.."):
        return None
    root = mount.root.rstrip("/")
    if path != root and not path.startswith(root + "/"):
        return None
    return (mount.point + path[len(root) :]).rstrip("/")


def counter(text: str, key: str) -> int:
    """Returns the number behind ``key`` in lines of ``key number``; 0 where the key is absent."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def cpu_quota_us(cpus: float) -> int:
    """Returns the quota per ``CPU_PERIOD_US`` for a number of cores."""
    return max(CPU_QUOTA_FLOOR_US, round(cpus * CPU_PERIOD_US))


def read(path: str) -> str:
    """Returns the text of a small control file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        while chunk := os.read(fd, 65536):
            chunks.append(chunk)
        return os.fsdecode(b"".join(chunks))  # a name in it may be any bytes
    finally:
        os.close(fd)


def read_or_none(path: str) -> str | None:
    """Returns the text of a control file, or ``None`` where it cannot be read."""
    try:
        return read(path)
    except OSError:
        return None


def number_or_none(path: str) -> int | None:
    """Returns the number in a control file, or ``None`` where this kernel has no such file."""
    text = read_or_none(path)
    return int(text) if text is not None and text.strip().isdigit() else None


def write(path: str, value: str) -> None:
    """Writes one value to a control file.

    Raises:
        OSError: with the path, where Linux refuses it.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, f"writing {value!r}: {os.strerror(error.errno or 0)}", path) from None


def write_if_possible(path: str, value: str) -> bool:
    """Writes a value to a control file; ``False`` where Linux refuses it or has no such file."""
    try:
        write(path, value)
    except OSError:
        return False
    return True


def open_doors(directories: Iterable[str]) -> list[int]:
    """Returns descriptors, one per directory, to which a process with one thread writes ``b"0"`` to move itself in.

    On v1 that is ``tasks``: moving one thread skips the lock behind ``cgroup.procs``, which costs an RCU grace period
    when it was not taken lately (cgroup_procs_write_start in Linux).
    """
    fds: list[int] = []
    try:
        fds.extend(_open_door(directory) for directory in directories)
    except OSError:
        for fd in fds:
            os.close(fd)
        raise
    return fds


def _open_door(directory: str) -> int:
    try:
        return os.open(f"{directory}/tasks", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(f"{directory}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)


def pids_in(directory: str) -> list[int]:
    """Returns the processes of one cgroup; those outside our pid namespace, and a vanished cgroup, are left out."""
    text = read_or_none(f"{directory}/cgroup.procs") or ""
    return [int(line) for line in text.split() if line != "0"]


def kill_listed(directory: str) -> None:
    """Kills what a cgroup lists, again until a pass finds nobody new; complete where no process can fork meanwhile.

    Every pid is pinned by a pidfd and then looked up again, so that a reused pid is never hit.
    """
    done: set[int] = set()
    for _ in range(_KILL_PASSES):
        new = [pid for pid in pids_in(directory) if pid not in done]
        if not new:
            return
        for first in range(0, len(new), _PIDFDS_AT_ONCE):
            _kill_pinned(directory, new[first : first + _PIDFDS_AT_ONCE])
        done.update(new)


def _kill_pinned(directory: str, pids: Iterable[int]) -> None:
    pinned: dict[int, int] = {}
    try:
        for pid in pids:
            _pin(pid, pinned)
        for pid in pinned.keys() & set(pids_in(directory)):
            _signal(pinned[pid])
    finally:
        for fd in pinned.values():
            os.close(fd)


def _pin(pid: int, pinned: dict[int, int]) -> None:
    try:
        pinned[pid] = os.pidfd_open(pid)
    except ProcessLookupError:
        return


def _signal(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return


def kill_all(directory: str) -> None:
    """Kills every process in a cgroup and below it, without waiting for their end.

    With ``cgroup.kill`` (v2, Linux 5.14) Linux itself is safe against forks. Else forks are first stopped with
    ``pids.max`` 0, and a child whose fork was already under way needs another call.
    """
    if write_if_possible(f"{directory}/cgroup.kill", "1"):
        return
    write_if_possible(f"{directory}/pids.max", "0")
    for inner, _, _ in os.walk(directory):
        kill_listed(inner)


def remove_tree(directory: str) -> bool:
    """Removes a cgroup and those below it; ``False`` where one is still in use."""
    inside = [inner for inner, _, _ in os.walk(directory, topdown=False)]
    return all(map(remove_one, inside))


def remove_one(directory: str) -> bool:
    """Removes one cgroup; ``True`` where it is gone, ``False`` where it is still in use."""
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise
    return True


def destroy(directories: Sequence[str], patience_s: float) -> bool:
    """Kills all that is in some cgroups and removes them; ``False`` where one was still in use when patience ended."""
    deadline = time.monotonic() + patience_s
    left = list(directories)
    while left:
        for directory in left:
            kill_all(directory)
        left = [directory for directory in left if not remove_tree(directory)]
        if left and time.monotonic() >= deadline:
            return False
        if left:
            time.sleep(_RETRY_S)
    return True


def this_process(proc: str = "/proc") -> Owner:
    """Returns the lasting identity of the calling process."""
    namespace = os.stat(f"{proc}/self/ns/pid").st_ino
    pid = int(os.readlink(f"{proc}/self"))
    found = _start_and_state(read(f"{proc}/{pid}/stat"))
    return Owner(namespace, pid, found[0])


def _start_and_state(stat: str) -> tuple[int, str]:
    fields = stat[stat.rindex(")") + 2 :].split()
    return int(fields[19]), fields[0]


def new_name(owner: Owner) -> str:
    """Returns a fresh directory name that tells whose it is."""
    return f"kern-{owner.namespace}-{owner.pid}-{owner.start}-{os.urandom(4).hex()}"


def owner_of(name: str) -> Owner | None:
    """Returns whose a directory or scope name is, or ``None`` where it is not one of ours."""
    match = _NAME.fullmatch(name)
    return Owner(int(match[1]), int(match[2]), int(match[3])) if match else None


def is_dead(owner: Owner, namespace: int, proc: str = "/proc") -> bool:
    """Tells whether a server is certainly gone; never of one in another pid namespace, which cannot be seen from here.

    A zombie is gone: it runs no code. What ``/proc`` hides (``hidepid``) counts as alive.
    """
    if owner.namespace != namespace:
        return False
    stat = read_or_none(f"{proc}/{owner.pid}/stat")
    if stat is not None:
        start, state = _start_and_state(stat)
        return start != owner.start or state in "ZX"
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def collect_stale(base: str, top: str, namespace: int) -> list[str]:
    """Kills and removes what dead servers left in or near a directory; returns what was found. Never raises.

    A server starts where its user's process is, and that is another session's directory the next time. So the
    directories above, up to ``top``, and beside ``base`` are looked into as well.
    """
    places = [base]
    while places[-1].startswith(f"{top}/"):
        places.append(os.path.dirname(places[-1]))
    if len(places) > 1:
        places += [each for each in _directories(places[1]) if each != base and not owner_of(os.path.basename(each))]
    inside = [each for place in places for each in _directories(place)]
    found = [each for each in inside if _is_stale(os.path.basename(each), namespace)]
    for directory in found:
        _collect_one(directory)
    return found


def _is_stale(name: str, namespace: int) -> bool:
    owner = owner_of(name)
    return owner is not None and is_dead(owner, namespace)


def _directories(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _collect_one(directory: str) -> None:
    """Removes one dead server's directory; its systemd scope is only emptied, which makes systemd remove it."""
    try:
        if directory.endswith(".scope"):
            kill_all(directory)
        else:
            destroy([directory], _STALE_PATIENCE_S)
    except OSError:
        return  # another server collects it, or it is another user's


def unavailable(attempted: str, error: OSError, hint: str = "") -> CgroupUnavailable:
    """Returns the error to raise for a refused operation on the cgroup file system."""
    path = error.filename if isinstance(error.filename, str) else None
    return CgroupUnavailable(attempted, errno=error.errno, path=path, hint=hint)
