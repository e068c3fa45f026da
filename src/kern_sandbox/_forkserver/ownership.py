"""Where a file system has no idmapped mounts: the workspace changes hands for as long as its Sandbox lives."""

from __future__ import annotations

import os
from typing import NamedTuple

from .._linux.abi import AtFlag
from .._linux.libc import syscall

__all__ = ["Loan", "give_back", "lend"]

_MAX_DEPTH = 900


class Loan(NamedTuple):
    """A workspace whose files belong to ``host_id`` for now, and to ``owner`` otherwise; ``fd`` holds it."""

    fd: int
    owner: tuple[int, int]
    host_id: int


def lend(path: str, host_id: int) -> Loan:
    """Give everything below ``path`` that its owner has to ``host_id``.

    Raises:
        OSError: the file system does not let ownership change; what had changed is its owner's again.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    about = os.fstat(fd)
    loan = Loan(fd, (about.st_uid, about.st_gid), host_id)
    try:
        _change(fd, about.st_uid, (host_id, host_id))
    except OSError:
        give_back(loan)
        raise
    return loan


def give_back(loan: Loan) -> None:
    """What belongs to the box's host id is its owner's again, the files that boxes made included.

    Never raises: a file whose owner cannot be changed (one that is immutable, say) is left, and the others are not.
    """
    try:
        _change(loan.fd, loan.host_id, loan.owner, forgiven=OSError)
    except OSError:
        return  # the file system is gone, or read-only by now
    finally:
        os.close(loan.fd)


def _change(top: int, old: int, new: tuple[int, int], forgiven: type[OSError] = FileNotFoundError) -> None:
    """Walks by descriptors and follows no link; what is nested deeper than 900 directories keeps its owner.

    Raises:
        OSError: one cannot be changed; ``forgiven`` are the errors of single files that do not matter.
    """
    os.fchown(top, *new)
    for place, folders, files, fd in os.fwalk(".", dir_fd=top, follow_symlinks=False):
        for name in (*folders, *files):
            try:
                _change_one(name, fd, old, new)
            except forgiven:
                continue  # a box is at work in the tree, and its files come and go
        if place.count("/") >= _MAX_DEPTH:
            folders.clear()


def _change_one(name: str, dir_fd: int, old: int, new: tuple[int, int]) -> None:
    """Changes what was looked at, for a box may put somebody else's file under the name meanwhile."""
    file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        if os.fstat(file).st_uid == old:
            syscall("fchownat", file, b"", *new, int(AtFlag.EMPTY_PATH))
    finally:
        os.close(file)
