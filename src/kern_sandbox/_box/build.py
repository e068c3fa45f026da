"""How a box's inside is made. Two halves: ``build_base`` once for a Sandbox, ``build_fresh`` for every call.

Both run in a process that is alone in its namespaces. Each verb raises ``OSError`` naming what it was doing; the
caller turns that into a ``StartError`` of the stage it was in.
"""

from __future__ import annotations

import binascii
import errno
import os
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence

from .._linux import mounts, netns
from .._linux.abi import MountAttr
from .._linux.processes import write_text
from .plan import CELL, HOME, MIB, WORKSPACE, Bind, Blob, Device, Folder, Plan, Step, Text

__all__ = ["build_base", "build_fresh", "open_trees", "protect", "show_workspace"]

# A mount point that every Linux has; what it hid is never looked at again.
_STAGE = "/proc"
# An empty directory of the base, which a call covers only later.
_SPARE = CELL
_QUIET = MountAttr.NOSUID | MountAttr.NODEV
_SHOWN = _QUIET | MountAttr.RDONLY
_FROZEN = _SHOWN | MountAttr.NOEXEC
_ROOT_SIZE = 8 * MIB
_PRELOAD_HOME = 64 * MIB
# What a user namespace counts for the host user above it as well (Linux' admin-guide/sysctl/user.rst).
_SHARED_COUNTERS = (("max_inotify_instances", "32"), ("max_inotify_watches", "16384"))


def open_trees(base: Sequence[Step], translations: Mapping[tuple[int, int], int]) -> list[int]:
    """A detached copy of the mounts of every bind and device of ``base``, in order, as descriptors.

    Args:
        base: the plan's steps.
        translations: owner (uid and gid) to a user namespace that shows it as the box's user; empty unless root.

    Raises:
        OSError: a source is missing, or is not the file that was vetted (ESTALE).
    """
    trees: list[int] = []
    try:
        for step in base:
            if isinstance(step, Bind):
                trees.append(mounts.clone_tree(step.source))
                _vet_and_shape(trees[-1], step, translations)
            elif isinstance(step, Device):
                trees.append(mounts.clone_tree(f"/dev/{step.name}"))
                mounts.set_attributes(trees[-1], MountAttr.NOSUID | MountAttr.NOEXEC)
    except BaseException:  # whatever it was, none of them may stay open
        for tree in trees:
            os.close(tree)
        raise
    return trees


def _vet_and_shape(tree: int, step: Bind, translations: Mapping[tuple[int, int], int]) -> None:
    about = os.fstat(tree)
    if step.identity is not None and (about.st_dev, about.st_ino) != tuple(step.identity):
        raise OSError(errno.ESTALE, "the mount's source was replaced since it was vetted", step.source)
    userns = translations.get((about.st_uid, about.st_gid)) if step.owned else None
    if userns is not None:
        mounts.translate_ids(tree, userns)
    mounts.set_attributes(tree, _QUIET if step.writable else _SHOWN)


def build_base(plan: Plan, trees: Sequence[int], library: Mapping[str, bytes]) -> None:
    """Assemble the read-only root and move into it; the host's files are gone afterwards.

    Args:
        plan: what the root consists of.
        trees: from ``open_trees``.
        library: further small files, path to content.
    """
    mounts.make_private("/")
    mounts.mount_tmpfs(_STAGE, size=_ROOT_SIZE)
    os.umask(0)
    waiting = iter(trees)
    for step in plan.base:
        _make(step, waiting, _STAGE)
    for path, content in library.items():
        os.makedirs(os.path.dirname(_STAGE + path), 0o755, exist_ok=True)
        _write(_STAGE + path, content)
    os.umask(0o022)
    mounts.mount_proc(f"{_STAGE}/proc")
    mounts.pivot_into(_STAGE)
    mounts.remount_read_only("/", _QUIET)
    if plan.preload:  # what imports write; every box covers it with a home of its own
        mounts.mount_tmpfs(HOME, size=_PRELOAD_HOME, mode=0o700)


