"""The option ``protect``: paths of the box that its code must not change, although what holds them is writable."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .checks import bad
from .errors import SpecError

__all__ = ["check_protect"]

_MOST = 32  # each may need a descriptor in one frame to the fork server
_ACCEPTED = (
    'absolute paths in the box without "..", such as ["/srv/project/.git/hooks"], '
    "or a mapping of such paths to None or a text"
)


def check_protect(value: object, *, capabilities: bool) -> Mapping[str, str | None]:
    """Path to what a placeholder of it holds where it does not exist: ``None`` for an empty directory, else a text.

    Args:
        value: what was given.
        capabilities: whether the code keeps capabilities over its own namespaces, with which it could unmount.

    Raises:
        SpecError: not of that form, or together with ``cap_drop=()``.
    """
    if value is None:
        return {}
    if not isinstance(value, (Mapping, list, tuple)) or len(value) > _MOST:
        raise bad("protect", value, f"at most {_MOST} {_ACCEPTED}")
    pairs = list(value.items()) if isinstance(value, Mapping) else [(path, None) for path in value]
    for path, text in pairs:
        if not _is_normal(path) or not (text is None or isinstance(text, str)):
            raise bad("protect", {path: text} if isinstance(value, Mapping) else [path], _ACCEPTED)
    given = dict(pairs)
    if given and capabilities:
        raise SpecError("cap_drop=() lets the code unmount what protect= puts in place: leave one of them out")
    return given


def _is_normal(path: object) -> bool:
    """An absolute path without ``..``, doubled slashes and NULs, other than ``/``."""
    if not isinstance(path, str) or path.startswith("//") or "\0" in path:
        return False
    return path.startswith("/") and os.path.normpath(path) == path != "/"
