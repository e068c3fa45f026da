"""The suite of LangChain for every tool that does something."""

from __future__ import annotations

from typing import Any

from langchain_tests.integration_tests import ToolsIntegrationTests

from langchain_kern_sandbox import KernCodeTool, kern_code_tool


class TestKernCodeToolIntegration(ToolsIntegrationTests):
    @property
    def tool_constructor(self) -> KernCodeTool:
        return kern_code_tool()

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"code": "print(6 * 7)"}
