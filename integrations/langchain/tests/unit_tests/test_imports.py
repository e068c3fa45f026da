"""What the package offers, and what it needs for it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points, version
from pathlib import Path

import kern_sandbox.langchain
import pytest

import langchain_kern_sandbox

NAMES = [
    "KernCodeTool",
    "KernExecutionPolicy",
    "KernProvider",
    "KernSandbox",
    "__version__",
    "kern_code_tool",
    "kern_execution_policy",
]


def test_all_is_what_is_documented() -> None:
    assert langchain_kern_sandbox.__all__ == NAMES
    assert dir(langchain_kern_sandbox) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name: str) -> None:
    assert getattr(langchain_kern_sandbox, name) is not None


def test_the_door_in_the_core_leads_here() -> None:
    for name in kern_sandbox.langchain.__all__:
        assert getattr(kern_sandbox.langchain, name) is getattr(langchain_kern_sandbox, name)


def test_the_version_is_that_of_the_distribution() -> None:
    assert version("langchain-kern-sandbox") == langchain_kern_sandbox.__version__


@pytest.mark.skipif(os.environ.get("KERN_EXPECT_INSTALLED") != "1", reason="only where the wheel is to be tested")
def test_what_is_tested_is_what_was_installed() -> None:
    assert Path(langchain_kern_sandbox.__file__).is_relative_to(sysconfig.get_path("purelib"))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        _ = langchain_kern_sandbox.no_such


def test_without_deepagents_the_rest_works_and_the_backend_says_what_to_install() -> None:
    program = """
import sys
sys.modules["deepagents"] = None
from langchain_kern_sandbox import kern_code_tool, kern_execution_policy
try:
    from langchain_kern_sandbox import KernSandbox
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'langchain-kern-sandbox[deepagents]'" in done.stdout, done.stderr


def test_deep_agents_code_finds_the_provider() -> None:
    from deepagents_code.integrations.sandbox_provider import SandboxProvider

    (found,) = entry_points(group="deepagents_code.sandbox_providers", name="kern")
    assert issubclass(found.load(), SandboxProvider)
