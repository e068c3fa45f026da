"""The egress proxy as a process: unprivileged, and alive no longer than the fork server that started it."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  # asyncio loads it late, when the files may be out of reach
import encodings.idna  # noqa: F401  # the same, for name look-ups
import os
import resource
import signal
import socket
import sys
from typing import Any

from .._egress.service import Service
from .._linux import caps, processes
from . import wire

__all__ = ["main"]

_CONTROL = 3
_SETGID, _SETUID = 6, 7  # linux/capability.h


def main(host_id: int | None) -> None:
    """Serve the fork server at the other end of descriptor 3. Never returns.

    Args:
        host_id: the uid and gid to become, where the fork server is root.
    """
    processes.hide_command_line("kern-egress")
    control = socket.socket(fileno=_CONTROL)
    os.set_inheritable(_CONTROL, False)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _step_down(host_id)
    try:
        asyncio.run(_serve(control))
    finally:
        sys.stderr.flush()
        os._exit(70)  # a thread that looks a name up would be waited for


def _step_down(host_id: int | None) -> None:
    """Give up every privilege; what parses a box's bytes must have none."""
    last = caps.last_capability()
    if host_id is not None:
        caps.keep_capabilities(1 << _SETUID | 1 << _SETGID, last)
        os.setgroups([])
        os.setresgid(host_id, host_id, host_id)
        os.setresuid(host_id, host_id, host_id)
    caps.keep_capabilities(0, last)
    caps.no_new_privileges()
    caps.set_dumpable(False)
    caps.set_parent_death(signal.SIGKILL)  # after the change of ids, which clears it


async def _serve(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    service = Service()
    answers: set[asyncio.Task[None]] = set()

    def attend() -> None:
        try:
            frame = wire.receive(control, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:  # a door is lost, so a box is: the fork server sees this end and says so
            sys.stderr.write(f"kern-egress: {error}\n")
            os._exit(70)
        if frame is None:
            os._exit(0)
        if "end" in frame.body:
            task = loop.create_task(_dismiss(service, frame.body["end"], control))
            answers.add(task)
            task.add_done_callback(answers.discard)
        elif "tell" in frame.body:
            number = frame.body["tell"]
            _answer(control, {"told": number, **service.tell(number)})
        else:
            _admit(service, frame)

    loop.add_reader(control, attend)
    await asyncio.Event().wait()


def _admit(service: Service, frame: wire.Frame) -> None:
    body: dict[str, Any] = frame.body
    listeners = [listener for listener in map(_listener, frame.fds) if listener is not None]
    if len(listeners) < len(frame.fds):
        sys.stderr.write("kern-egress: a door is not a listener\n")  # foreign code had the word: the box has no way out
        return
    doors = [((str(host), int(port)), listener) for (host, port), listener in zip(body["doors"], listeners)]
    service.admit(body["box"], body["egress"], doors)


def _listener(fd: int) -> socket.socket | None:
    """The listening socket behind ``fd``; one that is none is closed."""
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        return None
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return sock
    sock.close()
    return None


async def _dismiss(service: Service, number: int, control: socket.socket) -> None:
    _answer(control, {"box": number, **await service.dismiss(number)})


def _answer(control: socket.socket, body: dict[str, Any]) -> None:
    try:
        wire.send(control, body)
    except (BrokenPipeError, ConnectionResetError):  # the fork server has ended, and so does its proxy
        os._exit(0)
