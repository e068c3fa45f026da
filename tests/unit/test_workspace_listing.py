"""What a workspace tells about itself: its files, what changed, and all of it to many threads at once."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kern_sandbox.errors import SessionClosed, WorkspaceError
from kern_sandbox.results import FileInfo
from kern_sandbox.workspace import Snapshot, Workspace, _workspace
from support import open_descriptors
from unit.workspace_help import KERNELS, disk, run_python, workspace_on

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=KERNELS)
def space(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workspace]:
    yield from workspace_on(request.param, monkeypatch, tmp_path)


# --- listing ----------------------------------------------------------------------------------------------------


def test_files_are_listed_at_any_depth_sorted_and_relative_to_the_workspace(space: Workspace) -> None:
    for name in ("b", "a/z", "a/b/c", "a.txt", "B"):
        space.write_file(name, "")
    disk(space, "empty").mkdir()
    assert space.list_files() == sorted(["b", "a/z", "a/b/c", "a.txt", "B"])


@pytest.mark.parametrize("subdir", ["a", "a/", "./a", "/workspace/a", "/workspace/a/"])
def test_a_subdirectory_is_listed_relative_to_the_workspace(space: Workspace, subdir: str) -> None:
    for name in ("a/z", "a/b/c", "other"):
        space.write_file(name, "")
    assert space.list_files(subdir) == ["a/b/c", "a/z"]


@pytest.mark.parametrize("subdir", ["", ".", "./", "/workspace", "/workspace/"])
def test_the_workspace_itself_is_listed_by_any_of_its_names(space: Workspace, subdir: str) -> None:
    space.write_file("a/z", "")
    assert space.list_files(subdir) == ["a/z"]


@pytest.mark.parametrize(("subdir", "code"), [("none", errno.ENOENT), ("f", errno.ENOTDIR), ("f/x", errno.ENOTDIR)])
def test_a_subdirectory_that_is_none_is_refused(space: Workspace, subdir: str, code: int) -> None:
    space.write_file("f", "")
    with pytest.raises(WorkspaceError, match=subdir) as caught:
        space.list_files(subdir)
    assert caught.value.errno == code


def test_the_mount_point_of_set_up_is_left_out_at_the_top_only(space: Workspace) -> None:
    for name in (".deps/lib.py", "a/.deps/mine", ".dependencies"):
        space.write_file(name, "")
    assert space.list_files() == [".dependencies", "a/.deps/mine"]
    assert set(space.scan().files) == {".dependencies", "a/.deps/mine"}


def test_files_that_are_being_written_are_not_listed(space: Workspace) -> None:
    """Only final names are ever seen, by as many lookers and writers as there are."""
    strange: set[str] = set()
    finished = threading.Event()
    names = {f"f{number}" for number in range(3)}

    def look() -> None:
        while not finished.is_set():
            strange.update(set(space.list_files()) - names, set(space.scan().files) - names)

    def write(name: str) -> None:
        for _ in range(300):
            space.write_file(name, b"x" * 10_000)

    looker = threading.Thread(target=look)
    writers = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in (looker, *writers):
        thread.start()
    for thread in writers:
        thread.join(60)
    finished.set()
    looker.join(60)
    assert not any(thread.is_alive() for thread in (looker, *writers))
    assert strange == set()
    assert space.list_files() == sorted(names)


def test_a_boxs_own_file_cannot_hide_behind_the_name_of_a_file_being_written(space: Workspace) -> None:
    name = f"{_workspace._TEMP_PREFIX}0123456789abcdef"
    disk(space, name).touch()
    assert space.list_files() == [name]
    assert list(space.scan().files) == [name]


def test_names_are_utf_8_whatever_the_locale() -> None:
    code = """
import os
from kern_sandbox.workspace import Workspace
with Workspace(None) as w:
    w.write_file("caf\\u00e9/\\u2603", "x")
    os.close(os.open(os.fsencode(w.path) + b"/\\xff", os.O_CREAT))
    print(ascii(w.list_files()), ascii(w.list_files("caf\\u00e9")), ascii(sorted(w.scan().files)))
    print([len(w.read_file(name)) for name in w.list_files()])