def _make(step: Step, waiting: Iterator[int], stage: str) -> None:
    if isinstance(step, Bind):
        _attach(next(waiting), stage + step.target)
        return
    if isinstance(step, Device):
        _attach(next(waiting), f"{stage}/dev/{step.name}")
        return
    path = stage + step.path
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    if isinstance(step, Folder):
        if not os.path.isdir(path):
            os.mkdir(path, step.mode)
    elif isinstance(step, Text):
        _write(path, step.content.encode("utf-8"))
    elif isinstance(step, Blob):
        _write(path, binascii.a2b_base64(step.content))
    else:
        os.symlink(step.value, path)


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    with open(fd, "wb") as file:
        file.write(content)


def _attach(tree: int, target: str) -> None:
    _place_for(target, directory=stat.S_ISDIR(os.fstat(tree).st_mode))
    mounts.attach_tree(tree, target)


def _place_for(target: str, *, directory: bool) -> None:
    """Something to mount on."""
    os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
    if directory:
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _build_scratch_root(plan: Plan, size: int) -> None:
    """A root of this call's own, with the same things in it, that may be written."""
    mounts.mount_tmpfs(_SPARE, size=size)
    nothing: Iterator[int] = iter(())
    for step in plan.base:
        if isinstance(step, (Bind, Device)):
            target = step.target if isinstance(step, Bind) else f"/dev/{step.name}"
            _place_for(_SPARE + target, directory=os.path.isdir(target))
            mounts.cover(target, _SPARE + target)
        else:
            _make(step, nothing, _SPARE)
    mounts.mount_proc(f"{_SPARE}/proc")
    mounts.pivot_into(_SPARE)


def build_fresh(plan: Plan) -> None:
    """What no two calls share: ``/proc``, scratch file systems, terminals, host name, loopback."""
    if plan.scratch_root is not None:
        _build_scratch_root(plan, plan.scratch_root)
    mounts.mount_proc("/proc")
    for name, most in _SHARED_COUNTERS:
        write_text(f"/proc/sys/user/{name}", most)
    for path in plan.masked:
        _mask(path)
    for path in plan.read_only:
        mounts.bind_mount(path, path, _FROZEN)
    if plan.memory_bytes is not None:
        mounts.cover("/.box/meminfo", "/proc/meminfo")
    for scratch in plan.fresh:
        mounts.mount_tmpfs(scratch.target, size=scratch.size, mode=scratch.mode)
    mounts.mount_devpts("/dev/pts")
    socket.sethostname(plan.hostname)
    if not plan.network:
        netns.raise_loopback()


def show_workspace(tree: int, below: Sequence[str]) -> None:
    """Put a call's workspace in its place, and what the base shows below that back on top.

    Args:
        tree: the workspace, detached.
        below: mount points of the base inside the workspace. Their places in it are the host's to make and to
            remove: one that is gone stays so, for the workspace may be on its way out too.

    Raises:
        OSError: ELOOP where code has put a link in the place of one of ``below``, ENOENT where there is nothing.
    """
    covered = [mounts.clone_tree(place) for place in below]
    mounts.attach_tree(tree, WORKSPACE)
    for place, kept in zip(below, covered):
        if os.path.realpath(place) != place:
            raise OSError(errno.ELOOP, "a symbolic link stands where a mount belongs", place)
        mounts.attach_tree(kept, place)


def protect(plan: Plan) -> None:
    """Make the plan's frozen paths read-only and its pinned ones immovable, as they are on the host now.

    Raises:
        OSError: ELOOP where a link stands in the place of one, ENOENT where there is nothing.
    """
    for path in (*plan.pinned, *plan.frozen):
        if os.path.realpath(path) != path:
            raise OSError(errno.ELOOP, "a symbolic link stands where a protected path belongs", path)
        mounts.bind_mount(path, path, _SHOWN if path in plan.frozen else _QUIET)


def _mask(path: str) -> None:
    """Hide a file behind the null device, a directory behind an empty one."""
    if os.path.isdir(path):
        mounts.mount_tmpfs(path, size=4096, mode=0o555)
        mounts.remount_read_only(path, _QUIET)
    else:
        mounts.cover("/dev/null", path)
