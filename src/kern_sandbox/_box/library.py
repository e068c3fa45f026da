"""The part of this package that runs in a template: its own code, as bytecode for the interpreter that runs it."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import marshal
import os
import types
from typing import Any

from .plan import GUEST

__all__ = ["LIBRARY", "PROGRAM", "library_files"]

LIBRARY = "/.box/lib"
PROGRAM = f"{GUEST}/template.py"
_ROOMS = ("", "_linux", "_box", "_forkserver")
_ROOT_MODULES = ("errors", "results")
# What a template never needs: the client's side, and the pure parts that only a client or a server uses.
_ELSEWHERE = frozenset(
    (
        "abilities", "attempts", "boxes", "branch", "client", "diagnosis", "egress", "egress_main", "filter",
        "filter_rules", "gate", "groups", "guestfiles", "held", "ids", "imageroot", "launch", "library", "lines",
        "loop", "mounter", "mountrules", "nursery", "owners", "ownership", "probe", "probe_limits", "pump",
        "remedies", "replies", "rootfs", "server", "spares", "stem", "stems", "template_main", "values", "verdict",
        "workspaces",
    )
)  # fmt: skip


@functools.lru_cache(maxsize=2)
def library_files(*, bytecode: bool = True) -> dict[str, bytes]:
    """Path in the box to content: modules without sources, as Python itself imports them (PEP 3147).

    Args:
        bytecode: for an interpreter of this one's version; else it is sources, which any reads.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(here, "_forkserver", "template_main.py"), "rb") as file:
        files = {PROGRAM: file.read()}
    for room in _ROOMS:
        folder = os.path.join(here, room)
        names = [name[:-3] for name in sorted(os.listdir(folder)) if name.endswith(".py")]
        wanted = [name for name in (names if room else ("__init__", *_ROOT_MODULES)) if name not in _ELSEWHERE]
        for name in wanted:
            suffix, content = _module(room, name, os.path.join(folder, f"{name}.py"), bytecode=bytecode)
            files[os.path.join(LIBRARY, "kern_sandbox", room, name + suffix)] = content
    return files


def _module(room: str, name: str, path: str, *, bytecode: bool) -> tuple[str, bytes]:
    """A module's suffix and content."""
    if bytecode:
        return ".pyc", _bytecode(_code(room, name, path))
    if not room and name == "__init__":
        return ".py", b""
    with open(path, "rb") as file:
        return ".py", file.read()


def _code(room: str, name: str, path: str) -> Any:
    """The module's code, from its cached bytecode where that is fresh."""
    if not room and name == "__init__":
        return compile('"""The engine, in a template."""', "__init__.py", "exec")
    dotted = ".".join(part for part in ("kern_sandbox", room, "" if name == "__init__" else name) if part)
    code = importlib.machinery.SourceFileLoader(dotted, path).get_code(dotted)
    return None if code is None else _placed(code, os.path.join(LIBRARY, "kern_sandbox", room, f"{name}.py"))


def _placed(code: types.CodeType, path: str) -> types.CodeType:
    """``code`` as if compiled from ``path``: a box need not learn where the host keeps this package."""
    parts = (_placed(part, path) if isinstance(part, types.CodeType) else part for part in code.co_consts)
    return code.replace(co_filename=path, co_consts=tuple(parts))


def _bytecode(code: Any) -> bytes:
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)
