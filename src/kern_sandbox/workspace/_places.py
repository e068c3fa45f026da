"""Where a workspace lies when nobody says, and whose it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import WorkspaceError

if TYPE_CHECKING:
    from ._beneath import Owner

__all__ = ["make_temporary", "owner_for"]


def make_temporary() -> str:
    """A new directory with mode 0700, without symbolic links in its path."""
    import tempfile  # late: a workspace with a path does not need it, and it loads compression modules

    try:
        path = os.path.realpath(tempfile.mkdtemp(prefix="kern-workspace-"))
        os.chmod(path, 0o700)  # whatever the umask has taken from it
        return path
    except OSError as error:
        attempted, code, words = "make a temporary workspace", error.errno, error.strerror or str(error)
        if code is None or words != os.strerror(code):  # Python's own, which names the directories that it tried
            attempted, code = f"{attempted}: {words}", None
        hint = "Set TMPDIR, or name a directory as workspace"
        raise WorkspaceError(attempted, errno=code, hint=hint) from error


def owner_for(workspace: os.stat_result) -> Owner | None:
    """Whom new files belong to, where that is not already this process's user."""
    if os.geteuid() == 0 and workspace.st_uid != 0:
        return workspace.st_uid, workspace.st_gid
    return None
