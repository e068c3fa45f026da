"""Bytecode for a host whose standard library has none, as in containers of official Python images."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import kern_sandbox
from support import applies, need_boxes
from userlands import put_python

ASK = "import os, textwrap; print(os.path.exists(textwrap.__cached__), textwrap.__file__)"
SITE = Path(kern_sandbox.__path__[0]).parent
SCRIPT = f"""
with kern.Sandbox(tmpfs={{}}) as sandbox:
    print(sandbox.run_code({ASK!r}).stdout, end="")
    print(sandbox.run(["python3", "-c", {ASK!r}]).stdout, end="")
    print(sandbox.run_code("import textwrap; open(textwrap.__cached__, 'r+b')").exit_code)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of its own, whose library has no bytecode."""
    need_boxes()
    shared = sysconfig.get_config_var("Py_ENABLE_SHARED") and not sys.base_prefix.startswith("/usr")
    applies(not shared, "this Python needs a library of its own prefix, which a copy of it has not")
    root = tmp_path_factory.mktemp("host")
    put_python(root)
    return root / "usr/bin/python3"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests that only use a library have in common."""
    return tmp_path_factory.mktemp("cache")


def run(python: Path, cache: Path, code: str) -> str:
    """What the code prints as a user's program; the tree lies below ``/tmp``, so boxes have none of their own."""
    begin = f"import sys; sys.path.insert(0, {str(SITE)!r}); import kern_sandbox as kern\n"
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(cache)}
    words = [str(python), "-c", begin + code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def library(python: Path) -> Path:
    return next((python.parents[1] / "lib").glob("python3*"))


def test_a_library_without_bytecode_has_it_in_boxes_at_its_own_place(python: Path, cache: Path) -> None:
    told = f"True {library(python)}/textwrap.py\n"
    assert run(python, cache, SCRIPT) == f"{told}{told}1\n"
    (entry,) = (path for path in (cache / "kern-sandbox/bytecode").iterdir() if path.suffix != ".lock")
    made = entry.stat().st_ino
    assert run(python, cache, SCRIPT).startswith(told)
    assert entry.stat().st_ino == made


def test_a_source_that_has_changed_is_what_runs(python: Path, cache: Path) -> None:
    ask = "print(kern.run_code('import textwrap; print(textwrap.WORD)', tmpfs={}).stdout)"
    source = library(python) / "textwrap.py"
    for word in ("one", "another"):
        source.write_text(f"{source.read_text()}\nWORD = {word!r}\n")
        assert run(python, cache, ask) == f"{word}\n\n"


def test_without_a_cache_that_can_be_written_boxes_work_all_the_same(python: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = run(python, tmp_path / "file", f"print(kern.run_code({ASK!r}, tmpfs={{}}).stdout)")
    assert told.startswith("False ")
