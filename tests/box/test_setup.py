"""What ``setup=`` leaves: made once, shared, shown at ``/workspace/.deps``, and out of the code's reach."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import tarfile
from typing import TYPE_CHECKING, Any, Callable

import pytest

import kern_sandbox
from kern_sandbox.cli import main
from kern_sandbox.setup import collect
from setup_help import PATIENCE_S, WHEEL, Gate, write_wheel
from support import applies, need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

SETUP = f"pip install --no-index ./{WHEEL}"
Make = Callable[..., kern_sandbox.Sandbox]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests which only use a layer have in common."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def warm(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are those of ``shared_cache``."""
    need_boxes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where layers are kept in this test; there is none yet."""
    need_boxes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kern-sandbox" / "layers"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace that holds the wheel."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    write_wheel(folder)
    return folder


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A closed gate."""
    one = Gate()
    yield one
    one.close()


# --- what a box has of it ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_a_package_is_on_the_import_path_and_its_scripts_on_path(make: Make, workspace: Path) -> None:
    sandbox = make(setup=SETUP, workspace=workspace)
    imported = sandbox.run_code("import kern_probe; print(kern_probe.__file__, kern_probe.VERSION)")
    assert imported.stdout.split() == [imported.stdout.split()[0], "1.0"], imported
    assert imported.stdout.startswith("/workspace/.deps/")
    assert imported.files == []
    assert sandbox.list_files() == [WHEEL]
    assert sandbox.run(["kern-probe"]).stdout == "hello from 1.0\n"
    assert sandbox.run(["sh", "-c", "echo $PATH"]).stdout.count(".deps") == 1
    script = "import subprocess; print(subprocess.run(['python3', '-m', 'kern_probe']).returncode)"
    assert sandbox.run_code(script).stdout == "0\n"
    assert sandbox.run_code("import os, kern_probe; print(os.path.exists(kern_probe.__cached__))").stdout == "True\n"


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    "attempt",
    [
        "open('/workspace/.deps/lib/planted.py', 'w')",
        "import kern_probe; open(kern_probe.__file__, 'a')",
        "import kern_probe; open(kern_probe.__cached__, 'r+b')",
        "import kern_probe, os; os.unlink(kern_probe.__cached__)",
        "import os; os.rename('/workspace/.deps', '/workspace/away')",
        "import os; os.rmdir('/workspace/.deps')",
        "import os; os.chmod('/workspace/.deps/pyvenv.cfg', 0o777)",
    ],
)
def test_code_cannot_change_the_layer(attempt: str, workspace: Path) -> None:
    with kern_sandbox.Sandbox(setup=SETUP, workspace=workspace) as sandbox:
        refused = sandbox.run_code(attempt)
        assert refused.exit_code == 1
        assert "Read-only file system" in refused.stderr or "resource busy" in refused.stderr, refused.stderr
        assert sandbox.run(["kern-probe"]).stdout == "hello from 1.0\n"


@pytest.mark.usefixtures("warm")
def test_what_code_leaves_in_the_workspace_takes_no_modules_place(make: Make, workspace: Path) -> None:
    sandbox = make(setup=SETUP, workspace=workspace)
    plant = "for name in ('kern_probe', 'json', 'sitecustomize', 'usercustomize', 'helper'):\n"
    plant += "    open(f'/workspace/{name}.py', 'w').write('VERSION = \"planted\"; print(VERSION)')"
    assert sandbox.run_code(plant).success
    told = sandbox.run_code("import json, kern_probe; print(json.dumps(kern_probe.VERSION))")
    assert told.stdout == '"1.0"\n'
    assert sandbox.run_code("import helper").stdout == "planted\n"


