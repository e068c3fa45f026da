"""Numbers and shapes of the kernel's interface, each once, with its header and the kernel that brought it."""

from __future__ import annotations

import ctypes
from enum import IntEnum, IntFlag

__all__ = [
    "CLOSE_RANGE_CLOEXEC",
    "AtFlag",
    "CapHeader",
    "Clone",
    "LandlockFs",
    "LandlockScope",
    "Mount",
    "MountAttr",
    "MountAttrs",
    "MoveMount",
    "OpenHow",
    "OpenTree",
    "Prctl",
    "Resolve",
]

CLOSE_RANGE_CLOEXEC = 1 << 2  # linux/close_range.h, 5.11


class Clone(IntFlag):
    """linux/sched.h."""

    NEWNS = 0x00020000
    NEWCGROUP = 0x02000000
    NEWUTS = 0x04000000
    NEWIPC = 0x08000000
    NEWUSER = 0x10000000
    NEWPID = 0x20000000
    NEWNET = 0x40000000
    PIDFD = 0x00001000


class Mount(IntFlag):
    """linux/mount.h, flags of mount(2) and umount2(2)."""

    NOSUID = 2
    NODEV = 4
    NOEXEC = 8
    BIND = 4096
    REC = 16384
    PRIVATE = 1 << 18
    DETACH = 2


class MountAttr(IntFlag):
    """linux/mount.h, attributes of mount_setattr(2), 5.12."""

    RDONLY = 0x01
    NOSUID = 0x02
    NODEV = 0x04
    NOEXEC = 0x08
    IDMAP = 0x00100000


class OpenTree(IntFlag):
    """linux/mount.h, 5.2."""

    CLONE = 1
    CLOEXEC = 0o2000000


class MoveMount(IntFlag):
    """linux/mount.h, 5.2."""

    F_EMPTY_PATH = 0x04


class AtFlag(IntFlag):
    """linux/fcntl.h."""

    FDCWD = -100
    EMPTY_PATH = 0x1000
    RECURSIVE = 0x8000


class Resolve(IntFlag):
    """linux/openat2.h, 5.6."""

    NO_MAGICLINKS = 0x02
    NO_SYMLINKS = 0x04
    BENEATH = 0x08
    IN_ROOT = 0x10


class Prctl(IntEnum):
    """linux/prctl.h."""

    SET_PDEATHSIG = 1
    SET_DUMPABLE = 4
    SET_NAME = 15
    CAPBSET_DROP = 24
    SET_SECUREBITS = 28
    SET_NO_NEW_PRIVS = 38


class LandlockFs(IntFlag):
    """linux/landlock.h, the rights to change files."""

    WRITE_FILE = 1 << 1
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13  # ABI 2, 5.19
    TRUNCATE = 1 << 14  # ABI 3, 6.2


class LandlockScope(IntFlag):
    """linux/landlock.h, ABI 6, 6.12."""

    ABSTRACT_UNIX_SOCKET = 1
    SIGNAL = 2


class OpenHow(ctypes.Structure):
    """struct open_how, linux/openat2.h."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class MountAttrs(ctypes.Structure):
    """struct mount_attr, linux/mount.h."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class CapHeader(ctypes.Structure):
    """struct __user_cap_header_struct, linux/capability.h, version 3."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))
