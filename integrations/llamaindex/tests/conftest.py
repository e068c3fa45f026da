"""One spec for all tests that do not need one of their own: its boxes are warm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from llama_index.tools.kern_sandbox import KernSandboxToolSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llama_index.core.tools import FunctionTool


@pytest.fixture(scope="session")
def spec() -> Iterator[KernSandboxToolSpec]:
    with KernSandboxToolSpec() as made:
        yield made


@pytest.fixture(scope="session")
def tools(spec: KernSandboxToolSpec) -> dict[str, FunctionTool]:
    """The spec's tools by name."""
    return {tool.metadata.get_name(): tool for tool in spec.to_tool_list()}
