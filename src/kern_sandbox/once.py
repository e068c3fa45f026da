"""One snippet in a session of its own: what ``kern_sandbox.run_code`` is, and what makes a loop of it fast."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ._forkserver.client import put_waiting, take_waiting
from ._profiles import with_profiles
from .errors import SandboxError, WorkspaceError
from .session import How, Session
from .spec import BoxSpec
from .workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .results import ExecutionResult

__all__ = ["run_once"]

# Options that keep hold of something of the user's, or may mean something else a moment later.
_HOLD_SOMETHING = ("workspace", "image", "setup", "mounts", "profiles", "prewarm", "protect", "security_profile")


def run_once(code: str, language: str, options: Mapping[str, Any]) -> ExecutionResult:
    """Run one snippet in a session of its own.

    When the same is done again, the next session is made while this one runs, so that a loop of such calls is as fast
    as one session that is kept.
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
    # By the values themselves: what stands for a secret has every reason to show the same of each.
    key = json.dumps(vars(BoxSpec.of(**with_profiles(options))), default=dict)
    while isinstance(found := take_waiting(key), _OneOfMany):
        if found.is_whole():
            return found
        found.close()
    return _OneOfMany(key, options)


class _OneOfMany(Session):
    """A session for one call, which sees to the next ones while its box runs."""

    def __init__(self, kind: str, options: Mapping[str, Any]) -> None:
        self._kind = kind
        super().__init__(None, options)

    def is_whole(self) -> bool:
        """Whether its workspace is there still: a fork server that ends takes those of its sessions along."""
        try:
            self.workspace.check()
        except WorkspaceError:
            return False
        return True

    def _meanwhile(self) -> None:
        try:
            while put_waiting(self._kind, self._another):
                pass
        except (SandboxError, OSError):
            return  # the call that needs it will meet the same and report it

    def _another(self) -> Session:
        new = copy.copy(self)
        new.start_anew()
        return new

    def start_anew(self) -> None:
        """Go on with a workspace of its own; whatever takes time to find out stays as it is."""
        self._begin()
        self.once = True
        limit = self.spec.workspace_mb
        self.workspace = Workspace(None, None if limit is None else limit << 20)
        try:
            assert self._plan is not None
            assert self._plan.workspace is not None
            workspace = self._plan.workspace._replace(source=self.workspace.path, identity=self.workspace.identity)
            self._plan = self._bare = replace(self._plan, workspace=workspace)
            self._server()
        except BaseException:  # whatever happened, nobody else can close what was made
            self.close()
            raise
