"""Imports go down only: the floors of the house, as data, held over the syntax tree."""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from loading import module_at
from support import PACKAGE, REPO, parsed, python_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORDS: frozenset[str] = module_at(REPO / "scripts" / "import_graph.py").WORDS
CORE = WORDS | {"_linux", "_shelf", "_image", "_egress", "_profiles", "_box", "workspace", "_forkserver"}
API = frozenset(
    {
        "kernel",
        "once",
        "process",
        "sandbox",
        "session",
        "setup",
        "aio",
        "render",
        "tool",
        "userland",
        "bytecode",
    },
)

SEES: dict[str, frozenset[str]] = {
    # 0: words
    "_places": WORDS,
    "_streams": frozenset(),
    "checks": WORDS,
    "forksafe": WORDS,
    "errors": frozenset(),
    "results": WORDS,
    "spec": WORDS,
    "spec_network": WORDS,
    "spec_protect": WORDS,
    "spec_setup": WORDS,
    # 1: verbs without policy
    "_linux": WORDS,
    # 2: what a box, an image and a workspace are
    "_image": WORDS | {"_linux", "workspace"},
    "_egress": WORDS | {"_linux"},
    "_profiles": WORDS,
    "_box": WORDS | {"_linux"},
    "workspace": WORDS | {"_linux"},
    "_shelf": WORDS | {"_linux", "workspace"},
    # 3: the process that makes boxes
    "_forkserver": WORDS | {"_linux", "_box", "_egress", "workspace"},
    # 4: what a user calls
    "kernel": CORE | API,
    "once": CORE | API,
    "process": CORE | API,
    "session": CORE | API,
    "setup": CORE | API,
    "sandbox": CORE | API,
    "aio": CORE | API,
    "tool": CORE | API,
    "userland": CORE | API,
    "bytecode": CORE | API,
    "render": WORDS,
    # 5: faces; "" is the package itself
    "_rpc": WORDS,
    "mcp": CORE | API | {"_rpc", ""},
    "serve": CORE | API | {"_rpc", ""},
    "doctor": CORE,
    "langchain": frozenset(),
    "evals": frozenset({"", "render"}),  # what anybody may use, and no more
    "cli": CORE | API | {"doctor", "evals", "mcp", "serve", ""},
    "__main__": frozenset({"cli"}),
    "": CORE | API | {"doctor"},
    # an island: `test_guest_code_is_an_island` holds it
    "_guest": frozenset(),
}
"""Room (a module or subpackage of kern_sandbox) to the rooms that it may import, besides itself."""

DOORS = {
    "_profiles": {"tomli", "tomllib"},  # Python has a reader of TOML from 3.11 on
    "_image": {"zstandard", "compression"},  # the extra ``zstd``; part of Python itself from 3.14 on
    "cli": {"rich", "shtab"},  # the extra ``cli``
    "langchain": {"langchain_kern_sandbox"},
    "_forkserver": {"run_once"},  # template_main is a script that lies beside the guest's files in a box
}
"""Room to the distributions, other than Python itself, that it may import."""

PUBLIC_MODULES = {"tool", "mcp", "langchain"}
"""Modules that adapters may import besides the package itself."""


class Imported(NamedTuple):
    """One import: the line, the dotted module, and the name taken from it, or ``""``."""

    line: int
    module: str
    name: str


def imports(tree: ast.Module, package: str) -> Iterator[Imported]:
    """Every import in the tree, absolute; ``package`` is the dotted package that holds the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Imported(node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            yield from (Imported(node.lineno, module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"__import__", "importlib.import_module"}:
            target = node.args[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                yield Imported(node.lineno, package + target.value if target.value[0] == "." else target.value, "")


def dotted_package(path: Path) -> str:
    """The package that holds the module at ``path``, e.g. ``kern_sandbox._box``."""
    return ".".join(["kern_sandbox", *path.relative_to(PACKAGE).parts[:-1]])


def room_of(path: Path) -> str:
    """The room that the file belongs to; ``""`` for the package's own ``__init__.py``."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def target_room(imported: Imported) -> str | None:
    """The room of kern_sandbox that is imported, ``""`` for the package itself, ``None`` for anything else."""
    parts = imported.module.split(".")
    if parts[0] != "kern_sandbox":
        return None
    if len(parts) > 1:
        return parts[1]
    return imported.name if imported.name in SEES else ""


