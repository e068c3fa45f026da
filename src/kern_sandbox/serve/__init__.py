"""The bridge for other languages: the verbs of a Sandbox as JSON-RPC on standard input and output.

``kern-sandbox serve`` runs it, ``docs/reference/bridge.md`` describes the protocol. It has no policy of its own:
options, checks and errors are those of the library.
"""

from __future__ import annotations

from ._bridge import Bridge, main

__all__ = ["Bridge", "main"]
