"""Probes of mounts, kernel files, and files handed between box and host."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from .claims import Claim, NotApplicable, breaches, inside, run
from .targets import Engine

if TYPE_CHECKING:
    from .targets import Target

_DEVICES = {"fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}
_MOUNTS = """
for line in open("/proc/self/mountinfo"):
    place, _, kind = line.partition(" - ")
    fields = place.split()
    if CHECK: breach(fields[4], fields[5])
"""
_MASKED = """
for name in "kcore keys key-users kmsg timer_list sched_debug latency_stats kpagecount kpageflags".split():
    file = opened("/proc/" + name)
    if file is not None and not os.stat(file.fileno()).st_rdev: breach("/proc/" + name)  # else the null device
if opened("/proc/sysrq-trigger", "wb"): breach("/proc/sysrq-trigger")
for name in ("firmware", "kernel/debug", "kernel/security"):
    try: names = os.listdir("/sys/" + name)
    except OSError: continue
    if names: breach("/sys/" + name)
"""
_SYSCTL = """
for name in ("kernel/core_pattern", "kernel/modprobe", "net/ipv4/ip_forward", "fs/binfmt_misc/register",
             "kernel/randomize_va_space", "vm/drop_caches", "kernel/hotplug", "kernel/shmmax", "kernel/msgmax",
             "fs/mqueue/msg_max", "user/max_inotify_instances"):
    if os.access("/proc/sys/" + name, os.W_OK): breach("/proc/sys/" + name)
if os.access("/sys/kernel/uevent_helper", os.W_OK): breach("uevent_helper")
"""
_CGROUP = """
for folder, _, files in os.walk("/sys/fs/cgroup"):
    for name in ("release_agent", "cgroup.procs", "memory.max", "memory.limit_in_bytes", "pids.max"):
        if name in files and os.access(f"{folder}/{name}", os.W_OK): breach(f"{folder}/{name}")
"""
_ROOT = """
for path in ("/new", "/etc/new", "/dev/new", "/.box/new", "/run/new", "/usr/new"):
    if opened(path, "wb"): breach("a file at", path)
"""


def _shown_read_only(target: Target) -> str:
    """A host file that anybody may write, shown read-only, keeps its content."""
    with tempfile.TemporaryDirectory(prefix="canary-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "file")
        path.write_text("whole")
        path.chmod(0o666)
        with target.room(show={str(path): "/shown"}) as room:
            run(
                room,
                """
for attempt in (lambda: open("/shown", "w").write("broken"), lambda: os.truncate("/shown", 0)):
    try: attempt()
    except OSError: pass
""",
            )
        return "" if path.read_text() == "whole" else f"the host's file holds {path.read_text()!r}"


def _only_landlock(target: Target) -> str:
    """With the mount writable, Landlock still refuses; without Landlock too, the file is changed."""
    return _shown_read_only(Engine(*target.removed, "read-only binds")) if isinstance(target, Engine) else ""


def _shown_setuid(target: Target) -> str:
    """A setuid program that is shown in the box gives nobody its owner's id."""
    with tempfile.TemporaryDirectory(prefix="canary-") as folder:
        Path(folder).chmod(0o755)
        with target.room(show={folder: "/shown"}) as room:
            return breaches(
                run(room, "if not os.statvfs('/shown').f_flag & os.ST_NOSUID: breach('setuid works at /shown')")
            )


def _left_behind(code: str, bad: Callable[[os.stat_result], bool]) -> Callable[[Target], str]:
    """What the code leaves in the workspace is looked at from the host."""

    def probe(target: Target) -> str:
        with target.room() as room:
            run(room, code)
            found = [
                f"{name} {stat.filemode(about.st_mode)} of uid {about.st_uid}"
                for name in os.listdir(room.workspace)
                if bad(about := os.lstat(os.path.join(room.workspace, name)))
            ]
            return ", ".join(found)

    return probe


def _foreign_owner(about: os.stat_result) -> bool:
    return about.st_uid != os.geteuid()


def _link_out(target: Target) -> str:
    """The host's own verbs follow no link that a box left, and write through none."""
    with tempfile.TemporaryDirectory(prefix="canary-") as folder:
        secret = Path(folder, "secret")
        secret.write_text("whole")
        with target.room() as room:
            run(
                room,
                f"""
os.symlink({str(secret)!r}, "final"); os.symlink({folder!r}, "middle"); os.symlink("/proc/self/root", "magic")
os.symlink({folder + "/new"!r}, "dangling"); os.mkfifo("pipe")
""",
            )
            for path in ("final", "middle/secret", f"magic{secret}", "dangling", "middle/new"):
                _try_verbs(room, path)
                if secret.read_text() != "whole" or os.listdir(folder) != ["secret"]:
                    return f"the host followed {path}"
    return ""


def _try_verbs(room: object, path: str) -> None:
    sandbox = getattr(room, "sandbox", None)
    workspace = room.workspace  # type: ignore[attr-defined]
    if sandbox is None:  # the control: what a host does without care
        Path(workspace, path).write_text("broken")
        return
    from kern_sandbox.errors import SandboxError

    for verb in (
        lambda: sandbox.read_file(path),
        lambda: sandbox.write_file(path, "broken"),
        lambda: sandbox.list_files(path),
    ):
        try:
            got = verb()
        except (SandboxError, OSError):
            continue
        if got in (b"whole", ["secret"]):
            raise AssertionError(f"read through {path}")


