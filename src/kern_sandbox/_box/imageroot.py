"""An image's root file system as a userland: its top-level entries, with what is a box's own in place of its own.

A directory in which a box needs something of its own is taken apart: it becomes one of the box's root, with the
image's entries in it one by one. No link of the image is followed on the host: it stays a link.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .._linux.fds import open_as_root
from ..errors import ImageError
from .plan import CELL, HOME, Bind, Folder, Link, Step, Userland
from .rootfs import etc_texts

__all__ = ["Root", "image_userland", "uid_of"]

_OWN = (
    "/.box", "/dev", "/etc/group", "/etc/hostname", "/etc/hosts", "/etc/nsswitch.conf", "/etc/passwd",
    "/etc/resolv.conf", "/proc", "/run", "/sys", "/tmp", "/workspace", HOME, CELL,
)  # fmt: skip
_BOX_VARIABLES = frozenset(("HOME", "LOGNAME", "PWD", "SHELL", "TMPDIR", "USER", "XDG_CACHE_HOME"))
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_VERSION = re.compile(r"python3\.([0-9]+)\Z")
_SMALL = 1 << 18
_MOST_DIGITS = 11
"""So many are already more than any user's number, and no more of them need to be read."""
_MOST_STEPS = 2000
"""Each is a mount of every box; Linux has 100,000 for a whole mount namespace."""


class Root(NamedTuple):
    """A root file system and how it wants to be used; see ``_image.images.Image``."""

    name: str
    path: str
    env: Mapping[str, str]


def image_userland(root: Root, needed: Iterable[str], *, network: bool) -> Userland:
    """The image's files, read-only.

    Args:
        root: where they are.
        needed: further paths at which a box has something of its own.
        network: whether boxes share the host's network, and so need its name resolution.

    Raises:
        ImageError: the directory cannot be read.
    """
    env = {name: value for name, value in root.env.items() if name not in _BOX_VARIABLES and _is_variable(name, value)}
    path = env.pop("PATH", "") or _PATH
    own = frozenset((*_OWN, *needed))
    try:
        fd = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            steps = list(itertools.islice(_entries(fd, root.path, "", own), _MOST_STEPS + 1))
            python, minor = _python(fd, path)
            people = _small(fd, "etc/passwd"), _small(fd, "etc/group")
        finally:
            os.close(fd)
    except OSError as error:
        raise ImageError(f"reading the files of {root.name}", errno=error.errno, path=root.path) from error
    if len(steps) > _MOST_STEPS:
        words = f"showing the files of {root.name}: its root, /etc and /home have more than {_MOST_STEPS} entries"
        raise ImageError(words, path=root.path)
    steps += etc_texts(network=network)
    return Userland(
        name=f"the image {root.name}",
        steps=tuple(steps),
        python=python,
        path=path,
        env=env,
        people=people,
        like_host=minor == sys.version_info[1],
    )


def _is_variable(name: str, value: str) -> bool:
    return bool(name) and "=" not in name and "\0" not in name + value


def _entries(folder: int, source: str, place: str, own: frozenset[str]) -> Iterator[Step]:
    """The steps for what is in ``folder``, which the box shows at ``place``."""
    for name in sorted(os.listdir(folder)):
        path = f"{place}/{name}"
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        inner = any(each.startswith(f"{path}/") for each in own)
        if path in own:
            continue
        if stat.S_ISDIR(about.st_mode):
            yield from _directory(folder, name, (source, place), about, own if inner else frozenset())
        elif stat.S_ISLNK(about.st_mode):
            if not inner:
                yield Link(path, os.readlink(name, dir_fd=folder))
        elif stat.S_ISREG(about.st_mode):
            yield Bind(f"{source}/{name}", path, identity=(about.st_dev, about.st_ino))


def _directory(
    folder: int, name: str, where: tuple[str, str], about: os.stat_result, own: frozenset[str]
) -> Iterator[Step]:
    """One directory: shown as it is, or made anew where something of a box's own (``own``) lies in it."""
    source, place = (f"{each}/{name}" for each in where)
    if not own:
        yield Bind(source, place, identity=(about.st_dev, about.st_ino))
        return
    yield Folder(place)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield from _entries(inner, source, place, own)
    finally:
        os.close(inner)


def _python(fd: int, path: str) -> tuple[str, int | None]:
    """The image's interpreter as its own programs would find it, and its minor version as far as its name tells."""
    for folder in path.split(":"):
        for name in ("python3", "python"):
            found = os.path.join(folder, name)
            if folder.startswith("/") and _is_program(fd, found):
                return found, _minor(fd, found)
    return "python3", None


def _is_program(fd: int, path: str) -> bool:
    try:
        file = open_as_root(fd, path, os.O_PATH)
    except OSError:
        return False
    try:
        mode = os.fstat(file).st_mode
        return stat.S_ISREG(mode) and bool(mode & 0o111)
    finally:
        os.close(file)


def _minor(fd: int, path: str) -> int | None:
    """From the name at the end of its links: ``python3.12`` is 12."""
    file = open_as_root(fd, path, os.O_PATH)
    try:
        match = _VERSION.search(os.readlink(f"/proc/self/fd/{file}"))
    finally:
        os.close(file)
    return int(match[1]) if match else None


def _small(fd: int, path: str) -> str:
    """A small text of the image; empty where it is missing, or not what one expects."""
    try:
        file = open_as_root(fd, path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(file, "rb") as stream:
        content = stream.read(_SMALL) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    return content.decode("utf-8", "replace")


def uid_of(user: str, passwd: str) -> int:
    """The uid that an image's ``User`` names.

    Raises:
        ImageError: its ``/etc/passwd`` knows no such name.
    """
    name = user.partition(":")[0]
    if not name:
        return 0
    if name.isascii() and name.isdigit():
        number = int(name[:_MOST_DIGITS])
    else:
        rows = (line.split(":") for line in passwd.splitlines())
        found = [row[2] for row in rows if len(row) > 2 and row[0] == name and row[2].isascii() and row[2].isdigit()]
        if not found:
            raise ImageError(f"finding the image's user {name[:80]!r} in its /etc/passwd", hint="Say user= yourself")
        number = int(found[0][:_MOST_DIGITS])
    if number > (1 << 32) - 2:
        raise ImageError(
            f"the image's user is the number {number}, which Linux does not have", hint="Say user= yourself"
        )
    return number
