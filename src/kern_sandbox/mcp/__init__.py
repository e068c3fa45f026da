"""The Model Context Protocol face: ``kern-mcp``, ``python -m kern_sandbox.mcp`` and ``kern-sandbox mcp``.

It serves the tools of `kern_sandbox.tool` on standard input and output, with nothing but the standard library, to
clients of protocol 2026-07-28 and of the handshake revisions before it. ``docs/MCP.md`` says how to configure it.
"""

from __future__ import annotations

from ._main import main, serve

__all__ = ["main", "serve"]
