"""What a process is short of, as an error that says how to have it."""

from __future__ import annotations

import contextlib
import errno
import os

from .._box.verdict import LARGE_FILES
from ..errors import HostError

__all__ = ["SHORTAGES", "require_proc", "short_of"]

_DESCRIPTORS = "This process is out of descriptors: raise `ulimit -n`, or close some"
_REMEDIES = {
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.EAGAIN: "This user, or the container, may have no more processes: end some, or raise `ulimit -u`",
    errno.ENOMEM: "No memory is left for it: see `ulimit -v`, and the limit of the container",
    errno.EFBIG: LARGE_FILES,
}
SHORTAGES = frozenset(_REMEDIES)
"""The errors of the operating system that are one."""


def short_of(attempted: str, error: OSError) -> HostError:
    """The error for what could not be done, with what to do about it where that is known."""
    path = error.filename if isinstance(error.filename, str) else None
    return HostError(attempted, errno=error.errno, path=path, hint=_REMEDIES.get(error.errno or 0, ""))


def require_proc() -> None:
    """See that ``/proc`` tells of this process.

    Raises:
        HostError: it is not mounted, or tells of other processes.
    """
    told = ""
    with contextlib.suppress(OSError):
        told = os.readlink("/proc/self")
    if told != str(os.getpid()):
        why = "/proc is another PID namespace's" if told else "/proc is not mounted"
        raise HostError(f"starting a box: {why}", hint="In a chroot or namespace of your own: mount -t proc proc /proc")
