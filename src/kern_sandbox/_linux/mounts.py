"""Mount verbs. None of them decides anything."""

from __future__ import annotations

import ctypes
import os

from .abi import AtFlag, Mount, MountAttr, MountAttrs, MoveMount, OpenTree
from .libc import syscall

__all__ = [
    "attach_tree",
    "bind_mount",
    "clone_tree",
    "cover",
    "detach",
    "make_private",
    "mount_devpts",
    "mount_proc",
    "mount_tmpfs",
    "pivot_into",
    "remount_read_only",
    "set_attributes",
    "translate_ids",
]

# Plain numbers: joining flags by their classes on every call is slow, and a box is some forty calls.
_WHOLE_TREE = int(AtFlag.EMPTY_PATH | AtFlag.RECURSIVE)
_THIS_MOUNT = int(AtFlag.EMPTY_PATH)
_CLONE = int(OpenTree.CLONE | OpenTree.CLOEXEC | AtFlag.RECURSIVE)
_BY_DESCRIPTOR = int(MoveMount.F_EMPTY_PATH)
_HERE = int(AtFlag.FDCWD)
_PRIVATE = int(Mount.PRIVATE)
_BIND = int(Mount.BIND | Mount.REC)
_INERT = int(Mount.NOSUID | Mount.NODEV | Mount.NOEXEC)
_QUIET = int(Mount.NOSUID | Mount.NODEV)
_NO_PROGRAMS = int(Mount.NOSUID | Mount.NOEXEC)


def make_private(path: str) -> None:
    """Stop mount events below ``path`` from travelling in or out."""
    syscall("mount", b"none", os.fsencode(path), None, Mount.REC | Mount.PRIVATE, None)


def mount_proc(target: str) -> None:
    """A fresh ``/proc`` of the caller's PID namespace."""
    syscall("mount", b"proc", os.fsencode(target), b"proc", _INERT, None)


def mount_tmpfs(target: str, *, size: int, mode: int = 0o755) -> None:
    """An empty file system in memory of at most ``size`` bytes."""
    options = f"size={size},mode={mode:o}"
    syscall("mount", b"tmpfs", os.fsencode(target), b"tmpfs", _QUIET, options.encode())


def mount_devpts(target: str) -> None:
    """A terminal file system of the box's own, with few terminals: their number is the whole host's."""
    syscall("mount", b"devpts", os.fsencode(target), b"devpts", _NO_PROGRAMS, b"ptmxmode=0666,mode=620,max=64")


def clone_tree(source: str) -> int:
    """A detached copy of the mounts at and below ``source``, as a descriptor (open_tree(2), Linux 5.2)."""
    return syscall("open_tree", _HERE, os.fsencode(source), _CLONE)


def set_attributes(tree: int, attributes: MountAttr) -> None:
    """Set mount attributes on a whole detached tree and make it private (mount_setattr(2), Linux 5.12)."""
    attrs = MountAttrs(int(attributes), 0, _PRIVATE, 0)
    syscall("mount_setattr", tree, b"", _WHOLE_TREE, ctypes.byref(attrs), ctypes.sizeof(attrs))


def translate_ids(tree: int, userns_fd: int) -> None:
    """Show the owners in a detached tree as the user namespace ``userns_fd`` maps them (an idmapped mount).

    Raises:
        OSError: EINVAL or EPERM where the file system or the mount does not allow it.
    """
    attrs = MountAttrs(int(MountAttr.IDMAP), 0, 0, userns_fd)
    syscall("mount_setattr", tree, b"", _THIS_MOUNT, ctypes.byref(attrs), ctypes.sizeof(attrs))


def attach_tree(tree: int, target: str) -> None:
    """Attach a detached tree at ``target`` and close its descriptor (move_mount(2), Linux 5.2)."""
    try:
        syscall("move_mount", tree, b"", _HERE, os.fsencode(target), _BY_DESCRIPTOR)
    finally:
        os.close(tree)


def bind_mount(source: str, target: str, attributes: MountAttr) -> None:
    """Show ``source`` and the mounts below it at ``target``, with ``attributes`` on all of them."""
    tree = clone_tree(source)
    try:
        set_attributes(tree, attributes)
    except OSError:
        os.close(tree)
        raise
    attach_tree(tree, target)


def cover(source: str, target: str) -> None:
    """Show ``source`` at ``target`` with the attributes that it has, by the cheapest call."""
    syscall("mount", os.fsencode(source), os.fsencode(target), None, _BIND, None)


def remount_read_only(target: str, attributes: MountAttr) -> None:
    """Set ``attributes`` and read-only on the one mount at ``target``."""
    attrs = MountAttrs(int(attributes | MountAttr.RDONLY), 0, 0, 0)
    syscall("mount_setattr", _HERE, os.fsencode(target), 0, ctypes.byref(attrs), ctypes.sizeof(attrs))


def detach(target: str) -> None:
    """Take the mount at ``target`` away, lazily."""
    syscall("umount2", os.fsencode(target), Mount.DETACH)


def pivot_into(root: str) -> None:
    """Make the mount at ``root`` the root of this mount namespace and let the old one go (pivot_root(2))."""
    os.chdir(root)
    syscall("pivot_root", b".", b".")
    syscall("umount2", b".", Mount.DETACH)
    os.chdir("/")
