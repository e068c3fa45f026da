"""The warm interpreter: cells that share one process in one box, and branches of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import checks
from ._box.verdict import Judgement, judge
from ._forkserver.branch import GRACE_S, Branch, CellEnd, Copy, Sinks
from ._forkserver.held import HeldBox
from ._forkserver.launch import Outcome
from ._forkserver.pump import Collector, Relay, finish
from .errors import SandboxError, SessionClosed, SpecError
from .session import Callback, How, Session, result_of
from .workspace import Guard, Workspace

if TYPE_CHECKING:
    from .results import ExecutionResult

__all__ = ["Checkpoint", "Kernel", "start_kernel"]

_MAX_FORKS = 1000
_VALUES_LIMIT = 64 << 20
_PROGRAM = "the session"


class Checkpoint:
    """A kernel's memory at one moment, kept by a process that waits in its box. Made by ``Kernel.checkpoint``.

    It can be used any number of times. It lives as long as its box, unless it is closed or forgotten before.

    Attributes:
        copy: the engine's own.
        cells: how many cells the kernel had run.
    """

    def __init__(self, copy: Copy, cells: int) -> None:
        self.copy = copy
        self.cells = cells

    def close(self) -> None:
        """Give its memory back. Closing twice does nothing."""
        self.copy.close()

    def __del__(self) -> None:
        if hasattr(self, "copy"):
            self.copy.close()


class Kernel:
    """A live interpreter in a box, made by ``Sandbox.kernel``; close it, or use it as a context manager.

    Cells see what earlier cells have left: names, modules, open files, threads. Calls from several threads take turns.
    """

    def __init__(
        self, session: Session, branch: Branch, *, timeout_s: float, owner: object = None, cells: int = 0
    ) -> None:
        self._session = session
        self._owner = owner  # a Sandbox that is forgotten closes its session
        self._box = branch.box
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._cells = cells
        self._ended: str | None = None
        self._killed = False
        self._counts = self._first_counts = self._box.counts()
        self._branch = branch
        self._box.members.add(id(self))

    @property
    def alive(self) -> bool:
        """Whether the next cell will find what earlier ones have left, as far as is known now."""
        here = self._pid == os.getpid()
        return here and not self._closed and not self._session.closed and self._ended is None

    def run_code(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
    ) -> ExecutionResult:
        """Run one cell.

        An exception leaves the kernel alive (exit code 1), and so does ``SystemExit`` (its code). A cell past its
        deadline is interrupted, as by Ctrl-C, and killed if that does not end it within a second; ``fault.detail`` says
        whether the kernel's state survived.

        Args:
            code: Python; ``await`` is allowed at its top level.
            timeout_s: instead of the kernel's own.
            on_stdout: called with text as it arrives, on another thread; one that is slow loses chunks.
            on_stderr: the same for standard error.

        Raises:
            SpecError: an argument is not accepted.
            SessionClosed: the kernel is closed or has died; the message says why.
            InternalError: the engine failed.
        """
        text = checks.check_code(code, "python")
        limit = self._timeout_s if timeout_s is None else checks.check_timeout(timeout_s)
        callbacks = (checks.check_callback("on_stdout", on_stdout), checks.check_callback("on_stderr", on_stderr))
        relays = [None if each is None else Relay(each) for each in callbacks]
        try:
            with self._turn():
                self._require_alive()
                return self._run(text, limit, relays)
        finally:
            finish(relays)  # without the lock: a callback may close the kernel, or run a cell in it

    def _run(self, text: str, limit: float, relays: list[Relay | None]) -> ExecutionResult:
        session = self._session
        kept = session.spec.max_output_bytes
        sinks = Sinks(Collector(kept, relays[0]), Collector(kept, relays[1]), Collector(_VALUES_LIMIT))
        before = session.workspace.scan() if session.spec.track_files else None
        self._cells += 1
        start = time.monotonic()
        guard = session.workspace.guard()
        guard.watch(lambda: self._box.kill("disk_full"))
        try:
            end = self._branch.run(self._cells, text, sinks, limit)
            duration_ms = round((time.monotonic() - start) * 1000)
            evidence, judgement = self._account(end, limit, guard, inquires=session.plan.egress is not None)
        finally:
            guard.release()
        if not end.ran:
            self._require_alive()
        files = [] if before is None else Workspace.changes(before, session.workspace.scan())
        out, err, values = sinks
        truncated = out.truncated or err.truncated
        outcome = Outcome(evidence, out.content(), err.content(), values.content(), truncated)
        return result_of(outcome, judgement, duration_ms, files)

    def _account(
        self, end: CellEnd, limit: float, guard: Guard, *, inquires: bool = False
    ) -> tuple[dict[str, Any], Judgement]:
        """What a cell's end means, for its result and for the kernel."""
        if end.code is None and end.status is None:
            self._require_box_verdict()
        evidence = guard.conclude(self._evidence(end))
        if inquires and self._box.evidence is None:
            evidence["egress"], notes = self._box.new_record()
            evidence["notes"] = [*evidence["notes"], *notes]
        return evidence, self._judge(end, evidence, limit)

    def _require_box_verdict(self) -> None:
        """The box has ended under a cell.

        Raises:
            SessionClosed: because its Sandbox was closed.
            InternalError: because the fork server died.
        """
        self._ended = "its box has ended"
        if self._session.closed:
            raise self._closed_error()
        if not self._box.evidence:
            error = self._box.death()
            self._ended = str(error)
            raise error

    def _evidence(self, end: CellEnd) -> dict[str, Any]:
        """What is known of a cell's end, in the form of a call's verdict."""
        if end.code is None and end.status is None:
            evidence = dict(self._box.evidence or {})
            seen = self._counts.get("oom_kills", 0) - self._first_counts.get("oom_kills", 0)
            evidence.update(usage={}, oom_kills=(evidence.get("oom_kills") or 0) - seen)
        else:
            counts = {**self._counts, **self._box.counts()}
            grown = {name: count - self._counts.get(name, 0) for name, count in counts.items()}
            evidence = {
                "ready": True,
                "status": end.status if end.code is None else end.code << 8,
                "oom_kills": grown.get("oom_kills"),
                "pids_refused": grown.get("pids_refused"),
                "notes": self._box.notes,
                "named": self._box.named or end.code is not None,
                "usage": {"cpu_ms": grown.get("cpu_ms")},
            }
            self._counts = counts
        if end.late:
            evidence["ending"] = "timeout"
        elif self._killed and end.code is None:
            evidence["ending"] = "killed"
        return evidence

    def _judge(self, end: CellEnd, evidence: dict[str, Any], limit: float) -> Judgement:
        judgement = judge(evidence, self._session.facts(_PROGRAM, limit))
        fault, lost = judgement.fault, end.code is None
        if lost:
            self._ended = fault.message if fault else _how(judgement.exit_code, end.status)
            judgement.notes.append(f"the kernel has died, and its state is lost ({self._ended})")
        if fault is None or fault.type != "timeout":
            return judgement
        words = "interrupted; the kernel's state is kept" if not lost else "killed; the kernel's state is lost"
        message = f"the code did not end within {limit:g} s and was {words}"
        detail = f"{limit:g} s; state {'lost' if lost else 'kept'}"
        return judgement._replace(fault=replace(fault, message=message, detail=detail))

    def interrupt(self) -> None:
        """Interrupt the cell that is running, as Ctrl-C would: its exit code is then 130. From any thread."""
        if not self._closed:
            self._branch.interrupt()

    def kill(self) -> None:
        """End the kernel's process now, from any thread: a cell that is running returns with the fault ``killed``.

        ``rollback`` brings the kernel back to a checkpoint.
        """
        if not self._closed:
            self._killed = True
            self._branch.kill()

    def checkpoint(self) -> Checkpoint:
        """Keep the kernel's memory as it is now.

        It costs a process of the box, and the memory that is changed afterwards. Files, the workspace and what lies in
        ``/tmp`` are not kept. Python threads do not come along when the kernel is rolled back.

        Raises:
            SessionClosed: the kernel is closed or has died.
            StartError: the box has no room for another process.
        """
        with self._turn():
            self._require_alive()
            return Checkpoint(self._branch.copy(), self._cells)

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Go back to ``checkpoint``, also if the kernel has died since, unless its whole box has.

        The state of ``random`` and ``numpy.random`` is that of the checkpoint too.

        Raises:
            SpecError: not a checkpoint of this kernel's box.
            SessionClosed: the kernel, its box or the checkpoint is gone.
            StartError: the box has no room for another process.
        """
        self._check(checkpoint)
        with self._turn():
            self._require_box()
            branch = checkpoint.copy.branch(reseed=False)
            self._branch.close()
            self._branch, self._ended, self._killed = branch, None, False

    def fork(self, n: int) -> list[Kernel]:
        """Make ``n`` further kernels that start with this one's memory, in the same box.

        They run side by side and end on their own; the box ends with the last of them. They share its limits, its
        processes and the workspace. ``random`` and ``numpy.random`` are seeded anew in each.

        Raises:
            SpecError: ``n`` is not a whole number from 1 to 1000.
            SessionClosed: the kernel is closed or has died.
            StartError: the box has no room for that many.
        """
        count = checks.whole("n", n, 1, _MAX_FORKS)
        kernels: list[Kernel] = []
        checkpoint = self.checkpoint()
        try:
            while len(kernels) < count:
                kernels.append(self._sibling(checkpoint))
        except BaseException:  # whatever happened, none of them may outlive it
            for kernel in kernels:
                kernel.close()
            raise
        finally:
            checkpoint.close()
        return kernels

    def _sibling(self, checkpoint: Checkpoint) -> Kernel:
        branch = checkpoint.copy.branch(reseed=True)
        return Kernel(self._session, branch, timeout_s=self._timeout_s, owner=self._owner, cells=checkpoint.cells)

    def _check(self, checkpoint: object) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise checks.bad("checkpoint", checkpoint, "what Kernel.checkpoint() gave")
        if checkpoint.copy.box is not self._box:
            raise SpecError("checkpoint belongs to another kernel: accepted are those of the same box")

    def _require_alive(self) -> None:
        self._require_box()
        if self._ended is None and self._branch.has_ended():
            self._account(self._branch.last_end(), self._timeout_s, Guard(None))
        if self._ended is not None:
            hint = "Roll it back to a checkpoint, or make a new one; the workspace is still there"
            raise SessionClosed(f"using a kernel that has died: {self._ended}", hint=hint)

    def _turn(self) -> threading.Lock:
        """What calls take turns by; an inherited one may be held for ever by a thread that is not in this process."""
        if self._pid != os.getpid():
            raise self._closed_error()
        return self._lock

    def _require_box(self) -> None:
        if self._closed or self._session.closed:
            raise self._closed_error()
        self._box.attend()
        if self._box.evidence is not None:
            ended = self._ended or "its box has ended"
            raise SessionClosed(f"using a kernel that has died: {ended}", hint="Make a new one")

    def _closed_error(self) -> SessionClosed:
        if self._pid != os.getpid():
            return SessionClosed("using a kernel of another process", hint="Make one in this process")
        which = "that" if self._closed else "whose Sandbox"
        return SessionClosed(f"using a kernel {which} is closed", hint="Make a new one")

    def close(self) -> None:
        """End the kernel, and its box if no other kernel is in it. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():  # an inherited copy: the sockets are the parent's to shut down
            self._branch.close()
            self._box.close()
            return
        self._branch.hang_up()
        with self._lock:  # whoever runs a cell has been woken by now
            self._branch.close()
            self._box.leave(id(self))

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._closed = True
            self._branch.close()
            self._box.leave(id(self))


