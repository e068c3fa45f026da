"""How the host's directories get into boxes that root starts, whose user is nobody on the host.

Where the file system allows it a mount translates the ids (an idmapped mount, Linux 5.12), so that files stay their
owner's; where it does not, the workspace changes hands for as long as somebody uses it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._box.build import open_trees
from .._box.plan import WORKSPACE, Bind, Step
from .._linux import fds, mounts, processes
from .._linux.abi import Clone
from .ownership import Loan, give_back, lend

if TYPE_CHECKING:
    from .mounter import Mounter

__all__ = ["Lender"]


class Lender:
    """Opens directories for the boxes of one stem.

    Args:
        host_id: as whom they act; ``None`` where that is the user of this process.
        mounter: opens them where this process may not mount.
    """

    def __init__(self, host_id: int | None = None, mounter: Mounter | None = None) -> None:
        self._host_id = host_id
        self._mounter = mounter
        self._translations: dict[tuple[int, int], int] = {}
        self._plain: dict[int, bool] = {}
        self._loans: dict[str, Loan] = {}

    def begin(self, steps: Sequence[Step]) -> list[int] | None:
        """Get a stem's base ready: its sources, opened where this process may mount; ``None`` where the stem does that.

        Raises:
            OSError: as ``open``; then nothing is on loan.
        """
        try:
            for step in steps:
                if isinstance(step, Bind) and step.writable and step.target.startswith(f"{WORKSPACE}/"):
                    self._lend_where_plain(step)
            return self.open(steps) if self._mounter is None else None
        except OSError:
            self.close()
            raise

    def open(self, steps: Sequence[Step]) -> list[int]:
        """Detached copies of what ``steps`` show, as descriptors; only where this process may mount.

        Raises:
            OSError: a source is missing, or not what was vetted.
        """
        for step in steps:
            if isinstance(step, Bind) and step.owned:
                self._prepare(step)
        return open_trees(steps, self._translations)

    def open_workspace(self, bind: Bind) -> int:
        """A detached copy of a workspace, as a descriptor; every box takes one of its own.

        Raises:
            OSError: as ``open``; or its files cannot be made the box's.
        """
        self._lend_where_plain(bind)
        return self.open((bind,))[0] if self._mounter is None else self._mounter.open(bind)

    def give_back(self, source: str) -> None:
        """Nobody uses the workspace ``source`` any more."""
        loan = self._loans.pop(source, None)
        if loan is not None:
            give_back(loan)

    def close(self) -> None:
        """Nothing runs that could use any of it."""
        for source in list(self._loans):
            self.give_back(source)
        for fd in self._translations.values():
            os.close(fd)
        self._translations.clear()

    def _prepare(self, step: Bind) -> None:
        about = os.stat(step.source)
        owner = (about.st_uid, about.st_gid)
        if owner not in self._translations and self._translates(step.source, about.st_dev):
            assert self._host_id is not None
            self._translations[owner] = _user_namespace(owner, self._host_id)

    def _translates(self, source: str, device: int) -> bool:
        if device not in self._plain:
            self._plain[device] = not _can_translate(source)
        return not self._plain[device]

    def _lend_where_plain(self, bind: Bind) -> None:
        """Let the box own a directory that is its Sandbox's alone, where no mount can translate the ids."""
        if self._host_id is None or not bind.owned:
            return
        if self._mounter is None and self._translates(bind.source, os.stat(bind.source).st_dev):
            return
        source = bind.source
        if source not in self._loans:
            self._loans[source] = lend(source, self._host_id)


def _can_translate(source: str) -> bool:
    """Whether the file system of ``source`` can be mounted with translated ids, found by trying."""
    userns = _user_namespace((0, 0), 0)
    tree = mounts.clone_tree(source)
    try:
        mounts.translate_ids(tree, userns)
    except OSError:
        return False
    finally:
        os.close(tree)
        os.close(userns)
    return True


def _user_namespace(inside: tuple[int, int], host_id: int) -> int:
    """A descriptor of a user namespace that translates the ids ``inside`` to ``host_id``, for an idmapped mount."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        child = processes.clone(Clone.NEWUSER)
        if child.pid == 0:
            processes.live(lambda: _wait(reader))
    except BaseException:  # whatever happened, the pipe must not outlive it
        os.close(writer)
        raise
    finally:
        os.close(reader)
    try:
        processes.write_text(f"/proc/{child.pid}/gid_map", f"{inside[1]} {host_id} 1")
        processes.write_text(f"/proc/{child.pid}/uid_map", f"{inside[0]} {host_id} 1")
        return os.open(f"/proc/{child.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writer)
        fds.send_signal(child.pidfd, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        os.close(child.pidfd)


def _wait(reader: int) -> None:
    """Be there until the other end of the pipe is gone; no call's descriptors are kept open by this process."""
    processes.close_except([reader])
    os.read(reader, 1)
    os._exit(0)
