"""Sizes and habits that keep the code readable, ratcheted: a budget is lowered, never raised."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING, Union

import pytest

from support import PACKAGE, REPO, parsed, python_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 50
NESTING = 3
PARAMETERS = 5

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]

SIGNATURES = {
    # The public verbs: their options are keyword-only and documented one by one.
    "run_code",
    "Sandbox.__init__",
    "Sandbox.run_code",
    "Sandbox.run",
    "Sandbox.spawn",
    "AsyncSandbox.__init__",
    "AsyncSandbox.run_code",
    "AsyncSandbox.run",
    "AsyncSandbox.spawn",
}
"""Functions whose parameters, and so their lines, are fixed by the public surface and not by the budget."""

REGISTRIES = {
    "_forkserver/client.py:_registry": "one fork server per process, shared by every Sandbox, forgotten after a fork",
}
"""``file:name`` of module-level state, to the reason why it has to live there."""

PACKAGE_FILES = python_files("src/kern_sandbox")
OTHER_FILES = python_files("tests", "benchmarks", "examples", "evals", "integrations")


def name_of(path: Path) -> str:
    """The path as a test's id."""
    return str(path.relative_to(REPO))


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every function of the tree with its qualified name, methods and nested ones included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, prefix)


# --- size -------------------------------------------------------------------------------------------------------


def too_long(text: str) -> list[str]:
    """The file, and the functions in it, that are longer than their budget."""
    lines = len(text.splitlines())
    wrong = [f"file: {lines} lines of {FILE_LINES}"] if lines > FILE_LINES else []
    for name, node in functions(ast.parse(text)):
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        if size > FUNCTION_LINES and name not in SIGNATURES:
            wrong.append(f"line {node.lineno}: {name} has {size} lines of {FUNCTION_LINES}")
    return wrong


@pytest.mark.parametrize("path", PACKAGE_FILES + OTHER_FILES, ids=name_of)
def test_files_and_functions_are_short(path: Path) -> None:
    wrong = too_long(path.read_text(encoding="utf-8"))
    assert not wrong


