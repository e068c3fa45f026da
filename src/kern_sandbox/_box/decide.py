"""From validated options and the facts of a userland to a plan: pure, and before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .doors import doors_for, hosts_lines, proxy_env
from .plan import CELL, DEVICES, HOME, MIB, WORKSPACE, Bind, Device, Folder, Link, Plan, Step, Text, Tmpfs, Userland

if TYPE_CHECKING:
    from ..spec import BoxSpec

__all__ = ["plan"]


def plan(spec: BoxSpec, userland: Userland, mounts: Sequence[Bind], workspace: Bind, guest: Sequence[Step]) -> Plan:
    """Decide what a box of ``spec`` consists of.

    Args:
        spec: validated options.
        userland: from ``rootfs``.
        mounts: further host paths, vetted by ``mountrules``.
        workspace: the directory shown at ``/workspace``.
        guest: our guest code, from ``guestfiles``.
    """
    memory = None if spec.memory_mb is None else spec.memory_mb * MIB
    fresh = _fresh(spec, memory)
    scratch = None if spec.root == "read-only" else (memory or 1 << 30) // 4
    doors = doors_for(spec.egress_allow)
    base: tuple[Step, ...] = (
        *_with_hosts(userland.steps, hosts_lines(doors)),
        *_accounts(spec.user, userland.people),
        *_furniture(spec.devices),
        *guest,
        *_meminfo(memory),
        *_processors(spec.processors),
        *(Folder(step.target) for step in fresh),
        Folder(WORKSPACE),
        *mounts,
    )
    return Plan(
        base=base,
        fresh=fresh,
        workspace=workspace,
        writable=("/",) if spec.root == "scratch" else _writable(fresh, mounts),
        env=_environment(spec, userland),
        python=userland.python,
        like_host=userland.like_host,
        userland=userland.name,
        memory_bytes=memory,
        pids=spec.pids,
        cpus=spec.cpus,
        network=spec.network,
        capabilities=not spec.cap_drop,
        untrusted=spec.security_profile == "untrusted",
        apparmor=spec.apparmor,
        user=spec.user,
        file_bytes=_file_bytes(spec, fresh, scratch),
        scratch_root=scratch,
        require_limits=spec.require_limits,
        preload=spec.preload,
        lingers=not mounts and not spec.devices and spec.security_profile is None,
        egress=spec.egress_allow,
        doors=doors,
    )


def _furniture(devices: Sequence[str]) -> tuple[Step, ...]:
    """What every box has, whatever it shows: places for fresh file systems, devices, and the names of open files."""
    return (
        *(Folder(path, 0o1777 if path == "/tmp" else 0o755) for path in ("/proc", "/tmp", "/dev/shm", "/dev/pts")),
        Folder(HOME, 0o700),
        Folder(CELL),
        *(Device(name) for name in (*DEVICES, *devices)),
        Link("/dev/fd", "/proc/self/fd"),
        Link("/dev/stdin", "/proc/self/fd/0"),
        Link("/dev/stdout", "/proc/self/fd/1"),
        Link("/dev/stderr", "/proc/self/fd/2"),
        Link("/dev/ptmx", "pts/ptmx"),
    )


def _with_hosts(steps: Sequence[Step], lines: str) -> tuple[Step, ...]:
    """``steps`` with further lines of the hosts file."""
    hosts = "/etc/hosts"
    return tuple(
        Text(hosts, step.content + lines) if step[0] == hosts and type(step) is Text else step for step in steps
    )


def _file_bytes(spec: BoxSpec, fresh: Sequence[Tmpfs], scratch: int | None) -> int | None:
    """No file may be larger than the workspace; what is in memory has a limit of its own, which this leaves alone."""
    if spec.workspace_mb is None:
        return None
    return max(spec.workspace_mb * MIB, scratch or 0, *(step.size for step in fresh))


def _writable(fresh: Sequence[Tmpfs], mounts: Sequence[Bind]) -> tuple[str, ...]:
    """Where Landlock leaves writing to the file systems' own rules."""
    own = [step.target for step in fresh]
    shown = [bind.target for bind in mounts if bind.writable]
    return tuple(dict.fromkeys([*own, *shown, WORKSPACE, "/dev", "/proc"]))


