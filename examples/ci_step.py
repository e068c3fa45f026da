"""Runs the steps of a build, each in a box: on a copy of the tree, without network, and not for ever.

    python examples/ci_step.py PROJECT [--keep DIR] -- 'python3 -m unittest' './lint.sh'

Steps are shell lines. They share the copy of the tree, so that a later step finds what an earlier one has built, and
nothing else. The first that fails ends the run. ``--keep`` copies what the steps made into a directory. The exit
status is that of the step that failed, else 0.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import kern_sandbox as kern

if TYPE_CHECKING:
    from collections.abc import Callable

SKIPPED = {".git", ".venv", "__pycache__", "node_modules"}


class Step(NamedTuple):
    """One line, and what came of it."""

    line: str
    result: kern.ExecutionResult

    def __str__(self) -> str:
        fault = self.result.fault
        how = f"stopped: {fault.message}" if fault else f"exit status {self.result.exit_code}"
        return f"{'ok    ' if self.result.success else 'FAILED'} {self.line}  ({how}, {self.result.duration_ms} ms)"


def copy_in(project: Path, sandbox: kern.Sandbox) -> int:
    """Copy the project's regular files into the workspace, with their mode; how many there were."""
    count = 0
    for folder, folders, names in os.walk(project):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for path in (Path(folder, name) for name in names):
            if path.is_symlink() or not path.is_file():
                continue
            inside = path.relative_to(project).as_posix()
            sandbox.write_file(inside, path.read_bytes())
            Path(sandbox.workspace, inside).chmod(path.stat().st_mode & 0o777)
            count += 1
    return count


def shown(to: TextIO) -> Callable[[str], object]:
    """Writes what a step prints, of which a terminal obeys nothing."""
    return lambda text: to.write(kern.neutralise(text))


def run(sandbox: kern.Sandbox, lines: list[str]) -> list[Step]:
    """Run the lines until one fails; output is passed on as it comes."""
    steps: list[Step] = []
    for line in lines:
        result = sandbox.run(["sh", "-ec", line], on_stdout=shown(sys.stdout), on_stderr=shown(sys.stderr))
        steps.append(Step(line, result))
        if not result.success:
            break
    return steps


def copy_out(steps: list[Step], sandbox: kern.Sandbox, target: Path) -> list[str]:
    """Copy what the steps have created or modified; the names, which code has chosen, are used below ``target``."""
    changed = {file.path for step in steps for file in step.result.files}
    kept = sorted(changed & set(sandbox.list_files()))
    for name in kept:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(sandbox.read_file(name))
    return kept


def main() -> int:
    """Parse, copy, run, report."""
    parser = argparse.ArgumentParser(description="Run the steps of a build in boxes.")
    parser.add_argument("project", type=Path)
    parser.add_argument("lines", nargs="+", metavar="STEP", help="a shell line")
    parser.add_argument("--keep", type=Path, help="where what the steps made is copied to")
    parser.add_argument("--timeout-s", type=float, default=600)
    arguments = parser.parse_args()
    with kern.Sandbox(timeout_s=arguments.timeout_s, memory_mb=2048, workspace_mb=4096) as sandbox:
        print(f"{copy_in(arguments.project, sandbox)} files copied")
        steps = run(sandbox, arguments.lines)
        print(*steps, sep="\n")
        if arguments.keep:
            print("kept:", *map(kern.neutralise, copy_out(steps, sandbox, arguments.keep)))
    return steps[-1].result.exit_code


if __name__ == "__main__":
    sys.exit(main())
