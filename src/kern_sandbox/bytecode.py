"""Bytecode for an image's own Python: compiled once, in a box, before anybody uses the image.

Official Python images come without it, and every fresh box would compile what it imports. What the box writes is
untrusted: it is read like any workspace and only ever run in boxes of the same image.
"""

from __future__ import annotations

import contextlib
import io
import os
import re

from ._box.imageroot import Root, image_userland
from ._box.plan import GUEST
from ._image.tree import Tree
from .errors import SandboxError
from .session import How, Session

__all__ = ["add_bytecode"]

_FILE = re.compile(r"pyc/(?:[^/]+/)*__pycache__/[^/]+\.pyc")
_MOST_FILES = 10_000
_LARGEST = 4 << 20
_LIMIT_S = 300.0


class _Workshop(Session):
    """A Session on a root file system that is not in the store yet."""

    def show(self, root: str) -> str | None:
        """Let boxes show ``root``; its Python, or ``None`` where it has none."""
        new = Root("the image", root, {})
        userland = image_userland(new, self._scratch, network=False)
        self._settle(self.spec, userland, (), lambda network: image_userland(new, self._scratch, network=network))
        return userland.python if userland.python.startswith("/") else None


def add_bytecode(root: str) -> str:
    """Put bytecode beside the standard library in ``root``, where it is missing.

    Returns:
        Why there is none, or ``""``: an image works without, only slower.
    """
    try:
        with contextlib.closing(_Workshop(None, {"memory_mb": 1024, "track_files": False})) as workshop:
            return _compile(workshop, root)
    except SandboxError as error:
        return str(error)


def _compile(workshop: _Workshop, root: str) -> str:
    python = workshop.show(root)
    if python is None:
        return ""
    argv = [python, f"{GUEST}/compile_library.py", "/workspace/pyc"]
    done = workshop.run(argv, None, How(timeout_s=_LIMIT_S))
    if not done.success:
        return done.fault.message if done.fault else done.stderr.strip()[-200:]
    _take(workshop, root)
    return ""


def _take(workshop: Session, root: str) -> None:
    tree = Tree(root)
    try:
        for path in workshop.workspace.list_files()[:_MOST_FILES]:
            parts = tuple(os.fsencode(part) for part in path.split("/")[1:])
            if _FILE.fullmatch(path):
                content = workshop.workspace.read_file(path, _LARGEST)
                tree.file(parts, 0o644, 0, io.BytesIO(content))
    finally:
        tree.close()
