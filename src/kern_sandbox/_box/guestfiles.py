"""Our guest code as steps of a plan: copies in the box's own root, so that no path of the host shows in its mounts."""

from __future__ import annotations

import base64
import functools
import importlib.util
import os

from .plan import GUEST, Blob, Step, Text

__all__ = ["guest_steps"]

_UNCHECKED_HASH = (1).to_bytes(4, "little") + bytes(8)
"""The rest of a .pyc header (PEP 552): valid whatever the source's time is, and it is never looked at."""


@functools.lru_cache(maxsize=1)
def guest_steps(directory: str) -> tuple[Step, ...]:
    """Every guest file below ``GUEST``, with bytecode for an interpreter of this process's own version.

    Args:
        directory: where the guest's sources are.
    """
    steps: list[Step] = []
    for name in sorted(os.listdir(directory)):
        if name.endswith(".py"):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                source = file.read()
            steps.append(Text(f"{GUEST}/{name}", source))
            steps.append(_bytecode(name, source))
    return tuple(steps)


def _bytecode(name: str, source: str) -> Step:
    import marshal  # late: only a process that makes Sandboxes needs it

    code = marshal.dumps(compile(source, f"{GUEST}/{name}", "exec", dont_inherit=True))
    path = importlib.util.cache_from_source(f"{GUEST}/{name}")
    content = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + code
    return Blob(path, base64.b64encode(content).decode("ascii"))
