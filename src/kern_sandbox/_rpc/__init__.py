"""JSON-RPC 2.0 over standard input and output, one message a line: what the MCP server and the bridge share."""

from __future__ import annotations

from .server import DEFERRED, Handler, Request, RpcError, Server
from .wire import Wire, claimed

__all__ = ["DEFERRED", "Handler", "Request", "RpcError", "Server", "Wire", "claimed"]
