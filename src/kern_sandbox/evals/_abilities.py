"""What a case needs of this host, and why it has it not."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
from typing import TYPE_CHECKING

import kern_sandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MODULES", "missing", "site_of"]

MODULES = ("numpy", "pandas", "matplotlib", "IPython")


def missing(needs: Sequence[str], *, boxed: bool) -> str:
    """The first need that is not met, as a sentence; ``""`` where all are.

    Args:
        needs: ``box`` (a place whose limits keep the host from harm), ``root``, ``limits``, ``x86_64``, a module, or
            a program.
        boxed: whether the target is such a place.
    """
    for need in needs:
        reason = "" if need == "box" and boxed else _missing(need)
        if reason:
            return reason
    return ""


def _missing(need: str) -> str:
    if need == "box":
        return "it would harm the host outside of a box"
    if need == "root":
        return "" if os.geteuid() == 0 else "only a host user that is root can be asked this"
    if need == "limits":
        return "" if _limits() else "no cgroups that this user may divide"
    if need == "landlock 6":
        return "" if _linux() >= (6, 12) else "abstract sockets are kept apart by Linux 6.12 and later only"
    if need in ("x86_64", "aarch64"):
        return "" if platform.machine() == need else f"this is not {need}"
    if need in MODULES:
        return "" if site_of([need]) else f"{need} is not installed beside kern_sandbox"
    return "" if shutil.which(need, path="/usr/bin:/bin") else f"{need} is not installed"


def _linux() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().partition("-")[0].split(".")[:2])


@functools.cache
def _limits() -> bool:
    return not any("not limited" in note for note in kern_sandbox.run_code("").runtime_notes)


def site_of(needs: Sequence[str]) -> str:
    """The directory that the modules among ``needs`` are installed in, ``""`` for none."""
    for name in needs:
        spec = importlib.util.find_spec(name) if name in MODULES else None
        if spec is not None and spec.origin is not None:
            return os.path.dirname(os.path.dirname(spec.origin))
    return ""
