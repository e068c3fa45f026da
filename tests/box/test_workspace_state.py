"""What a Sandbox may leave in its workspace, and how that is taken away and brought back, seen from boxes."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest

import kern_sandbox
from kern_sandbox import WorkspaceError
from kern_sandbox.cli import main
from support import applies

if TYPE_CHECKING:
    from concurrent.futures import Future

Make = Callable[..., kern_sandbox.Sandbox]
MIB = 1 << 20
FILL = """
import time
print('begun', flush=True)
for number in range(400):
    open(f'file{number}', 'wb').write(b'x' * 500_000)
    time.sleep(0.001)
time.sleep(1000)
"""


@pytest.fixture(params=["template"])
def box_path(request: pytest.FixtureRequest) -> str:
    """The workspace is the same however a box comes to be; ``spawn`` and ``sh`` below take the other way."""
    return str(request.param)


def fault_of(result: kern_sandbox.ExecutionResult) -> str:
    return result.fault.type if result.fault else ""


# --- the ceiling ------------------------------------------------------------------------------------------------


def test_a_call_that_fills_the_workspace_is_stopped_and_the_next_may_clear_it(
    make: Make, eventually: Callable[..., Any]
) -> None:
    sandbox = make(workspace_mb=20, used=False)
    assert sandbox.run_code("open('kept', 'wb').write(b'x' * 5_000_000)").success
    result = sandbox.run_code(FILL)
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "kern-ceiling"])
    assert (fault_of(result), result.exit_code, result.stdout) == ("disk_full", 137, "begun\n")
    assert result.fault is not None
    assert result.fault.detail == "20 MiB"
    assert "workspace_mb=20" in " ".join(result.runtime_notes)
    assert fault_of(sandbox.run_code("open('more', 'wb').write(b'x' * 3_000_000)")) == "disk_full"
    cleared = sandbox.run_code("import os; [os.unlink(name) for name in os.listdir('.')]")
    assert cleared.success
    assert not cleared.runtime_notes or "workspace_mb" not in " ".join(cleared.runtime_notes)


def test_what_is_left_by_a_call_too_short_to_be_watched_is_counted_at_its_end(make: Make) -> None:
    sandbox = make(workspace_mb=5, used=False, timeout_s=60)
    result = sandbox.run(["sh", "-c", "head -c 8000000 /dev/zero > big; exit 3"])
    assert fault_of(result) == "disk_full"
    assert result.exit_code in (3, 137)
    sandbox.run(["rm", "big"])
    assert sandbox.run(["sh", "-c", "head -c 4000000 /dev/zero > big"]).success


def test_directories_and_holes_are_counted_as_what_they_take(make: Make) -> None:
    sandbox = make(workspace_mb=1, used=False)
    hole = "f = open('hole', 'wb'); f.truncate(1 << 19); f.write(b'x')"
    assert sandbox.run_code(hole).success
    with tempfile.TemporaryDirectory() as one:  # where the workspace is, too; on a tmpfs it takes no block
        takes = os.stat(one).st_blocks * 512 + 512
    result = sandbox.run_code(f"import os\nfor n in range({(1 << 20) // takes + 20}): os.mkdir(f'name{{n}}')")
    assert fault_of(result) == "disk_full"


def test_nothing_hides_in_a_directory_that_may_not_be_read(make: Make) -> None:
    code = "import os; os.mkdir('d'); open('d/big', 'wb').write(b'x' * 8_000_000); os.chmod('d', 0)"
    sandbox = make(workspace_mb=5, used=False)
    assert fault_of(sandbox.run_code(code)) == "disk_full"


def test_what_was_deleted_and_is_still_open_goes_with_the_box_and_has_the_ceiling_of_a_file(make: Make) -> None:
    sandbox = make(workspace_mb=20, memory_mb=32, tmpfs={}, used=False)
    code = "import os; f = open('big', 'wb', 0); os.unlink('big')\n"
    writes = (
        "try:\n  for _ in range(60): f.write(b'x' * 1_000_000)\nexcept OSError as e: print(e.errno, f.tell() >> 20)"
    )
    result = sandbox.run_code(code + writes)
    assert (fault_of(result), result.stdout) == ("", "27 20\n")
    assert sandbox.list_files() == []


def test_far_above_the_ceiling_nothing_runs_and_nothing_is_written(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kern_sandbox.workspace._ceiling._SLACK", 0)
    (tmp_path / "big").write_bytes(os.urandom(3 * MIB))
    sandbox = make(workspace=tmp_path, workspace_mb=1, used=False)
    for verb in (lambda: sandbox.run(["true"]), lambda: sandbox.write_file("x", "x"), lambda: sandbox.spawn(["true"])):
        with pytest.raises(WorkspaceError, match="workspace_mb=1"):
            verb()
    (tmp_path / "big").unlink()
    sandbox.write_file("x", bytes(MIB // 2))
    with pytest.raises(WorkspaceError, match="No space left"):
        sandbox.write_file("y", bytes(MIB))
    assert sandbox.run(["true"]).success


def test_a_process_and_every_other_call_on_the_workspace_are_stopped_too(
    make: Make, background: Callable[[Callable[[], Any]], Future[Any]]
) -> None:
    sandbox = make(workspace_mb=20, used=False)
    with sandbox.spawn(["sh", "-c", "echo up; exec sleep 1000"]) as process:
        assert process.stdout.readline() == b"up\n"
        filling = background(lambda: sandbox.run_code(FILL))
        result = process.wait(100)
        assert fault_of(result) == fault_of(filling.result(100)) == "disk_full"


def test_the_command_says_it(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--workspace-mb", "20", "--stdin", "/dev/null", "-c", FILL]) == 137
    assert "kern-sandbox: disk_full: the workspace became larger than its ceiling (20 MiB)" in capfd.readouterr().err


def test_a_restore_is_held_to_the_ceiling(make: Make, tmp_path: Path) -> None:
    large, small = make(used=False), make(workspace_mb=1, used=False)
    large.write_file("big", os.urandom(2 * MIB))
    large.snapshot(tmp_path / "large")
    small.write_file("old", "old")
    with pytest.raises(WorkspaceError, match="workspace_mb"):
        small.restore(tmp_path / "large")
    assert small.list_files() == ["old"]


# --- snapshots --------------------------------------------------------------------------------------------------


def test_a_snapshot_holds_what_boxes_left_and_boxes_find_what_is_restored(make: Make, tmp_path: Path) -> None:
    sandbox = make(used=False)
    code = "import os; os.makedirs('a/b'); open('a/b/f', 'w').write('one'); os.symlink('/etc', 'l'); os.mkfifo('p')"
    assert sandbox.run_code(code).success
    assert sandbox.snapshot(tmp_path / "one") == ["l", "p"]
    sandbox.run_code("open('a/b/f', 'w').write('two'); open('new', 'w')")
    sandbox.restore(tmp_path / "one")
    result = sandbox.run_code("import os; print(open('a/b/f').read(), os.listdir('.')); open('a/b/f', 'a').write('!')")
    assert (result.stdout, result.code_stderr) == ("one ['a']\n", "")
    assert [file.path for file in result.files] == ["a/b/f"]
    assert sandbox.read_file("a/b/f") == b"one!"


def test_a_box_that_runs_sees_the_exchange_in_its_own_workspace(make: Make, tmp_path: Path) -> None:
    sandbox = make(used=False)
    sandbox.write_file("state", "one")
    sandbox.snapshot(tmp_path / "one")
    sandbox.write_file("state", "two")
    with sandbox.spawn(["sh", "-c", "cat state; echo; read line; cat state"]) as process:
        assert process.stdout.readline() == b"two\n"
        sandbox.restore(tmp_path / "one")
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert process.stdout.read() == b"one"


def test_what_root_restores_belongs_to_the_owner_of_the_workspace(make: Make, tmp_path: Path) -> None:
    applies(os.geteuid() == 0, "an ordinary user has one owner to give files to")
    (tmp_path / "ws").mkdir()
    os.chown(tmp_path / "ws", 4321, 4321)
    sandbox = make(workspace=tmp_path / "ws", used=False)
    sandbox.run_code("import os; os.mkdir('d'); open('d/f', 'w').write('x')")
    sandbox.snapshot(tmp_path / "one")
    sandbox.restore(tmp_path / "one")
    assert {os.stat(tmp_path / "ws" / name).st_uid for name in ("d", "d/f")} == {4321}
    assert sandbox.run_code("open('d/f', 'a').write('y')").success


def test_the_same_verbs_are_awaited(tmp_path: Path) -> None:
    async def body() -> list[str]:
        async with kern_sandbox.AsyncSandbox(workspace_mb=20) as sandbox:
            await sandbox.write_file("kept", "kept")
            assert await sandbox.snapshot(tmp_path / "one") == []
            assert fault_of(await sandbox.run_code(FILL)) == "disk_full"
            await sandbox.restore(tmp_path / "one")
            return await sandbox.list_files()

    assert asyncio.run(body()) == ["kept"]
