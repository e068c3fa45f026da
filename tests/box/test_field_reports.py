"""Cases that users of comparable systems reported, where no other test of this suite shows them."""

from __future__ import annotations

import os
import stat
import tempfile
from typing import TYPE_CHECKING, Any, Callable

import pytest

import kern_sandbox
from setup_help import WHEEL, write_wheel
from support import need_boxes

if TYPE_CHECKING:
    from pathlib import Path

Make = Callable[..., kern_sandbox.Sandbox]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cache for all of them."""
    need_boxes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "field-cache"))


def test_what_a_box_leaves_is_its_owners_to_read_and_remove_and_never_setuid(tmp_path: Path) -> None:
    code = "echo '#!/bin/sh' > s; chmod 4750 s || chmod 750 s; mkdir -p d/e; chmod 2700 d || chmod 700 d; touch -d @0 s"
    result = kern_sandbox.run_code(code, language="sh", workspace=tmp_path)
    assert result.stderr.count("Operation not permitted") == 2
    about = (tmp_path / "s").stat()
    assert (stat.S_IMODE(about.st_mode), about.st_mtime, about.st_uid) == (0o750, 0, tmp_path.stat().st_uid)
    assert (tmp_path / "s").read_text() == "#!/bin/sh\n"
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    (tmp_path / "d/e").rmdir()


def test_hidden_files_that_other_tools_would_run_are_told_as_changed(tmp_path: Path) -> None:
    (tmp_path / ".envrc").write_text("old")
    code = "mkdir -p .git/hooks .vscode; echo x | tee .git/config .git/hooks/pre-commit .vscode/tasks.json .envrc"
    result = kern_sandbox.run_code(code, language="sh", workspace=tmp_path)
    assert [(file.path, file.change) for file in result.files] == [
        (".envrc", "modified"),
        (".git/config", "created"),
        (".git/hooks/pre-commit", "created"),
        (".vscode/tasks.json", "created"),
    ]


def test_a_temporary_directory_behind_a_link_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "link"))
    with kern_sandbox.Sandbox() as sandbox:
        assert sandbox.run_code("open('a', 'w').write('x')").success
        assert sandbox.read_file("a") == b"x"
        assert len(os.listdir(tmp_path / "real")) == 1
    assert os.listdir(tmp_path / "real") == []


def test_pools_of_every_kind_work_in_a_box(make: Make) -> None:
    code = """
import multiprocessing as mp
def double(x): return 2 * x
if __name__ == '__main__':
    for kind in ('fork', 'spawn', 'forkserver'):
        context = mp.get_context(kind)
        with context.Pool(2) as pool: print(kind, pool.map(double, [1, 2]), context.Lock())
"""
    result = make().run_code(code)
    assert [line.split(" <")[0] for line in result.stdout.splitlines()] == [
        "fork [2, 4]", "spawn [2, 4]", "forkserver [2, 4]",
    ], result  # fmt: skip


def test_what_a_kernel_installs_it_can_import_at_once(tmp_path: Path) -> None:
    write_wheel(tmp_path)
    install = f"""
import importlib, subprocess, sys
subprocess.check_call([sys.executable, '-m', 'pip', 'install', '-q', '--no-index', './{WHEEL}'])
importlib.invalidate_caches()
import kern_probe
print(kern_probe.VERSION)
"""
    with (
        kern_sandbox.Sandbox(setup="true", deps_readonly=False, workspace=tmp_path) as sandbox,
        sandbox.kernel() as kernel,
    ):
        result = kernel.run_code(install)
        assert result.stdout == "1.0\n", result
        assert sandbox.run_code("import kern_probe; print(kern_probe.VERSION)").stdout == "1.0\n"


def test_code_finds_the_same_in_a_cold_a_warm_a_pooled_box_and_a_kernel(make: Make) -> None:
    ask = "import os, sys; print(sorted(os.environ.items()), sys.path, os.getcwd(), sys.flags, sys.executable)"
    options: dict[str, Any] = {"setup": "true", "env": {"A": "1"}}
    with kern_sandbox.Sandbox(**options) as cold:
        told = {cold.run_code(ask).stdout}
        with cold.kernel() as kernel:
            told.add(kernel.run_code(ask).stdout)
    told.add(make(**options).run_code(ask).stdout)
    with kern_sandbox.Sandbox(**options, prewarm=2) as pooled:
        told |= {pooled.run_code(ask).stdout for _ in range(3)}
    assert len(told) == 1, told


def test_words_of_a_setup_are_the_shells(tmp_path: Path) -> None:
    write_wheel(tmp_path)
    setup = f"""pip install --no-index "./{WHEEL} ; python_version > '3'" './{WHEEL}'; printf '%s' "a b" > .deps/word"""
    with kern_sandbox.Sandbox(setup=setup, workspace=tmp_path) as sandbox:
        assert sandbox.run(["cat", ".deps/word"]).stdout == "a b"
        assert sandbox.run(["kern-probe"]).stdout == "hello from 1.0\n"
