"""What the tools are called, take and give, in words that name the actual limits and interpreters of a Sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..checks import LANGUAGES
from ..render import neutralise

if TYPE_CHECKING:
    from ..session import Session
    from ..spec_network import Entry

__all__ = ["Definition", "file_definitions", "reset_definition", "run_definition"]

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_PATH = {"type": "string", "minLength": 1, "description": "Relative to the workspace, e.g. data/in.csv."}
_STATE_NONE = "Each call starts anew: no variable, process or /tmp is left from the last one."
_STATE_KEPT = "Python keeps its variables and imports between calls; other languages start anew each time."


@dataclass(frozen=True)
class Definition:
    """One tool as a model is told of it.

    Attributes:
        name: what it is called by.
        title: the same for a person.
        description: what it does; at most 1000 characters.
        input_schema: JSON schema of its arguments, an object.
        output_schema: JSON schema of ``Answer.data``.
        read_only: it changes nothing.
    """

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    read_only: bool = False


def _schema(properties: Mapping[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _all(**properties: Any) -> dict[str, Any]:
    return _schema(properties, tuple(properties))


_FAULT = _all(type=_TEXT, message=_TEXT, detail=_TEXT)
_RESULT = _all(
    success={"type": "boolean"},
    exit_code={"type": "integer"},
    fault={"anyOf": [_FAULT, {"type": "null"}]},
    stdout=_TEXT,
    stderr=_TEXT,
    truncated={"type": "boolean", "description": "Output is missing: there was more than is kept."},
    values={"type": "array", "items": _TEXT, "description": "Values that the code showed, as text."},
    files={"type": "array", "items": _all(path=_TEXT, size=_COUNT, change=_TEXT)},
    notes={"type": "array", "items": _TEXT, "description": "The sandbox's own remarks."},
    duration_ms=_COUNT,
)


def run_definition(session: Session, languages: Mapping[str, str], *, kernel: bool) -> Definition:
    """The tool that runs code.

    Args:
        session: whose limits the words name.
        languages: those that a box has, at least one, with their versions; ``""`` where it is not known.
        kernel: Python keeps its state between calls.
    """
    limit = session.spec.timeout_s
    names = [name for name in LANGUAGES if name in languages]
    language = {"type": "string", "enum": names, "default": names[0], "description": "What the code is written in."}
    timeout = {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": limit,
        "description": f"Seconds until the code is stopped; {limit:g} unless given.",
    }
    code = {"type": "string", "description": "The program, whole."}
    return Definition(
        "run_code",
        "Run code",
        _describe(session, languages, kernel=kernel)[:1000],
        _schema({"code": code, "language": language, "timeout_s": timeout}, ("code",)),
        _RESULT,
    )


def _describe(session: Session, languages: Mapping[str, str], *, kernel: bool) -> str:
    state = _STATE_KEPT if kernel else _STATE_NONE
    spoken = ", ".join(f"{name} {version}".strip() for name, version in languages.items())
    return (
        f"Run code in an isolated box, on {_userland(session)}, and get what it printed. "
        f"Languages: {spoken}. "
        f"{state} Files in /workspace, the working directory, are kept. "
        "The value of Python's last expression and matplotlib figures come back too. "
        f"Limits: {_limits(session)}. {_network(session)}"
    )


def _userland(session: Session) -> str:
    image = session.spec.image
    return "the host's own operating system, read-only" if image is None else f"the image {neutralise(image)[:200]}"


def _limits(session: Session) -> str:
    spec = session.spec
    parts = [] if spec.memory_mb is None else [f"{spec.memory_mb} MiB of memory"]
    parts += [f"{spec.pids} processes"]
    parts += [] if spec.cpus is None else [f"{spec.cpus:g} processors"]
    return ", ".join([*parts, f"{spec.timeout_s:g} s a call"])


def _network(session: Session) -> str:
    spec = session.spec
    installed = f" Already set up: {neutralise(spec.setup)[:200]}." if spec.setup else ""
    if spec.network:
        return f"It shares this machine's network.{installed}"
    if spec.egress_allow:
        names = [_host(entry) for entry in spec.egress_allow]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        return f"Network: only {', '.join(names[:8])}{more}.{installed}"
    return f"No network, so nothing can be installed or downloaded.{installed}"


def _host(entry: Entry) -> str:
    name = f"*.{entry.host}" if entry.kind == "below" else entry.host
    ports = "" if entry.ports == (80, 443) else f" (port {', '.join(map(str, entry.ports))})"
    return f"{neutralise(name)}{ports}"


def reset_definition() -> Definition:
    """The tool that ends the interpreter whose state is kept."""
    words = "End the Python interpreter: its variables and imports are gone, the files in /workspace stay."
    return Definition("reset", "Restart Python", words, _schema({}, ()), _all(reset={"type": "boolean"}))


def file_definitions() -> list[Definition]:
    """The tools on the workspace."""
    content = {"type": "string", "description": "The whole file, as text."}
    subdir = {"type": "string", "default": "", "description": "Only what is below this directory."}
    return [
        Definition(
            "write_file",
            "Write a file",
            "Write a text file in /workspace, replacing what was there; directories are made. Code sees it at once.",
            _schema({"path": _PATH, "content": content}, ("path", "content")),
            _all(path=_TEXT, size=_COUNT),
        ),
        Definition(
            "read_file",
            "Read a file",
            "Read a file of /workspace: text, or a PNG or JPEG image. Of a long text, the middle is left out.",
            _schema({"path": _PATH}, ("path",)),
            _all(path=_TEXT, size=_COUNT, text={"anyOf": [_TEXT, {"type": "null"}]}, truncated={"type": "boolean"}),
            read_only=True,
        ),
        Definition(
            "list_files",
            "List files",
            "List the files of /workspace, one a line.",
            _schema({"subdir": subdir}, ()),
            _all(files={"type": "array", "items": _TEXT}, total=_COUNT),
            read_only=True,
        ),
    ]
