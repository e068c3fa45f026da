"""The one definition of what a model gets: tools over a Sandbox, as names, JSON schemas and answers.

    from kern_sandbox import Sandbox
    from kern_sandbox.tool import Toolbox

    with Sandbox() as sandbox:
        tools = Toolbox(sandbox)
        [one.name for one in tools.definitions()]
        tools.call("run_code", {"code": "print(6 * 7)"}).text

The MCP server and the adapters of every framework are faces of this. All that an ``Answer`` holds has been through the
renderer and is bounded; ``Answer.result`` alone is as the box left it.
"""

from __future__ import annotations

from ..render import ImagePart, TextPart
from ._definitions import Definition
from ._interpreter import Cancel
from ._toolbox import Answer, Toolbox, describe_error

__all__ = ["Answer", "Cancel", "Definition", "ImagePart", "TextPart", "Toolbox", "describe_error"]