def _hard_link(target: Target) -> str:
    with tempfile.TemporaryDirectory(prefix="canary-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "file")
        path.write_text("x")
        path.chmod(0o666)
        with target.room(show={folder: "/shown"}) as room:
            return breaches(
                run(
                    room,
                    """
for source in ("/shown/file", "/etc/passwd", "/usr/bin/env"):
    try: os.link(source, "linked"); breach("a hard link to", source); break
    except OSError: pass
""",
                )
            )


def _second_box(target: Target) -> str:
    """A marker in every writable directory but the workspace is gone in the next box."""
    word = "marker" + secrets.token_hex(6)
    with target.room() as room:
        run(
            room,
            f"""
for folder in ("/tmp", "/dev/shm", os.path.expanduser("~"), "/run/cell", "/run", "/var/tmp", "/dev", "/"):
    opened(folder + "/{word}", "wb")
""",
        )
        ran = run(
            room,
            f"""
for folder in ("/tmp", "/dev/shm", os.path.expanduser("~"), "/run/cell", "/run", "/var/tmp", "/dev", "/"):
    if os.path.exists(folder + "/{word}"):
        breach("seen in", folder); os.unlink(folder + "/{word}")
""",
        )
        return breaches(ran)


def _sockets_in_tmp(target: Target) -> str:
    import socket

    with tempfile.TemporaryDirectory(prefix="canary-") as folder, socket.socket(socket.AF_UNIX) as server:
        Path(folder).chmod(0o755)
        server.bind(folder + "/socket")
        server.listen()
        Path(folder, "socket").chmod(0o777)
        with target.room() as room:
            return breaches(
                run(
                    room,
                    f"""
client = socket.socket(socket.AF_UNIX)
if client.connect_ex({folder + "/socket"!r}) == 0: breach("connected to a socket of the host")
""",
                )
            )


def _hijack(target: Target) -> str:
    """The next call's shell is the box's own, not one that the last call left."""
    with target.room() as room:
        run(
            room,
            """
os.makedirs(".deps/bin")
with open(".deps/bin/bash", "w") as file: file.write("#!/bin/sh\\necho hijacked\\n")
os.chmod(".deps/bin/bash", 0o755)
""",
        )
        sandbox = getattr(room, "sandbox", None)
        if sandbox is None:
            raise NotApplicable("has no path of its own")
        return str(sandbox.run_code("echo honest", "bash").stdout.replace("honest\n", ""))


CLAIMS = [
    Claim("B01-root", "the box's root is read-only", inside(_ROOT), ("read-only root", "landlock")),
    Claim(
        "B03", "a host file that is shown read-only is not changed", _shown_read_only, ("read-only binds", "landlock")
    ),
    Claim(
        "B03-landlock",
        "a writable mount outside the writable places is not written: Landlock holds alone",
        _only_landlock,
        ("landlock",),
        landlock=3,
        engine_only=True,
    ),
    Claim(
        "B29-nosuid",
        "setuid works on no mount",
        inside(_MOUNTS.replace("CHECK", "'nosuid' not in fields[5]")),
        ("nosuid",),
    ),
    Claim("B29-shown", "setuid works on no mount that is shown", _shown_setuid, ("nosuid",)),
    Claim("B40", "no cgroup file is there to write (also B41)", inside(_CGROUP)),
    Claim("B42", "no setting of Linux can be written (also B48)", inside(_SYSCTL), ("read-only /proc", "capabilities")),
    Claim(
        "B43",
        "no mount is shared with the host",
        inside(_MOUNTS.replace("CHECK", "'shared:' in place or 'master:' in place")),
        ("propagation",),
    ),
    Claim("B44", "what /proc tells of the host's kernel is masked", inside(_MASKED), ("masks",)),
    Claim(
        "B45",
        "only harmless devices are below /dev",
        inside(f"extra = set(os.listdir('/dev')) - {_DEVICES!r}\nif extra: breach(*extra)"),
        ("devices",),
    ),
    Claim("B50", "the host's verbs follow no link that a box left (also B52)", _link_out),
    Claim("B53", "no hard link reaches out of the workspace", _hard_link),
    Claim(
        "B55-owner",
        "files of a box belong to the workspace's owner",
        _left_behind("open('f', 'w')", _foreign_owner),
        engine_only=True,
    ),
    Claim(
        "B55",
        "no setuid or setgid file is left on the host",
        _left_behind(
            "open('f', 'w').close()\ntry: os.chmod('f', 0o6755)\nexcept OSError: pass\n"
            "try: os.close(os.open('g', os.O_CREAT | os.O_WRONLY, 0o6755))\nexcept OSError: pass",
            lambda about: bool(about.st_mode & 0o6000),
        ),
    ),
    Claim(
        "B45-left",
        "no device node is left on the host",
        _left_behind(
            "try: os.mknod('n', 0o20666, os.makedev(1, 3))\nexcept OSError: pass",
            lambda about: stat.S_ISCHR(about.st_mode),
        ),
    ),
    Claim("B57", "nothing but the workspace carries over to the next box", _second_box),
    Claim(
        "B57-path",
        "a program left in the workspace is not taken for the system's",
        _hijack,
        engine_only=True,
    ),
    Claim("B61", "no socket of the host's file system is reached", _sockets_in_tmp),
]
