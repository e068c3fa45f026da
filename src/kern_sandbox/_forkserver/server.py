"""The fork server: one thread, one loop. It makes boxes, keeps their deadlines, and gathers evidence.

Its life hangs on the control socket: when that ends, the user's process is gone, and every box, cgroup and temporary
workspace goes with it. It holds nothing of value: its environment is empty and its command line hidden.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

from .._box.plan import Plan, from_wire
from .._linux import cgroup, fds, processes
from ..errors import HostError
from . import wire
from .abilities import Abilities, limits_of
from .boxes import Box
from .groups import Groups
from .loop import Loop
from .replies import SourceFailed, lost, refuse, remove_tree
from .stems import Source, Stem, StemMaker

__all__ = ["main"]

_START_LIMIT_S = 60.0
_BASE_LIMIT_S = 10.0
_IDLE_RETRY_S = 0.01
_SETTLE_S = 0.05
"""How long a Sandbox lives after its first Python call before a booted interpreter is kept for it, seconds."""
_SWEEPS_S = (1.0, 5.0)
"""When, after its start, a server looks again for cgroups that a killed predecessor left, seconds."""
_IDLE_LIMIT_S = 60.0
"""How long a box may wait for a call before it is dropped, seconds."""


class Server:
    """State of the loop. Every handler returns soon."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.loop = Loop()
        self.able = Abilities()
        self.groups = Groups(self.able.host)
        self.maker = StemMaker()
        self.plans: dict[str, Plan] = {}
        self.stems: dict[str, Stem] = {}
        self.boxes: dict[int, Box] = {}
        self.temporary: set[tuple[str, int, int]] = set()
        self.count = 0
        self.sweeps = [time.monotonic() + delay for delay in _SWEEPS_S]

    def run(self) -> None:
        """Serve until the user's process is gone, and then remove what it left."""
        self.loop.watch(self.control, self._on_control, lambda _: None)
        self.loop.watch(fds.open_pid(os.getppid()), self._stop, lambda _: None)
        gc.collect()
        gc.freeze()
        while self.loop.running:
            self.loop.turn(self._wait())
            self._enforce_deadlines()
        self.close()
        for path, device, inode in self.temporary:
            remove_tree(path, (device, inode))

    def _wait(self) -> float | None:
        """How long to sleep: not at all while there is tidying to do, else until the next deadline.

        A call that is about to end comes before tidying, which takes as long as a short program runs.
        """
        calls = any(box.call is not None for box in self.boxes.values())
        if self._refill() or self.groups.tidy(urgent_only=calls):
            return 0
        dues = [*(box.due for box in self.boxes.values()), *self.sweeps]
        dues += [stem.template_due for stem in self.stems.values() if stem.template_due < math.inf]
        due = min(dues, default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        return min(_IDLE_RETRY_S, wait or _IDLE_RETRY_S) if self.groups.busy else wait

    def _enforce_deadlines(self) -> None:
        now = time.monotonic()
        for box in list(self.boxes.values()):
            if box.due <= now:
                box.due = now + _START_LIMIT_S
                self._no_longer_spare(box)
                box.end("timeout")
        if self.sweeps and self.sweeps[0] <= now:
            self.sweeps.pop(0)
            cgroup.sweep()

    def _stop(self) -> None:
        self.loop.running = False

    def close(self) -> None:
        """Take every box and cgroup down; closing twice does nothing."""
        for box in self.boxes.values():
            box.evidence.update(lost("the fork server has died: it was asked to end"))
        for stem in list(self.stems.values()):
            self._end_stem(stem)
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
            self.plans[frame.body["key"]] = from_wire(frame.body["plan"])
            self.temporary.update((path, device, inode) for path, device, inode in frame.body["temporary"])
        elif frame.body["verb"] == "close":
            self._on_close(frame.body)

    def _on_close(self, body: dict[str, Any]) -> None:
        plan = self.plans.pop(body["key"], None)
        for box in self.boxes.values():
            if box.stem_key == body["key"] and box.ending == "exit":
                box.ending = "cancelled"
        if body["key"] in self.stems:
            self._end_stem(self.stems[body["key"]])
        self.temporary.difference_update(tuple(each) for each in body["temporary"])
        if plan is not None and not any(limits_of(other) == limits_of(plan) for other in self.plans.values()):
            self.groups.forget(limits_of(plan))

    def _on_run(self, frame: wire.Frame) -> None:
        """Serve one call. Descriptors: the call socket, then one for each role."""
        call = socket.socket(fileno=frame.fds[0])
        try:
            plan = self.plans.get(frame.body["key"])
            if plan is None:
                wire.reply(call, {"refused": {"failed": "closed"}})
                call.close()
                return
            box = self._give(self._source(self._stem(frame.body["key"], plan), frame.body), frame)
            box.call = call
            box.notes = self.able.notes(plan)
            box.due = time.monotonic() + (box.timeout_s if "ready" in box.evidence else _START_LIMIT_S)
            self.loop.watch(call, lambda: self._on_call(box), lambda words: self._break(box, words))
        except SourceFailed as error:
            wire.reply(call, {"refused": error.reason})
            call.close()
        except (OSError, HostError) as error:
            refuse(call, error)
        finally:
            for fd in frame.fds[1:]:
                os.close(fd)

    def _give(self, source: Source, frame: wire.Frame) -> Box:
        """Give the order to a spare that is alive, else to a new box."""
        while source.spares:
            box = source.spares.popleft()
            try:
                box.order(frame.body, frame.fds[1:])
            except (BrokenPipeError, ConnectionResetError):
                self._finish(box)  # it was killed while it waited
                continue
            return box
        box = self._conceive_or_fail(source)
        box.order(frame.body, frame.fds[1:])
        return box

    def _source(self, stem: Stem, body: dict[str, Any]) -> Source:
        """A booted interpreter if the call can be served by one and it stands ready; else the stem."""
        if not body["snippet"] or stem.hopeless or not stem.nested:
            return stem
        if stem.template is None:
            stem.template_due = min(stem.template_due, time.monotonic() + _SETTLE_S)
        elif stem.template.ready:
            return stem.template
        return stem

    def _conceive(self, stem: Source) -> Box:
        """Ask ``stem`` for a box that serves no call yet."""
        group = self.groups.take(limits_of(stem.plan))
        ours, theirs = wire.pair()
        descriptors: list[int] = []
        try:
            descriptors = group.join_fds()
            self.count += 1
            stem.ask({"box": self.count}, [theirs.fileno(), *descriptors])
        except BaseException:  # whatever happened, neither the socket nor the group must outlive it
            ours.close()
            self.groups.put_away(group)
            raise
        finally:
            theirs.close()
            for fd in descriptors:
                os.close(fd)
        box = Box(self.count, stem.key, ours, group, time.monotonic() + _IDLE_LIMIT_S, stem.spares)
        self.boxes[box.number] = box
        self.loop.watch(ours, lambda: self._on_report(box), lambda words: self._break(box, words))
        return box

    def _conceive_or_fail(self, source: Source) -> Box:
        try:
            return self._conceive(source)
        except (BrokenPipeError, ConnectionResetError):
            self._on_source(source)
            raise SourceFailed(source.failure or lost("the process that boxes are forked from was killed")) from None

    def _refill(self) -> bool:
        """Have one box ready before the next call of a Sandbox that is in use; ``False`` when all have."""
        for stem in self.stems.values():
            try:
                if self._refill_one(stem):
                    return True
            except (OSError, HostError):
                return False  # the call that needs a box will meet the same and report it
        return False

    def _refill_one(self, stem: Stem) -> bool:
        for source in (stem.template, stem):
            if source is not None and source.refill and source.ready and not source.spares:
                source.refill = False
                source.spares.append(self._conceive(source))
                return True
        if stem.template is not None or not stem.ready or stem.template_due > time.monotonic():
            return False
        stem.template_due = math.inf
        template = stem.ask_template()
        self._watch_source(template)
        return True

    def _watch_source(self, source: Source) -> None:
        self.loop.watch(
            source.control, lambda: self._on_source(source), lambda words: self._lose_source(source, lost(words))
        )

    # Stems

    def _stem(self, key: str, plan: Plan) -> Stem:
        if key in self.stems:
            return self.stems[key]
        if plan.require_limits:
            self.able.require_limits()
        first = not self.stems
        stem = self.maker.make(key, plan, self.able.part(plan), nested=self.able.nested)
        if first and self.able.nested and stem.cannot_nest(_BASE_LIMIT_S):
            self.able.nested = False
            self.maker.end(stem)
            stem = self.maker.make(key, plan, self.able.part(plan), nested=False)
        self.stems[key] = stem
        self._watch_source(stem)
        if stem.has_word:
            self._on_source(stem)
        if stem.failure is not None:
            raise SourceFailed(stem.failure)
        return stem

    def _on_source(self, source: Source) -> None:
        frame = source.next_frame()
        if frame is None:
            self._lose_source(source, lost("the process that boxes are forked from was killed"))
        elif "failed" in frame.body:
            self._lose_source(source, frame.body)
        elif "ready" in frame.body:
            source.ready = source.refill = True
        elif "box" in frame.body:
            self._on_born(source, frame)

    def _on_born(self, stem: Source, frame: wire.Frame) -> None:
        stem.waiting.discard(frame.body["box"])
        box = self.boxes.get(frame.body["box"])
        if box is None:
            for pidfd in frame.fds:
                fds.send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)
        elif not frame.fds:
            box.evidence.update(failed="namespaces", errno=frame.body["errno"], text=frame.body["text"])
            self._finish(box)
        else:
            box.born(frame.fds[0])
            self.loop.watch(box.pidfd, lambda: self._on_end(box), lambda words: self._break(box, words))

    def _lose_source(self, source: Source, reason: dict[str, Any]) -> None:
        """A source is gone or could not be built: boxes that it has not made yet fail for that reason."""
        source.failure = reason
        unborn = [self.boxes[number] for number in source.waiting if number in self.boxes]
        for box in unborn:
            box.evidence.update(reason)
        if isinstance(source, Stem):
            self._end_stem(source)
            return
        self.loop.drop(source.control)
        source.control.close()
        stem = self.stems[source.key]
        stem.template, stem.hopeless = None, not source.ready
        for box in unborn:
            self._finish(box)

    def _end_stem(self, stem: Stem) -> None:
        """Kill a stem, and so every box below it; each box is finished with what is known of it."""
        self.stems.pop(stem.key, None)
        self.loop.drop(stem.control)
        if stem.template is not None:
            self.loop.drop(stem.template.control)
        self.maker.end(stem)
        for box in [box for box in self.boxes.values() if box.stem_key == stem.key]:
            self._on_end(box)

    # Boxes

    def _on_call(self, box: Box) -> None:
        if box.call is not None and not box.read_call():
            self.loop.drop(box.call)
            box.end("cancelled")

    def _on_report(self, box: Box) -> None:
        before = {"ready", "started"} & set(box.evidence)
        if not box.read_report():
            self.loop.drop(box.report)
        if box.new_listener:
            box.new_listener = False
            self.loop.watch(box.listener, lambda: self._on_listener(box), lambda words: self._break(box, words))
        if box.call is not None and {"ready", "started"} & set(box.evidence) != before:
            box.due = time.monotonic() + box.timeout_s
        if box.call is not None and ("started" in box.evidence or box.over):
            self._wish_refill(box)
        if box.over:
            self._finish(box)

    def _wish_refill(self, box: Box) -> None:
        """The source that ``box`` came from is in use."""
        stem = self.stems.get(box.stem_key)
        for source in () if stem is None else (stem, stem.template):
            if source is not None and source.spares is box.siblings:
                source.refill = True

    def _on_listener(self, box: Box) -> None:
        if not box.read_listener():
            self.loop.drop(box.listener)

    def _on_end(self, box: Box) -> None:
        """Init has ended, and everything in the box with it."""
        box.read_listener()
        box.read_report()
        self._finish(box)

    def _break(self, box: Box, words: str) -> None:
        """A fault of ours in handling ``box``: its call gets an error, and nobody else notices."""
        if box.number in self.boxes:
            box.end("cancelled")
            box.evidence.update(lost(words))
            self._finish(box)

    def _no_longer_spare(self, box: Box) -> None:
        if box in box.siblings:
            box.siblings.remove(box)

    def _finish(self, box: Box) -> None:
        if self.boxes.pop(box.number, None) is None:
            return
        self._no_longer_spare(box)
        for file in (box.call, box.report, box.pidfd, box.listener):
            self.loop.drop(file)
        try:
            if box.call is not None:
                wire.reply(box.call, box.verdict(named=self.able.listener))
        finally:
            box.close()
            self.groups.put_away(box.group)


def main(control_fd: int) -> None:
    """Be the fork server of the process at the other end of ``control_fd``."""
    processes.hide_command_line("kern-forkserver")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    server = Server(socket.socket(fileno=control_fd))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        server.run()
    finally:
        server.close()
