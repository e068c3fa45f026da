"""Cases, scenes, evidence and targets that tests make up."""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING, Any, Callable

from kern_sandbox import ExecutionResult
from kern_sandbox.evals._cases import Case, Claim, Control
from kern_sandbox.evals._judges import Evidence, finished_mark
from kern_sandbox.evals._stage import Scene, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kern_sandbox.evals._targets import Demand


def case(judge: str = "verdict", family: str = "escape", /, **more: Any) -> Case:
    """A case of a claim of its own; ``expected`` and ``title`` are the case's, the rest the claim's."""
    own = {name: more.pop(name) for name in ("expected", "title") if name in more}
    more.setdefault("control", Control(why_none="made up for a test"))
    claim = Claim(f"{family}/claim", "It holds.", ("B01",), judge, **more)
    return Case(
        f"{family}/made", claim, "python", **{"title": "Made up", **own}, calls=("pass",), parameters=claim.parameters
    )


def result(out: str = "", **more: Any) -> ExecutionResult:
    """A result that printed ``out``."""
    raw = out.encode("utf-8", "replace")
    return ExecutionResult(stdout=out, stdout_bytes=raw, **more)


class Room:
    """A workspace in which every call gives what ``play`` gives."""

    def __init__(self, workspace: str, play: Callable[[str], ExecutionResult]) -> None:
        self.workspace = workspace
        self.play = play

    def run(self, code: str, language: str) -> ExecutionResult:
        """What was agreed on."""
        return self.play(code)

    def read(self, path: str) -> bytes:
        """As a careless host reads."""
        with open(f"{self.workspace}/{path}", "rb") as file:
            return file.read()

    def write(self, path: str, data: str) -> None:
        """As a careless host writes."""
        with open(f"{self.workspace}/{path}", "w") as file:
            file.write(data)


class Target:
    """A target that pretends to be kern_sandbox and does what it is told."""

    boxed = True

    def __init__(self, play: Callable[[str], ExecutionResult], *, name: str = "exec", ours: bool = True) -> None:
        self.play = play
        self.name = name
        self.ours = ours

    def why_not(self) -> str:
        """It runs."""
        return ""

    @contextlib.contextmanager
    def room(self, demand: Demand) -> Iterator[Room]:
        """A temporary directory."""
        with tempfile.TemporaryDirectory() as workspace:
            yield Room(workspace, self.play)

    def shown(self, path: str) -> str:
        """Where it is."""
        return path

    def close(self) -> None:
        """Nothing is kept."""


@contextlib.contextmanager
def scene(of: Case) -> Iterator[tuple[Scene, Room]]:
    """A scene for a case, and its room."""
    with Stage() as stage, tempfile.TemporaryDirectory() as workspace:
        room = Room(workspace, lambda code: result())
        with Scene.open(stage, of.claim, workspace) as made:
            yield made, room


def evidence(of: Case, made: Scene, room: Room, *results: ExecutionResult, rendered: str = "") -> Evidence:
    """Evidence with these results; with none, of a case that ran to its end."""
    return Evidence(of, results or (result(finished_mark(made.token)),), rendered, made, room)