def upward(room: str, tree: ast.Module, package: str) -> list[str]:
    """The imports of the tree that lead to a room which ``room`` does not see, or out of the standard library."""
    wrong = []
    for imported in imports(tree, package):
        target = target_room(imported)
        if target is None:
            top = imported.module.partition(".")[0]
            if not in_standard_library(top) and top not in DOORS.get(room, ()):
                wrong.append(
                    f"line {imported.line}: {room or '__init__'} imports {imported.module}, not of Python itself"
                )
        elif target not in SEES[room] | {room}:
            wrong.append(f"line {imported.line}: {room or '__init__'} imports {target or 'the package itself'}")
    return wrong


def in_standard_library(top: str) -> bool:
    """Whether ``top`` is Python's own module; true for all on Python 3.9, which keeps no list."""
    known: frozenset[str] | None = getattr(sys, "stdlib_module_names", None)
    return known is None or top in known


PACKAGE_FILES = python_files("src/kern_sandbox")
GUEST_FILES = [path for path in PACKAGE_FILES if room_of(path) == "_guest"]


def name_of(path: Path) -> str:
    """The path as a test's id."""
    return str(path.relative_to(REPO))


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=name_of)
def test_a_module_imports_only_what_its_floor_sees(path: Path) -> None:
    room = room_of(path)
    assert room in SEES, f"{room!r} is a new room: say in SEES what it may import"
    wrong = [] if room == "_guest" else upward(room, parsed(path), dotted_package(path))
    assert not wrong


def test_every_room_of_the_table_is_there_and_on_its_floor_in_the_architecture() -> None:
    page = (
        (REPO / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Floors")[2].partition("\n## ")[0]
    )
    named = set(re.findall(r"\w+", page.partition("```text")[2].partition("```")[0]))
    there = {room_of(path) for path in PACKAGE_FILES}
    assert set(SEES) == there
    assert there - {""} <= named


@pytest.mark.parametrize(
    ("room", "package", "code"),
    [
        ("errors", "kern_sandbox", "from .spec import BoxSpec"),
        ("_linux", "kern_sandbox._linux", "from kern_sandbox._box import plan"),
        ("_box", "kern_sandbox._box", "from .._forkserver.client import Client"),
        ("_box", "kern_sandbox._box", "def late():\n    import kern_sandbox.sandbox"),
        ("render", "kern_sandbox", "from ._linux import libc"),
        ("sandbox", "kern_sandbox", "from . import cli"),
        ("sandbox", "kern_sandbox", "from . import run_code"),
        ("workspace", "kern_sandbox", "import importlib\nimportlib.import_module('._guest.show')"),
        ("cli", "kern_sandbox", "from kern_sandbox._guest import show"),
        ("tool", "kern_sandbox", "import requests"),
        ("tool", "kern_sandbox", "from .no_such_room import x"),
    ],
)
def test_a_planted_import_upwards_is_found(room: str, package: str, code: str) -> None:
    assert upward(room, ast.parse(code), package)


@pytest.mark.parametrize(
    ("room", "package", "code"),
    [
        ("spec", "kern_sandbox", "from .errors import SpecError\nimport dataclasses"),
        ("_box", "kern_sandbox._box", "from .._linux.mounts import bind_mount\nfrom . import plan"),
        ("cli", "kern_sandbox", "from . import __version__\nfrom .doctor import doctor"),
        ("langchain", "kern_sandbox", "from langchain_kern_sandbox import kern_code_tool"),
    ],
)
def test_an_import_downwards_is_accepted(room: str, package: str, code: str) -> None:
    assert not upward(room, ast.parse(code), package)


def off_the_island(tree: ast.Module, siblings: set[str]) -> list[str]:
    """The imports of guest code that its box might not have."""
    return [
        f"line {imported.line}: {imported.module}"
        for imported in imports(tree, "(guest)")
        if not (imported.module == "(guest)" and imported.name in siblings)
        and imported.module.removeprefix("(guest).") not in siblings
        and (target_room(imported) is not None or not in_standard_library(imported.module.partition(".")[0]))
    ]


@pytest.mark.parametrize("path", GUEST_FILES, ids=name_of)
def test_guest_code_is_an_island(path: Path) -> None:
    """Guest code runs where kern_sandbox is not installed: the standard library and its own files are all it has."""
    wrong = off_the_island(parsed(path), {path.stem for path in GUEST_FILES})
    assert not wrong


@pytest.mark.parametrize("code", ["import numpy", "from kern_sandbox import errors", "from . import nobody"])
def test_a_planted_import_off_the_island_is_found(code: str) -> None:
    assert off_the_island(ast.parse(code), {"show", "repl"})


def test_guest_code_may_import_its_siblings_and_python() -> None:
    assert not off_the_island(
        ast.parse("import json\nimport show\nfrom . import repl\nfrom .show import x"), {"show", "repl"}
    )


def more_than_reexports(tree: ast.Module) -> list[str]:
    """The statements of a package's ``__init__`` that do work of their own."""
    return [
        f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}"
        for node in tree.body
        if not (
            isinstance(node, (ast.Import, ast.ImportFrom, ast.If, ast.Expr, ast.Assign, ast.AnnAssign))
            or (isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"})
        )
        or (isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING")
        or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant))
    ]


