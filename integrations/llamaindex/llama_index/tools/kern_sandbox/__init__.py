"""Boxes of kern_sandbox as tools of LlamaIndex.

from llama_index.tools.kern_sandbox import KernSandboxToolSpec

with KernSandboxToolSpec(memory_mb=512) as spec:
    agent = FunctionAgent(llm=llm, tools=spec.to_tool_list())
"""

from __future__ import annotations

from llama_index.tools.kern_sandbox.base import KernSandboxToolSpec

__all__ = ["KernSandboxToolSpec"]
