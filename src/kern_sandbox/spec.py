"""The options of a Sandbox, checked when given: a ``BoxSpec`` that exists is valid."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable

from .errors import SpecError

__all__ = [
    "LANGUAGES",
    "BoxSpec",
    "bad",
    "check_argv",
    "check_callback",
    "check_code",
    "check_cwd",
    "check_env",
    "check_stdin",
    "check_timeout",
    "size_of",
]

LANGUAGES = ("python", "bash", "sh", "node")
_MAX_TIMEOUT_S = 7 * 24 * 3600.0
_MAX_MEMORY_MB = 16 << 20
_MAX_ENV_BYTES = 1 << 20
_MAX_CODE = 4_000_000
_MAX_STRING = 128 << 10  # MAX_ARG_STRLEN, linux/binfmts.h
_USE_A_FILE = "Write a file to the workspace instead"
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TMPFS_PLACES = re.compile(r"/(tmp|mnt|scratch|var/tmp|data)(/[A-Za-z0-9._-]+)*\Z")


def bad(option: str, value: object, accepted: str) -> SpecError:
    """The error for an option whose value is not accepted."""
    return SpecError(f"{option}={_short(value)} is not accepted: {accepted}")


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # a caller's __repr__ may raise anything, and the message must still come
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


def _whole(option: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad(option, value, f"a whole number from {low} to {high}")
    return value


def _number(option: str, value: object, low: float, high: float) -> float:
    """A finite number above ``low`` and at most ``high``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise bad(option, value, f"a finite number above {low:g} and at most {high:g}")
    if not low < value <= high:
        raise bad(option, value, f"a finite number above {low:g} and at most {high:g}")
    return float(value)


def _flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise bad(option, value, "True or False")
    return value


def _encodes(text: str) -> bool:
    """Whether ``text`` can be a C string of the box: no NUL, no surrogate but those that stand for single bytes."""
    try:
        return "\0" not in text and bool(text.encode("utf-8", "surrogateescape") or True)
    except UnicodeEncodeError:
        return False


def check_timeout(value: object, option: str = "timeout_s") -> float:
    """Seconds of wall clock for one call: finite, above 0, at most seven days."""
    return _number(option, value, 0.0, _MAX_TIMEOUT_S)


def check_code(code: object, language: object) -> str:
    """The snippet as text, for a language that is known."""
    if language not in LANGUAGES:
        raise bad("language", language, "one of " + ", ".join(LANGUAGES))
    if not isinstance(code, str):
        raise bad("code", code, "a str")
    if len(code) > _MAX_CODE:
        raise SpecError(f"code has {len(code)} characters: at most {_MAX_CODE} are taken. {_USE_A_FILE}")
    return code


def check_argv(argv: object) -> list[str]:
    """A program and its arguments: a non-empty list of str without NUL; never one shell string."""
    if isinstance(argv, (str, bytes)) or not isinstance(argv, (list, tuple)) or not argv:
        raise bad("argv", argv, 'a non-empty list of str, e.g. ["ls", "-l"]; for a shell line use ["sh", "-c", line]')
    for item in argv:
        if not isinstance(item, str) or not _encodes(item):
            raise bad("argv", argv, "its items are str without NUL and lone surrogates")
        if len(os.fsencode(item)) >= _MAX_STRING:
            raise SpecError(f"argv has an item of {len(item)} characters: Linux takes less than 128 KiB. {_USE_A_FILE}")
    if not argv[0]:
        raise bad("argv", argv, "the program's name is not empty")
    return list(argv)


