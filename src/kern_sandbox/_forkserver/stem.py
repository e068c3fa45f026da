"""A stem: the process that a Sandbox's boxes are forked from.

It lives in a user, mount and PID namespace of its own, holds the assembled read-only root and nothing else, and has
given up every capability. Asked for a box, it clones a child into fresh namespaces below its own, so the mounts that
the child inherits are locked by Linux: no box can lift their read-only flags, whatever it gains.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from .._box.build import build_base, open_trees
from .._box.confine import Confinement, limit
from .._box.plan import Plan
from .._linux import caps, processes
from .._linux.abi import Clone
from .._linux.libc import syscall
from . import template, wire
from .cradle import Cradle
from .init import INNER_ID

__all__ = ["Seed", "run_stem"]


_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_MOST_NAMESPACES = "4096"
"""Of each kind below a template: one for each of its boxes. Linux counts them for the host user, who has some more."""


class Seed(NamedTuple):
    """What a stem starts from. ``trees`` is ``None`` where the stem opens the host's files itself.

    ``privileged``: the fork server is root, so this process still has to take on its mapped, unprivileged id.
    ``library``: our own code for templates, empty where there will be none.
    ``nested``: boxes get a user namespace each; else they share the stem's, which then keeps its capabilities.
    """

    plan: Plan
    part: Confinement
    trees: Sequence[int] | None
    privileged: bool
    nested: bool
    library: Mapping[str, bytes]


def run_stem(seed: Seed, control: socket.socket, mapped: int) -> NoReturn:
    """Build the base and serve boxes until ``control`` ends. Runs in a fresh child; never returns.

    Args:
        seed: what to be.
        control: frames from and to the fork server.
        mapped: a pipe that the fork server closes once the ids of this namespace are mapped.
    """
    stage = "namespaces"
    try:
        processes.reset_signals()
        processes.close_except([control.fileno(), mapped, *(seed.trees or ())])
        os.read(mapped, 1)
        os.close(mapped)
        stage = "mounts"
        # Before the change of ids: root may open what belongs to root, also where it may not mount.
        trees = open_trees(seed.plan.base, {}) if seed.trees is None else seed.trees
        stage = "namespaces"
        if seed.privileged:
            _become(INNER_ID if seed.nested else seed.plan.user)
        caps.set_parent_death(signal.SIGKILL)
        caps.set_dumpable(True)
        stage = "mounts"
        build_base(seed.plan, trees, seed.library)
        seed = seed._replace(plan=_present(seed.plan))
        limit(seed.plan)
        if seed.nested:
            stage = "nesting"
            _try_nesting()
            caps.drop_capabilities(seed.part.last_capability)
        wire.send(control, {"ready": True})
    except OSError as error:
        path = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else None
        wire.send(control, {"failed": stage, "errno": error.errno, "text": error.strerror or str(error), "path": path})
        os._exit(1)
    cradle = Cradle(seed.plan, seed.part, nested=seed.nested)
    cradle.serve(control, lambda frame: _start_template(seed, frame))
    os._exit(70)  # only a snippet's process comes back, and a stem runs none


def _become(inside: int) -> None:
    """Take on the one id that this user namespace maps."""
    os.setgroups([])
    os.setresgid(inside, inside, inside)
    os.setresuid(inside, inside, inside)


def _present(plan: Plan) -> Plan:
    """The plan without the paths that need no mask here: those that Linux lacks, or shows to its own root only.

    A box looks from where this process stands: the same host id, and no capability over the host's files.
    """
    masked = tuple(path for path in plan.masked if os.access(path, os.R_OK) or os.access(path, os.W_OK))
    read_only = tuple(path for path in plan.read_only if os.path.lexists(path))
    return Plan(**{**plan.__dict__, "masked": masked, "read_only": read_only})


def _try_nesting() -> None:
    """Fail here, with the reason, where policy lets a user namespace be made but not used."""
    child = processes.clone(Clone.NEWUSER | Clone.NEWNS | Clone.NEWPID)
    if child.pid == 0:
        try:
            processes.map_ids("self", 0, (INNER_ID, INNER_ID), deny_setgroups=True)
            syscall("mount", b"none", b"/dev/shm", b"tmpfs", 0, None)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    os.close(child.pidfd)
    _, status = os.waitpid(child.pid, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        raise OSError(code, f"{os.strerror(code)} in a nested user namespace")


def _start_template(seed: Seed, frame: wire.Frame) -> None:
    """Put a booted interpreter beside this process, in the same base.

    It runs modules of anybody's. In a user namespace below this one it is nobody to this process and to the boxes that
    this process makes, and Linux lets it look into none of them: their memory is a copy of the fork server's.
    """
    try:
        child = processes.clone(Clone.NEWUSER)
    except OSError as error:
        failed = "preload" if seed.plan.preload else "template"
        with socket.socket(fileno=os.dup(frame.fds[0])) as control:
            wire.reply(control, {"failed": failed, "text": f"a user namespace for the template: {error}"})
        return
    if child.pid == 0:
        processes.live(lambda: _be_template(seed, *frame.fds))
    os.close(child.pidfd)


def _be_template(seed: Seed, control: int, *groups: int) -> None:
    processes.map_ids("self", INNER_ID, (INNER_ID, INNER_ID), deny_setgroups=True)
    for kind in _NAMESPACES:
        processes.write_text(f"/proc/sys/user/max_{kind}_namespaces", _MOST_NAMESPACES)
    caps.drop_capabilities(seed.part.last_capability)
    for fd in groups:
        os.write(fd, b"0")  # into cgroups of its own, before a module is imported
    template.start(socket.socket(fileno=control), seed.plan, seed.part)
