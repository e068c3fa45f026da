"""The Model Context Protocol face: ``kern-mcp`` and ``python -m kern_sandbox.mcp``."""
