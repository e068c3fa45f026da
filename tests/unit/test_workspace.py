"""A workspace as its user meets it: it is opened and closed, and files go in and out."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kern_sandbox._linux.fds import open_beneath
from kern_sandbox.errors import SessionClosed, SpecError, WorkspaceError
from kern_sandbox.workspace import Workspace, _beneath
from support import need
from unit.workspace_help import KERNELS, SITE, disk, no_openat2, run_python, workspace_on

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=KERNELS)
def space(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workspace]:
    yield from workspace_on(request.param, monkeypatch, tmp_path)


# --- opening and closing ----------------------------------------------------------------------------------------


def test_a_temporary_workspace_is_private_and_goes_away_on_close() -> None:
    workspace = Workspace(None)
    assert workspace.temporary
    assert stat.S_IMODE(os.stat(workspace.path).st_mode) == 0o700
    workspace.write_file("a/b", "x")
    workspace.close()
    assert not os.path.exists(workspace.path)


@pytest.mark.parametrize("words", [os.strerror(errno.ENOSPC), "No usable temporary directory found in ['/a', '/b']"])
def test_where_none_can_be_made_the_error_says_why_and_what_to_set(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise OSError(errno.ENOSPC, words)

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(WorkspaceError) as raised:
        Workspace(None)
    hint = "Set TMPDIR, or name a directory as workspace"
    assert str(raised.value) == f"make a temporary workspace: {words}. {hint}"


def test_a_named_workspace_is_kept_on_close(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        assert not workspace.temporary
        workspace.write_file("a/b", "x")
    assert (tmp_path / "a/b").read_text() == "x"


def test_links_in_the_workspaces_own_path_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    with Workspace(str(tmp_path / "link" / "deep")) as workspace:
        assert workspace.path == str(tmp_path / "real/deep")
        workspace.write_file("f", "x")
    assert (tmp_path / "real/deep/f").read_text() == "x"


def test_a_link_that_is_the_workspace_itself_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with Workspace(tmp_path / "link") as workspace:
        assert workspace.path == str(tmp_path / "real")


def test_a_relative_path_does_not_follow_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ws").mkdir()
    monkeypatch.chdir(tmp_path)
    with Workspace("ws") as workspace:
        monkeypatch.chdir("/")
        workspace.write_file("f", "x")
    assert (tmp_path / "ws/f").exists()


def test_a_workspace_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="Create the directory first") as caught:
        Workspace(tmp_path / "none")
    assert caught.value.errno == errno.ENOENT


def test_a_file_is_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(WorkspaceError, match="must be a directory"):
        Workspace(tmp_path / "f")


@pytest.mark.parametrize("value", ["", "a\0b", b"/tmp", 3, True, ["/tmp"]])
def test_a_workspace_that_is_no_path_is_a_spec_error(value: Any) -> None:
    with pytest.raises(SpecError, match="workspace="):
        Workspace(value)


def test_the_descriptor_is_the_directory_and_is_not_inherited(space: Workspace) -> None:
    assert os.path.samestat(os.fstat(space.fd), os.stat(space.path))
    assert not os.get_inheritable(space.fd)


@pytest.mark.parametrize(
    "use",
    [
        lambda w: w.fd,
        lambda w: w.check(),
        lambda w: w.write_file("f", "x"),
        lambda w: w.read_file("f"),
        lambda w: w.list_files(),
        lambda w: w.scan(),
    ],
    ids=["fd", "check", "write", "read", "list", "scan"],
)
def test_use_after_close_is_session_closed_and_closing_again_does_nothing(use: Any) -> None:
    workspace = Workspace(None)
    workspace.write_file("f", "x")
    use(workspace)
    workspace.close()
    workspace.close()
    with pytest.raises(SessionClosed, match="of a Sandbox that is closed"):
        use(workspace)


def test_a_forked_child_does_not_remove_its_parents_temporary_workspace() -> None:
    code = """
import os
from kern_sandbox.workspace import Workspace
w = Workspace(None)
child = os.fork()
if child == 0:
    w.close()
    os._exit(0)
