"""``kern-mcp``: from its environment to a server that runs until its client is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .. import __version__
from .._rpc import Server, claimed
from .._streams import fill_standard_streams
from ..errors import MountRefused, SandboxError, WorkspaceError
from ._server import McpServer
from ._settings import PREFIX, listed, settings

__all__ = ["ABOUT", "main", "serve"]

_MOST = 32 << 20
_WORKERS = 16
ABOUT = f"""\
Serve run_code, write_file, read_file and list_files to an MCP client, on
standard input and output. A client starts it; docs/MCP.md says how.

Variables:
{listed()}

exit status: 0 when the client is gone, 2 where a variable is not accepted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command ``kern-mcp``; returns its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    fill_standard_streams()
    try:
        if words in (["--help"], ["-h"]):
            print(f"usage: kern-mcp\n\n{ABOUT}", end="", flush=True)
        elif words == ["--version"]:
            print(f"kern-mcp {__version__}", flush=True)
        elif words:
            print(f"kern-mcp: takes no arguments, not {words[0]!r}; see kern-mcp --help", file=sys.stderr)
            return 2
        else:
            return serve()
    except SandboxError as error:
        print(f"kern-mcp: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kern-mcp: interrupted; every box was stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python tries again at its end
        return 141
    return 0


def serve() -> int:
    """Serve until the client is gone; returns the exit status."""
    try:
        server = McpServer(settings(os.environ))
    except (WorkspaceError, MountRefused) as error:
        print(f"kern-mcp: {PREFIX}WORKSPACE: {error}", file=sys.stderr)
        return 2
    except SandboxError as error:
        print(f"kern-mcp: {error}", file=sys.stderr)
        return 2
    if os.isatty(0):
        print("kern-mcp: waiting for an MCP client; Ctrl-D ends it (see kern-mcp --help)", file=sys.stderr)
    with claimed(_MOST) as wire:
        server.warm()  # what it starts must not hold the wire
        Server(wire, server, workers=_WORKERS, answers_cancelled=False).serve()
    return 0