@pytest.mark.usefixtures("warm", "no_leaks")
def test_a_writable_copy_is_the_sandboxs_own_and_lasts_as_long_as_it(workspace: Path) -> None:
    change = "import kern_probe; open(kern_probe.__file__, 'a').write('VERSION = \"changed\"\\n')"
    ask = "import kern_probe; print(kern_probe.VERSION)"
    with kern_sandbox.Sandbox(setup=SETUP, workspace=workspace, deps_readonly=False) as sandbox:
        assert sandbox.run_code(change).success
        assert sandbox.run_code(ask).stdout == "changed\n"
        copy = sandbox._session._setup.temporary()[0][0]  # type: ignore[union-attr]
        assert os.path.isdir(copy)
        with kern_sandbox.Sandbox(setup=SETUP, workspace=workspace) as other:
            assert other.run_code(ask).stdout == "1.0\n"
    assert not os.path.exists(copy)


@pytest.mark.usefixtures("warm")
def test_installed_modules_can_be_preloaded_and_boxes_with_them_kept_ready(workspace: Path) -> None:
    options = {"setup": SETUP, "workspace": workspace, "preload": ["kern_probe"], "prewarm": 2}
    with kern_sandbox.Sandbox(**options) as sandbox:  # type: ignore[arg-type]
        asked = "import sys; print('kern_probe' in sys.modules, sys.modules['kern_probe'].__file__[:16], sys.path[-1])"
        for _ in range(3):
            assert sandbox.run_code(asked).stdout == "True /workspace/.deps /workspace\n"


# --- the workspace ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_nothing_stays_in_a_kept_workspace_whoever_closes_last(workspace: Path) -> None:
    first, second = (kern_sandbox.Sandbox(setup=SETUP, workspace=workspace) for _ in range(2))
    for sandbox in (first, second):
        assert sandbox.run(["kern-probe"]).success
    first.close()
    assert second.run(["kern-probe"]).stdout == "hello from 1.0\n"
    second.close()
    assert os.listdir(workspace) == [WHEEL]


@pytest.mark.usefixtures("warm")
def test_a_directory_of_the_users_own_stays(workspace: Path) -> None:
    (workspace / ".deps").mkdir()
    (workspace / ".deps" / "kern_probe.py").write_text("VERSION = 'mine'")
    with kern_sandbox.Sandbox(setup=SETUP, workspace=workspace) as sandbox:
        assert sandbox.run(["kern-probe"]).stdout == "hello from 1.0\n"
    assert (workspace / ".deps" / "kern_probe.py").exists()


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("planted", ["link", "dangling", "file"])
def test_something_else_in_the_layers_place_is_refused(planted: str, workspace: Path, tmp_path: Path) -> None:
    place = workspace / ".deps"
    if planted == "file":
        place.write_text("")
    else:
        place.symlink_to(tmp_path if planted == "link" else "nowhere")
    with kern_sandbox.Sandbox(setup=SETUP, workspace=workspace) as sandbox:
        with pytest.raises(kern_sandbox.StartError, match="else than a directory is there") as refusal:
            sandbox.run(["true"])
        assert refusal.value.stage == "setup"
        place.unlink()
        assert sandbox.run(["kern-probe"]).stdout == "hello from 1.0\n"


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("instead", ["nothing", "directory", "link"])
def test_no_call_runs_without_the_layer_when_another_program_takes_it_away(
    instead: str, make: Make, workspace: Path
) -> None:
    sandbox = make(setup=SETUP, workspace=workspace)
    assert sandbox.run(["kern-probe"]).success
    (workspace / ".deps").rename(workspace / "away")
    if instead == "directory":
        (workspace / ".deps").mkdir()
    if instead == "link":
        (workspace / ".deps").symlink_to("away")
    told = []
    for _ in range(4):  # a box that waited has had it taken away; one that is built now shows it again, or refuses
        try:
            told.append(sandbox.run_code("import kern_probe; print(kern_probe.VERSION)").stdout)
        except kern_sandbox.StartError as error:
            told.append(error.stage)
    assert set(told) <= {"1.0\n", "mounts"}, told


# --- the setup's own box ----------------------------------------------------------------------------------------


def test_a_failure_says_how_it_ended_with_the_tail_of_its_output_and_leaves_nothing(layers: Path) -> None:
    with kern_sandbox.Sandbox(setup="echo one; echo two >&2; exit 7") as sandbox:
        for _ in range(2):
            with pytest.raises(kern_sandbox.StartError, match=r"exit code 7\none\ntwo") as failure:
                sandbox.run(["true"])
            assert failure.value.stage == "setup"
    assert os.listdir(layers) == []


