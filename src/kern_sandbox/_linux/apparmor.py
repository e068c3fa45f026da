"""AppArmor: entering a profile that an administrator has loaded."""

from __future__ import annotations

import errno
import os

__all__ = ["enter"]

_PLACES = ("/proc/self/attr/apparmor/current", "/proc/self/attr/current")


def enter(profile: str) -> None:
    """Put this process, and what it starts, under ``profile``; only possible before ``no_new_privs``.

    Raises:
        OSError: AppArmor is off (ENOSYS), or the profile is not loaded or may not be entered (ENOENT, EACCES).
    """
    place = next((path for path in _PLACES if os.path.exists(path)), None)
    if place is None or not _enabled():
        raise OSError(errno.ENOSYS, "AppArmor is not in use on this host: leave apparmor= out")
    fd = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.write(fd, f"changeprofile {profile}".encode())
        entered = os.pread(fd, 4096, 0).decode("utf-8", "replace").strip("\0\n ")
    except OSError as error:
        raise OSError(error.errno, _why(error, profile)) from None
    finally:
        os.close(fd)
    if entered.split(" ")[0] != profile:
        raise OSError(errno.EACCES, f"AppArmor profile {profile!r} was not entered: the process is in {entered!r}")


def _why(error: OSError, profile: str) -> str:
    if error.errno == errno.ENOENT:
        load = "load it (as root: apparmor_parser -r FILE), or leave apparmor= out"
        return f"no AppArmor profile {profile!r} is loaded here: {load}"
    return f"{os.strerror(error.errno or 0)} in entering AppArmor profile {profile!r}"


def _enabled() -> bool:
    """Whether AppArmor is the module behind the attribute, and not another one."""
    try:
        with open("/proc/self/attr/apparmor/current", "rb") as file:
            return bool(file.read(1))
    except OSError:
        pass
    try:
        with open("/proc/self/attr/current", "rb") as file:
            return file.read(4096).strip(b"\0\n ").endswith((b"unconfined", b")"))
    except OSError:
        return False
