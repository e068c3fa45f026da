"""Print the import graph of the package's rooms for Graphviz: ``make graph`` draws ``docs/imports.svg`` of it.

A room is a module or subpackage of ``kern_sandbox``. Rooms that import each other are one box; the words of floor 0,
which everybody may import, are one box too. An import that a longer way implies is left out.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "kern_sandbox"
ROOF = "kern_sandbox"
WORDS = frozenset(
    (
        "_places",
        "_streams",
        "checks",
        "errors",
        "forksafe",
        "results",
        "spec",
        "spec_network",
        "spec_protect",
        "spec_setup",
    )
)
WORDS_BOX = "words"
ISLAND = "_guest"
_HEAD = """\
digraph rooms {
  rankdir=TB; bgcolor="transparent"; ranksep=0.45; nodesep=0.2;
  node [shape=box, style="rounded,filled", fillcolor="#e4f3ea", color="#0b6e4f", fontname="Helvetica,Arial,sans-serif",
    fontsize=12, margin="0.2,0.06"];
  edge [color="#5d6672", arrowsize=0.6];
"""

Graph = dict[str, set[str]]


def room_of(path: Path) -> str:
    """The room that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return ROOF if first == "__init__" else first


def imported(path: Path) -> Iterator[str]:
    """The rooms that a file imports, at whatever place in it."""
    package = ["kern_sandbox", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _room(alias.name.split("."), [])
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield from _room([*base, *(node.module or "").split(".")], [alias.name for alias in node.names])


def _room(parts: list[str], names: list[str]) -> Iterator[str]:
    parts = [part for part in parts if part]
    if parts[:1] != ["kern_sandbox"]:
        return
    if len(parts) > 1:
        yield parts[1]
        return
    for name in names:
        yield name if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() else ROOF


def rooms() -> Graph:
    """Every room, with those that it imports."""
    graph: Graph = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "cases" not in path.parts and room_of(path) != ISLAND:
            graph.setdefault(room_of(path), set()).update(imported(path))
    return {room: others - {room} for room, others in graph.items()}


def reached(graph: Mapping[str, set[str]], room: str) -> set[str]:
    """Every room that leads on from one."""
    found: set[str] = set()
    front = [room]
    while front:
        new = graph[front.pop()] - found
        found |= new
        front += new
    return found


def boxes() -> Graph:
    """The graph as it is drawn: rooms of one box together, and no import that others imply."""
    graph = rooms()
    reach = {room: reached(graph, room) for room in graph}
    name = {room: _box(room, graph, reach) for room in graph}
    whole: Graph = {box: set() for box in name.values()}
    for room, others in graph.items():
        whole[name[room]] |= {name[other] for other in others} - {name[room]}
    beyond = {box: set().union(*(reached(whole, other) for other in others)) for box, others in whole.items()}
    return {box: others - beyond[box] for box, others in whole.items()}


def _box(room: str, graph: Graph, reach: Mapping[str, set[str]]) -> str:
    if room in WORDS:
        return WORDS_BOX
    together = {other for other in graph if other in reach[room] and room in reach[other]} | {room}
    return " ".join(sorted(together))


def main() -> None:
    """Print it."""
    graph = boxes()
    lines = [f'  "{box}" [label="{_label(box)}"];' for box in sorted(graph)]
    lines += [f'  "{box}" -> "{other}";' for box in sorted(graph) for other in sorted(graph[box])]
    sys.stdout.write(_HEAD + "\n".join(lines) + "\n}\n")


def _label(box: str) -> str:
    """The words of a box, on lines of a few."""
    words, most = (["words:", *sorted(WORDS)], 5) if box == WORDS_BOX else (box.split(), 2)
    return "\\n".join(" ".join(words[at : at + most]) for at in range(0, len(words), most))


if __name__ == "__main__":
    main()
