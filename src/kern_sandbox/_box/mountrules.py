"""Which host paths may be shown in a box, and where.

The refusals hold whoever asks and whatever leads there: symbolic links, ``..``, trailing slashes and bind mounts of
the same directory all come to the same file. Source of the lists: contract §8.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING

from .._places import absolute, cache_directory
from ..errors import MountRefused, SpecError
from .plan import Bind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["check_root", "check_workspace", "checked_mounts"]

_NEVER_BELOW = ("/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/var/run")
_NEVER_ITSELF = ("/", "/root")
_CREDENTIALS = frozenset(
    [
        ".aws",
        ".azure",
        ".boto",
        ".databrickscfg",
        ".docker",
        ".git-credentials",
        ".gnupg",
        ".kube",
        ".netrc",
        ".npmrc",
        ".oci",
        ".password-store",
        ".pypirc",
        ".rclone.conf",
        ".s3cfg",
        ".ssh",
        ".terraform.d",
        ".pgpass",
        ".vault-token",
        ".my.cnf",
        ".mozilla",
        ".thunderbird",
        ".git-credential-cache",
    ]
)
_CREDENTIAL_CONFIGS = frozenset(
    ("containers", "doctl", "gcloud", "gh", "github-copilot", "google-chrome", "op", "rclone", "sops")
)
_TELLTALE = (".ssh", ".aws", ".gnupg", ".kube", ".netrc", ".git-credentials", ".password-store")
_KERNEL_FILES = frozenset(
    ("cgroup", "cgroup2", "debugfs", "devpts", "devtmpfs", "proc", "securityfs", "sysfs", "tracefs")
)
_UNREADABLE = "You have to be able to list it: a box shows no more than you may see"
_RESERVED = ("/.box", "/dev", "/etc", "/home/sandbox", "/proc", "/run", "/sys", "/workspace")


def checked_mounts(mounts: Mapping[str, object] | None, userland: Iterable[str], tmpfs: Iterable[str]) -> list[Bind]:
    """The binds for a Sandbox's ``mounts=`` option.

    Args:
        mounts: host source to target, or to ``(target, "ro" | "rw")``.
        userland: paths that the box already has; no target may lie in one.
        tmpfs: mount points of scratch file systems; none may cover a target.

    Raises:
        MountRefused: a source or target that is never allowed; the message names the rule.
        SpecError: not a mapping of that form, or a source that does not exist.
    """
    taken = [*_RESERVED, *userland]
    binds: list[Bind] = []
    for source, value in (mounts or {}).items():
        target, writable = _target_of(source, value)
        _vet_target(target, taken, tuple(tmpfs))
        binds.append(_vet_source(source, target, writable))
        taken.append(target)
    return sorted(binds, key=lambda bind: bind.target)


def check_workspace(path: str | os.PathLike[str] | None) -> None:
    """Hold a workspace to the rules for mounts: it is shown to every box, and written by them.

    Raises:
        MountRefused: a directory that is never shown; the message names the rule.
    """
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes) or "\0" in os.fspath(path):
        return  # what is no path is refused where the directory is opened
    given = absolute(os.fspath(path))
    real = os.path.realpath(given)
    rule = next(filter(None, map(_refusal, dict.fromkeys((given, real)))), "")
    if not rule and os.path.exists(real):
        rule = _same_file(os.stat(real)) or _mounted_below(real)
    if rule:
        raise MountRefused(f"using {os.fspath(path)!r} as a workspace: {rule}", path=real)


def check_root(path: str) -> None:
    """Hold a directory that is to be a box's root file system to the rules for mounts.

    Raises:
        MountRefused: a directory that is never shown; the message names the rule.
    """
    real = os.path.realpath(path)
    rule = next(filter(None, map(_refusal, dict.fromkeys((path, real)))), "")
    if not rule and os.path.isdir(real):
        try:
            rule = _same_file(os.stat(real)) or _held(real) or _mounted_below(real)
        except OSError as error:
            raise SpecError(f"using {path!r} as a root file system", errno=error.errno, hint=_UNREADABLE) from error
    if rule:
        raise MountRefused(f"using {path!r} as a root file system: {rule}", path=real)


def _target_of(source: object, value: object) -> tuple[str, bool]:
    target, mode = value if isinstance(value, tuple) and len(value) == 2 else (value, "ro")
    if not isinstance(target, str) or mode not in ("ro", "rw"):
        accepted = 'a target such as "/data", or ("/data", "ro") or ("/data", "rw")'
        raise SpecError(f"mounts[{source!r}]={value!r} is not accepted. Accepted: {accepted}")
    return target, mode == "rw"


def _within(path: str, other: str) -> bool:
    """Whether ``path`` is ``other`` or lies below it."""
    return path == other or path.startswith(other.rstrip("/") + "/")


def _vet_target(target: str, taken: Iterable[str], tmpfs: Iterable[str]) -> None:
    normal = os.path.normpath(target)
    if not target.startswith("/") or target.startswith("//") or "\0" in target or normal != target or target == "/":
        raise MountRefused(f"mounting at {target!r}: a target is an absolute, normal path other than /")
    for place in taken:
        if _within(target, place) or _within(place, target):
            raise MountRefused(f"mounting at {target!r}: {place} is there already", hint="Choose e.g. /data or /mnt/x")
    for place in tmpfs:
        if _within(target, place):
            raise MountRefused(f"mounting at {target!r}: the tmpfs at {place} would cover it")


def _vet_source(source: object, target: str, writable: bool) -> Bind:
    given = os.fspath(source) if isinstance(source, (str, os.PathLike)) else b""
    if isinstance(given, bytes) or not os.path.isabs(given) or "\0" in given:
        raise SpecError(f"mounts has the source {source!r}: a source is an absolute host path")
    real = os.path.realpath(given)
    for path in dict.fromkeys((os.path.normpath(given), real)):
        rule = _refusal(path)
        if rule:
            raise MountRefused(f"mounting {given!r}: {rule}", path=real)
    try:
        about = _looked_at(real)
    except OSError as error:
        hint = "A source is a file or directory that is there: make it first"
        raise SpecError(f"mounting {given!r}", errno=error.errno, hint=hint) from None
    try:
        rule = _same_file(about) or _special(about, real) or _mounted_below(real)
    except OSError as error:
        raise SpecError(f"mounting {given!r}", errno=error.errno, hint=_UNREADABLE) from error
    if rule:
        raise MountRefused(f"mounting {given!r}: {rule}", path=real)
    return Bind(real, target, writable=writable, owned=True, identity=(about.st_dev, about.st_ino))


def _looked_at(real: str) -> os.stat_result:
    """What ``real`` is now; it was free of links a moment ago, and must still be.

    Raises:
        OSError: it is gone, or a part of it has become a link (ESTALE).
    """
    fd = os.open(real, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.readlink(f"/proc/self/fd/{fd}") != real:
            raise OSError(errno.ESTALE, "it was replaced while it was looked at", real)
        return os.fstat(fd)
    finally:
        os.close(fd)


def _mounted_below(real: str) -> str:
    """The rule that refuses a directory for what is mounted in it, which a box would see too."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.partition(" - ") for line in file]
    for place, _, kind in mounts:
        path = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place.split()[4])
        if path == real or not _within(path, real):
            continue
        if kind.split()[0] in _KERNEL_FILES:
            return f"{path} in it is the host's own ({kind.split()[0]})"
        try:
            rule = _same_file(os.stat(path))
        except OSError:
            continue
        if rule:
            return f"{path} in it is never shown: {rule}"
    return ""


