"""Where boxes are born: a loop that clones one for each request. Stems and templates are cradles."""

from __future__ import annotations

import gc
import os
import signal
import socket
from typing import TYPE_CHECKING, Callable

from .._linux import processes
from .._linux.abi import Clone
from . import wire
from .init import Birth, GetReady, Snippet, run_box

if TYPE_CHECKING:
    from .._box.confine import Confinement
    from .._box.plan import Plan

__all__ = ["FRESH", "Cradle"]

FRESH = Clone.NEWNS | Clone.NEWPID | Clone.NEWIPC | Clone.NEWUTS
Extra = Callable[[wire.Frame], None]


class Cradle:
    """Makes boxes of one plan.

    Args:
        plan: of every box.
        part: its computed parts.
        nested: each box has a user namespace of its own.
        get_ready: a box's program is a fork of this interpreter, not another program, and calls this while it waits.
    """

    def __init__(self, plan: Plan, part: Confinement, *, nested: bool, get_ready: GetReady | None = None) -> None:
        self.plan = plan
        self.part = part
        self.nested = nested
        self.get_ready = get_ready
        self.namespaces = FRESH if plan.network else FRESH | Clone.NEWNET
        if nested:
            self.namespaces |= Clone.NEWUSER

    def serve(self, control: socket.socket, extra: Extra | None = None) -> Snippet | None:
        """Answer requests until ``control`` ends, and then end. Returns only in the process of a snippet.

        Args:
            control: frames from and to the fork server.
            extra: takes the requests that are not for a box.
        """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        gc.collect()
        gc.freeze()
        gc.disable()
        while True:
            frame = wire.receive(control)
            if frame is None:
                os._exit(0)
            if "box" in frame.body:
                snippet = self._bear(control, frame)
                if snippet is not None:
                    return snippet
            elif extra is not None:
                extra(frame)
            for fd in frame.fds:
                os.close(fd)

    def _bear(self, control: socket.socket, frame: wire.Frame) -> Snippet | None:
        try:
            child = processes.clone(self.namespaces)
        except OSError as error:
            wire.send(control, {"box": frame.body["box"], "errno": error.errno, "text": str(error)})
            return None
        if child.pid == 0:
            return self._live(Birth(frame.fds[0], frame.fds[1:]))
        wire.send(control, {"box": frame.body["box"]}, [child.pidfd])
        os.close(child.pidfd)
        return None

    def _live(self, birth: Birth) -> Snippet:
        """Be a box; what returns is the process that is to run its snippet."""
        try:
            return run_box(self.plan, self.part, birth, nested=self.nested, get_ready=self.get_ready)
        except BaseException as error:  # nothing of the cradle runs here
            processes.tell_why(error)
            os._exit(70)
