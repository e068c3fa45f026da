"""What a call gives back: frozen values, strict JSON by ``to_dict()``."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["EgressEvent", "ExecutionResult", "FaultType", "FileInfo", "Result", "SandboxFault", "Usage"]

FaultType = Literal["timeout", "oom", "killed", "disk_full", "escape_blocked", "exec_failed", "startup_failed"]
"""The closed set of verdicts; contract §6 says when each is given and how it is known."""


@dataclass(frozen=True)
class SandboxFault:
    """The sandbox acted. ``None`` on a result means that the code ran and ended by itself.

    Attributes:
        type: which verdict.
        message: one sentence for a person or a model.
        detail: the one datum of the verdict (a limit, a system call's name, a binary), or ``""``.
    """

    type: FaultType
    message: str
    detail: str = ""


@dataclass(frozen=True)
class FileInfo:
    """A workspace file that differs from before the call.

    Attributes:
        path: relative to the workspace; bytes that are not UTF-8 appear as surrogate escapes.
        size: in bytes; 0 for a deleted file.
        change: what happened to it.
    """

    path: str
    size: int
    change: Literal["created", "modified", "deleted"] = "created"


@dataclass(frozen=True)
class Usage:
    """What the box consumed; ``None`` where this host does not measure it.

    Attributes:
        cpu_ms: user and system time of every process in the box, milliseconds.
        max_memory_bytes: peak of the box's memory cgroup.
        max_pids: peak number of processes and threads.
    """

    cpu_ms: int | None = None
    max_memory_bytes: int | None = None
    max_pids: int | None = None


@dataclass(frozen=True)
class EgressEvent:
    """Connections out of a box, or attempts at one, that were alike.

    Attributes:
        host: what was asked for, in lower case and A-labels; ``""`` where a request named nothing that can be read.
        port: of the host.
        verdict: what the policy said. An allowed host that could not be reached is ``"allowed"`` with a reason.
        reason: why it was refused or came to nothing, or ``""``.
        connections: how many.
        bytes_up: sent to the host.
        bytes_down: received from it.
    """

    host: str
    port: int
    verdict: Literal["allowed", "refused"]
    reason: str = ""
    connections: int = 1
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(frozen=True)
class Result:
    """One rich value, as a notebook cell would show it.

    Attributes:
        data: MIME type to value: ``bytes`` for ``image/png`` and ``image/jpeg``, plain JSON for
            ``application/json``, ``str`` for everything else.
    """

    data: Mapping[str, Any]

    def _text_of(self, mime: str) -> str | None:
        value = self.data.get(mime)
        return value if isinstance(value, str) else None

    def _bytes_of(self, mime: str) -> bytes | None:
        value = self.data.get(mime)
        return value if isinstance(value, bytes) else None

    @property
    def text(self) -> str | None:
        """The plain text form."""
        return self._text_of("text/plain")

    @property
    def html(self) -> str | None:
        """The HTML form; written by untrusted code."""
        return self._text_of("text/html")

    @property
    def markdown(self) -> str | None:
        """The Markdown form; written by untrusted code."""
        return self._text_of("text/markdown")

    @property
    def svg(self) -> str | None:
        """The SVG form; written by untrusted code."""
        return self._text_of("image/svg+xml")

    @property
    def json(self) -> Any:
        """The JSON form, or ``None``."""
        return self.data.get("application/json")

    @property
    def png(self) -> bytes | None:
        """The PNG image's bytes."""
        return self._bytes_of("image/png")

    @property
    def jpeg(self) -> bytes | None:
        """The JPEG image's bytes."""
        return self._bytes_of("image/jpeg")


@dataclass(frozen=True)
class ExecutionResult:
    """What happened in one box.

    Attributes:
        stdout: what the code wrote to its standard output, UTF-8 with U+FFFD for bytes that are not.
        stderr: the same for standard error, followed by the engine's own ``note:`` lines.
        exit_code: the program's exit status; 128 + n if signal n ended it; 124 after a timeout.
        duration_ms: wall-clock time of the call, milliseconds.
        fault: set only when the sandbox acted.
        files: workspace files created, modified or deleted during this call.
        results: rich values in the order in which they were shown.
        truncated: output beyond ``max_output_bytes`` was read and dropped.
        stdout_bytes: ``stdout`` as written, raw.
        stderr_bytes: the code's standard error as written, raw, without the engine's lines.
        runtime_notes: the engine's own lines, one each.
        usage: what the box consumed.
        egress: what the box asked the network for, with ``egress_allow``, as it asked; at most 100 that differ.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    duration_ms: int = 0
    fault: SandboxFault | None = None
    files: Sequence[FileInfo] = field(default_factory=list)
    results: Sequence[Result] = field(default_factory=list)
    truncated: bool = False
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)
    runtime_notes: Sequence[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    egress: Sequence[EgressEvent] = field(default_factory=list)

    @property
    def success(self) -> bool:
        """The code ended with exit status 0 and the sandbox did not act."""
        return self.exit_code == 0 and self.fault is None

    @property
    def code_stderr(self) -> str:
        """``stderr`` without the engine's own lines."""
        return self.stderr_bytes.decode("utf-8", "replace")

    def __bool__(self) -> bool:
        return self.success

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data that any strict JSON encoder accepts.

        Images become base64 text under their MIME type, raw bytes are left out, and a float that JSON has no
        form for becomes its ``str``.
        """
        plain = asdict(self)
        del plain["stdout_bytes"], plain["stderr_bytes"]
        plain.update(success=self.success, code_stderr=self.code_stderr)
        cleaned = _strict(plain)
        assert isinstance(cleaned, dict)
        return cleaned


def _strict(value: Any) -> Any:
    """``value`` with everything that strict UTF-8 JSON refuses replaced by text."""
    if isinstance(value, dict):
        return {_strict(str(key)): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value