@pytest.mark.usefixtures("layers", "no_leaks")
def test_a_command_that_fails_in_the_middle_is_not_taken_for_one_that_worked() -> None:
    with kern_sandbox.Sandbox(setup="false\ntrue") as sandbox, pytest.raises(kern_sandbox.StartError, match="code 1"):
        sandbox.run(["true"])


@pytest.mark.usefixtures("layers")
def test_it_has_limits_of_its_own_and_the_sandboxs_env_and_the_box_after_it_has_not() -> None:
    grow = 'python -c "len(bytearray(300 << 20))"; echo $WORD > /workspace/.deps/word; echo $$ >> /workspace/.deps/word'
    with kern_sandbox.Sandbox(setup=grow, memory_mb=64, env={"WORD": "given"}) as sandbox:
        assert sandbox.run(["head", "-1", "/workspace/.deps/word"]).stdout == "given\n"
        names = sandbox.run_code("import socket; print(*[name for _, name in socket.if_nameindex()])").stdout
        assert names == "lo\n"
        assert "PIP_" not in sandbox.run(["env"]).stdout


@pytest.mark.usefixtures("layers")
def test_it_sees_of_the_workspace_what_it_names_and_is_made_anew_when_that_changes(workspace: Path) -> None:
    (workspace / "pip.py").write_text("print('planted'); raise SystemExit(0)")
    (workspace / "requirements.txt").write_text(f"./{WHEEL}\n")
    command = f"ls > .deps/seen; python -m pip install --no-index -r /workspace/requirements.txt # ./{WHEEL}"
    with kern_sandbox.Sandbox(setup=command, workspace=workspace) as sandbox:
        assert sandbox.run(["cat", ".deps/seen"]).stdout.split() == [WHEEL, "requirements.txt"]
        assert sandbox.run(["kern-probe"]).stdout == "hello from 1.0\n"
    newer = write_wheel(workspace, "2.0")
    (workspace / "requirements.txt").write_text(f"./{newer.name}\n")
    with kern_sandbox.Sandbox(setup=f"{command} ./{newer.name}", workspace=workspace) as sandbox:
        assert sandbox.run(["kern-probe"]).stdout == "hello from 2.0\n"
    (workspace / "requirements.txt").write_text("./gone.whl\n")
    changed = kern_sandbox.Sandbox(setup=f"{command} ./{newer.name}", workspace=workspace)
    with changed, pytest.raises(kern_sandbox.StartError, match=r"gone\.whl"):
        changed.run(["true"])


def test_pip_looks_where_the_users_pip_looks(tmp_path: Path, layers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index").mkdir()
    write_wheel(tmp_path / "index", "3.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with kern_sandbox.Sandbox(setup="pip3 install kern-probe") as sandbox:
        assert sandbox.run(["kern-probe"]).stdout == "hello from 3.0\n"
        assert sandbox.run(["ls", str(tmp_path / "index")]).exit_code != 0
    assert len([name for name in os.listdir(layers) if not name.endswith(".lock")]) == 1


@pytest.mark.usefixtures("layers")
def test_a_package_comes_from_the_index_that_this_machine_uses() -> None:
    with kern_sandbox.Sandbox(setup="pip install iniconfig") as sandbox:
        assert sandbox.run_code("import iniconfig; print(iniconfig.__name__)").stdout == "iniconfig\n"


@pytest.mark.usefixtures("layers")
def test_npm_packages_are_found_by_node(workspace: Path) -> None:
    applies(shutil.which("npm") is not None, "npm is not installed")
    files = {"package.json": '{"name": "kern-probe", "version": "4.0.0"}', "index.js": "module.exports = 'from node'"}
    with tarfile.open(workspace / "probe.tgz", "w:gz") as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(f"package/{name}")
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content.encode()))
    with kern_sandbox.Sandbox(setup="npm install --offline ./probe.tgz", workspace=workspace) as sandbox:
        assert sandbox.run_code("console.log(require('kern-probe'))", "node").stdout == "from node\n"