def check_env(env: object, option: str = "env") -> dict[str, str]:
    """Variables for the code: str names without ``=`` or NUL, str values without NUL, 1 MiB in all."""
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise bad(option, env, "a mapping of str to str")
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise SpecError(f"{option} has the name {_short(name)}: a name is a non-empty str without '=' and NUL")
        if not isinstance(value, str) or not _encodes(name + value):
            accepted = "a value is a str without NUL and lone surrogates"
            raise SpecError(f"{option}[{_short(name)}] is not accepted: {accepted}")
        if len(os.fsencode(name + value)) + 1 >= _MAX_STRING:
            raise SpecError(f"{option}[{_short(name)}] is too long: Linux takes less than 128 KiB. {_USE_A_FILE}")
    if sum(len(name) + len(value) for name, value in env.items()) > _MAX_ENV_BYTES:
        raise SpecError(f"{option} holds more than {_MAX_ENV_BYTES} characters. {_USE_A_FILE}")
    return dict(env)


def check_stdin(stdin: object) -> bytes | None:
    """What the code reads from standard input: ``None`` (empty), str (UTF-8) or bytes."""
    if stdin is None:
        return None
    if isinstance(stdin, str):
        if not _encodes(stdin.replace("\0", "")):
            raise bad("stdin", stdin, "a str without lone surrogates, or bytes")
        return stdin.encode("utf-8", "surrogateescape")
    if isinstance(stdin, (bytes, bytearray, memoryview)):
        return bytes(stdin)
    raise bad("stdin", stdin, "None, str or bytes")


def check_callback(option: str, callback: Callable[[str], object] | None) -> Callable[[str], object] | None:
    """A function that takes text, or ``None``."""
    if callback is not None and not callable(callback):
        raise bad(option, callback, "None or a function that takes a str")
    return callback


def check_cwd(cwd: str | None) -> str | None:
    """An absolute directory as the box shows it, or ``None``."""
    if cwd is not None and (not isinstance(cwd, str) or not cwd.startswith("/") or "\0" in cwd):
        raise bad("cwd", cwd, "None or an absolute path as the box shows it, e.g. /workspace/src")
    return cwd


def size_of(option: str, text: object) -> int:
    """Bytes from a size with a unit: ``"512m"``, ``"64k"``, ``"1g"``.

    Raises:
        SpecError: no unit, not a whole number, or not above zero.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,9})([kmg])", text.lower()) if isinstance(text, str) else None
    if match is None:
        raise bad(option, text, 'a whole number with a unit k, m or g, e.g. "512m"')
    return int(match[1]) * _UNITS[match[2]]


def _tmpfs(value: object, memory_mb: int | None) -> Mapping[str, int] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise bad("tmpfs", value, 'None, {} or a mapping such as {"/tmp": "512m"}')
    sizes = {}
    for path, text in value.items():
        if not isinstance(path, str) or not _TMPFS_PLACES.match(path) or ".." in path:
            raise SpecError(
                f"tmpfs has the path {_short(path)}: accepted are /tmp, /mnt, /scratch, /var/tmp, /data or below"
            )
        size = size_of(f"tmpfs[{path!r}]", text)
        if memory_mb is not None and size > memory_mb << 20:
            raise SpecError(
                f"tmpfs[{path!r}]={text!r} is more than memory_mb={memory_mb}: it is memory and is charged to the box"
            )
        sizes[path] = size
    return sizes


def _mounts(value: object) -> Mapping[str, object]:
    """Only the form; which sources and targets are allowed is a matter of the host's files (``_box.mountrules``)."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise bad("mounts", value, 'None or a mapping such as {"/srv/data": "/data"}')
    return dict(value)


def _cap_drop(value: object) -> tuple[str, ...]:
    if isinstance(value, (tuple, list)) and tuple(value) in ((), ("ALL",)):
        return tuple(value)
    raise bad("cap_drop", value, '("ALL",) or (), which keeps capabilities over the box\'s own namespaces')


def _root(value: object) -> str:
    if value not in ("read-only", "scratch"):
        raise bad("root", value, '"read-only", or "scratch": writable, in memory, gone with the box')
    return str(value)