os.waitpid(child, 0)
print(os.path.exists(w.path))
w.close()
print(os.path.exists(w.path))
"""
    assert run_python(code).split() == ["True", "False"]


def test_check_says_that_the_directory_has_vanished(space: Workspace) -> None:
    space.check()
    os.rename(space.path, space.path + "-away")
    with pytest.raises(WorkspaceError, match=r"removed or renamed.*open a new Sandbox"):
        space.check()
    with pytest.raises(WorkspaceError, match="removed or renamed"):
        space.list_files()
    os.rename(space.path + "-away", space.path)
    space.check()


def test_check_says_that_another_directory_has_taken_the_place(space: Workspace) -> None:
    os.rmdir(space.path)
    os.mkdir(space.path)
    with pytest.raises(WorkspaceError, match="something else has been put in its place"):
        space.check()
    with pytest.raises(WorkspaceError, match="something else"):
        space.write_file("f", "x")
    assert os.listdir(space.path) == []


# --- writing and reading ----------------------------------------------------------------------------------------


def test_text_is_written_as_utf_8_and_bytes_as_they_are(space: Workspace) -> None:
    space.write_file("t", "naïve ☃")
    space.write_file("b", b"\x00\xff")
    assert disk(space, "t").read_bytes() == "naïve ☃".encode()
    assert space.read_file("b") == b"\x00\xff"


def test_empty_and_large_files_come_back_whole(space: Workspace) -> None:
    large = os.urandom(1 << 20) * 20
    space.write_file("empty", b"")
    space.write_file("large", large)
    assert space.read_file("empty") == b""
    assert space.read_file("large") == large


def test_parents_are_created_and_existing_ones_are_used(space: Workspace) -> None:
    space.write_file("a/b/c/one", "1")
    space.write_file("a/b/c/two", "2")
    assert space.list_files() == ["a/b/c/one", "a/b/c/two"]


@pytest.mark.parametrize("path", ["/workspace/a/f", "./a/f", "a/f"])
def test_a_path_is_accepted_as_code_in_a_box_says_it(space: Workspace, path: str) -> None:
    space.write_file(path, "x")
    assert space.list_files() == ["a/f"]
    assert space.read_file(path) == b"x"


def test_modes_do_not_depend_on_the_umask(space: Workspace) -> None:
    old = os.umask(0o077)
    try:
        space.write_file("d/f", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE(disk(space, "d").stat().st_mode) == 0o755
    assert stat.S_IMODE(disk(space, "d/f").stat().st_mode) == 0o644


@pytest.mark.parametrize(("old", "new"), [(0o755, 0o755), (0o600, 0o600), (0o444, 0o444), (0o6755, 0o755)])
def test_replacing_keeps_the_mode_but_for_setuid_and_setgid(space: Workspace, old: int, new: int) -> None:
    disk(space, "f").write_text("old")
    disk(space, "f").chmod(old)
    assert stat.S_IMODE(disk(space, "f").stat().st_mode) == old
    space.write_file("f", "new")
    assert disk(space, "f").read_text() == "new"
    assert stat.S_IMODE(disk(space, "f").stat().st_mode) == new


def test_a_reader_never_sees_half_of_a_file(space: Workspace) -> None:
    contents = [b"a" * 300_000, b"b" * 300_000]
    space.write_file("f", contents[0])
    seen = set()
    finished = threading.Event()

    def look() -> None:
        while not finished.is_set():
            seen.add(disk(space, "f").read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    for turn in range(200):
        space.write_file("f", contents[turn % 2])
    finished.set()
    reader.join(30)
    assert not reader.is_alive()
    assert seen <= set(contents)
    assert seen


def test_writing_replaces_a_name_and_not_the_data_that_other_names_share(space: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    os.link(outside, disk(space, "f"))
    assert space.read_file("f") == b"precious"
    space.write_file("f", "new")
    assert space.read_file("f") == b"new"
    assert outside.read_text() == "precious"


def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_refused(space: Workspace) -> None:
    space.write_file("f", b"12345")
    assert space.read_file("f", max_bytes=5) == b"12345"
    with pytest.raises(WorkspaceError, match="max_bytes=4") as caught:
        space.read_file("f", max_bytes=4)
    assert caught.value.errno == errno.EFBIG
    space.write_file("empty", b"")
    assert space.read_file("empty", max_bytes=0) == b""


def test_what_is_missing_is_named(space: Workspace) -> None:
    space.write_file("d/f", "x")
    for path in ("nothing", "d/nothing", "no/such/dir"):
        with pytest.raises(WorkspaceError, match=path) as caught:
            space.read_file(path)
        assert caught.value.errno == errno.ENOENT
    with pytest.raises(WorkspaceError) as caught:
        space.read_file("d/f/below")
    assert caught.value.errno == errno.ENOTDIR
    with pytest.raises(WorkspaceError) as caught:
        space.write_file("d/f/below", "x")
    assert caught.value.errno == errno.ENOTDIR


@pytest.mark.parametrize("data", [None, 3, bytearray(b"x"), ["x"], "\ud800"])
def test_data_that_is_neither_text_nor_bytes_is_a_spec_error(space: Workspace, data: Any) -> None:
    with pytest.raises(SpecError, match="data"):
        space.write_file("f", data)
    assert space.list_files() == []


@pytest.mark.parametrize("limit", [-1, True, 1.5, "1", None])
def test_a_limit_that_is_no_size_is_a_spec_error(space: Workspace, limit: Any) -> None:
    space.write_file("f", "x")
    with pytest.raises(SpecError, match="max_bytes"):
        space.read_file("f", max_bytes=limit)


def test_where_openat2_works_nothing_is_opened_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stepped(*_: object) -> int:
        raise AssertionError("opened step by step")

    with Workspace(tmp_path) as workspace:
        workspace.write_file("a/f", "x")
        try:
            os.close(open_beneath(workspace.fd, b"a", os.O_RDONLY))
        except OSError as error:
            need(error.errno != errno.ENOSYS, "the kernel has no openat2")
        monkeypatch.setattr(_beneath, "_open_stepwise", stepped)
        workspace.write_file("a/f", "y")
        assert workspace.read_file("a/f") == b"y"
        assert workspace.list_files("a") == ["a/f"]
        monkeypatch.setattr(_beneath, "open_beneath", no_openat2)
        with pytest.raises(AssertionError, match="step by step"):
            workspace.read_file("a/f")


# --- a full disk ------------------------------------------------------------------------------------------------

FILL = """
import errno, os, sys
from kern_sandbox.errors import WorkspaceError
from kern_sandbox.workspace import Workspace
with Workspace(sys.argv[1]) as w:
    w.write_file("f", "old")
    try:
        w.write_file("f", b"x" * 4_000_000)
    except WorkspaceError as error:
        print(errno.errorcode[error.errno], "no file was changed" in str(error))
    print(os.listdir(w.path), w.read_file("f"))
    w.write_file("f", "new")
    print(w.read_file("f"))
