"""Resource profiles: slices of a machine that are described once, in ``kern.toml``, and given to boxes by name.

The file is that of the ``kern`` program, which other programs read too: sections that are not profiles are left
alone. A profile that says more than a box can be held to is refused when it is used, never applied in part.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from .checks import bad, number, short, whole
from .errors import HostError, SpecError
from .spec import Unsaid

__all__ = ["Profile", "config_path", "listing", "with_profiles"]

_KINDS = ("vcpu", "vdisk", "vgpio")
_MAX_BYTES = 1 << 20
_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_SIZE = re.compile(r"([1-9][0-9]{0,9}) ?([kmg])(i?b)?\Z", re.IGNORECASE)
_SHIFTS = {"k": 10, "m": 20, "g": 30}
_DEVICES = re.compile(r"/dev/(gpiochip\d+|i2c-\d+|spidev\d+\.\d+)\Z")
"""The only nodes that a box is ever shown beyond its own: lines and buses that something was soldered to."""
_SAYS = {
    "vcpu": ("cpus", "memory", "pids"),
    "vdisk": ("size", "persistent"),
    "vgpio": ("i2c", "spi", "extra"),
}
_IGNORED = {"vcpu": ("name", "backend"), "vdisk": ("name",), "vgpio": ("name", "backend")}
"""``backend`` says which pool a slice is taken from: an account between boxes, and no limit of one."""


class Profile(NamedTuple):
    """One table of the file, not yet looked into.

    Attributes:
        kind: ``vcpu``, ``vdisk`` or ``vgpio``.
        name: unique in its kind.
        table: what it says.
        lines: key to the line on which it stands; ``""`` is the table's own.
    """

    kind: str
    name: str
    table: Mapping[str, Any]
    lines: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def config_path() -> str:
    """Where the profiles of this user are."""
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "kern", "kern.toml")


def with_profiles(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a Sandbox, with what its ``profiles`` say where the caller said nothing.

    Raises:
        SpecError: ``profiles`` is not a list of names that are there, or two of them or the file are at odds.
        HostError: there is no reader of TOML.
    """
    if "devices" in options:  # which only a profile gives: there they are vetted
        raise SpecError('unknown option devices: name a profile of kern.toml, e.g. profiles=["vgpio:leds"]')
    merged = dict(options)
    names = merged.pop("profiles", None)
    if names is None:
        return merged
    used = _chosen(names)
    gives = [_meaning(profile) for profile in used]
    for option in ("memory_mb", "cpus", "pids"):
        found = [given[option] for given in gives if option in given]
        if found and (merged.get(option) is None or isinstance(merged[option], Unsaid)):
            merged[option] = found[0]
    disks = {path: size for given in gives for path, size in given.get("tmpfs", {}).items()}
    if disks and (merged.get("tmpfs") is None or isinstance(merged["tmpfs"], Mapping)):
        own = {"/tmp": "64m"} if merged.get("tmpfs") is None else merged["tmpfs"]
        merged["tmpfs"] = {**disks, **own}
    devices = dict.fromkeys(name for given in gives for name in given.get("devices", ()))
    if devices and merged.get("security_profile") == "untrusted":
        raise SpecError(f'profiles={short(names)} shows devices, which contradicts security_profile="untrusted"')
    return {**merged, "devices": tuple(devices)}


def listing() -> list[dict[str, Any]]:
    """Every profile as plain data: ``profile``, ``line``, ``gives``, and ``problem`` where it cannot be used.

    Raises:
        SpecError: the file is wrong as a whole.
        HostError: there is no reader of TOML.
    """
    rows = []
    for profile in _read().values():
        gives: dict[str, Any] = {}
        problem = ""
        try:
            gives = _meaning(profile)
        except SpecError as error:
            problem = str(error)
        rows.append({"profile": str(profile), "line": profile.lines[""], "gives": gives, "problem": problem})
    return rows


def _chosen(names: object) -> list[Profile]:
    form = 'None or a list of names such as "vcpu:heavy", "vdisk:scratch", "vgpio:leds"'
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise bad("profiles", names, form)
    if not names:
        return []
    there = _read()
    for name in names:
        if name.partition(":")[0] not in _KINDS:
            raise bad("profiles", names, form)
        if name not in there:
            known = ", ".join(there) or "none"
            raise SpecError(f"profiles has {short(name)}, which {config_path()} does not describe; there: {known}")
    if len(set(names)) < len(names) or sum(name.startswith("vcpu:") for name in names) > 1:
        raise bad("profiles", names, "each profile once, and at most one vcpu profile")
    return [there[name] for name in names]


# The file


def _read() -> dict[str, Profile]:
    """Every profile by ``kind:name``, in the file's order; none if there is no file."""
    path = config_path()
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SpecError("reading the profiles", errno=error.errno, path=path) from error
    if len(raw) > _MAX_BYTES:
        raise SpecError(f"reading the profiles: {path} is larger than {_MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8")
        whole_file = _toml().loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"reading the profiles: {path} is not TOML: {error}") from None
    found: dict[str, Profile] = {}
    for kind in _KINDS:
        for profile in _of_kind(kind, whole_file.get(kind, []), text.splitlines()):
            if str(profile) in found:
                raise _wrong(profile, "name", f"there are two {kind} profiles of this name")
            found[str(profile)] = profile
    return found