def test_a_planted_long_file_and_function_are_found() -> None:
    assert too_long("x = 1\n" * (FILE_LINES + 1))
    assert not too_long("x = 1\n" * FILE_LINES)
    assert too_long("class A:\n  def f(self):\n" + "    x = 1\n" * FUNCTION_LINES)
    assert not too_long("def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1))


# --- shape ------------------------------------------------------------------------------------------------------

BLOCKS = tuple(
    getattr(ast, name)
    for name in ["For", "AsyncFor", "While", "If", "With", "AsyncWith", "Try", "TryStar", "Match"]
    if hasattr(ast, name)  # TryStar and Match came after Python 3.9
)


def depth(node: ast.AST) -> int:
    """How many blocks enclose the innermost statement; ``elif`` stays level, a nested function starts anew."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        is_elif = isinstance(child, ast.If) and isinstance(node, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def parameters(node: Function) -> int:
    """How many parameters a caller sees."""
    args = node.args
    named = [arg.arg for arg in [*args.posonlyargs, *args.args]]
    bound = named[:1] in (["self"], ["cls"])
    return len(named) - bound + len(args.kwonlyargs) + (args.vararg is not None) + (args.kwarg is not None)


def ill_shaped(tree: ast.Module) -> list[str]:
    """The functions that nest deeper or take more than their budget."""
    wrong = []
    for name, node in functions(tree):
        if depth(node) > NESTING:
            wrong.append(f"line {node.lineno}: {name} nests {depth(node)} deep of {NESTING}")
        if parameters(node) > PARAMETERS and name not in SIGNATURES:
            wrong.append(f"line {node.lineno}: {name} takes {parameters(node)} parameters of {PARAMETERS}")
    return wrong


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=name_of)
def test_functions_are_flat_and_take_few_parameters(path: Path) -> None:
    wrong = ill_shaped(parsed(path))
    assert not wrong


def test_a_planted_deep_or_wide_function_is_found() -> None:
    def nest(levels: int) -> ast.Module:
        lines = ["def f():", *("  " * level + "if x:" for level in range(1, levels + 1)), "  " * (levels + 1) + "pass"]
        return ast.parse("\n".join(lines))

    assert ill_shaped(nest(NESTING + 1))
    assert not ill_shaped(nest(NESTING))
    assert not ill_shaped(
        ast.parse("def f():\n  if a: pass\n  elif b: pass\n  elif c: pass\n  elif d: pass\n  else: pass")
    )
    assert ill_shaped(ast.parse("def f(a, b, c, *, d, e, f): ..."))
    assert not ill_shaped(ast.parse("class A:\n  def f(self, a, b, c, *, d, e): ..."))
    assert not ill_shaped(ast.parse("class Sandbox:\n  def run(self, a, b, c, *, d, e, f, g): ..."))


# --- state ------------------------------------------------------------------------------------------------------

# fmt: off
FILLED_LATER = {
    "list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict", "ChainMap", "count", "cycle",
    "Lock", "RLock", "Condition", "Event", "Semaphore", "local", "ContextVar",
    "WeakSet", "WeakKeyDictionary", "WeakValueDictionary",
}
CHANGES = {
    "append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear",
    "sort", "reverse",
}
# fmt: on
DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
LANGUAGE = {"__all__", "__slots__", "__match_args__"}


def module_names(tree: ast.Module) -> Iterator[tuple[int, str, ast.expr]]:
    """Line, name and value of every assignment at module level."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((node.lineno, target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.lineno, node.target.id, node.value


def changed_names(tree: ast.Module) -> set[str]:
    """The names of which something in the module changes the contents."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            found.add(node.value.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Attribute) and node.attr in CHANGES and isinstance(node.value, ast.Name):
            found.add(node.value.id)
    return found


def state(tree: ast.Module) -> list[str]:
    """The names at module level that hold state: containers, locks, counters, objects of the module's own classes.

    Under an upper-case name, a table that is written out or an object is a constant as long as nothing changes it.
    """
    changed = changed_names(tree)
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    found = []
    for line, name, value in module_names(tree):
        call = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
        constant = name.strip("_").isupper() and name not in changed and ast.unparse(value) not in {"[]", "{}"}
        variable = not constant and (isinstance(value, DISPLAYS) or call in classes)
        if name not in LANGUAGE and (call in FILLED_LATER or variable):
            found.append(f"line {line}: {name}")
    found += [f"line {node.lineno}: {ast.unparse(node)}" for node in ast.walk(tree) if isinstance(node, ast.Global)]
    return found


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=name_of)
def test_a_module_holds_no_state(path: Path) -> None:
    wrong = [found for found in state(parsed(path)) if registry_key(path, found) not in REGISTRIES]
    assert not wrong


def registry_key(path: Path, found: str) -> str:
    """How `REGISTRIES` names what `state` found in the file."""
    return f"{path.relative_to(PACKAGE)}:{found.rpartition(' ')[2]}"


def test_every_registry_is_still_there() -> None:
    present = {registry_key(path, found) for path in PACKAGE_FILES for found in state(parsed(path))}
    assert REGISTRIES.keys() <= present


@pytest.mark.parametrize(
    "code",
    [
        "cache = {}",
        "_BOXES: dict[str, int] = {}",
        "SEEN = set()",
        "import threading\n_lock = threading.Lock()",
        "TABLE = {'a': 1}\ndef f(): TABLE['b'] = 2",
        "NAMES = ['a']\ndef f(): NAMES.append('b')",
        "names = ['a']",
        "class Registry: ...\n_registry = Registry()",
        "def f():\n  global x\n  x = 1",
    ],
)
def test_planted_state_is_found(code: str) -> None:
    assert state(ast.parse(code))


@pytest.mark.parametrize(
    "code", ["__all__ = ['f']", "TABLE = {'a': 1}", "_T = ['a']", "def f():\n  found = []", "X = frozenset({1})"]
)
def test_constants_are_no_state(code: str) -> None:
    assert not state(ast.parse(code))


# --- broad excepts ----------------------------------------------------------------------------------------------

BROAD = {"Exception", "BaseException"}


def comments(text: str) -> dict[int, str]:
    """Line to comment, without the marks that speak to tools."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    return {
        line: re.sub(r"#\s*(noqa|type|pragma|fmt|mypy):\s*\S*", "", comment).strip("# -:")
        for line, comment in found.items()
    }


def unexplained(text: str) -> list[str]:
    """The handlers that catch everything without saying why on their line."""
    wrong = []
    said = comments(text)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            wrong.append(f"line {node.lineno}: bare except")
            continue
        caught = {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)}
        if caught & BROAD and len(said.get(node.lineno, "").split()) < 3:
            wrong.append(f"line {node.lineno}: except {ast.unparse(node.type)}, without a reason beside it")
    return wrong


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=name_of)
def test_catching_everything_has_a_reason_beside_it(path: Path) -> None:
    wrong = unexplained(path.read_text(encoding="utf-8"))
    assert not wrong


@pytest.mark.parametrize(
    "caught", ["", " Exception", " (ValueError, BaseException) as e", " Exception:  # noqa: BLE001\n  pass\nfinally"]
)
def test_a_planted_broad_except_is_found(caught: str) -> None:
    assert unexplained(f"try:\n  f()\nexcept{caught}:\n  pass\n")


@pytest.mark.parametrize("caught", [" OSError:", " Exception:  # a callback may raise anything"])
def test_a_narrow_or_explained_except_is_accepted(caught: str) -> None:
    assert not unexplained(f"try:\n  f()\nexcept{caught}\n  pass\n")