# --- once -------------------------------------------------------------------------------------------------------


def test_two_processes_make_it_once_and_a_third_needs_no_network(
    gate: Gate, layers: Path, user_process: Callable[..., Any]
) -> None:
    code = f"print(kern.run_code('import gated; print(gated.passed)', setup={gate.setup!r}))"
    first = user_process(code)
    gate.await_arrival()
    second = user_process(code)
    third = user_process(f"print('calling', flush=True)\n{code}")
    assert third.process.stdout.readline() == "calling\n"
    gate.open.set()
    assert all("stdout='1\\n'" in user.ends() for user in (first, second, third))
    assert gate.count == 1
    setup = gate.setup
    gate.close()
    assert kern_sandbox.run_code("import gated; print(gated.passed)", setup=setup).stdout == "1\n"
    assert not [name for name in os.listdir(layers) if name.endswith(".making")]


def test_a_build_that_was_killed_is_done_again(gate: Gate, layers: Path, user_process: Callable[..., Any]) -> None:
    killed = user_process(f"kern.run_code('', setup={gate.setup!r})")
    gate.await_arrival()
    killed.process.kill()
    killed.process.wait()
    gate.open.set()
    assert kern_sandbox.run_code("import gated; print(gated.passed)", setup=gate.setup).stdout == "1\n"
    assert gate.count == 2
    assert sorted(name.partition(".")[2] for name in os.listdir(layers)) == ["", "lock"]


def test_a_layer_in_use_is_not_collected_and_one_that_is_not_is(layers: Path) -> None:
    with kern_sandbox.Sandbox(setup="true") as sandbox:
        assert sandbox.run(["true"]).success
        assert collect(0).entries == 0
        assert sandbox.run(["test", "-e", "/workspace/.deps/pyvenv.cfg"]).success
    assert collect(1).entries == 0
    assert collect(0).entries == 1
    assert os.listdir(layers) == []


# --- giving up --------------------------------------------------------------------------------------------------


def test_closing_ends_a_setup(gate: Gate, layers: Path, background: Callable[..., Future[Any]]) -> None:
    sandbox = kern_sandbox.Sandbox(setup=gate.setup)
    call = background(lambda: sandbox.run(["true"]))
    gate.await_arrival()
    sandbox.close()
    with pytest.raises(kern_sandbox.SessionClosed):
        call.result(PATIENCE_S)
    assert os.listdir(layers) == []


def test_cancelling_a_task_ends_its_setup_and_the_next_call_does_it_again(gate: Gate, layers: Path) -> None:
    async def scenario() -> str:
        async with kern_sandbox.AsyncSandbox(setup=gate.setup) as sandbox:
            task = asyncio.ensure_future(sandbox.run(["true"]))
            await asyncio.get_running_loop().run_in_executor(None, gate.await_arrival)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert os.listdir(layers) == []
            gate.open.set()
            return (await sandbox.run_code("import gated; print(gated.passed)")).stdout

    assert asyncio.run(scenario()) == "1\n"


# --- options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["", "  ", 3, ["pip", "install"], "a\0b", "\ud800", "x" * 200_000])
def test_a_setup_that_is_no_command_is_refused(wrong: Any) -> None:
    with pytest.raises(kern_sandbox.SpecError, match="setup"):
        kern_sandbox.Sandbox(setup=wrong)
    kern_sandbox.Sandbox(setup="true").close()


def test_the_untrusted_profile_keeps_the_layer_read_only() -> None:
    with pytest.raises(kern_sandbox.SpecError, match="deps_readonly"):
        kern_sandbox.Sandbox(security_profile="untrusted", setup="true", deps_readonly=False)
    kern_sandbox.Sandbox(security_profile="untrusted", setup="true").close()


@pytest.mark.usefixtures("warm")
def test_the_command_line_has_it(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--setup", SETUP, "--workspace", str(workspace), "--", "kern-probe"]) == 0
    assert capfd.readouterr().out == "hello from 1.0\n"
    assert main(["exec", "--plan", "--setup", SETUP, "--", "true"]) == 0
    assert "/workspace/.deps (read-only)" in capfd.readouterr().out
