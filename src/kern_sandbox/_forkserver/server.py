"""The fork server: one thread, one loop. It makes boxes, keeps their deadlines, and gathers evidence.

Its life hangs on the control socket: when that ends, the user's process is gone, and every box, cgroup and temporary
directory goes with it. It holds nothing of value: its environment is empty and its command line hidden.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any, Callable

from .._box.confine import Confinement
from .._box.filter import FilterPolicy, compile_filter
from .._box.plan import Plan, from_wire
from .._linux import caps, cgroup, fds, landlock, processes, seccomp
from ..errors import HostError
from . import wire
from .boxes import Box
from .groups import Groups
from .stems import Stem, StemMaker

__all__ = ["main"]

_START_LIMIT_S = 60.0
_IDLE_RETRY_S = 0.01
_IDLE_LIMIT_S = 60.0
"""How long a box may wait for a call before it is dropped, seconds."""


class Server:
    """State of the loop. Every handler is called with what it was registered for and returns soon."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.selector = selectors.DefaultSelector()
        self.groups = Groups(cgroup.probe())
        self.maker = StemMaker()
        self.plans: dict[str, Plan] = {}
        self.stems: dict[str, Stem] = {}
        self.boxes: dict[int, Box] = {}
        self.temporary: set[str] = set()
        self.nested = True
        self.listener = _can_listen()
        self.count = 0
        self.running = True

    # The loop

    def run(self) -> None:
        """Serve until the user's process is gone."""
        self._watch(self.control, self._on_control)
        parent = fds.open_pid(os.getppid())
        self._watch(parent, self._stop)
        gc.collect()
        gc.freeze()
        while self.running:
            for key, _ in self.selector.select(self._wait()):
                if self._still(key):
                    key.data()
            self._enforce_deadlines()

    def _wait(self) -> float | None:
        """How long to sleep: not at all while there is tidying to do, else until the next deadline."""
        if self._refill() or self.groups.tidy():
            return 0
        due = min((box.due for box in self.boxes.values()), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        return min(_IDLE_RETRY_S, wait or _IDLE_RETRY_S) if self.groups.busy else wait

    def _still(self, key: selectors.SelectorKey) -> bool:
        """Whether an event is not stale: an earlier one of the same batch may have closed what it is about."""
        try:
            return self.selector.get_key(key.fd).data is key.data
        except KeyError:
            return False

    def _watch(self, file: Any, handler: Callable[[], None]) -> None:
        self.selector.register(file, selectors.EVENT_READ, handler)

    def _enforce_deadlines(self) -> None:
        now = time.monotonic()
        for box in list(self.boxes.values()):
            if box.due <= now:
                box.due = now + _START_LIMIT_S
                self._no_longer_spare(box)
                box.end("timeout")

    def _stop(self) -> None:
        self.running = False

    def close(self) -> None:
        """Take everything down."""
        for stem in self.stems.values():
            stem.end()
        for box in self.boxes.values():
            box.close()
        self.groups.close()
        for path in self.temporary:
            _remove_tree(path)

    # What the client asks

    def _on_control(self) -> None:
        try:
            frame = wire.receive(self.control)
        except ConnectionResetError:
            frame = None
        if frame is None:
            self.running = False
            return
        verb = frame.body["verb"]
        if verb == "run":
            self._on_run(frame)
        elif verb == "open":
            self.plans[frame.body["key"]] = from_wire(frame.body["plan"])
            self.temporary.update(frame.body["temporary"])
        elif verb == "close":
            self._on_close(frame.body)

    def _on_close(self, body: dict[str, Any]) -> None:
        plan = self.plans.pop(body["key"], None)
        if body["key"] in self.stems:
            self._end_stem(self.stems[body["key"]])
        self.temporary.difference_update(body["temporary"])
        if plan is not None and not any(_limits(other) == _limits(plan) for other in self.plans.values()):
            self.groups.forget(_limits(plan))

    def _on_run(self, frame: wire.Frame) -> None:
        """Serve one call. Descriptors: the call socket, then one for each role."""
        call = socket.socket(fileno=frame.fds[0])
        try:
            stem = self._stem(frame.body["key"])
            box = stem.spares.popleft() if stem.spares else self._conceive(stem)
            box.notes = self._notes(stem.plan)
            box.due = time.monotonic() + _START_LIMIT_S
            box.serve(call, frame.body, frame.fds[1:])
            self._watch(call, lambda: self._on_call(box))
            stem.refill = True
        except (OSError, HostError) as error:
            _refuse(call, error)
        finally:
            for fd in frame.fds[1:]:
                os.close(fd)

    def _conceive(self, stem: Stem) -> Box:
        """Ask ``stem`` for a box that serves no call yet."""
        ours, theirs = wire.pair()
        descriptors: list[int] = []
        try:
            group = self.groups.take(_limits(stem.plan))
            descriptors = [*group.join_fds(), *self.groups.homes(group)]
            self.count += 1
            stem.ask({"box": self.count}, [theirs.fileno(), *descriptors])
        except BaseException:  # whatever happened, the socket must not outlive it
            ours.close()
            raise
        finally:
            theirs.close()
            for fd in descriptors:
                os.close(fd)
        box = Box(self.count, stem.key, ours, group, time.monotonic() + _IDLE_LIMIT_S)
        self.boxes[box.number] = box
        self._watch(ours, lambda: self._on_report(box))
        return box

    def _refill(self) -> bool:
        """Have one box ready before the next call of a Sandbox that is in use; ``False`` when all have."""
        for stem in self.stems.values():
            if stem.refill and stem.ready and not stem.spares:
                stem.refill = False
                try:
                    stem.spares.append(self._conceive(stem))
                except (OSError, HostError):
                    return False  # the call that needs a box will meet the same and report it
                return True
        return False

    def _notes(self, plan: Plan) -> list[str]:
        """What was asked for and this host does not enforce for a box as a whole."""
        asked = {"memory": plan.memory_bytes, "pids": plan.pids, "cpu": plan.cpus}
        host = self.groups.host
        unnamed = [] if self.listener else ["a forbidden system call is stopped but not named inside this host's own filter"]
        return unnamed + [
            f"{name} is not limited for the box as a whole on this host; kern-sandbox doctor says why"
            for name, value in asked.items()
            if value is not None and name not in host.enforces
        ]

    # Stems

    def _stem(self, key: str) -> Stem:
        if key in self.stems:
            return self.stems[key]
        plan = self.plans[key]
        if plan.require_limits:
            self.groups.host.require("memory", "pids")
        stem = self.maker.make(key, plan, self._part(plan), nested=self.nested)
        self.stems[key] = stem
        self._watch(stem.control, lambda: self._on_stem(stem))
        return stem

    def _part(self, plan: Plan) -> Confinement:
        policy = FilterPolicy(untrusted=plan.untrusted, capabilities=plan.capabilities)
        return Confinement(
            last_capability=caps.last_capability(),
            landlock_abi=landlock.abi_version(),
            program=compile_filter(policy, listener=self.listener),
            listener=self.listener,
            limit_memory="memory" not in self.groups.host.enforces,
            limit_pids="pids" not in self.groups.host.enforces,
        )

    def _on_stem(self, stem: Stem) -> None:
        try:
            frame = wire.receive(stem.control)
        except ConnectionResetError:
            frame = None
        if frame is None:
            self._lose_stem(
                stem, {"failed": "stem", "errno": None, "text": "the stem process was killed", "path": None}
            )
        elif "failed" in frame.body:
            self._lose_stem(stem, frame.body)
        elif "ready" in frame.body:
            stem.ready = True
        elif "box" in frame.body:
            self._on_born(stem, frame)

    def _on_born(self, stem: Stem, frame: wire.Frame) -> None:
        stem.waiting.discard(frame.body["box"])
        box = self.boxes.get(frame.body["box"])
        if not frame.fds:
            if box is not None:
                box.evidence.update(failed="namespaces", errno=frame.body["errno"], text=frame.body["text"])
                self._finish(box)
            return
        pidfd = frame.fds[0]
        if box is None:
            fds.send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            return
        box.born(pidfd)
        self._watch(pidfd, lambda: self._on_end(box))

    def _lose_stem(self, stem: Stem, reason: dict[str, Any]) -> None:
        """A stem is gone or could not be built: its boxes end too."""
        waiting = set(stem.waiting)
        self._end_stem(stem)
        if reason["failed"] == "nesting" and self.nested:
            self.nested = False
        for number in waiting & set(self.boxes):
            self.boxes[number].evidence.update(reason)
            self._finish(self.boxes[number])

    def _end_stem(self, stem: Stem) -> None:
        self.stems.pop(stem.key, None)
        self.selector.unregister(stem.control)
        stem.end()
        self.maker.retire(stem.host_id)

    # Boxes

    def _on_call(self, box: Box) -> None:
        if box.call is not None and not box.read_call():
            self.selector.unregister(box.call)
            box.end("cancelled")

    def _on_report(self, box: Box) -> None:
        before = "started" in box.evidence
        came = box.read_report()
        if came and box.listener is None:
            box.listener = came.pop()
            self._watch(box.listener, lambda: self._on_listener(box))
        for fd in came:
            os.close(fd)
        if not before and "started" in box.evidence:
            box.due = time.monotonic() + box.timeout_s
        if box.over:
            self._finish(box)

    def _on_listener(self, box: Box) -> None:
        if box.listener is not None and not box.read_listener():
            self.selector.unregister(box.listener)

    def _on_end(self, box: Box) -> None:
        """Init has ended, and everything in the box with it."""
        box.read_listener()
        for fd in box.read_report():
            os.close(fd)
        self._finish(box)

    def _no_longer_spare(self, box: Box) -> None:
        stem = self.stems.get(box.stem_key)
        if stem is not None and box in stem.spares:
            stem.spares.remove(box)

    def _finish(self, box: Box) -> None:
        del self.boxes[box.number]
        self._no_longer_spare(box)
        for file in (box.call, box.report, box.pidfd, box.listener):
            if file is not None and file in self.selector.get_map():
                self.selector.unregister(file)
        if box.call is not None:
            try:
                wire.send(box.call, box.verdict())
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client went away first, and the box is gone all the same
        box.close()
        self.groups.put_away(box.group)


def _can_listen() -> bool:
    """Whether a filter of ours can report to us: not where an outer one (a container's) has a listener already."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        if "\nSeccomp:\t0\n" in file.read():
            return True
    pid = os.fork()
    if pid == 0:
        try:
            caps.no_new_privileges()
            seccomp.install(compile_filter(FilterPolicy()), listener=True)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _remove_tree(path: str) -> None:
    """Remove a temporary workspace whose owner has died."""
    from ..workspace._walk import empty_directory  # late: it loads threading, which slows every fork

    try:
        handle = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        empty_directory(handle)
        os.close(handle)
        os.rmdir(path)
    except OSError as error:
        sys.stderr.write(f"removing {path!r}: {error}\n")


def _limits(plan: Plan) -> cgroup.Limits:
    return cgroup.Limits(memory_bytes=plan.memory_bytes, pids=plan.pids, cpus=plan.cpus)


def _refuse(call: socket.socket, error: OSError | HostError) -> None:
    """Tell the client why no box could be made at all."""
    body: dict[str, Any] = {"failed": "namespaces", "errno": error.errno, "text": str(error), "path": None}
    if isinstance(error, HostError):
        body.update(failed="host", text=error.attempted, hint=error.hint, kind=type(error).__name__)
    elif error.filename is not None:
        body.update(failed="mounts", text=error.strerror, path=os.fsdecode(error.filename))
    try:
        wire.send(call, {"refused": body})
    except (BrokenPipeError, ConnectionResetError):
        pass  # the client went away first
    call.close()


def main(control_fd: int) -> None:
    """Be the fork server of the process at the other end of ``control_fd``."""
    processes.hide_command_line("kern-forkserver")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    server = Server(socket.socket(fileno=control_fd))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        server.run()
    finally:
        server.close()
