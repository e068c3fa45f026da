"""One snippet in a session of its own: what ``kern_sandbox.run_code`` is, and what makes a loop of it fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._forkserver.client import put_waiting, take_waiting
from .session import How, Session
from .spec import BoxSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .results import ExecutionResult

__all__ = ["run_once"]

# Options that keep hold of something of the user's, or may mean something else a moment later.
_HOLD_SOMETHING = ("workspace", "image", "setup", "mounts", "profiles", "prewarm", "security_profile")


def run_once(code: str, language: str, options: Mapping[str, Any]) -> ExecutionResult:
    """Run one snippet in a session of its own.

    When the same is done again, the next session is made while this one runs, so that a loop of such calls is not much
    slower than one session that is kept.
    """
    own = {name: value for name, value in options.items() if name != "workspace"}
    if any(options.get(name) for name in _HOLD_SOMETHING):
        session = Session(options.get("workspace"), own)
    else:
        session = _next_session(own)
    try:
        return session.run_code(code, language, How())
    finally:
        session.close()


def _next_session(options: Mapping[str, Any]) -> Session:
    BoxSpec.of(**options)  # what is not accepted has no business in a key
    key = repr(sorted(options.items()))
    found, more = take_waiting(key)
    session = found if isinstance(found, Session) else Session(None, options)
    for _ in range(more):
        put_waiting(key, Session(None, options, once=True))
    return session
