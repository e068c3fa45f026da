"""The fork server's side of stems: making one, mapping its ids, and asking it for boxes."""

from __future__ import annotations

import collections
import math
import os
import select
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .._box.confine import Confinement
from .._box.library import library_files
from .._box.plan import Plan
from .._linux import caps, fds, processes
from .._linux.abi import Clone
from .._linux.cgroup import Group
from ..errors import HostError
from . import wire
from .boxes import Box
from .ids import HostIds
from .init import INNER_ID
from .mounter import Mounter
from .stem import Seed, run_stem
from .workspaces import Lender

__all__ = ["Source", "Stem", "StemMaker"]

_NAMESPACES = Clone.NEWUSER | Clone.NEWNS | Clone.NEWPID | Clone.NEWIPC | Clone.NEWUTS


@dataclass
class Source:
    """Where the fork server gets boxes from: a stem or a template.

    Attributes:
        key: of the plan.
        control: frames to and from it.
        waiting: numbers of boxes that were asked for and not yet born.
        ready: it has said so.
        spares: boxes that serve no call yet.
        wishes: how many spares are wanted for whom, by owner's name; ``""`` for whoever comes.
        notes: what a call that it serves has to be told.
        failure: why it could not be built, or is gone.
        group: the cgroups of a template, whose modules may be anybody's; a stem runs our code only and has none.
    """

    key: str
    plan: Plan
    control: socket.socket
    waiting: set[int] = field(default_factory=set)
    ready: bool = False
    spares: collections.deque[Box] = field(default_factory=collections.deque)
    wishes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    group: Group | None = None
    _first: wire.Frame | None = None

    def ask(self, body: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Ask for one box; the answer comes as a frame on ``control``.

        Raises:
            HostError: it has more requests to look at than its socket holds.
            OSError: as ``wire.send``.
        """
        try:
            wire.send(self.control, body, descriptors, socket.MSG_DONTWAIT)
        except BlockingIOError:
            attempted = f"asking for a box: {len(self.waiting)} others were asked for and not made"
            raise HostError(attempted, hint="The host is overloaded, or a preloaded module hangs; call again") from None
        self.waiting.add(body["box"])

    def cannot_nest(self, limit_s: float) -> bool:
        """Wait for its first word: whether it failed because a nested user namespace cannot be used here."""
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        if not poller.poll(limit_s * 1000):
            return False
        self._first = wire.receive(self.control, most=wire.SMALL)
        return self._first is not None and self._first.body.get("failed") == "nesting"

    def next_frame(self) -> wire.Frame | None:
        """What it says next; ``None`` when it is gone."""
        first, self._first = self._first, None
        return first or wire.receive(self.control, most=wire.SMALL)

    @property
    def why_import_ended(self) -> str:
        """Why the process is gone that was importing modules."""
        if self.group is not None and self.group.evidence().oom_kills:
            return "importing a module needed more memory than memory_mb and what templates have beyond it"
        return "a module ended the process while it was imported"

    @property
    def has_word(self) -> bool:
        """Whether a frame was taken in and not looked at yet."""
        return self._first is not None


@dataclass
class Stem(Source):
    """A living stem.

    Attributes:
        pidfd: names its process, whose number is ``pid``.
        host_id: taken for it by a privileged server.
        nested: its boxes have user namespaces of their own.
        lender: opens the workspaces that its boxes show.
        due: monotonic time at which it goes if nobody has used it.
        template: an interpreter beside it, for boxes that run Python; ``None`` until one was asked for.
        template_due: monotonic time at which one is to be started.
        hopeless: a template was tried and cannot be had.
        no_preload: why the modules of ``preload`` cannot be imported.
    """

    pidfd: int = -1
    pid: int = -1
    host_id: int | None = None
    nested: bool = True
    lender: Lender = field(default_factory=Lender)
    due: float = math.inf
    template: Source | None = None
    template_due: float = math.inf
    hopeless: bool = False
    no_preload: dict[str, Any] | None = None

    def ask_template(self, group: Group) -> Source:
        """Have a template started beside it, in ``group``."""
        ours, theirs = wire.pair()
        doors: list[int] = []
        try:
            doors = group.join_fds()
            wire.send(self.control, {"template": True}, [theirs.fileno(), *doors])
        except BaseException:  # whatever happened, the socket must not outlive it
            ours.close()
            raise
        finally:
            theirs.close()
            for fd in doors:
                os.close(fd)
        self.template = Source(self.key, self.plan, ours, group=group)
        return self.template


class StemMaker:
    """Makes stems as root or as an ordinary user; which of the two is decided once."""

    def __init__(self) -> None:
        self.privileged = processes.can_map_any_id()
        self.can_mount = self.privileged and caps.has(caps.SYS_ADMIN)
        self._ids = HostIds() if self.privileged else None
        self._mounter = None if self.can_mount else Mounter(privileged=self.privileged)

    def make(self, key: str, plan: Plan, part: Confinement, *, nested: bool) -> Stem:
        """Start a stem; it builds itself and then says ``ready`` or ``failed`` on its control socket.

        Raises:
            OSError: namespaces refused, or a mount source that cannot be opened.
            HostError: no host id is left.
        """
        host_id = None if self._ids is None else self._ids.take()
        try:
            return self._start(key, plan, (part, nested), host_id)
        except BaseException:  # whatever went wrong, the id is free again
            self._retire(host_id)
            raise

    def take_id(self) -> int | None:
        """An id of its own for a helper of the fork server; ``None`` where that is no root.

        Raises:
            HostError: no host id is left.
        """
        return None if self._ids is None else self._ids.take()

    def end(self, stem: Stem) -> None:
        """Kill ``stem``, and with it every box that it made; wait until they are gone."""
        fds.send_signal(stem.pidfd, signal.SIGKILL)
        os.waitpid(stem.pid, 0)
        os.close(stem.pidfd)
        stem.control.close()
        stem.lender.close()
        self._retire(stem.host_id)

    def close(self) -> None:
        """End what serves all stems."""
        if self._mounter is not None:
            self._mounter.close()

    def _retire(self, host_id: int | None) -> None:
        """Nothing runs with ``host_id`` any more."""
        if self._ids is not None and host_id is not None:
            self._ids.give_back(host_id)

    def _start(self, key: str, plan: Plan, how: tuple[Confinement, bool], host_id: int | None) -> Stem:
        part, nested = how
        library = library_files(bytecode=plan.like_host) if nested else {}
        inside = INNER_ID if nested else plan.user
        lender = Lender(host_id, self._mounter)
        trees = lender.begin(plan.base)
        ours, theirs = wire.pair()
        mapped, go = os.pipe2(os.O_CLOEXEC)
        try:
            child = processes.clone(_NAMESPACES if plan.network else _NAMESPACES | Clone.NEWNET)
            if child.pid == 0:
                seed = Seed(plan, part, trees, self.privileged, nested, library)
                processes.live(lambda: run_stem(seed, theirs, mapped))
            outside = (os.geteuid(), os.getegid()) if host_id is None else (host_id, host_id)
            try:
                processes.map_ids(str(child.pid), inside, outside, deny_setgroups=host_id is None)
            except OSError:
                fds.send_signal(child.pidfd, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                os.close(child.pidfd)
                raise
        except OSError:
            ours.close()
            lender.close()
            raise
        finally:
            theirs.close()
            for fd in (mapped, go, *(trees or ())):
                os.close(fd)
        return Stem(
            key,
            plan,
            ours,
            pidfd=child.pidfd,
            pid=child.pid,
            host_id=host_id,
            nested=nested,
            lender=lender,
        )
