"""The suite of LangChain for every tool."""

from __future__ import annotations

from typing import Any

from langchain_tests.unit_tests import ToolsUnitTests

from langchain_kern_sandbox import KernCodeTool, kern_code_tool


class TestKernCodeToolUnit(ToolsUnitTests):
    @property
    def tool_constructor(self) -> KernCodeTool:
        return kern_code_tool()

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"code": "print(6 * 7)", "language": "python", "timeout_s": 5}
