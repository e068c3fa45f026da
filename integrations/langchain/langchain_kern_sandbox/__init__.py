"""Boxes of kern_sandbox for LangChain, LangGraph and deepagents.

from langchain_kern_sandbox import kern_code_tool

agent = create_agent(model, [kern_code_tool(memory_mb=256)])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .provider import KernProvider
    from .sandbox import KernSandbox
    from .shell import KernExecutionPolicy, kern_execution_policy
    from .tool import KernCodeTool, kern_code_tool

__version__ = "0.1.0"

__all__ = [
    "KernCodeTool",
    "KernExecutionPolicy",
    "KernProvider",
    "KernSandbox",
    "__version__",
    "kern_code_tool",
    "kern_execution_policy",
]

_HOMES = {
    "KernCodeTool": "tool",
    "KernExecutionPolicy": "shell",
    "KernProvider": "provider",
    "KernSandbox": "sandbox",
    "kern_code_tool": "tool",
    "kern_execution_policy": "shell",
}


def __getattr__(name: str) -> object:
    """Names load on first use: deepagents is needed only by those that stand on it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "deepagents":
            raise
        hint = "pip install 'langchain-kern-sandbox[deepagents]'"
        raise ModuleNotFoundError(f"{error}: {name} stands on it. {hint}", name=error.name) from error


def __dir__() -> list[str]:
    return __all__
