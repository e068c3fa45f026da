"""The engines that are compared, each behind the same few verbs."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import kern_sandbox

from . import rootfs
from .measure import Missing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .measure import Run

PEER_VERSION = "0.2.49"
PYTHON = rootfs.python()
BWRAP = ("bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
_PREPARE_S = 120.0


class Engine(NamedTuple):
    """An installation of ``kern_sandbox``.

    Attributes:
        python: the interpreter that has it.
        env: of its process.
        options: what each of its Sandboxes is made with.
    """

    python: str
    env: dict[str, str]
    options: dict[str, Any]


class Worker:
    """A process of an engine that answers requests; see ``worker.py``.

    Attributes:
        import_ms: what the import of the package took in it.
        pid: of the process.
    """

    def __init__(self, engine: Engine) -> None:
        self.options = engine.options
        self._process = subprocess.Popen(
            [engine.python, _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=engine.env,
            text=True,
        )
        self.pid = self._process.pid
        self.import_ms: float = self._answer()["import_ms"]

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Have it do something.

        Raises:
            Missing: it failed, in its own words.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise Missing(f"its process has ended with status {self._process.wait()}") from error
        return self._answer()

    def open(self, name: str, **options: Any) -> None:
        """Make a Sandbox, with the engine's own options and these."""
        self.ask("open", name=name, options={**self.options, **options})

    def calls(self, **how: Any) -> Run:
        """Calls that are described as ``worker.py`` wants it."""
        if "once" in how:
            how["options"] = self.options
        return lambda times: list(self.ask("call", how=how, times=times)["ms"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Missing(f"its process ended with status {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "failed" in reply:
            raise Missing(reply["failed"])
        return reply

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def ours(cache: str) -> Engine:
    """The package that this process has imported, under its interpreter; its images and layers go below ``cache``."""
    place = os.path.dirname(os.path.dirname(os.path.abspath(kern_sandbox.__file__)))
    return Engine(sys.executable, {**os.environ, "PYTHONPATH": place, "XDG_CACHE_HOME": cache}, {})


def require_bwrap() -> None:
    """Raises ``Missing`` where bubblewrap is not installed or cannot make its namespaces."""
    if shutil.which("bwrap") is None:
        raise Missing("bwrap is not installed")
    tried = subprocess.run([*BWRAP, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise Missing(f"bwrap does not work here: {tried.stderr.strip()}")


def peer(home: str, image: str, python: str | None = None) -> Engine:
    """kern-sandbox from PyPI with an image, everything of it below ``home``.

    Args:
        home: a directory that is made.
        image: an archive, as ``rootfs.py`` makes it.
        python: an interpreter that has it already; ``None`` makes a virtual environment and installs it.

    Raises:
        Missing: one of its steps failed, in the words of the program that did it.
    """
    os.mkdir(home)
    if python is None:
        _tell("venv", [PYTHON, "-m", "venv", f"{home}/venv"])
        python = f"{home}/venv/bin/python"
        _tell("pip", [python, "-m", "pip", "install", "-q", "--no-deps", f"kern-sandbox=={PEER_VERSION}"])
    asked = [python, "-c", "import importlib.metadata as m; print(m.version('kern-sandbox'))"]
    version = _tell("its version", asked).strip()
    if version != PEER_VERSION:
        raise Missing(f"{python} has kern-sandbox {version}, not {PEER_VERSION}")
    binary = os.path.join(os.path.dirname(python), "kern")
    env = {"PATH": os.environ["PATH"], "HOME": home, "KERN_BIN": binary, "XDG_RUNTIME_DIR": f"{home}/run"}
    os.mkdir(f"{home}/run", 0o700)
    _tell("kern load", [binary, "load", "-i", image], env)
    engine = Engine(python, env, {"image": rootfs.NAME})
    _compiled(engine, home)
    return engine


def _compiled(engine: Engine, home: str) -> None:
    """It compiles an image's standard library in the background of the first calls: measure after that."""
    with Worker(engine) as worker:
        worker.open("first")
        worker.ask("call", how={"name": "first", "code": "print(1)"}, times=1)
        deadline = time.monotonic() + _PREPARE_S
        cache = f"{home}/.cache/kern-sandbox/pyc"
        while not os.path.isdir(cache) or glob.glob(f"{cache}/*.tmp-*"):
            if time.monotonic() > deadline:
                raise Missing(f"it was still compiling its image's standard library after {_PREPARE_S:.0f} s")
            time.sleep(0.1)


def _tell(step: str, argv: list[str], env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        raise Missing(f"{step} ended with status {done.returncode}: {last}")
    return done.stdout


def not_limited(worker: Worker, name: str) -> bool:
    """Whether the engine says that a box of the Sandbox ``name`` has no memory limit of its own on this host."""
    said = worker.ask("probe", name=name)["stderr"]
    return "not limited" in said or "not enforced" in said