def _how(exit_code: int, status: int | None) -> str:
    if status is not None and os.WIFSIGNALED(status):
        return f"its process was ended by signal {os.WTERMSIG(status)}"
    return f"its process ended with exit status {exit_code}"


def start_kernel(
    session: Session, timeout_s: float | None, env: Mapping[str, str] | None, owner: object = None
) -> Kernel:
    """Start a kernel for ``Sandbox.kernel``, which see.

    Raises:
        SandboxError: as ``Sandbox.kernel``.
    """
    limit = session.spec.timeout_s if timeout_s is None else checks.check_timeout(timeout_s)
    box = session.hold(How(env=env))
    try:
        branch = _first_branch(session, box)
    except BaseException:  # whatever happened, the box must not outlive it
        box.close()
        raise
    box.settle()
    return Kernel(session, branch, timeout_s=limit, owner=owner)


def _first_branch(session: Session, box: HeldBox) -> Branch:
    branch = Branch(box)
    try:
        branch.start()
    except SandboxError:
        branch.close()
        if session.closed:
            raise SessionClosed("starting a kernel: its Sandbox was closed meanwhile") from None
        if box.wait_for_end(GRACE_S):
            box.raise_not_started(session.facts(session.plan.python, session.spec.timeout_s))
        raise
    except BaseException:  # whatever happened, its descriptors must not outlive it
        branch.close()
        raise
    return branch
