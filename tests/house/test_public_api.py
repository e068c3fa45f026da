"""The roof: what `import kern_sandbox` gives, what it costs, and that it works where boxes cannot."""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kern_sandbox
from support import PACKAGE, REPO, parsed

SITE = str(Path(kern_sandbox.__path__[0]).parent)
HEAVY = ["asyncio", "concurrent.futures", "http.client", "multiprocessing", "ssl", "urllib.request"]


def in_fresh_python(code: str) -> object:
    """What ``code`` prints, as JSON, in an interpreter that has imported nothing yet."""
    program = f"import json, sys; sys.path.insert(0, {SITE!r})\n{code}"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- names ------------------------------------------------------------------------------------------------------


def test_all_is_sorted_and_has_no_name_twice() -> None:
    assert list(kern_sandbox.__all__) == sorted(set(kern_sandbox.__all__))


def test_all_names_exactly_what_the_roof_reexports() -> None:
    """Type checkers see the imports below TYPE_CHECKING, everybody else sees ``__all__``: they agree."""
    reexported = {
        alias.asname or alias.name
        for node in ast.walk(parsed(PACKAGE / "__init__.py"))
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert reexported | {"__version__"} == set(kern_sandbox.__all__)


def test_dir_shows_exactly_the_public_names() -> None:
    shown = {name for name in dir(kern_sandbox) if not name.startswith("_")} - {"annotations", "TYPE_CHECKING"}
    values = {name: getattr(kern_sandbox, name) for name in shown}
    names = {name for name, value in values.items() if callable(value) or not inspect.ismodule(value)}
    assert names | {"__version__"} == set(kern_sandbox.__all__)


@pytest.mark.parametrize("name", ["doctor", "render"])
def test_a_function_with_the_name_of_its_module_can_be_called_whichever_came_first(name: str) -> None:
    code = f"import kern_sandbox.{name}\nprint(json.dumps(callable(kern_sandbox.{name})))"
    assert in_fresh_python(code) is True
    assert in_fresh_python(code.replace(f".{name}\n", "\n", 1)) is True


def test_every_error_class_is_public() -> None:
    from kern_sandbox import errors

    assert set(errors.__all__) <= set(kern_sandbox.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kern_sandbox.no_such_name


@pytest.mark.parametrize("name", kern_sandbox.__all__)
def test_every_public_callable_says_what_it_does(name: str) -> None:
    value = getattr(kern_sandbox, name)
    own = [value] if callable(value) else []
    if inspect.isclass(value):
        own += [member for key, member in vars(value).items() if not key.startswith("_") and _is_ours(member)]
    assert not [getattr(thing, "__qualname__", thing) for thing in own if not (inspect.getdoc(thing) or "").strip()]


def _is_ours(member: object) -> bool:
    return isinstance(member, (property, classmethod, staticmethod)) or inspect.isfunction(member)


def test_the_version_is_the_one_that_is_installed() -> None:
    assert kern_sandbox.__version__.count(".") == 2
    if os.environ.get("KERN_EXPECT_INSTALLED") == "1":
        from importlib.metadata import version

        assert version("kern-sandbox") == kern_sandbox.__version__


def test_ci_tests_the_installed_package_and_not_the_source_tree() -> None:
    installed = Path(SITE).is_relative_to(sys.prefix) and not Path(SITE).is_relative_to(REPO)
    assert installed or os.environ.get("KERN_EXPECT_INSTALLED") != "1", SITE


# --- cost -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    ["import kern_sandbox", "from kern_sandbox import Sandbox, run_code", "import kern_sandbox._forkserver.server"],
)
def test_importing_stays_cheap(statement: str) -> None:
    assert in_fresh_python(f"{statement}\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))") == []


def test_the_check_of_what_is_imported_finds_a_heavy_module() -> None:
    assert in_fresh_python(f"import ssl\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))") == ["ssl"]


# --- elsewhere --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_the_package_imports_and_the_first_call_says_linux_only(platform: str) -> None:
    code = f"""
import asyncio  # which would look for that platform's parts
sys.platform = {platform!r}
import kern_sandbox
names = [getattr(kern_sandbox, name) for name in kern_sandbox.__all__]
try:
    kern_sandbox.run_code("print(1)")
except kern_sandbox.HostError as error:
    print(json.dumps(str(error)))
"""
    said = in_fresh_python(code)
    assert isinstance(said, str)
    assert "Linux" in said