def _toml() -> Any:
    """A module that reads TOML."""
    for name in ("tomllib", "tomli"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    hint = "This Python has no reader of TOML: pip install 'kern-sandbox[profiles]'"
    raise HostError(f"reading the profiles in {config_path()}", hint=hint)


def _of_kind(kind: str, tables: object, lines: Sequence[str]) -> list[Profile]:
    heads = [at for at, line in enumerate(lines, 1) if re.match(rf"\s*\[\[?\s*{kind}\b", line)]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        where = f", line {heads[0]}" if heads else ""
        raise SpecError(f'{config_path()}{where}: write a {kind} profile as [[{kind}]] with a line name = "…" below it')
    found = []
    for number_of_table, table in enumerate(tables):
        head = heads[number_of_table] if len(heads) == len(tables) else 1
        profile = Profile(kind, str(table.get("name", "")), table, _lines_of(table, lines, head))
        if not isinstance(table.get("name"), str) or not _NAME.match(table["name"]):
            raise _wrong(profile, "name", "a name is there, of letters, digits, '.', '_' and '-', 64 at most")
        found.append(profile)
    return found


def _lines_of(table: Mapping[str, Any], lines: Sequence[str], head: int) -> dict[str, int]:
    """Where the keys of the table that begins on line ``head`` stand, as far as plain lines tell."""
    found = {"": head}
    for at, line in enumerate(lines[head:], head + 1):
        if line.lstrip().startswith("["):
            break
        key = re.match(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*=""", line)
        if key and key[1] in table:
            found.setdefault(key[1], at)
    return found


def _wrong(profile: Profile, key: str, accepted: str) -> SpecError:
    line = profile.lines.get(key, profile.lines[""])
    said = f"{key} = {short(profile.table[key])}" if key in profile.table else f"no {key}"
    return SpecError(f"{config_path()}, line {line}: {profile} has {said}: {accepted}")


# What a profile means


def _meaning(profile: Profile) -> dict[str, Any]:
    """The options that it stands for.

    Raises:
        SpecError: it says something that is not accepted, or that no box is held to.
    """
    known = _SAYS[profile.kind]
    for key in profile.table:
        if key not in known and key not in _IGNORED[profile.kind]:
            raise _wrong(profile, key, f"boxes cannot be held to it here; accepted are {', '.join(known)}")
    return {"vcpu": _vcpu, "vdisk": _vdisk, "vgpio": _vgpio}[profile.kind](profile)


def _vcpu(profile: Profile) -> dict[str, Any]:
    gives: dict[str, Any] = {}
    if "cpus" in profile.table:
        gives["cpus"] = _held(profile, "cpus", lambda value: number("cpus", value, 0.0, 4096.0))
    if "memory" in profile.table:
        gives["memory_mb"] = _bytes(profile, "memory", 16 << 20) >> 20
    if "pids" in profile.table:
        gives["pids"] = _held(profile, "pids", lambda value: whole("pids", value, 1, 1 << 22))
    return gives


def _held(profile: Profile, key: str, check: Callable[[object], float]) -> float:
    """The value of ``key``, if ``check`` accepts it."""
    try:
        return check(profile.table[key])
    except SpecError as error:
        raise _wrong(profile, key, str(error).partition("Accepted: ")[2]) from None


def _vdisk(profile: Profile) -> dict[str, Any]:
    if profile.table.get("persistent", False) is not False:
        raise _wrong(profile, "persistent", "a disk is scratch and goes with its box; files are kept in the workspace")
    return {"tmpfs": {f"/vdisk/{profile.name}": f"{_bytes(profile, 'size', 4096) >> 10}k"}}


def _bytes(profile: Profile, key: str, least: int) -> int:
    text = profile.table.get(key)
    match = _SIZE.match(text) if isinstance(text, str) else None
    size = int(match[1]) << _SHIFTS[match[2].lower()] if match else 0
    if not least <= size <= 1 << 44:
        raise _wrong(profile, key, f'a size with a unit such as "512m" or "2 GB", at least {least >> 10}k')
    return size


def _vgpio(profile: Profile) -> dict[str, Any]:
    paths: list[str] = []
    for key, form in (("i2c", "/dev/i2c-{}"), ("spi", "/dev/spidev{}"), ("extra", "{}")):
        values = profile.table.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise _wrong(profile, key, "a list of strings")
        for path in (form.format(value) for value in values):
            _vet_device(profile, key, path)
            paths.append(path)
    return {"devices": [path[len("/dev/") :] for path in dict.fromkeys(paths)]}


def _vet_device(profile: Profile, key: str, path: str) -> None:
    if not _DEVICES.match(path):
        raise _wrong(profile, key, "boxes are shown /dev/gpiochipN, /dev/i2c-N and /dev/spidevN.N, and no other device")
    try:
        about = os.lstat(path)
    except OSError as error:
        raise _wrong(profile, key, f"{path}: {os.strerror(error.errno or 0)}") from None
    if not stat.S_ISCHR(about.st_mode):
        raise _wrong(profile, key, f"{path} is not a character device")
