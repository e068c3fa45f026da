"""Other Pythons of this host: those that pyenv has, and those on PATH."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from support import applies

OLDEST = "3.8"
"""The oldest Python that the code inside a box runs on."""


class Facts(NamedTuple):
    """What an interpreter says of itself: its program without any virtual environment, its library, its packages."""

    binary: Path
    library: Path
    version: str
    pip: str


_ASK = """
import importlib.util as u, json, os, sys, sysconfig
pip = u.find_spec("pip")
print(json.dumps([os.path.realpath(getattr(sys, "_base_executable", sys.executable)), sysconfig.get_path("stdlib"),
                  "%d.%d" % sys.version_info[:2], pip and os.path.dirname(pip.origin) or ""]))
"""


@functools.cache
def facts(python: str = sys.executable) -> Facts:
    """Ask an interpreter."""
    said = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True).stdout
    binary, library, version, pip = json.loads(said)
    return Facts(Path(binary), Path(library), version, pip)


@functools.cache
def found(version: str) -> str:
    """An interpreter of this version (``"3.8"``), or ``""``: of ``$PYENV_ROOT`` or ``~/.pyenv``, else on PATH."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    try:
        homes = sorted((root / "versions").glob(f"{version}.*"), key=lambda home: _numbers(home.name), reverse=True)
    except PermissionError:  # another user's
        homes = []
    programs = [*(str(home / "bin" / f"python{version}") for home in homes), shutil.which(f"python{version}")]
    return next((program for program in programs if program and _is(program, version)), "")


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _is(program: str, version: str) -> bool:
    """Whether it starts; what pyenv puts on PATH need not."""
    try:
        return facts(program).version == version
    except (OSError, subprocess.CalledProcessError):
        return False


def further() -> list[str]:
    """Interpreters to test the guest's code in besides this one: of ``KERN_TEST_PYTHONS``, or the oldest if found."""
    named = os.environ.get("KERN_TEST_PYTHONS")
    return list(filter(None, named.split(":") if named is not None else [found(OLDEST)]))


def oldest() -> str:
    """The interpreter of version ``OLDEST``; without it this test is skipped."""
    python = found(OLDEST)
    applies(bool(python), f"there is no Python {OLDEST} here, neither of pyenv nor on PATH")
    return python
