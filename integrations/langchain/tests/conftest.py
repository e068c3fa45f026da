"""One tool for all tests that do not need one of their own: making it asks boxes for their interpreters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langchain_kern_sandbox import KernCodeTool, kern_code_tool

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def tool() -> Iterator[KernCodeTool]:
    with kern_code_tool() as made:
        yield made