def _refusal(path: str) -> str:
    """The rule that refuses ``path`` by its name, or ``""``."""
    for place in _NEVER_BELOW:
        if _within(path, place) or _within(place, path):
            holds = path if path == place or _within(path, place) else f"{place}, which is in it,"
            return f"{holds} is the host's own and is never shown; choose a directory of your own"
    for place in (*_NEVER_ITSELF, *_homes()):
        if _within(place, path):
            return f"{place} is never shown as a whole; choose a directory in it"
    for place in _own_state():
        if _within(path, place) or _within(place, path):
            return f"{place} is kern_sandbox's own state; choose a directory of your own"
    parts = path.split("/")
    for before, part in zip(["", *parts], parts):
        if part in _CREDENTIALS or (before == ".config" and part in _CREDENTIAL_CONFIGS):
            return f"a path with {part} in it holds credentials; choose a directory without"
    return ""


def _homes() -> list[str]:
    """The homes of this user, of the people of this host, and of whoever stands behind sudo."""
    import pwd  # late: it is of Unix only, and so are boxes

    people = (person.pw_dir for person in pwd.getpwall() if person.pw_uid == 0 or 1000 <= person.pw_uid < 60000)
    homes = [os.path.expanduser("~"), *people]
    found = [home for home in homes if home.startswith("/") and home != "/"]
    return list(dict.fromkeys([*found, *map(os.path.realpath, found)]))


def _own_state() -> list[str]:
    places = [
        cache_directory(),
        os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "kern"),
    ]
    if os.environ.get("XDG_RUNTIME_DIR"):
        places.append(os.path.join(os.environ["XDG_RUNTIME_DIR"], "kern"))
    return places


def _same_file(about: os.stat_result) -> str:
    """The rule that refuses a directory which is one of the refused under another name (a bind mount of it)."""
    homes = _homes()
    names = [*_NEVER_BELOW, *_NEVER_ITSELF, *homes, *_own_state()]
    names += [f"{home}/{name}" for home in homes for name in sorted(_CREDENTIALS)]
    names += [f"{home}/.config/{name}" for home in homes for name in sorted(_CREDENTIAL_CONFIGS)]
    for name in names:
        try:
            other = os.stat(name)
        except OSError:
            continue
        if (other.st_dev, other.st_ino) == (about.st_dev, about.st_ino):
            return f"it is {name} under another name; choose a directory of your own"
    return ""


def _special(about: os.stat_result, real: str) -> str:
    if stat.S_ISSOCK(about.st_mode):
        return "a socket is a way to a process outside (a container engine's controls the host)"
    if not stat.S_ISDIR(about.st_mode) and not stat.S_ISREG(about.st_mode):
        return "only directories and regular files are shown, not devices or FIFOs"
    if stat.S_ISDIR(about.st_mode):
        return _held(real)
    return ""


def _held(real: str) -> str:
    """What lies directly in a directory and gives it away."""
    with os.scandir(real) as entries:
        for entry in entries:
            if entry.name in _TELLTALE:
                return f"{entry.name} in it holds credentials; choose a directory without"
            if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                return f"{entry.name} in it is a socket, a way to a process outside; choose a directory without"
    return ""