def _accounts(user: int, people: tuple[str, str]) -> tuple[Step, ...]:
    """The names of the ids that exist in the box, and after them those that only its userland knows."""
    known = {0: "root", user: "root" if user == 0 else "sandbox", 65534: "nobody"}
    own = (f"{name}:x:{uid}:{uid}::{HOME if uid == user else '/'}:/bin/sh\n" for uid, name in known.items())
    groups = (f"{name}:x:{uid}:\n" for uid, name in known.items())
    passwd, group = (_others(text, known, fields) for text, fields in zip(people, (7, 4)))
    tty = "" if re.search("^tty:", group, re.MULTILINE) else "tty:x:5:\n"
    return Text("/etc/passwd", "".join(own) + passwd), Text("/etc/group", "".join(groups) + tty + group)


def _others(text: str, known: Mapping[int, str], fields: int) -> str:
    """The rows of a passwd(5) or group(5) whose names and numbers are not in ``known``."""
    rows = [line.split(":") for line in text.splitlines()]
    whole = [row for row in rows if len(row) == fields and row[2].isascii() and row[2].isdigit()]
    return "".join(":".join(row) + "\n" for row in whole if int(row[2]) not in known and row[0] not in known.values())


def _fresh(spec: BoxSpec, memory: int | None) -> tuple[Tmpfs, ...]:
    room = memory or 1 << 40
    shared = min(room // 2, 1 << 30)
    asked = {"/tmp": 64 * MIB} if spec.tmpfs is None else dict(spec.tmpfs)
    return (
        Tmpfs(HOME, min(64 * MIB, room // 2), 0o700),
        Tmpfs(CELL, min(20 * MIB, room)),  # any snippet that is accepted, four bytes a character
        Tmpfs("/dev/shm", shared, 0o1777),
        *(Tmpfs(path, min(size, room), 0o1777) for path, size in sorted(asked.items())),
    )


def _meminfo(memory: int | None) -> tuple[Step, ...]:
    """``/proc/meminfo`` of a box: its limit, as far as one fixed text can tell it."""
    if memory is None:
        return ()
    total = memory // 1024
    rows = (
        ("MemTotal", total), ("MemFree", total), ("MemAvailable", total), ("Buffers", 0), ("Cached", 0),
        ("SwapCached", 0), ("Active", 0), ("Inactive", 0), ("SwapTotal", 0), ("SwapFree", 0), ("Shmem", 0),
    )  # fmt: skip
    return (Text("/.box/meminfo", "".join(f"{name + ':':<16}{value:>8} kB\n" for name, value in rows)),)


def _processors(count: int) -> tuple[Step, ...]:
    """All of ``/sys`` that a box has: the number of processors, where C libraries look for it (sysconf(3))."""
    place = "/sys/devices/system/cpu"
    online = "0\n" if count == 1 else f"0-{count - 1}\n"
    names = (Text(f"{place}/{name}", online) for name in ("online", "possible", "present"))
    return (*names, *(Folder(f"{place}/cpu{number}") for number in range(count)))


def _environment(spec: BoxSpec, userland: Userland) -> dict[str, str]:
    scratch = "/tmp" if spec.tmpfs is None or "/tmp" in spec.tmpfs else HOME
    threads = str(spec.threads)
    return {
        "PATH": userland.path,
        "HOME": HOME,
        "USER": "sandbox" if spec.user else "root",
        "LOGNAME": "sandbox" if spec.user else "root",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "PWD": "/workspace",
        "TMPDIR": scratch,
        "XDG_CACHE_HOME": f"{HOME}/.cache",
        "MPLCONFIGDIR": f"{HOME}/.config/matplotlib",
        "MPLBACKEND": "Agg",
        "ASAN_OPTIONS": "detect_leaks=0",  # its leak check needs ptrace, which ends a box
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        **userland.env,
        **proxy_env(doors_for(spec.egress_allow)),
        **spec.env,
    }
