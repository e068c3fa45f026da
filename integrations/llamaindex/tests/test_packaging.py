"""The distribution as it is installed: a part of two namespaces that belong to nobody."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path

import llama_index.tools
import llama_index.tools.code_interpreter
import llama_index.tools.kern_sandbox

DISTRIBUTION = importlib.metadata.distribution("llama-index-tools-kern-sandbox")
FILES = {str(path) for path in DISTRIBUTION.files or ()}


def test_these_tests_run_on_the_installed_wheel() -> None:
    installed = DISTRIBUTION.locate_file("llama_index/tools/kern_sandbox/__init__.py")
    assert Path(llama_index.tools.kern_sandbox.__file__) == Path(str(installed))
    assert "direct_url.json" not in FILES or "editable" not in (DISTRIBUTION.read_text("direct_url.json") or "")


def test_the_wheel_holds_the_package_and_nothing_of_its_namespaces() -> None:
    package = "llama_index/tools/kern_sandbox/"
    code = {path for path in FILES if ".dist-info/" not in path and "__pycache__" not in path}
    assert code == {f"{package}{name}" for name in ("__init__.py", "base.py", "py.typed")}
    assert any(path.endswith("licenses/LICENSE") for path in FILES)


def test_it_lies_beside_another_tool_package() -> None:
    assert llama_index.tools.__file__ is None
    here, other = (
        Path(str(module.__file__)).parent
        for module in (llama_index.tools.kern_sandbox, llama_index.tools.code_interpreter)
    )
    assert here.parent == other.parent
    assert importlib.metadata.version("llama-index-tools-code-interpreter")
    assert llama_index.tools.code_interpreter.CodeInterpreterToolSpec().to_tool_list()


def test_what_is_public_is_what_the_package_says() -> None:
    module = importlib.import_module("llama_index.tools.kern_sandbox")
    assert module.__all__ == ["KernSandboxToolSpec"]
    assert module.KernSandboxToolSpec.__doc__