def test_the_roof_only_reexports() -> None:
    wrong = more_than_reexports(parsed(PACKAGE / "__init__.py"))
    assert not wrong


@pytest.mark.parametrize("code", ["def run(): ...", "class Sandbox: ...", "print(1)", "if sys.argv: x = 1"])
def test_planted_work_in_the_roof_is_found(code: str) -> None:
    assert more_than_reexports(ast.parse(code))


def private_names(tree: ast.Module, public: set[str]) -> list[str]:
    """The imports of an adapter that go past the public surface."""
    wrong = []
    for imported in imports(tree, "(adapter)"):
        parts = imported.module.split(".")
        if parts[0] != "kern_sandbox":
            continue
        from_root = len(parts) == 1 and imported.name in public | PUBLIC_MODULES | {""}
        from_module = len(parts) == 2 and parts[1] in PUBLIC_MODULES and not imported.name.startswith("_")
        if not (from_root or from_module):
            wrong.append(f"line {imported.line}: {imported.module} {imported.name}")
    return wrong


def public_names() -> set[str]:
    """What the roof says is public."""
    for node in parsed(PACKAGE / "__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError("kern_sandbox/__init__.py has no literal __all__")


def test_adapters_and_examples_use_only_public_names() -> None:
    wrong = {
        name_of(path): private_names(parsed(path), public_names()) for path in python_files("integrations", "examples")
    }
    assert not {path: names for path, names in wrong.items() if names}


@pytest.mark.parametrize(
    "code",
    [
        "from kern_sandbox._linux import libc",
        "from kern_sandbox.sandbox import Sandbox",
        "from kern_sandbox.tool import _schema",
        "from kern_sandbox import nothing_public",
    ],
)
def test_a_planted_private_name_in_an_adapter_is_found(code: str) -> None:
    assert private_names(ast.parse(code), {"Sandbox", "run_code"})
    assert not private_names(
        ast.parse("from kern_sandbox import Sandbox\nfrom kern_sandbox.tool import schema"), {"Sandbox"}
    )