"""
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    utf_8 = {"PYTHONUTF8": "1"}
    assert run_python("print(sys.getfilesystemencoding())", env=ascii_locale).strip() != "utf-8"
    printed = run_python(code, env=utf_8)
    assert printed.startswith(r"['caf\xe9/\u2603', '\udcff'] ['caf\xe9/\u2603']")
    assert run_python(code, env=ascii_locale) == printed


# --- what changed -----------------------------------------------------------------------------------------------


def test_created_modified_and_deleted_files_are_told_in_the_order_of_their_paths(space: Workspace) -> None:
    for name in ("same", "gone/f", "touched", "rewritten", "moved"):
        space.write_file(name, "old")
    before = space.scan()
    disk(space, "gone/f").unlink()
    os.utime(disk(space, "touched"), ns=(1, 1))
    space.write_file("rewritten", "newer")
    space.write_file("a/new", "123456")
    os.rename(disk(space, "moved"), disk(space, "a/moved"))
    assert space.changes(before, space.scan()) == [
        FileInfo("a/moved", 3, "created"),
        FileInfo("a/new", 6, "created"),
        FileInfo("gone/f", 0, "deleted"),
        FileInfo("moved", 0, "deleted"),
        FileInfo("rewritten", 5, "modified"),
        FileInfo("touched", 3, "modified"),
    ]


def test_a_change_that_keeps_size_and_modification_time_is_told(space: Workspace) -> None:
    space.write_file("f", "old")
    times = disk(space, "f").stat()
    before = space.scan()
    assert space.changes(before, space.scan()) == []
    disk(space, "f").write_text("new")
    os.utime(disk(space, "f"), ns=(times.st_atime_ns, times.st_mtime_ns))
    assert space.changes(before, space.scan()) == [FileInfo("f", 3, "modified")]


def test_a_file_that_became_something_else_is_told_as_deleted(space: Workspace) -> None:
    space.write_file("f", "old")
    before = space.scan()
    disk(space, "f").unlink()
    disk(space, "f").symlink_to("/etc/passwd")
    assert space.changes(before, space.scan()) == [FileInfo("f", 0, "deleted")]


def test_an_incomplete_snapshot_claims_nothing_about_what_it_did_not_see() -> None:
    here, other, whole, part = (1, 2, 3, 4), (1, 2, 3, 5), True, False
    old = Snapshot({"both": here, "old": here}, part)
    new = Snapshot({"both": other, "new": here}, whole)
    assert Workspace.changes(old, new) == [FileInfo("both", 2, "modified"), FileInfo("old", 0, "deleted")]
    old, new = Snapshot(old.files, whole), Snapshot(new.files, part)
    assert Workspace.changes(old, new) == [FileInfo("both", 2, "modified"), FileInfo("new", 2, "created")]


# --- many threads -----------------------------------------------------------------------------------------------


def test_one_workspace_serves_many_threads(space: Workspace) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(60):
            body = f"{number}-{turn}" * 100
            space.write_file(f"shared/{number}/{turn % 5}", body)
            if space.read_file(f"shared/{number}/{turn % 5}") != body.encode():
                wrong.append((number, turn))
            if len(space.list_files(f"shared/{number}")) != min(turn + 1, 5):
                wrong.append(space.list_files(f"shared/{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert len(space.list_files()) == 40


def test_closing_while_others_work_ends_them_with_the_sandboxs_own_errors() -> None:
    strange: list[BaseException] = []
    for _ in range(30):
        workspace = Workspace(None)
        started = threading.Barrier(4)

        def work(workspace: Workspace = workspace, started: threading.Barrier = started) -> None:
            started.wait()
            try:
                while True:
                    workspace.write_file("d/f", "x")
                    workspace.read_file("d/f")
                    workspace.list_files()
                    workspace.scan()
            except (SessionClosed, WorkspaceError):
                return
            except BaseException as error:  # collected and asserted on
                strange.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        workspace.close()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert not os.path.exists(workspace.path)
    assert strange == []


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    before = open_descriptors()
    for _ in range(3):
        with Workspace(None) as workspace:
            workspace.write_file("a/b/f", "x")
            workspace.read_file("a/b/f")
            workspace.list_files()
            workspace.scan()
            os.mkfifo(Path(workspace.path, "fifo"))
            for refused in ("fifo", "none", "a/b", "a/none/f", "a/b/f/g"):
                with pytest.raises(WorkspaceError):
                    workspace.read_file(refused)
            for refused in ("fifo", "a/b", "a/b/f/g"):
                with pytest.raises(WorkspaceError):
                    workspace.write_file(refused, "x")
        with pytest.raises(WorkspaceError):
            Workspace(tmp_path / "none")
    assert not open_descriptors() - before
