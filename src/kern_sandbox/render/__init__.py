"""What a box gives back, made safe and useful to put in front of a model or a person.

``render(result)`` is the text, ``blocks(result)`` the text and the images, ``neutralise(text)`` the pass that every
string goes through. The module can itself be called as ``render``: ``kern_sandbox.render(result)``.
"""

from __future__ import annotations

import sys
from types import ModuleType

from ..results import ExecutionResult
from ._neutral import neutralise
from ._page import DEFAULT_LIMIT, DEFAULT_LINES, ImagePart, TextPart, blocks, render

__all__ = ["ImagePart", "TextPart", "blocks", "neutralise", "render"]


class _Callable(ModuleType):
    """This module: ``kern_sandbox.render`` names both it and its main function, whichever was imported first."""

    def __call__(
        self, result: ExecutionResult, *, limit: int = DEFAULT_LIMIT, lines: int = DEFAULT_LINES, strict: bool = False
    ) -> str:
        """As ``render.render``."""
        return render(result, limit=limit, lines=lines, strict=strict)


sys.modules[__name__].__class__ = _Callable
