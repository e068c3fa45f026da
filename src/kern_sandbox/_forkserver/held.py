"""A box that its caller holds: a kernel's. It ends with the last kernel in it, by its own end, or with this process.

The box's program is the guest's keeper, at the other end of ``line``; what ended the box as a whole comes from the fork
server, on the call socket, as for every call.
"""

from __future__ import annotations

import collections
import json
import os
import select
import socket
import threading
import time
from typing import Any, Callable, Literal, NamedTuple

from .._box.verdict import Facts, judge, raise_failure
from .._linux.cgroup_tree import counter
from ..errors import StartError
from . import wire
from .client import ForkServer
from .launch import Command, launch, within_limits

__all__ = ["Counter", "HeldBox", "hear"]

_ROOM = 1 << 16
_COUNTER_ROOM = 4096
_WORDS = 4000
_LOOK_AGAIN_S = 0.05
"""How long a thread waits before it looks whether another one has taken in what it waits for."""
_RECORD_S = 20.0


class Counter(NamedTuple):
    """A file of the box's cgroup in which Linux counts; see ``_linux.cgroup_group.CounterFile``."""

    name: str
    key: str
    unit: int
    fd: int

    def read(self) -> int | None:
        """The count so far, or ``None`` where the group is gone."""
        try:
            text = os.pread(self.fd, _COUNTER_ROOM, 0).decode("ascii", "replace")
            return (counter(text, self.key) if self.key else int(text)) // self.unit
        except (OSError, ValueError):
            return None


class HeldBox:
    """The caller's end of a kernel's box.

    Attributes:
        line: frames to the keeper.
        call: the fork server's word: that the program has started, and at the end the evidence.
        notes: what this host does without for the box.
        named: as in a verdict.
        evidence: once the box has ended, how; empty if the fork server died first.
        members: who uses the box; with the last one it ends.
    """

    def __init__(self, server: ForkServer, command: Command) -> None:
        with within_limits():
            self.line, theirs = wire.pair()
        try:
            launched = launch(server, command, line=theirs.fileno())
        except BaseException:  # whatever happened, our end must not outlive it
            self.line.close()
            raise
        finally:
            theirs.close()
        os.close(launched.stdout)
        os.set_blocking(launched.stderr, False)
        self.call = launched.call
        self.death = server.death
        self.notes: list[str] = []
        self.named = True
        self.started = False
        self.evidence: dict[str, Any] | None = None
        self.members: set[int] = set()
        self._stderr = [launched.stderr]
        self._counters: list[Counter] = []
        self._answers: collections.deque[str] = collections.deque()
        self._records: collections.deque[dict[str, Any]] = collections.deque()
        self._reading = threading.Lock()

    def attend(self) -> None:
        """Take in what the fork server has said."""
        with self._reading:
            while self.evidence is None and self._attend_one():
                continue

    def _attend_one(self) -> bool:
        try:
            frame = wire.receive(self.call, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        if frame is None:
            self.evidence = {}
        elif "answer" in frame.body:
            self._answers.append(frame.body["answer"])
        elif "record" in frame.body:
            self._records.append(frame.body)
        elif "started" in frame.body:
            rows = zip(frame.body["counters"], frame.fds)
            self._counters = [Counter(name, key, unit, fd) for (name, key, unit), fd in rows]
            self.notes, self.named, self.started = frame.body["notes"], frame.body["named"], True
        else:
            self.evidence = frame.body
        return True

    def counts(self) -> dict[str, int]:
        """What Linux has counted of the box so far, by the fields of ``_linux.cgroup.Evidence``."""
        read = ((each.name, each.read()) for each in self._counters)
        return {name: count for name, count in read if count is not None}

    def kill(self, why: Literal["killed", "disk_full"] = "killed") -> None:
        """End the box now."""
        try:
            wire.send(self.call, {"kill": why})
        except OSError:
            return  # it has ended, which is what was wanted

    def wait_for_end(self, patience_s: float) -> bool:
        """Whether the box has ended within ``patience_s``."""
        self._attend_until(lambda: False, patience_s)
        return self.evidence is not None

    def wait_for_start(self, patience_s: float) -> bool:
        """Whether the fork server says within ``patience_s`` that the program has started."""
        self._attend_until(lambda: self.started, patience_s)
        return self.started

    def is_ending(self, patience_s: float) -> bool:
        """Whether the fork server has taken the box down, or is doing it; it may take ``patience_s`` to say so."""
        try:
            wire.send(self.call, {"ask": True})
        except OSError:
            return True
        self._attend_until(lambda: bool(self._answers), patience_s)
        return self.evidence is not None or not self._answers or self._answers.popleft() != "exit"

    def new_record(self) -> tuple[dict[str, Any] | None, list[str]]:
        """What the box has asked of the egress proxy since the last time, and notes; ``None`` if that is not known."""
        try:
            wire.send(self.call, {"inquire": True})
        except OSError:
            return None, []  # the box has ended, and its evidence has the rest
        self._attend_until(lambda: bool(self._records), _RECORD_S)
        if not self._records:
            return None, []
        told = self._records.popleft()
        return told["record"], [told["note"]] if told["note"] else []

    def _attend_until(self, enough: Callable[[], bool], patience_s: float) -> None:
        until = time.monotonic() + patience_s
        poller = select.poll()
        poller.register(self.call, select.POLLIN)
        self.attend()
        while self.evidence is None and not enough() and time.monotonic() < until:
            poller.poll(min(_LOOK_AGAIN_S, max(0.0, until - time.monotonic())) * 1000)
            self.attend()

    def raise_not_started(self, facts: Facts) -> None:
        """The box has ended, and no kernel has come to life in it.

        Raises:
            SandboxError: always.
        """
        evidence = self.evidence
        if not evidence:
            raise self.death()
        if "refused" in evidence:
            raise_failure(evidence["refused"])
        judgement = judge(evidence, facts)
        why = judgement.fault.message if judgement.fault else f"exit status {judgement.exit_code}"
        words = self.last_words()
        raise StartError("kernel", f"the interpreter has ended ({why})" + (f": {words}" if words else ""))

    def last_words(self) -> str:
        """What the box's program said on its standard error before a kernel came to life."""
        try:
            return os.read(self._stderr[0], _ROOM)[-_WORDS:].decode("utf-8", "replace").strip()
        except (BlockingIOError, IndexError):
            return ""

    def settle(self) -> None:
        """A kernel lives: nobody listens to the program's own streams any more."""
        while self._stderr:
            os.close(self._stderr.pop())

    def leave(self, member: int) -> None:
        """``member`` no longer uses the box. Takes no lock, for a garbage collector calls it."""
        self.members.discard(member)
        if not self.members:
            self.close()

    def close(self) -> None:
        """End the box and let its descriptors go; closing twice does nothing."""
        self.line.close()
        self.call.close()
        self.settle()
        while self._counters:
            os.close(self._counters.pop().fd)


def hear(sock: socket.socket) -> dict[str, Any] | None:
    """What the box says now: ``{}`` for nothing, or nothing that can be understood; ``None`` at the end.

    Descriptors that the code sends along are dropped by Linux, for no room is offered to them.
    """
    try:
        data = sock.recv(_ROOM, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return {}
    except OSError:
        return None
    if not data:
        return None
    try:
        body = json.loads(data[1:])
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}