"""


def test_a_write_beyond_the_file_size_limit_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    printed = run_python(FILL, str(tmp_path), before=limit).splitlines()
    assert printed == ["EFBIG True", "['f'] b'old'", "b'new'"]


def test_a_full_disk_is_named_and_the_old_file_stays(tmp_path: Path) -> None:
    unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    tried = subprocess.run([*unshare, "true"], capture_output=True, text=True)
    need(tried.returncode == 0, f"no mount namespace: {tried.stderr}")
    mount = 'mount -t tmpfs -o size=256k none "$1" && exec "$2" -c "$3" "$1"'
    program = f"import sys; sys.path.insert(0, {SITE!r})\n{FILL}"
    done = subprocess.run(
        [*unshare, "sh", "-c", mount, "sh", str(tmp_path), sys.executable, program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["ENOSPC True", "['f'] b'old'", "b'new'"], done.stderr


# --- ownership --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.getuid() != 0, reason="only root can write for another user")
def test_what_root_writes_belongs_to_the_workspaces_owner(space: Workspace) -> None:
    space.write_file("before", "x")
    os.chown(space.path, 12345, 23456)
    space.write_file("a/b/f", "x")
    space.write_file("before", "y")
    for name in ("a", "a/b", "a/b/f", "before"):
        status = disk(space, name).stat()
        assert (status.st_uid, status.st_gid) == (12345, 23456), name


def test_what_a_user_writes_in_an_own_workspace_belongs_to_that_user(space: Workspace) -> None:
    space.write_file("a/f", "x")
    assert {disk(space, name).stat().st_uid for name in ("a", "a/f")} == {os.getuid()}