def _apparmor(value: object) -> str | None:
    if value is None or (isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_./:@+-]{1,200}", value)):
        return value
    raise bad("apparmor", value, "None or the name of a loaded AppArmor profile")


def _profile(given: Mapping[str, Any], mounts: Mapping[str, object]) -> str | None:
    """``"untrusted"`` turns every tightening on, so an option that loosens one contradicts it."""
    if given["security_profile"] is None:
        return None
    if given["security_profile"] != "untrusted":
        raise bad("security_profile", given["security_profile"], 'None or "untrusted"')
    loosened = {
        "network": given["network"] is not False,
        "cap_drop": tuple(given["cap_drop"] or ()) != ("ALL",),
        "root": given["root"] != "read-only",
        "mounts": any(isinstance(value, tuple) and value[-1:] == ("rw",) for value in mounts.values()),
    }
    for option, loose in loosened.items():
        if loose:
            words = f'{option}={given[option]!r} contradicts security_profile="untrusted"'
            raise SpecError(f"{words}. Leave one of them out")
    return "untrusted"


@dataclass(frozen=True)
class BoxSpec:
    """Validated options. Build it with ``BoxSpec.of``, which checks and converts.

    Attributes:
        tmpfs: mount point to bytes, or ``None`` for the default.
        env: variables for the code.
    """

    memory_mb: int | None = 512
    cpus: float | None = None
    pids: int = 256
    timeout_s: float = 30.0
    network: bool = False
    tmpfs: Mapping[str, int] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    max_output_bytes: int = 64 << 20
    require_limits: bool = False
    track_files: bool = True
    mounts: Mapping[str, object] = field(default_factory=dict)
    security_profile: str | None = None
    apparmor: str | None = None
    cap_drop: tuple[str, ...] = ("ALL",)
    user: int = 0
    root: str = "read-only"

    @property
    def processors(self) -> int:
        """How many processors the code sees: the CPU limit rounded up, at most those of the host."""
        host = os.cpu_count() or 1
        return host if self.cpus is None else min(host, math.ceil(self.cpus))

    @property
    def threads(self) -> int:
        """How many threads numeric libraries should start: one a processor, at most 16."""
        return min(16, self.processors)

    @classmethod
    def of(cls, **options: Any) -> BoxSpec:
        """Check every option.

        Raises:
            SpecError: naming the option, the value and what is accepted.
        """
        known = cls.__dataclass_fields__
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise SpecError(f"unknown option {unknown[0]}: accepted are {', '.join(known)}")
        given = {name: options.get(name, spec.default) for name, spec in known.items()}
        profile = _profile(given, _mounts(options.get("mounts")))
        if given["user"] and tuple(given["cap_drop"] or ()) == ():
            raise SpecError("cap_drop=() keeps capabilities for uid 0 only: leave out user, or cap_drop")
        memory = None if given["memory_mb"] is None else _whole("memory_mb", given["memory_mb"], 16, _MAX_MEMORY_MB)
        return cls(
            memory_mb=memory,
            cpus=None if given["cpus"] is None else _number("cpus", given["cpus"], 0.0, 4096.0),
            pids=_whole("pids", given["pids"], 1, 1 << 22),
            timeout_s=check_timeout(given["timeout_s"]),
            network=_flag("network", given["network"]),
            tmpfs=_tmpfs(given["tmpfs"], memory),
            env=check_env(options.get("env")),
            max_output_bytes=_whole("max_output_bytes", given["max_output_bytes"], 1, 1 << 31),
            require_limits=_flag("require_limits", given["require_limits"]) or profile is not None,
            track_files=_flag("track_files", given["track_files"]),
            mounts=_mounts(options.get("mounts")),
            security_profile=profile,
            apparmor=_apparmor(given["apparmor"]),
            cap_drop=_cap_drop(given["cap_drop"]),
            user=_whole("user", 0 if given["user"] is None else given["user"], 0, (1 << 32) - 2),
            root=_root(given["root"]),
        )
