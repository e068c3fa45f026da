"""Opens workspaces for a fork server that may not mount: a process that may, in namespaces of its own.

An ordinary user may clone mounts only as the owner of a mount namespace. Stems own theirs, but have left the host's
files behind by the time that a workspace is needed; so one process keeps them in view, and does nothing else.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from typing import Any, NoReturn

from .._box.build import open_trees
from .._box.plan import Bind
from .._linux import caps, fds, processes
from .._linux.abi import Clone
from . import wire

__all__ = ["Mounter"]

_LIMIT_S = 10.0
_ALL_IDS = "0 0 4294967295"


class Mounter:
    """The fork server's end of it; the process starts when it is first needed, and again if it has died."""

    def __init__(self, *, privileged: bool) -> None:
        self._privileged = privileged
        self._control: socket.socket | None = None
        self._child: processes.Child | None = None

    def open(self, bind: Bind) -> int:
        """A detached copy of the mounts at ``bind.source``, as a descriptor.

        Raises:
            OSError: the source is missing or not what was vetted, or namespaces are refused.
        """
        frame = self._ask(bind) or self._ask(bind)  # one that was killed is replaced
        if frame is None:
            raise OSError(errno.ECHILD, "the process that opens workspaces was killed", bind.source)
        if not frame.fds:
            raise OSError(frame.body["errno"], frame.body["text"], bind.source)
        return frame.fds[0]

    def _ask(self, bind: Bind) -> wire.Frame | None:
        """Its answer, or ``None`` if it has died."""
        if self._control is None:
            self._start()
        assert self._control is not None
        frame = None
        try:
            wire.send(self._control, {"bind": list(bind)})
            poller = select.poll()
            poller.register(self._control, select.POLLIN)
            if not poller.poll(_LIMIT_S * 1000):
                self.close()
                raise OSError(errno.ETIMEDOUT, "the process that opens workspaces did not answer", bind.source)
            frame = wire.receive(self._control)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is gone, as at the end of file
        if frame is None:
            self.close()
        return frame

    def close(self) -> None:
        """End the process, if there is one."""
        if self._control is not None and self._child is not None:
            self._control.close()
            fds.send_signal(self._child.pidfd, signal.SIGKILL)
            os.waitpid(self._child.pid, 0)
            os.close(self._child.pidfd)
        self._control = self._child = None

    def _start(self) -> None:
        ours, theirs = wire.pair()
        mapped, go = os.pipe2(os.O_CLOEXEC)
        try:
            child = processes.clone(Clone.NEWUSER | Clone.NEWNS)
            if child.pid == 0:
                processes.live(lambda: _serve(theirs, mapped))
            self._control, self._child = ours, child
            self._map(child.pid)
        except OSError:
            ours.close()
            self.close()
            raise
        finally:
            theirs.close()
            os.close(mapped)
            os.close(go)

    def _map(self, pid: int) -> None:
        """Who it is inside is who it is outside."""
        if self._privileged:
            for name in ("uid_map", "gid_map"):
                processes.write_text(f"/proc/{pid}/{name}", _ALL_IDS)
        else:
            me = (os.geteuid(), os.getegid())
            processes.map_ids(str(pid), me[0], me, deny_setgroups=True)


def _serve(control: socket.socket, mapped: int) -> NoReturn:
    processes.reset_signals()
    processes.close_except([control.fileno(), mapped])
    os.read(mapped, 1)
    os.close(mapped)
    caps.set_parent_death(signal.SIGKILL)
    while True:
        frame = wire.receive(control)
        if frame is None:
            os._exit(0)
        body, trees = _opened(frame.body["bind"])
        wire.send(control, body, trees)
        for fd in trees:
            os.close(fd)


def _opened(fields: list[Any]) -> tuple[dict[str, Any], list[int]]:
    try:
        return {}, open_trees((Bind(*fields),), {})
    except OSError as error:
        return {"errno": error.errno, "text": error.strerror or str(error)}, []
