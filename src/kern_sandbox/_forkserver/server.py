"""The fork server: one thread, one loop. It makes boxes, keeps their deadlines, and gathers evidence.

Its life hangs on the control socket: when that ends, the user's process is gone, and every box, cgroup and temporary
workspace goes with it. It holds nothing of value: its environment is empty and its command line hidden.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

from .._box.plan import from_wire
from .._linux import cgroup, fds, processes
from ..errors import HostError
from . import wire
from .abilities import Abilities
from .boxes import Box, Hooks, too_late
from .gate import Gate
from .groups import Groups
from .loop import Loop
from .nursery import START_LIMIT_S, Nursery
from .owners import Owner
from .placeholders import Placeholders
from .replies import SourceFailed, lost, refuse, remove_tree

__all__ = ["main"]

_MOST_TRIES = 3
_SWEEPS_S = (1.0, 5.0)
"""When, after its start, a server looks again for cgroups that a killed predecessor left, seconds."""
_FDS_SPARED = 48
"""Descriptors that are kept free: the mounts of a new stem are held for a moment, and frames bring some."""
_FDS_OF_A_BOX = 2
"""What a box that is not ready has yet to bring: its process and its listener."""


class Server:
    """State of the loop. Every handler returns soon."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.loop = Loop()
        self.able = Abilities()
        self.groups = Groups(self.able.host)
        hooks = Hooks(self._on_conceived, self._on_born, self._on_end, self._finish)
        self.nursery = Nursery(self.loop, self.able, self.groups, hooks)
        self.boxes = self.nursery.boxes
        self.gate = Gate(self.loop, self.nursery.maker.take_id)
        self.placeholders = Placeholders()
        self.sweeps = [time.monotonic() + delay for delay in _SWEEPS_S]
        self.unheard: dict[str, Any] | None = None

    def run(self) -> None:
        """Serve until the user's process is gone, and then remove what it left."""
        self.loop.watch(self.control, self._on_control, self._miss)
        self.loop.watch(fds.open_pid(os.getppid()), self._stop, lambda _: None)
        gc.collect()
        gc.freeze()
        while self.loop.running:
            self.loop.turn(self._wait())
            self._enforce_deadlines()
        self.close()
        self.placeholders.remove_all()
        for owner in self.nursery.owners.values():
            for path, device, inode in owner.temporary:
                remove_tree(path, (device, inode))

    def _wait(self) -> float | None:
        """How long to sleep: not at all while there is tidying to do, else until the next deadline.

        A call that is about to end comes before tidying, which takes as long as a short program runs.
        """
        calls = any(box.call is not None and not box.held for box in self.boxes.values())
        if self.nursery.refill() or self.groups.tidy(urgent_only=calls):
            return 0
        dues = [*(box.due for box in self.boxes.values()), *self.sweeps, *self.nursery.dues(), *self.gate.dues]
        due = min(dues, default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        again = None if calls else self.groups.again_s
        return again if wait is None else wait if again is None else min(again, wait)

    def _enforce_deadlines(self) -> None:
        now = time.monotonic()
        for box in list(self.boxes.values()):
            if box.due <= now and box.hangs:
                self.nursery.hung(box)
            elif box.due <= now:
                box.due = now + START_LIMIT_S
                self.nursery.spares.drop(box)
                box.end("timeout")
        self.nursery.retire(now)
        self.gate.expire(now)
        if self.sweeps and self.sweeps[0] <= now:
            self.sweeps.pop(0)
            cgroup.sweep()

    def _stop(self) -> None:
        self.loop.running = False

    def close(self) -> None:
        """Take every box and cgroup down; closing twice does nothing."""
        for box in self.boxes.values():
            box.evidence.update(lost("the fork server has died: it was asked to end"))
        self.nursery.close()
        self.gate.close()
        for box in self.boxes.values():
            box.close()
        self.boxes.clear()
        self.groups.close()

    # What the client asks

    def _on_control(self) -> None:
        frame = wire.receive(self.control)
        if frame is None:
            self._stop()
        elif frame.body["verb"] == "run":
            self._on_run(frame)
        elif frame.body["verb"] == "open":
            if frame.body["plan"] is not None:
                self.nursery.plans[frame.body["key"]] = from_wire(frame.body["plan"])
            self.placeholders.take(frame.body, frame.fds)
            self.nursery.open(Owner.of(frame.body))
            self.gate.prepare(self.nursery.plans[frame.body["key"]])
        elif frame.body["verb"] == "close":
            self.nursery.close_owner(frame.body["owner"])
            self._tidy_after(frame.body["owner"])
        elif frame.body["verb"] == "forget":
            self.nursery.forget(frame.body["key"])

    def _miss(self, why: Exception) -> None:
        """What the client asked was lost by a fault of ours: a call of a Sandbox that we do not know says which."""
        self.unheard = lost(why)

    def _on_run(self, frame: wire.Frame) -> None:
        """Serve one call. Descriptors: the call socket, then one for each role."""
        self._serve(socket.socket(fileno=frame.fds[0]), frame)

    def _serve(self, call: socket.socket, frame: wire.Frame) -> None:
        box = None
        try:
            owner = self.nursery.owners.get(frame.body["owner"])
            if owner is None:
                raise SourceFailed(self.unheard or {"failed": "closed"})
            owner.calls += 1
            owner.hurried = self.nursery.spares.rest_s() > 0
            self._insist_on_descriptors(max(frame.fds))
            self.nursery.spares.called()
            stem = self.nursery.stem(owner)
            box = self.nursery.give(self.nursery.source(stem, frame.body["snippet"]), owner, frame)
            box.call = call
            box.notes = self.able.notes(stem.plan)
            box.due = time.monotonic() + (box.timeout_s if "ready" in box.evidence else START_LIMIT_S)
            self.loop.watch(call, lambda: self._on_call(box), lambda why: self._break(box, why))
        except SourceFailed as error:
            wire.reply(call, {"refused": error.reason})
            call.close()
        except (OSError, HostError) as error:
            refuse(call, error)
        finally:
            for fd in frame.fds[1:] if box is None else ():
                os.close(fd)

    def _insist_on_descriptors(self, taken: int) -> None:
        """Refuse a call while this process could run out of descriptors, which would cost other calls their boxes.

        Args:
            taken: a descriptor that has just arrived; each number below it is in use, as Linux gives the lowest first.

        Raises:
            OSError: EMFILE.
        """
        unborn = sum("ready" not in box.evidence for box in self.boxes.values())
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if taken + _FDS_SPARED + _FDS_OF_A_BOX * unborn > most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    # What boxes do

    def _on_conceived(self, box: Box) -> None:
        self.loop.watch(box.report, lambda: self._on_report(box), lambda why: self._break(box, why))

    def _on_born(self, box: Box) -> None:
        self.loop.watch(box.pidfd, lambda: self._on_end(box), lambda why: self._break(box, why))

    def _on_call(self, box: Box) -> None:
        if box.call is not None and not box.read_call():
            self.loop.drop(box.call)
            box.end("cancelled")
        if box.inquires:
            box.inquires = False
            self.gate.inquire(box)

    def _on_report(self, box: Box) -> None:
        before = {"ready", "started"} & set(box.evidence)
        if not box.read_report():
            self.loop.drop(box.report)
        if box.doors:
            self.gate.admit(box, self.nursery.plans[box.stem_key])
        if box.new_listener:
            box.new_listener = False
            self.loop.watch(box.listener, lambda: self._on_listener(box), lambda why: self._break(box, why))
        if box.call is not None and {"ready", "started"} & set(box.evidence) != before:
            if box.ending == "exit":
                box.due = time.monotonic() + box.timeout_s
            box.tell_started(named=self.able.listener)
        if box.call is not None and ("started" in box.evidence or box.over):
            box.let_go_of_order()
            self.nursery.spares.wish(box)
        if box.over:
            self._finish(box)

    def _on_listener(self, box: Box) -> None:
        if not box.read_listener():
            self.loop.drop(box.listener)

    def _on_end(self, box: Box) -> None:
        """Init has ended, and everything in the box with it; whatever it has said, that is finished here."""
        try:
            box.read_listener()
            box.read_report()
        except (OSError, ValueError) as error:
            box.evidence.update(lost(error))
        self._finish(box)

    def _break(self, box: Box, why: Exception) -> None:
        """A fault of ours in handling ``box``: its call gets an error, and nobody else notices."""
        if box.number in self.boxes:
            box.end("cancelled")
            box.evidence.update(lost(why))
            self._finish(box)

    def _finish(self, box: Box) -> None:
        if not self.nursery.gone(box):
            return
        for file in (box.call, box.report, box.pidfd, box.listener):
            self.loop.drop(file)
        asked, call = box.asked, box.call
        if asked is not None and call is not None and box.died_waiting and _once_more(asked):
            box.asked = box.call = None
        else:
            asked = call = None
        self.gate.leave(box, lambda: self._part(box))
        if asked is not None and call is not None:
            self._serve(call, asked)

    def _part(self, box: Box) -> None:
        """Nothing of ``box`` is left, and everything is known that there is to know."""
        try:
            if box.call is not None:
                wire.reply(box.call, box.verdict(named=self.able.listener))
                self.nursery.spares.called()
        finally:
            box.close()
            self.groups.put_away(box.group)
            self._tidy_after(box.owner)

    def _tidy_after(self, owner: str) -> None:
        """Once a Sandbox is closed and its last box gone, nothing needs its placeholders."""
        if owner not in self.nursery.owners and all(box.owner != owner for box in self.boxes.values()):
            self.placeholders.remove(owner)


def _once_more(asked: wire.Frame) -> bool:
    """Whether an order is given to another box: not for ever, for a preloaded module may end each one."""
    asked.body["tries"] = asked.body.get("tries", 0) + 1
    return int(asked.body["tries"]) <= _MOST_TRIES


def main(control_fd: int) -> None:
    """Be the fork server of the process at the other end of ``control_fd``."""
    processes.hide_command_line("kern-forkserver")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, too_late)
    server = Server(socket.socket(fileno=control_fd))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        server.run()
    finally:
        server.close()
