"""Python that keeps its state from one call of a tool to the next."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Literal

from ..errors import SessionClosed
from ..session import Stop

if TYPE_CHECKING:
    from ..kernel import Kernel
    from ..results import ExecutionResult

__all__ = ["Cancel", "Cells", "Interpreter"]

_GRACE_S = 1.0
_GONE = "this is a new interpreter: the last one has ended, and its variables are gone"


class Cancel(Stop):
    """Ends one call of a tool from another thread, whatever it runs in."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._actions: list[Callable[[], object]] = []

    def also(self, action: Callable[[], object]) -> None:
        """``action`` is called too, at once if the call has been ended already; it may be called twice."""
        with self._guard:
            self._actions.append(action)
        if self.wanted:
            action()

    def now(self, why: Literal["killed", "disk_full"] = "killed") -> None:
        """End it."""
        super().now(why)
        with self._guard:
            actions = list(self._actions)
        for action in actions:
            action()


class Cells:
    """The cells of one kernel, one after the other, each of which can be ended.

    Args:
        kernel: it stays its owner's to close.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._turn = threading.Lock()

    def run(self, code: str, how: Mapping[str, Any], cancel: Cancel | None) -> ExecutionResult:
        """Run one. Ending it interrupts it, and if that does not help, ends the kernel with it.

        Args:
            code: it.
            how: further arguments of ``Kernel.run_code``.
            cancel: ends it from another thread.

        Raises:
            SandboxError: as ``Kernel.run_code``; ``SessionClosed`` where it was ended before its turn came.
        """
        with self._turn:
            if cancel is not None and cancel.wanted:
                raise SessionClosed("running a cell that was cancelled before its turn came")
            stop = _CellStop(self.kernel)
            if cancel is not None:
                cancel.also(stop.now)
            try:
                return self.kernel.run_code(code, **how)
            finally:
                stop.over()


class _CellStop:
    """Ends a cell that is running."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._lock = threading.Lock()
        self._over = False
        self._timer: threading.Timer | None = None

    def now(self) -> None:
        """End it, unless it is over."""
        with self._lock:
            if self._over or self._timer is not None:
                return
            self._kernel.interrupt()
            self._timer = threading.Timer(_GRACE_S, self._kernel.close)
            self._timer.daemon = True
            self._timer.start()

    def over(self) -> None:
        """The cell has ended."""
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()


class Interpreter:
    """One kernel at a time; where it has died, the next cell gets a new one and is told so.

    Args:
        start: makes a kernel.
    """

    def __init__(self, start: Callable[[], Kernel]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._cells: Cells | None = None

    def run(self, code: str, how: Mapping[str, Any], cancel: Cancel | None) -> ExecutionResult:
        """Run one cell, as `Cells.run`.

        Raises:
            SandboxError: as `Cells.run`, or as making a kernel.
        """
        cells, replaced = self._living()
        result = cells.run(code, how, cancel)
        if not replaced:
            return result
        gap = "\n" if result.stderr and not result.stderr.endswith("\n") else ""
        stderr = f"{result.stderr}{gap}kern: note: {_GONE}\n"
        return replace(result, stderr=stderr, runtime_notes=[*result.runtime_notes, _GONE])

    def _living(self) -> tuple[Cells, bool]:
        """The cells of a kernel that is alive as far as is known, and whether it stands for one that has died."""
        with self._lock:
            before = self._cells
            if before is not None and before.kernel.alive:
                return before, False
            if before is not None:
                before.kernel.close()
            self._cells = Cells(self._start())
            return self._cells, before is not None

    def reset(self) -> None:
        """End the kernel; the next cell starts another."""
        with self._lock:
            cells, self._cells = self._cells, None
        if cells is not None:
            cells.kernel.close()
