"""The fork server's side of egress: it starts the proxy, hands it each box's doors, and asks what came of them.

The proxy is one process for all boxes, started with the first plan that needs it. It may die, be killed or fall silent:
boxes are then left without a way out, their calls end with a note instead of a record, and the next box gets a new one.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import Any, Callable, NamedTuple

from .._box.plan import Plan
from .._linux import fds
from . import wire
from .boxes import Box
from .loop import Loop
from .replies import record_of

__all__ = ["Gate"]

_BATCH = 60
_CONTROL = 3
_SEND_MS = 1000
_ANSWER_S = 10.0
_LOST = "the egress proxy has died: the box had no way out from then on, and what it asked for is not known"
_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from kern_sandbox._forkserver.egress_main import main; main(int(sys.argv[2]) if sys.argv[2] else None)"
)


class _Proxy(NamedTuple):
    control: socket.socket
    pid: int
    pidfd: int


class _Parting(NamedTuple):
    """A box that has ended and whose record has not come."""

    box: Box
    then: Callable[[], None]
    due: float


class Gate:
    """The boxes that have doors, and the proxy behind them.

    Args:
        loop: of the fork server.
        host_id: gives the id that the proxy is to run as; ``None`` for the fork server's own.
    """

    def __init__(self, loop: Loop, host_id: Callable[[], int | None]) -> None:
        self._loop = loop
        self._take_id = host_id
        self._host_id: int | None = None
        self._proxy: _Proxy | None = None
        self._inside: dict[int, Box] = {}
        self._parting: dict[int, _Parting] = {}
        self._inquiring: dict[int, float] = {}

    @property
    def dues(self) -> list[float]:
        """When ``expire`` is to be called, monotonic."""
        return [*(parting.due for parting in self._parting.values()), *self._inquiring.values()]

    def prepare(self, plan: Plan) -> None:
        """Boxes of ``plan`` will be asked for: have the proxy start meanwhile, if they have doors.

        Raises:
            OSError: it cannot be started.
        """
        if plan.doors:
            self._running()

    def admit(self, box: Box, plan: Plan) -> None:
        """Hand the doors that ``box`` has sent to the proxy.

        Raises:
            OSError: there is no proxy and none can be started.
        """
        doors, box.doors = box.doors, []
        first = box.handed
        box.handed += len(doors)
        try:
            if box.handed > len(plan.doors):
                raise ValueError("a box has sent more doors than its plan has")
            proxy = self._running()
            self._inside[box.number] = box
            for start in range(0, len(doors), _BATCH):
                batch = doors[start : start + _BATCH]
                meant = [(door.host, door.port) for door in plan.doors[first + start :][: len(batch)]]
                meant = [(host, port if host else 0) for host, port in meant]
                if self._proxy is not proxy:
                    return
                self._say(proxy, {"box": box.number, "egress": plan.egress, "doors": meant}, batch)
        finally:
            for fd in doors:
                os.close(fd)

    def leave(self, box: Box, then: Callable[[], None]) -> None:
        """``box`` has ended: close its ways out, and call ``then`` when it is known what it asked for."""
        if self._inside.pop(box.number, None) is None or self._proxy is None:
            then()
            return
        self._parting[box.number] = _Parting(box, then, time.monotonic() + _ANSWER_S)
        self._say(self._proxy, {"end": box.number})

    def inquire(self, box: Box) -> None:
        """Tell the caller of ``box`` what is new in its record; ``None`` where that is not known."""
        if box.number not in self._inside or self._proxy is None:
            _answer(box, None)
            return
        self._inquiring[box.number] = time.monotonic() + _ANSWER_S
        self._say(self._proxy, {"tell": box.number})

    def expire(self, now: float) -> None:
        """A proxy that does not answer is as good as dead, and is killed."""
        if any(due <= now for due in self.dues):
            self._lose()

    def close(self) -> None:
        """End the proxy; closing twice does nothing."""
        self._lose()

    def _running(self) -> _Proxy:
        if self._proxy is None:
            if self._host_id is None:
                self._host_id = self._take_id()
            self._proxy = _start(self._host_id)
            self._loop.watch(self._proxy.control, self._on_word, lambda _: self._lose())
        return self._proxy

    def _say(self, proxy: _Proxy, body: dict[str, Any], descriptors: list[int] | None = None) -> None:
        """Tell the proxy something; one that takes nothing in for a second is given up, for no call may wait for it."""
        poller = select.poll()
        poller.register(proxy.control, select.POLLOUT)
        if not poller.poll(_SEND_MS):
            self._lose()
            return
        try:
            wire.send(proxy.control, body, descriptors or ())
        except (BrokenPipeError, ConnectionResetError):
            self._lose()

    def _on_word(self) -> None:
        """A box's record has come, or the proxy is gone."""
        assert self._proxy is not None
        frame = wire.receive(self._proxy.control, most=wire.SMALL)
        if frame is None:
            self._lose()
            return
        record = record_of(frame.body)
        if "told" in frame.body:
            self._inquiring.pop(frame.body["told"], None)
            inside = self._inside.get(frame.body["told"])
            if inside is not None:
                _answer(inside, record)
            return
        parting = self._parting.pop(frame.body["box"], None)
        if parting is not None:
            parting.box.evidence["egress"] = record
            parting.then()

    def _lose(self) -> None:
        """The proxy is gone, or is to go: no call waits for it, and no box that it served is given a call."""
        if self._proxy is None:
            return
        proxy, self._proxy = self._proxy, None
        self._loop.drop(proxy.control)
        fds.send_signal(proxy.pidfd, signal.SIGKILL)
        os.waitpid(proxy.pid, 0)
        os.close(proxy.pidfd)
        proxy.control.close()
        inside, self._inside = self._inside, {}
        inquiring, self._inquiring = self._inquiring, {}
        for box in inside.values():
            if box.number in inquiring:
                _answer(box, None)
            box.notes.append(_LOST)
            if box.call is None:
                box.end("cancelled")
                if box in box.siblings:
                    box.siblings.remove(box)
        parting, self._parting = self._parting, {}
        for each in parting.values():
            each.box.notes.append(_LOST)
            each.then()


def _answer(box: Box, record: dict[str, Any] | None) -> None:
    if box.call is not None:
        wire.reply(box.call, {"record": record, "note": _LOST if record is None else ""})


def _start(host_id: int | None) -> _Proxy:
    """Start the proxy, without a copy of this process's memory."""
    ours, theirs = wire.pair()
    try:
        argv = [sys.executable, "-I", "-S", "-c", _BOOT, _PACKAGE_PARENT, "" if host_id is None else str(host_id)]
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), _CONTROL)]
        pid = os.posix_spawn(sys.executable, argv, dict(os.environ), file_actions=actions, setsigdef=[signal.SIGTERM])
        return _Proxy(ours, pid, fds.open_pid(pid))
    except BaseException:  # whatever happened, the socket must not outlive it
        ours.close()
        raise
    finally:
        theirs.close()
