"""The fork server's side of one call: its descriptors, its deadline, and the evidence as it comes in."""

from __future__ import annotations

import os
import signal
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Literal, NamedTuple

from .._box.filter import describe
from .._linux import fds, seccomp
from .._linux.cgroup import Group
from ..errors import CgroupUnavailable
from . import wire
from .replies import evidence_of, lost

__all__ = ["Box", "Ending", "Hooks", "too_late"]

_MOST_FRAMES = 256
_MOST_DOORS = 1024
_STOLEN_S = 0.5

Ending = Literal["exit", "timeout", "cancelled", "escape", "killed", "disk_full"]


@dataclass
class Box:
    """One box, from its birth to its end. It serves one call, or none.

    Attributes:
        number: unique in this server.
        stem_key: of the stem that it was forked from.
        report: frames from and to init.
        group: its cgroups.
        due: monotonic time of the next deadline.
        siblings: the spares of the source that it came from.
        owner: the name of the Sandbox that it serves, ``""`` until that is known.
        said: what its source has to tell whoever it serves.
        asked: its one order, kept until the program has started.
        call: the client's end, once there is a call; its end of file cancels the box.
        timeout_s: counted from the moment the program starts, or could have: init is ready and has its order.
        doors: listeners that it has sent and that nobody has taken yet.
        handed: how many of its doors are with the egress proxy.
        evidence: what is known so far, as the client will get it.
        inquires: its caller wants to know what it has asked of the egress proxy.
        held: its call lasts as long as the caller likes, and is told at once how to read the box's counters.
    """

    number: int
    stem_key: str
    report: socket.socket
    group: Group
    due: float
    siblings: deque[Box]
    owner: str = ""
    said: list[str] = field(default_factory=list)
    asked: wire.Frame | None = None
    call: socket.socket | None = None
    timeout_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    pidfd: int | None = None
    listener: int | None = None
    new_listener: bool = False
    ending: Ending = "exit"
    held: bool = False
    inquires: bool = False
    doors: list[int] = field(default_factory=list)
    handed: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def died_waiting(self) -> bool:
        """Whether it had been ready, and was gone before it took its order: another box can serve the call."""
        return self.ending == "exit" and "ready" in self.evidence and not {"started", "failed"} & set(self.evidence)

    @property
    def over(self) -> bool:
        """Whether nothing of a program is alive in it, and never will be."""
        return "status" in self.evidence or "failed" in self.evidence

    @property
    def hangs(self) -> bool:
        """Whether its call has waited in vain for its birth. It may be ready before that is told: then time runs."""
        return self.call is not None and self.pidfd is None and ("ready" not in self.evidence or self.ending != "exit")

    def order(self, asked: wire.Frame) -> None:
        """Give it its one order. It may not be born yet: the order waits for it.

        Args:
            asked: the client's frame; its first descriptor is the call socket. This box owns the others from now on.

        Raises:
            OSError: it is dead (EPIPE), and owns nothing.
        """
        body = asked.body
        self.timeout_s = body["timeout_s"]
        self.held = body.get("held", False)
        order = {name: body[name] for name in ("argv", "env", "cwd", "cell", "roles")}
        wire.send(self.report, order, asked.fds[1:])
        self.asked = asked

    def let_go_of_order(self) -> None:
        """The program has started, or never will."""
        asked, self.asked = self.asked, None
        for fd in () if asked is None else asked.fds[1:]:
            os.close(fd)

    def end(self, ending: Ending) -> None:
        """Kill init, and so everything in the box; the first reason given is the one that counts.

        The group is killed too: init may be kept from running, and so from dying, by what it supervises.
        """
        if self.ending == "exit":
            self.ending = ending
        if self.pidfd is not None:
            fds.send_signal(self.pidfd, signal.SIGKILL)
            try:
                self.group.kill()
            except (OSError, CgroupUnavailable):
                return  # init is dead by then, and who removes the group kills again

    def born(self, pidfd: int) -> None:
        """The stem has made init."""
        self.pidfd = pidfd
        if self.ending != "exit":
            self.end(self.ending)

    def read_report(self) -> bool:
        """Take in what init has sent, at most so much at a time; ``False`` once there will be no more.

        Raises:
            OSError, ValueError: foreign code had the word: it is no frame, or there are too many descriptors.
        """
        for _ in range(_MOST_FRAMES):
            try:
                frame = wire.receive(self.report, socket.MSG_DONTWAIT, most=wire.SMALL)
            except BlockingIOError:
                return True
            if frame is None:
                return False
            if "doors" in frame.body:
                self.doors += frame.fds
                if len(self.doors) > _MOST_DOORS:
                    raise ValueError("a box has sent more doors than any has")
                continue
            self.evidence.update(evidence_of(frame.body))
            if frame.fds and self.listener is None and "ready" in frame.body:
                self.listener, self.new_listener = frame.fds.pop(), True
            for fd in frame.fds:
                os.close(fd)
        return True

    def tell_started(self, *, named: bool) -> None:
        """Give a caller that holds the box its notes, and the open files of its counters; ``named`` as in a verdict."""
        if not self.held or self.call is None or "started" not in self.evidence:
            return
        files = self.group.counter_files()
        opened = [os.open(file.path, os.O_RDONLY | os.O_CLOEXEC) for file in files]
        try:
            counters = [[file.name, file.key, file.unit] for file in files]
            body = {"started": True, "notes": self.notes, "named": named, "counters": counters}
            wire.send(self.call, body, opened)
        except (BrokenPipeError, ConnectionResetError):
            return  # the caller is gone, which its end of file will tell
        finally:
            for fd in opened:
                os.close(fd)

    def read_listener(self) -> bool:
        """A forbidden call waits for an answer: name it, and end the box instead of answering.

        Returns:
            Whether there is anything left to listen to.
        """
        if self.listener is None:
            return False
        notification = _taken(self.listener)
        if notification is None:
            return not seccomp.hung_up(self.listener)
        self.evidence["escape"] = describe(notification.nr, notification.arch)
        self.end("escape")
        return False

    def read_call(self) -> bool:
        """Take in what the client says; ``False`` when it is gone."""
        assert self.call is not None
        try:
            frame = wire.receive(self.call, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        if frame is None:
            return False
        if "kill" in frame.body:
            self.end("disk_full" if frame.body["kill"] == "disk_full" else "killed")
        elif "ask" in frame.body:
            wire.reply(self.call, {"answer": self.ending})
        elif "inquire" in frame.body:
            self.inquires = True
        elif "signal" in frame.body:
            wire.reply(self.report, {"signal": frame.body["signal"]})
        return True

    def verdict(self, *, named: bool) -> dict[str, Any]:
        """Everything that the client needs to judge, once nothing of the program is alive.

        Args:
            named: the listener is the evidence for a forbidden call; else the signal that it died of has to do.
        """
        try:
            counted = self.group.evidence()
        except CgroupUnavailable as error:  # somebody has taken the group away
            return lost(error)
        usage = {
            "cpu_ms": self.evidence.get("cpu_ms") if counted.cpu_ms is None else counted.cpu_ms,
            "max_memory_bytes": counted.max_memory_bytes,
            "max_pids": None if counted.max_pids is None else max(1, counted.max_pids - 1),
        }
        known = {
            name: self.evidence.get(name) for name in ("status", "escape", "failed", "errno", "text", "path", "egress")
        }
        return {
            **known,
            "ready": "ready" in self.evidence,
            "ending": self.ending,
            "oom_kills": counted.oom_kills,
            "pids_refused": counted.pids_refused,
            "usage": usage,
            "notes": [*self.notes, *self.said],
            "named": named,
        }

    def close(self) -> None:
        """Let every descriptor go."""
        for fd in (self.pidfd, self.listener, *self.doors):
            if fd is not None:
                os.close(fd)
        self.pidfd = self.listener = None
        self.let_go_of_order()
        self.doors = []
        if self.call is not None:
            self.call.close()
        self.report.close()


class Hooks(NamedTuple):
    """What the server does at the turns of a box's life."""

    conceived: Callable[[Box], None]
    born: Callable[[Box], None]
    ended: Callable[[Box], None]
    finish: Callable[[Box], None]


def too_late(*_: object) -> None:
    """For SIGALRM in the process that serves boxes."""
    raise InterruptedError("a forbidden call was reported, and somebody else took the report")


def _taken(listener: int) -> seccomp.Notification | None:
    """The forbidden call that waits.

    A module that was preloaded may hold the listener too and be faster: Linux would then wait, and every box with us.
    """
    signal.setitimer(signal.ITIMER_REAL, _STOLEN_S)
    try:
        return seccomp.receive(listener)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
