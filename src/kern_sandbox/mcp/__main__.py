"""Entry point of ``kern-mcp``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Say that this version has no MCP server; returns the exit status, 2."""
    print("kern-mcp: this version of kern-sandbox has no MCP server; use `kern-sandbox run` instead.", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
