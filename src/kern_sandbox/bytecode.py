"""Bytecode for a userland's standard library where it comes without: compiled once, in a box, before it is needed.

Official Python images come without it, and every fresh box would compile what it imports, whether it shows such an
image or the userland of a container that was made of one. What the box writes is untrusted: it is read like any
workspace and only ever run in boxes of the same userland.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace

from ._box.imageroot import Root, image_userland
from ._box.plan import GUEST, Bind, Plan
from ._image.tree import Tree
from ._places import cache_directory
from ._shelf import UNUSED_S, Collected, Shelf
from .errors import HostError, SandboxError
from .session import How, Session

__all__ = ["add_bytecode", "collect", "with_bytecode"]

ORIGINAL = "/.box/library"
"""Where a box has the host's library itself when it shows one with bytecode in its place."""
_FILE = re.compile(r"pyc/((?:[^/]+/)*__pycache__/[^/]+\.pyc)")
_MOST_FILES = 10_000
_LARGEST = 4 << 20
_LIMIT_S = 300.0
_FORM = 1
_SHELF = "bytecode"
_SAMPLE = ("argparse.py", "dataclasses.py", "decimal.py", "http/client.py", "json/decoder.py", "tarfile.py", "uuid.py")


class _Workshop(Session):
    """A Session whose boxes make bytecode, and so need none."""

    needs_bytecode = False

    def show(self, root: str) -> str | None:
        """Let boxes show ``root``, which is not in the store yet; its Python, or ``None`` where it has none."""
        new = Root("the image", root, {})
        userland = image_userland(new, self._scratch, network=False)
        self._settle(self.spec, userland, (), lambda network: image_userland(new, self._scratch, network=network))
        return userland.python if userland.python.startswith("/") else None

    def compile(self, python: str, mode: str) -> str:
        """Have bytecode made below ``pyc`` of the workspace; why there is none, or ``""``."""
        done = self.run([python, f"{GUEST}/compile_library.py", "/workspace/pyc", mode], None, How(timeout_s=_LIMIT_S))
        if done.success:
            return ""
        return done.fault.message if done.fault else done.stderr.strip()[-200:]

    def made(self) -> Iterator[tuple[str, bytes]]:
        """Each file of bytecode: its path without the first slash, and its content."""
        for path in self.workspace.list_files()[:_MOST_FILES]:
            match = _FILE.fullmatch(path)
            if match:
                yield match[1], self.workspace.read_file(path, _LARGEST)


def _workshop() -> _Workshop:
    return _Workshop(None, {"memory_mb": 1024, "track_files": False, "tmpfs": {}})


def add_bytecode(root: str) -> str:
    """Put bytecode beside the standard library in ``root``, where it is missing.

    Returns:
        Why there is none, or ``""``: an image works without, only slower.
    """
    try:
        with contextlib.closing(_workshop()) as workshop:
            python = workshop.show(root)
            if python is None:
                return ""
            return workshop.compile(python, "UNCHECKED_HASH") or _put(workshop, root)
    except SandboxError as error:
        return str(error)


def _put(workshop: _Workshop, root: str) -> str:
    tree = Tree(root)
    try:
        for path, content in workshop.made():
            tree.file(tuple(os.fsencode(part) for part in path.split("/")), 0o644, 0, io.BytesIO(content))
    finally:
        tree.close()
    return ""


def with_bytecode(before: Plan) -> Plan:
    """``before``, which shows this host's userland, with bytecode for its standard library where the host has none.

    Where it can be neither made nor kept, that is ``before``: boxes work without, only slower.
    """
    library = os.path.realpath(os.path.dirname(os.__file__))
    if all(_has_bytecode(os.path.join(library, name)) for name in _SAMPLE):
        return before
    shown = _library(library, cache_directory())
    binds = (Bind(library, ORIGINAL), Bind(shown, library)) if shown else ()
    return replace(before, base=(*before.base, *binds))


def collect() -> Collected:
    """Remove libraries that nothing has used for a month.

    Raises:
        HostError: the cache cannot be written.
    """
    return Shelf(_SHELF).collect(UNUSED_S)


def _has_bytecode(source: str) -> bool:
    """Whether a box finds some beside it, wherever this process keeps its own; a missing module needs none."""
    folder, name = os.path.split(source)
    cached = f"{folder}/__pycache__/{name[:-3]}.{sys.implementation.cache_tag}.pyc"
    return os.path.exists(cached) or not os.path.exists(source)


@functools.lru_cache(maxsize=4)
def _library(library: str, cache: str) -> str:
    """A library with bytecode for ``library``, in the cache until this process ends; ``""`` where none can be made."""
    told = [
        _FORM,
        library,
        os.stat(os.path.join(library, "os.py")).st_mtime_ns,
        sys.version,
        sys.implementation.cache_tag,
    ]
    key = hashlib.sha256(json.dumps([*told, cache]).encode()).hexdigest()[:32]
    try:
        return os.path.join(Shelf(_SHELF).make(key, lambda making: _build(making, library), lambda: None).path, "lib")
    except (SandboxError, OSError):
        return ""  # tried once in a process


def _build(making: str, library: str) -> None:
    """Make a library in the directory ``making``: its sources are links, so that they are always the host's own."""
    with contextlib.closing(_workshop()) as workshop:
        failed = workshop.compile(workshop.plan.python, "TIMESTAMP")
        if failed:
            raise HostError(f"compiling {library}: {failed}")
        prefix = f"{library[1:]}/"
        made = {path[len(prefix) :]: content for path, content in workshop.made() if path.startswith(prefix)}
    target = os.path.join(making, "lib")
    os.mkdir(target)
    for path, content in made.items():
        os.makedirs(os.path.dirname(os.path.join(target, path)), exist_ok=True)
        with open(os.path.join(target, path), "xb") as file:
            file.write(content)
    _link(library, target, ORIGINAL)


def _link(source: str, target: str, shown: str) -> None:
    """Complete ``target``, for all to read: what ``source`` has besides, as links to where a box shows that."""
    os.chmod(target, 0o755)  # noqa: S103 - a box is another user where root starts it
    for entry in os.scandir(source):
        place = os.path.join(target, entry.name)
        if not os.path.lexists(place):
            os.symlink(f"{shown}/{entry.name}", place)
        elif entry.is_dir(follow_symlinks=False):
            _link(entry.path, place, f"{shown}/{entry.name}")
    for entry in os.scandir(target):
        if not entry.is_symlink():
            os.chmod(entry.path, 0o755 if entry.is_dir() else 0o644)
