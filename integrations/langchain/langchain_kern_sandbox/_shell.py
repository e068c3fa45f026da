"""A shell in a box, in the shape of the ``subprocess.Popen`` that LangChain's shell session works with.

The session writes a command and then a line that prints a marker. Here the two are taken apart: the command is handed
to the shell so that it cannot swallow the marker, and the marker's line is written for the session when the command has
ended, however it has ended. Where the shell itself is gone, the next command gets a new one in the same workspace, and
its reader is told what was lost.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import subprocess
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kern_sandbox import SandboxError, neutralise

from ._streams import End, Mark, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kern_sandbox import Process, Sandbox

__all__ = ["LOST", "BoxShell", "Limits"]

_MARKER = re.compile(r"printf '(__LC_SHELL_DONE__[0-9a-f]{32}) %s\\n' \$\?\n\Z")
_SHELLS = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
LOST = "its variables, working directory and background processes are gone; the files in the workspace are kept"
STOPPED = 124
_UNSTARTED = 125
_SETTLE_S = 2.0


@dataclass(frozen=True)
class Limits:
    """What the policy says of a session.

    Attributes:
        command_s: seconds of one command.
        session_s: seconds that one shell lives.
        lines: of one command's output that the session keeps.
        size: bytes of it, or ``None``.
    """

    command_s: float
    session_s: float
    lines: int
    size: int | None

    @property
    def stop_s(self) -> float:
        """When a command is stopped: a little before the session gives it up, and its output with it."""
        return self.command_s - min(1.0, self.command_s / 4)


class _Living:
    """One shell that runs."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.out, self.err = Stream(process.stdout), Stream(process.stderr)


