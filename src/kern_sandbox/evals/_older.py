"""kern-sandbox 0.2.49 from PyPI, in a virtual environment of its own that the user names."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

from kern_sandbox import ExecutionResult, SandboxFault

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Older", "Unusable", "temporary"]

PYTHON = "KERN_EVALS_OLDER_PYTHON"
IMAGE = "KERN_EVALS_OLDER_IMAGE"
_DRIVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases", "older_driver.py")
_PATIENCE_S = 120


class Unusable(Exception):
    """This target cannot run this case; the words say why."""


@contextlib.contextmanager
def temporary() -> Iterator[str]:
    """A temporary directory, removed as far as what runs in it allows."""
    folder = tempfile.mkdtemp(prefix="kern-evals-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _OlderRoom:
    def __init__(self, workspace: str, demand: Any) -> None:
        self.workspace = workspace
        self._demand = demand

    def run(self, code: str, language: str) -> ExecutionResult:
        said = _ask("run", self.workspace, {"code": code, "language": language, **_options(self._demand)})
        fault = SandboxFault(**said["fault"]) if said["fault"] else None
        return ExecutionResult(
            stdout=said["stdout"],
            stderr=said["stderr"],
            exit_code=said["exit_code"],
            fault=fault,
            stdout_bytes=said["stdout"].encode("utf-8", "replace"),
            stderr_bytes=said["stderr"].encode("utf-8", "replace"),
        )

    def read(self, path: str) -> bytes:
        return str(_ask("read", self.workspace, {"path": path, **_options(self._demand)})["data"]).encode()

    def write(self, path: str, data: str) -> None:
        _ask("write", self.workspace, {"path": path, "data": data, **_options(self._demand)})


def _options(demand: Any) -> dict[str, Any]:
    options = {**demand.options, "timeout_s": max(1, round(demand.timeout_s))}
    if demand.show:
        options["mounts"] = dict(demand.show)
    if IMAGE in os.environ:
        options["image"] = os.environ[IMAGE]
    return {"options": options}


def _ask(verb: str, workspace: str, words: dict[str, Any]) -> dict[str, Any]:
    """What the driver answers in the other environment's interpreter.

    Raises:
        Unusable: it could not do it.
        OSError: that version refused to read or write a file.
    """
    ran = subprocess.run(
        [os.environ[PYTHON], "-I", _DRIVER],
        input=json.dumps({"verb": verb, "workspace": workspace, **words}),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        close_fds=False,
        check=False,
    )
    if ran.returncode:
        raise Unusable(ran.stderr.strip().rpartition("\n")[2] or f"its driver ended with status {ran.returncode}")
    said = json.loads(ran.stdout)
    if "refused" in said:
        raise OSError(said["refused"])
    assert isinstance(said, dict)
    return said


class Older:
    """The version before this one: another engine, with images from a registry as its only userland."""

    name = "kern-sandbox 0.2.49"
    ours = False
    boxed = True

    def why_not(self) -> str:
        """Whether the user has named an environment, and a first box runs there."""
        if PYTHON not in os.environ:
            return f"{PYTHON} names no interpreter with kern-sandbox==0.2.49 (docs/evals.md says how)"
        try:
            with temporary() as workspace:
                said = _ask("run", workspace, {"code": "print(1)", "language": "python", "options": _first()})
        except (Unusable, OSError, subprocess.SubprocessError) as error:
            return str(error)
        return "" if said["stdout"] == "1\n" else f"a first box gave: {' '.join(said['stderr'].split())[-300:]}"

    @contextlib.contextmanager
    def room(self, demand: Any) -> Iterator[_OlderRoom]:
        """A temporary directory, shared by boxes of that version."""
        with temporary() as workspace:
            yield _OlderRoom(workspace, demand)

    def shown(self, path: str) -> str:  # noqa: ARG002 - the protocol's
        """At the path asked for."""
        return "/shown"

    def close(self) -> None:
        """Nothing is kept."""


def _first() -> dict[str, Any]:
    return {"timeout_s": 60, **({"image": os.environ[IMAGE]} if IMAGE in os.environ else {})}
