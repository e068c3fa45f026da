"""Stems, templates, and the boxes that stand ready before a call comes."""

from __future__ import annotations

import math
import os
import select
import signal
import time
from typing import Any

from .._box.plan import Plan
from .._linux import fds
from ..errors import HostError
from . import wire
from .abilities import Abilities, limits_of, template_limits
from .boxes import Box, Hooks
from .groups import Groups
from .loop import Loop
from .owners import Owner
from .replies import SourceFailed, evidence_of, lost, notes_of
from .spares import UNUSED_LIMIT_S, Spares
from .stems import Source, Stem, StemMaker

__all__ = ["START_LIMIT_S", "Nursery"]

START_LIMIT_S = 60.0
"""How long a box may take from its order to its program's start, seconds; a template's imports count."""
_KILLED = "the process that boxes are forked from was killed"
_BASE_LIMIT_S = 10.0
_LAST_WORDS_MS = 1000
_SETTLE_S = 0.05
"""How long after a Sandbox's first Python call a booted interpreter is started, seconds."""
_LINGER_S = 60.0
"""How long a stem waits for another Sandbox with an equal plan once the last is closed, seconds."""


class Nursery:
    """Where the server's boxes come from.

    Attributes:
        boxes: all that are alive, by number.
        owners: the open Sandboxes, by name.
        plans: by key; a plan stays until the client takes it back.
        spares: which boxes are made before their call.
    """

    def __init__(self, loop: Loop, able: Abilities, groups: Groups, hooks: Hooks) -> None:
        self.loop = loop
        self.able = able
        self.groups = groups
        self.hooks = hooks
        self.maker = StemMaker()
        self.plans: dict[str, Plan] = {}
        self.owners: dict[str, Owner] = {}
        self.stems: dict[str, Stem] = {}
        self.boxes: dict[int, Box] = {}
        self.count = 0
        self.spares = Spares(self._ahead, self.stems, self.owners, self.boxes)

    # Owners

    def open(self, owner: Owner) -> None:
        """A Sandbox was made. One that wants boxes kept ready gets them from now on."""
        self.owners[owner.name] = owner
        if not owner.prewarm and not owner.once:
            return
        try:
            stem = self.stem(owner)
        except (SourceFailed, OSError, HostError):
            return  # its first call will meet the same and report it
        stem.template_due = min(stem.template_due, time.monotonic())
        source = stem if stem.hopeless or not stem.nested else stem.template
        if source is not None and source.ready:
            source.wishes[owner.name] = max(1, owner.prewarm)

    def close_owner(self, name: str) -> None:
        """A Sandbox was closed: its boxes end, and its workspace is let go of."""
        owner = self.owners.pop(name, None)
        if owner is None:
            return
        left = any(other.key == owner.key for other in self.owners.values())
        for box in list(self.boxes.values()):
            if box.owner == name:
                self.spares.drop(box)
                box.end("cancelled")
        stem = self.stems.get(owner.key)
        if stem is None:
            return
        if not left and not self.plans[owner.key].lingers:
            self.end_stem(stem)
            return
        if not any(other.workspace.source == owner.workspace.source for other in self.owners.values()):
            stem.lender.give_back(owner.workspace.source)
        if not left:
            stem.due = time.monotonic() + _LINGER_S

    def forget(self, key: str) -> None:
        """No Sandbox has the plan ``key`` any more, and none will before the client sends it again."""
        if key in self.stems:
            self.end_stem(self.stems[key])
        plan = self.plans.pop(key, None)
        if plan is not None and not any(limits_of(other) == limits_of(plan) for other in self.plans.values()):
            self.groups.forget(limits_of(plan))

    # Calls

    def stem(self, owner: Owner) -> Stem:
        """The stem of an owner's plan, started if need be.

        Raises:
            SourceFailed: it could not be built.
            OSError, HostError: it could not be started.
        """
        stem = self.stems.get(owner.key) or self._make_stem(owner.key, self.plans[owner.key])
        stem.due = time.monotonic() + UNUSED_LIMIT_S
        return stem

    def source(self, stem: Stem, snippet: bool) -> Source:
        """A booted interpreter if the call can be served by one and it stands ready; else the stem."""
        if not snippet or not stem.nested:
            return stem
        if stem.plan.preload:
            return self._preloaded(stem)
        if stem.hopeless:
            return stem
        if stem.template is None:
            stem.template_due = min(stem.template_due, time.monotonic() + _SETTLE_S)
        elif stem.template.ready:
            return stem.template
        return stem

    def _preloaded(self, stem: Stem) -> Source:
        """The template with its modules, which the call waits for: what cannot be imported is the caller's to know."""
        if stem.no_preload is not None:
            raise SourceFailed(stem.no_preload)
        return stem.template or self._start_template(stem)

    def give(self, source: Source, owner: Owner, frame: wire.Frame) -> Box:
        """Have the order of ``frame`` served: by a box that stands ready, else by a new one.

        Raises:
            SourceFailed: the source is gone.
            OSError, HostError: no box can be made, or the workspace not opened.
        """
        for box in self.spares.taken(source, owner.name):
            try:
                self._order(box, owner, frame)
            except (BrokenPipeError, ConnectionResetError):
                self.hooks.finish(box)  # it was killed while it waited
                continue
            return box
        box = self._conceive_or_fail(source)
        try:
            self._order(box, owner, frame)
        except (BrokenPipeError, ConnectionResetError):  # its source took the request along when it ended
            self.hooks.finish(box)
            raise SourceFailed(self._why_gone(source)) from None
        return box

    def _order(self, box: Box, owner: Owner, frame: wire.Frame | None) -> None:
        try:
            if not box.owner:
                self._assign(box, owner)
            if frame is not None:
                box.order(frame)
        except BaseException:  # whatever happened, no box may wait for an order that never comes
            box.end("cancelled")
            raise

    def _assign(self, box: Box, owner: Owner) -> None:
        """``box`` is ``owner``'s from now on, and shows its workspace."""
        tree = self.stems[owner.key].lender.open_workspace(owner.workspace)
        try:
            box.owner = owner.name
            wire.send(box.report, {"workspace": True}, [tree])
        finally:
            os.close(tree)

    # Boxes

    def refill(self) -> bool:
        """Do one piece of the work ahead; ``False`` when there is none, or it cannot be done now."""
        now = time.monotonic()
        for stem in list(self.stems.values()):
            try:
                if any(self.spares.refill(source) for source in (stem.template, stem) if source is not None):
                    return True
                if stem.template is None and stem.ready and stem.template_due <= now and not stem.hopeless:
                    self._start_template(stem)
                    return True
            except (OSError, HostError, SourceFailed):
                return False  # the call that needs a box will meet the same and report it
        return False

    def _ahead(self, source: Source, name: str, limit_s: float) -> Box:
        """Have a box made before its call; ``name`` is its owner's, or ``""``."""
        box = self._conceive(source, limit_s)
        if name:
            self._order(box, self.owners[name], None)
        return box

    def _conceive(self, source: Source, limit_s: float) -> Box:
        """Ask ``source`` for a box that is nobody's yet."""
        group = self.groups.take(limits_of(source.plan))
        ours, theirs = wire.pair()
        descriptors: list[int] = []
        try:
            descriptors = group.join_fds()
            self.count += 1
            source.ask({"box": self.count}, [theirs.fileno(), *descriptors])
        except BaseException:  # whatever happened, neither the socket nor the group must outlive it
            ours.close()
            self.groups.put_away(group)
            raise
        finally:
            theirs.close()
            for fd in descriptors:
                os.close(fd)
        box = Box(self.count, source.key, ours, group, time.monotonic() + limit_s, source.spares, said=source.notes)
        self.boxes[box.number] = box
        self.hooks.conceived(box)
        return box

    def _conceive_or_fail(self, source: Source) -> Box:
        try:
            return self._conceive(source, START_LIMIT_S)
        except (BrokenPipeError, ConnectionResetError):
            raise SourceFailed(self._why_gone(source)) from None

    def _why_gone(self, source: Source) -> dict[str, Any]:
        """What a source that takes no more requests has said at its end."""
        poller = select.poll()
        if source.failure is None:
            poller.register(source.control, select.POLLIN)
        while source.failure is None and (source.has_word or poller.poll(_LAST_WORDS_MS)):
            self._on_source(source)
        return source.failure or lost(_KILLED)

    def gone(self, box: Box) -> bool:
        """Forget ``box``; ``False`` if that was done before."""
        self.spares.drop(box)
        return self.boxes.pop(box.number, None) is not None

    # Sources

    def _make_stem(self, key: str, plan: Plan) -> Stem:
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

    def _start_template(self, stem: Stem) -> Source:
        stem.template_due = math.inf
        group = self.groups.apart(template_limits(stem.plan))
        try:
            template = stem.ask_template(group)
        except BaseException as error:  # whatever happened, the group must not outlive it
            self.groups.put_away(group)
            if isinstance(error, (BrokenPipeError, ConnectionResetError)):
                raise SourceFailed(self._why_gone(stem)) from None
            raise
        self._watch_source(template)
        return template

    def _watch_source(self, source: Source) -> None:
        self.loop.watch(
            source.control, lambda: self._on_source(source), lambda why: self._lose_source(source, lost(why))
        )

    def _on_source(self, source: Source) -> None:
        """Take in one frame. A template may speak with a module's words: it is believed about its own boxes only."""
        frame = source.next_frame()
        if frame is None:
            self._lose_source(source, lost(_KILLED))
            return
        try:
            if "failed" in frame.body:
                self._lose_source(source, evidence_of(frame.body))
            elif "ready" in frame.body and not source.ready:
                source.ready = True
                source.notes.extend(notes_of(frame.body))
                self.spares.begin(source)
            elif "box" in frame.body:
                self._on_born(source, frame)
        finally:
            for fd in frame.fds:
                os.close(fd)

    def _on_born(self, source: Source, frame: wire.Frame) -> None:
        number = frame.body["box"]
        if number not in source.waiting:
            raise ValueError(f"a box was announced that nobody has asked for: {number!r:.40}")
        source.waiting.remove(number)
        foreign = not isinstance(source, Stem)
        if foreign and frame.fds and not fds.heads_namespace_below(frame.fds[0]):
            raise ValueError("another process was announced as a box")
        box = self.boxes.get(number)
        if box is None:
            for pidfd in frame.fds[:1]:
                fds.send_signal(pidfd, signal.SIGKILL)
        elif not frame.fds:
            box.evidence.update({**evidence_of(frame.body), "failed": "namespaces"})
            self.hooks.finish(box)
        else:
            box.born(frame.fds.pop(0))
            self.hooks.born(box)

    def _lose_source(self, source: Source, reason: dict[str, Any]) -> None:
        """A source is gone or could not be built: boxes that it has not made yet fail for that reason."""
        stem = self.stems.get(source.key)
        if source is not stem and not source.ready and source.plan.preload and reason["failed"] == "engine":
            reason = {**reason, "failed": "preload", "text": source.why_import_ended}
        source.failure = reason
        unborn = [self.boxes[number] for number in source.waiting if number in self.boxes]
        for box in unborn:
            box.evidence.update(reason)
        if isinstance(source, Stem):
            self.end_stem(source)
            return
        self._let_go(source)
        assert stem is not None
        stem.template = None
        if reason["failed"] == "preload":
            stem.no_preload = reason
        elif not source.ready:
            stem.hopeless = True
            self.spares.begin(stem)
        for box in unborn:
            self.hooks.finish(box)

    def _let_go(self, template: Source) -> None:
        """A template is gone, or of no more use: whatever is left in its cgroups ends."""
        self.loop.drop(template.control)
        template.control.close()
        if template.group is not None:
            template.group.kill()
            self.groups.put_away(template.group)

    def end_stem(self, stem: Stem) -> None:
        """Kill a stem, and so every box below it; each box is finished with what is known of it."""
        self.stems.pop(stem.key, None)
        self.loop.drop(stem.control)
        self.maker.end(stem)
        if stem.template is not None:
            self._let_go(stem.template)
        for box in [box for box in self.boxes.values() if box.stem_key == stem.key]:
            self.hooks.ended(box)

    def hung(self, box: Box) -> None:
        """``box`` should have been born long ago: what it waits for is given up, and with it the whole stem."""
        stem = self.stems.get(box.stem_key)
        if stem is None or box.number not in self.boxes:
            return
        words = f"not done after {START_LIMIT_S:g} s"
        preloading = stem.template is not None and not stem.template.ready and stem.plan.preload
        reason = {**lost(f"making a box: {words}"), **({"failed": "preload", "text": words} if preloading else {})}
        for other in self.boxes.values():
            if other.stem_key == stem.key and other.pidfd is None:
                other.evidence.update(reason)
        self.end_stem(stem)

    # Time

    def dues(self) -> list[float]:
        """When something here is to be done, monotonic seconds."""
        stems = self.stems.values()
        templates = (stem.template_due for stem in stems if stem.template is None and not stem.hopeless)
        rest = self.spares.rest_s()
        rested = [time.monotonic() + rest] if rest > 0 else []
        return [due for due in (*templates, *rested, *(stem.due for stem in stems)) if due < math.inf]

    def retire(self, now: float) -> None:
        """End the stems that nobody has used for long."""
        for stem in [stem for stem in self.stems.values() if stem.due <= now]:
            if any(box.call is not None for box in self.boxes.values() if box.stem_key == stem.key):
                stem.due = now + UNUSED_LIMIT_S
            else:
                self.end_stem(stem)

    def close(self) -> None:
        """Take every stem down, and with them every box."""
        for stem in list(self.stems.values()):
            self.end_stem(stem)
        self.maker.close()
