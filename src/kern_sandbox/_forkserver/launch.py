"""From one command to a box that runs it: the pipes, the frame, and what comes back."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Literal, NamedTuple

from .._linux.fds import memory_file
from . import wire
from .client import ForkServer
from .pump import Collector, Relay, finish, pump
from .shortage import SHORTAGES, short_of

__all__ = ["Command", "Launched", "Outcome", "Stop", "launch", "run", "within_limits"]

Callback = Callable[[str], object]


@dataclass(frozen=True)
class Command:
    """One program in one box.

    Attributes:
        owner: names the Sandbox, already open at the fork server.
        cell: files for the box's own snippet directory, name to content.
        stdin: ``None`` for an empty standard input.
        snippet: a booted interpreter may run it, if one stands ready.
        results: whether the program writes rich values to descriptor 3.
        limit: bytes kept of each stream.
        results_limit: bytes kept of rich values.
    """

    owner: str
    argv: list[str]
    env: Mapping[str, str]
    cwd: str
    timeout_s: float
    cell: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes | None = None
    snippet: bool = False
    results: bool = False
    limit: int = 64 << 20
    results_limit: int = 64 << 20
    on_stdout: Callback | None = None
    on_stderr: Callback | None = None


class Launched(NamedTuple):
    """A box on its way: the call socket and our ends of its pipes; ``None`` where a stream was not asked for."""

    call: socket.socket
    stdin: int | None
    stdout: int
    stderr: int
    results: int | None


class Outcome(NamedTuple):
    """What a command left: the fork server's evidence and everything that was read."""

    evidence: dict[str, Any]
    stdout: bytes
    stderr: bytes
    results: bytes
    truncated: bool


class Stop:
    """Ends one call from another thread, before or after it has begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._call: socket.socket | None = None
        self._wanted = ""

    @property
    def wanted(self) -> bool:
        """Whether the end was asked for."""
        return bool(self._wanted)

    def attach(self, call: socket.socket) -> None:
        """The call has begun on the socket ``call``."""
        with self._lock:
            self._call = call
            if self._wanted:
                self._kill()

    def now(self, why: Literal["killed", "disk_full"] = "killed") -> None:
        """End the box; the call then returns with the fault ``why``."""
        with self._lock:
            self._wanted = self._wanted or why
            if self._call is not None:
                self._kill()

    def _kill(self) -> None:
        assert self._call is not None
        try:
            wire.send(self._call, {"kill": self._wanted})
        except OSError:
            return  # the call has ended, which is what was wanted


class _Ends:
    """The descriptors of a launch, so that none leaks whatever fails."""

    def __init__(self) -> None:
        self.roles: list[str] = []
        self.theirs: list[int] = []
        self.ours: list[int] = []

    def give(self, role: str, fd: int) -> None:
        """``fd`` goes to the box."""
        self.roles.append(role)
        self.theirs.append(fd)

    def output(self, role: str) -> int:
        """A pipe that the box writes; returns our end."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self.ours.append(reader)
        self.give(role, writer)
        return reader

    def input(self, wanted: bool) -> int | None:
        """A pipe that the box reads, or the null device."""
        if not wanted:
            self.give("stdin", os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            return None
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self.ours.append(writer)
        self.give("stdin", reader)
        return writer

    def close(self, fds: list[int]) -> None:
        """Close and forget ``fds``."""
        for fd in fds:
            os.close(fd)
        fds.clear()


@contextlib.contextmanager
def within_limits() -> Iterator[None]:
    """Make descriptors for a box; a process that may have no more of them is told so.

    Raises:
        HostError: instead of EMFILE, ENFILE and the like.
    """
    try:
        yield
    except OSError as error:
        if error.errno in SHORTAGES:
            raise short_of("making the pipes of a box", error) from error
        raise


def launch(server: ForkServer, command: Command, *, interactive: bool = False, line: int | None = None) -> Launched:
    """Ask ``server`` for a box that runs ``command``.

    Args:
        server: where the plan is open.
        command: what to run.
        interactive: give standard input a pipe even where the command has none.
        line: what the program finds as its descriptor 3. The caller holds the box by the other end, and the fork
            server says on the call socket when the program has started.

    Raises:
        InternalError: the fork server is dead.
        HostError: this process is out of descriptors.
    """
    ends = _Ends()
    try:
        with within_limits():
            stdin = ends.input(interactive or command.stdin is not None)
            stdout, stderr = ends.output("stdout"), ends.output("stderr")
            results = ends.output("results") if command.results else None
            if line is not None:
                ends.give("line", os.dup(line))
            for name, content in command.cell.items():
                ends.give("cell", memory_file(f"kern-{name}", content))
            body = {
                "owner": command.owner,
                "argv": command.argv,
                "env": dict(command.env),
                "cwd": command.cwd,
                "cell": list(command.cell),
                "timeout_s": command.timeout_s,
                "snippet": command.snippet,
                "roles": ends.roles,
                "held": line is not None,
            }
            return Launched(server.start(body, ends.theirs), stdin, stdout, stderr, results)
    except BaseException:  # whatever happened, no pipe may outlive it
        ends.close(ends.ours)
        raise
    finally:
        ends.close(ends.theirs)


def run(
    server: ForkServer, command: Command, stop: Stop | None = None, meanwhile: Callable[[], None] | None = None
) -> Outcome:
    """Run ``command`` to its end and read everything.

    Args:
        server: where the plan is open.
        command: what to run.
        stop: a handle by which another thread may end the call.
        meanwhile: something short to do once the box has its order.

    Raises:
        InternalError: the fork server died.
        HostError: it, or this process, is out of descriptors or threads.
        BaseException: what a callback raised, once the box has ended.
    """
    relays: list[Relay | None] = []
    try:
        callbacks = (command.on_stdout, command.on_stderr)
        relays.extend(None if callback is None else Relay(callback) for callback in callbacks)
        out, err = (Collector(command.limit, relay) for relay in relays)
        values = Collector(command.results_limit)
        launched = launch(server, command)
        outputs = {launched.stdout: out, launched.stderr: err}
        if launched.results is not None:
            outputs[launched.results] = values
        given = None if launched.stdin is None else (launched.stdin, command.stdin or b"")
        loop = pump(launched.call, outputs, given)
        if stop is not None:
            stop.attach(launched.call)
        evidence = loop.run(command.timeout_s, server.death, meanwhile)
    finally:
        finish(relays)
    return Outcome(evidence, out.content(), err.content(), values.content(), out.truncated or err.truncated)