class _Pending:
    """The command that runs."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.timed_out = False
        self.lines = self.size = 0


class BoxShell:
    """What ``ShellSession`` uses of a ``Popen``: the three pipes, ``pid``, ``poll``, ``wait`` and ``kill``.

    ``pid`` is that of a small process in a group of its own: the box does not outlive it.

    Args:
        sandbox: closed with this.
        argv: the shell.
        env: its variables, handed over in memory: no table of processes shows them.
        limits: as the policy says.
        note: what the first command's reader is told, or ``""``.
        interrupted: called if this is ended while a command runs.

    Raises:
        SandboxError: no box could be made.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        argv: Sequence[str],
        env: Mapping[str, str],
        limits: Limits,
        *,
        note: str = "",
        interrupted: Callable[[], object] = lambda: None,
    ) -> None:
        self._sandbox, self._argv, self._env, self._limits = sandbox, list(argv), dict(env), limits
        self._interrupted = interrupted
        self._change = threading.Condition(threading.RLock())
        self._notes = [note] if note else []
        self._ready: deque[str] = deque()
        self._pending: _Pending | None = None
        self._timer: threading.Timer | None = None
        self._over = threading.Event()
        self._closing = False
        self.returncode: int | None = None
        self._living: _Living | None = self._start()
        self._launcher = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
        self.pid = self._launcher.pid
        threading.Thread(target=self._outlive, name="kern-shell", daemon=True).start()
        self.stdin, self.stdout, self.stderr = _Input(self), _Reader(self._line), _Reader(self._error_line)

    # What the session calls

    def poll(self) -> int | None:
        """The status once this has been ended, else ``None``."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until this has been ended.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """
        if not self._over.wait(timeout):
            raise subprocess.TimeoutExpired(self._argv, timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """End the box, and all that runs in it."""
        self.end(-signal.SIGKILL)

    def send(self, text: str) -> None:
        """Take what the session has written up to a flush: a command with its marker, or ``exit`` when it stops."""
        asked = _MARKER.search(text)
        if asked is not None:
            self._command(text[: asked.start()], asked[1])
        elif text == "exit\n":
            self.end(0)
        elif self._living is not None:
            self._write(self._living, text)

    def end(self, status: int) -> None:
        """End everything; once is enough."""
        with self._change:
            if self._closing:
                return
            self._closing = True
            living, self._living = self._living, None
            if self._pending is not None:
                self._interrupted()
            self._stop_timer()
            self._change.notify_all()
        if living is not None:
            living.process.close()
        self._sandbox.close()
        self.returncode = status
        self._launcher.kill()
        self._launcher.wait()
        assert self._launcher.stdin is not None
        self._launcher.stdin.close()
        self._over.set()

    # A command

    def _start(self) -> _Living:
        made = _Living(self._sandbox.spawn(self._argv, env=self._env, timeout_s=self._limits.session_s))
        if self._posix:
            self._write(made, "exec 8>&2 9>&1\n")
        return made

    @property
    def _posix(self) -> bool:
        shell, options = PurePosixPath(self._argv[0]).name, self._argv[1:]
        return shell in _SHELLS and all(each.startswith("-") and each != "-c" for each in options)

    def _command(self, command: str, marker: str) -> None:
        with self._change:
            if self._closing:
                raise BrokenPipeError("the shell has been ended")
            self._pending = _Pending(marker)
            living = self._shell()
            if living is None:
                return
            mark = Mark()
            living.out.expect(mark)
            living.err.expect(mark)
            self._timer = threading.Timer(self._limits.stop_s, self._time_out, [self._pending])
            self._timer.daemon = True
            self._timer.start()
        self._write(living, self._wrapped(command.rstrip("\n"), mark.word))

    def _wrapped(self, command: str, word: str) -> str:
        """The command as the shell gets it, so that its end is told whatever it reads, prints or leaves open."""
        if self._posix:
            return (
                f"eval {shlex.quote(command)} </dev/null 8>&- 9>&-\n"
                f"printf '%s %s\\n' {word} $? >&9; printf '%s\\n' {word} >&8\n"
            )
        return f"{command}\nprintf '%s %s\\n' {word} $?; printf '%s\\n' {word} >&2\n"

    def _shell(self) -> _Living | None:
        """The shell for a command, started anew if need be; where that fails, the command has its answer."""
        if self._living is not None:
            if self._living.process.poll() is None:
                return self._living
            self._bury(self._living, None)
        try:
            self._living = self._start()
        except SandboxError as error:
            self._answer(_UNSTARTED, f"[sandbox: error] {neutralise(str(error))}")
            return None
        finally:
            self._change.notify_all()
        return self._living

    @staticmethod
    def _write(living: _Living, text: str) -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):  # its reader sees the end, and says so
            living.process.stdin.write(text.encode("utf-8", "replace").replace(b"\0", b""))

    def _time_out(self, pending: _Pending) -> None:
        with self._change:
            if self._pending is not pending or self._living is None:
                return
            pending.timed_out = True
            self._living.process.kill()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Its output

    def _line(self) -> str:
        """The next line of standard output; ``""`` when this has been ended."""
        while True:
            with self._change:
                if self._ready:
                    return self._ready.popleft()
                self._change.wait_for(lambda: self._ready or self._living or self._closing)
                living = self._living
                if living is None and not self._ready:
                    return ""
            if living is not None:
                line = self._from(living)
                if line:
                    return line

    def _from(self, living: _Living) -> str:
        found = living.out.next()
        if isinstance(found, str):
            return self._counted(found)
        living.err.settled.wait(_SETTLE_S)  # what it has said on the other stream comes first
        with self._change:
            stopped = self._pending is not None and self._pending.timed_out  # the shell may outlive what it ran
            if isinstance(found, End) and not stopped:
                self._answer(found.status or 0)
            elif self._living is living:
                self._answer(self._bury(living, self._pending))
        return ""

    def _counted(self, line: str) -> str:
        with self._change:
            if self._pending is None:
                return line
            self._pending.lines += 1
            self._pending.size += len(line.encode("utf-8", "replace"))
            before = "".join(f"{note}\n" for note in self._notes) if self._pending.lines == 1 else ""
            if before:
                self._notes.clear()
            return before + line

    def _error_line(self) -> str:
        """The next line of standard error; ``""`` when this has been ended."""
        while True:
            with self._change:
                self._change.wait_for(lambda: self._living or self._closing)
                living = self._living
            if living is None:
                return ""
            found = living.err.next()
            if isinstance(found, str):
                return self._counted_error(found)
            if found is None:
                self._wait_for_another(living)

    def _counted_error(self, line: str) -> str:
        with self._change:
            if self._pending is not None:
                self._pending.lines += 1
        return line

    def _wait_for_another(self, living: _Living) -> None:
        with self._change:
            self._change.wait_for(lambda: self._closing or self._living is not living)

    def _bury(self, living: _Living, pending: _Pending | None) -> int:
        """The shell is gone: note how, and that the next one knows nothing of it. The status of what it was doing."""
        self._living = None
        label, (status, how) = "new shell", _how_it_ended(living.process)
        living.process.close()
        if pending is not None and pending.timed_out:
            label, status = "timeout", STOPPED
            how = f"the command was stopped at the limit of {self._limits.command_s:g} s"
        self._notes.append(f"[sandbox: {label}] {how}. The next command gets a new shell: {LOST}.")
        return status

    def _answer(self, status: int, note: str = "") -> None:
        """Write the marker that the session waits for, after what its reader has to know."""
        self._stop_timer()
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if note:
            self._notes.append(note)
        full = pending.lines >= self._limits.lines or pending.size >= (self._limits.size or float("inf"))
        if not full:  # else the session would drop it: the next command's reader gets it
            self._ready.extend(f"{note}\n" for note in self._notes)
            self._notes.clear()
        self._ready.append(f"{pending.marker} {status}\n")
        self._change.notify_all()

    def _outlive(self) -> None:
        """When the launcher is gone, whoever ended it, so is the box."""
        self._launcher.wait()
        self.end(-signal.SIGKILL)


def _how_it_ended(process: Process) -> tuple[int, str]:
    """Its status, and the same in words."""
    try:
        result = process.wait(_SETTLE_S)
    except TimeoutError:
        return _UNSTARTED, "the shell closed its output"
    except SandboxError as error:
        return _UNSTARTED, f"the shell was lost: {neutralise(str(error))}"
    fault = f" ({result.fault.type}: {neutralise(result.fault.message)})" if result.fault else ""
    return result.exit_code, f"the shell ended with status {result.exit_code}{fault}"


class _Reader:
    """A stream as the session reads it."""

    def __init__(self, readline: Callable[[], str]) -> None:
        self.readline = readline


class _Input:
    """Standard input as the session writes it."""

    def __init__(self, shell: BoxShell) -> None:
        self._shell = shell
        self._text = ""

    def write(self, text: str) -> int:
        """Keep it until the flush."""
        self._text += text
        return len(text)

    def flush(self) -> None:
        """Hand it over."""
        text, self._text = self._text, ""
        if text:
            self._shell.send(text)

    def close(self) -> None:
        """Nothing more is written; the box ends by ``exit`` or ``kill``."""
