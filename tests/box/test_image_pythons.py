"""A box whose Python is older than the engine's: what runs inside takes any from 3.8 on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import kern_sandbox
from pythons import OLDEST, oldest
from setup_help import WHEEL, write_wheel
from support import need_boxes
from userlands import put_python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = """
class Table:
    def __repr__(self): return 'a table'
    def _repr_html_(self): return '<table></table>'
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A root file system with the oldest Python, its pip and a shell; and a cache of this module's own."""
    python = oldest()
    need_boxes()
    root = tmp_path_factory.mktemp("oldest")
    put_python(root, pip=True, python=python)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield f"dir:{root}"


def test_a_call_runs_in_it(make: Any, image: str) -> None:
    sandbox = make(image=image)
    result = sandbox.run_code("import sys; print('%d.%d' % sys.version_info[:2])\ndef f():\n    return 1 / 0\nf()")
    assert (result.stdout, result.exit_code, result.fault) == (f"{OLDEST}\n", 1, None)
    assert result.code_stderr.splitlines() == [
        "Traceback (most recent call last):",
        '  File "/run/cell/main.py", line 4, in <module>', "    f()",
        '  File "/run/cell/main.py", line 3, in f', "    return 1 / 0",
        "ZeroDivisionError: division by zero",
    ]  # fmt: skip
    assert sandbox.run_code("match = 1\nif (n := match):\n    print(n, file=open('/workspace/f', 'w'))").success
    assert sandbox.read_file("f") == b"1\n"


def test_values_are_shown_in_every_form_that_they_have(make: Any, image: str) -> None:
    result = make(image=image).run_code(TABLE + "display(Table())\nawait __import__('asyncio').sleep(0, {'a': [1]})")
    assert [value.data for value in result.results] == [
        {"text/plain": "a table", "text/html": "<table></table>"}, {"text/plain": "{'a': [1]}"},
    ]  # fmt: skip
    assert result.stderr == ""


def test_a_modules_import_is_inherited(image: str) -> None:
    with kern_sandbox.Sandbox(image=image, preload=["decimal"]) as sandbox:
        asked = "import sys; print([name in sys.modules for name in ('decimal', 'fractions')])"
        assert sandbox.run_code(asked).stdout == "[True, False]\n"


def test_cells_share_a_session_that_outlives_their_errors_and_deadlines(make: Any, image: str, patient: None) -> None:
    with make(image=image).kernel() as kernel:
        assert kernel.run_code(TABLE + "n = 6; table = Table()").success
        assert kernel.run_code("1 / 0").exit_code == 1
        late = kernel.run_code("while True: pass", timeout_s=0.5)
        assert late.fault.type == "timeout"
        assert late.fault.detail.endswith("state kept")
        assert [value.text for value in kernel.run_code("display(table)\nn * 7").results] == ["a table", "42"]


def test_a_session_is_taken_back_to_a_checkpoint(make: Any, image: str) -> None:
    with make(image=image).kernel() as kernel:
        kernel.run_code("state = [1]")
        checkpoint = kernel.checkpoint()
        assert kernel.run_code("state.append(2); state").results[0].text == "[1, 2]"
        kernel.rollback(checkpoint)
        assert kernel.run_code("state").results[0].text == "[1]"


def test_its_pip_installs_for_it(image: str, tmp_path: Path) -> None:
    write_wheel(tmp_path)
    setup = f"pip install --no-index ./{WHEEL}"
    with kern_sandbox.Sandbox(image=image, setup=setup, workspace=tmp_path) as sandbox:
        result = sandbox.run_code("import kern_probe; print(kern_probe.VERSION, kern_probe.__file__)")
        assert result.stdout == f"1.0 /workspace/.deps/lib/python{OLDEST}/site-packages/kern_probe.py\n", result
        assert sandbox.run(["kern-probe"]).stdout == "hello from 1.0\n"
