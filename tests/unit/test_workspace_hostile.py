"""Names, numbers, depths and modes that a box may leave behind."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kern_sandbox.errors import WorkspaceError
from kern_sandbox.workspace import Workspace, _walk, _workspace
from unit.workspace_help import KERNELS, SITE, in_time, quick_directory, workspace_on

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=KERNELS)
def space(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workspace]:
    yield from workspace_on(request.param, monkeypatch, tmp_path)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary workspaces are made in memory."""
    for directory in quick_directory():
        monkeypatch.setattr(tempfile, "tempdir", str(directory))
        yield directory


as_user_only = pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")


# --- names, numbers, depth --------------------------------------------------------------------------------------

NAMES = [
    b"\xff\xfe",
    b"a\nb",
    b"\x1b[31m",
    b"[sandbox: oom]",
    b"-rf",
    b" ",
    "\u202egpj.exe".encode(),
    b"\xed\xa0\x80",
    b"x" * 255,
    b"caf\xc3\xa9",
    b"\\",
]


def test_files_of_any_name_are_listed_read_replaced_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Workspace(None)
    for name in NAMES:
        folder = os.fsencode(space.path) + b"/" + name
        os.mkdir(folder)
        with open(folder + b"/" + name, "wb") as file:
            file.write(name)
    listed = space.list_files()
    assert sorted(path.encode("utf-8", "surrogateescape") for path in listed) == sorted(n + b"/" + n for n in NAMES)
    assert sorted(space.scan().files) == listed
    for path in listed:
        name = path.rpartition("/")[2].encode("utf-8", "surrogateescape")
        assert space.read_file(path) == name
        space.write_file(path, b"new")
        assert space.read_file(path) == b"new"
        assert space.list_files(path.rpartition("/")[0]) == [path]
    space.close()
    assert not os.path.exists(space.path)


def test_more_entries_than_the_limit_are_an_error_that_names_it(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        space.write_file(f"d/{number}", "")
    monkeypatch.setattr(_workspace, "MAX_ENTRIES", 11)
    assert len(space.list_files()) == 10
    assert space.scan().complete
    monkeypatch.setattr(_workspace, "MAX_ENTRIES", 10)
    with pytest.raises(WorkspaceError, match="more than 10 entries; list a subdirectory"):
        space.list_files()
    assert len(space.list_files("d")) == 10
    assert not space.scan().complete


def test_more_characters_than_the_limit_are_an_error_that_names_it(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.write_file("abc/def/1", "")
    space.write_file("abc/def/2", "")
    monkeypatch.setattr(_walk, "MAX_PREFIX_CHARS", 16)
    assert len(space.list_files()) == 2
    monkeypatch.setattr(_walk, "MAX_PREFIX_CHARS", 15)
    with pytest.raises(WorkspaceError, match="more than 15 characters"):
        space.list_files()
    assert not space.scan().complete


@contextmanager
def few_descriptors(number: int) -> Iterator[None]:
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)


def dig(path: str, name: str, depth: int) -> None:
    """A chain of directories, each with a file and a second directory beside the next one."""
    here = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        for made in (name, f"z{name[1:]}"):
            os.mkdir(made, dir_fd=here)
        os.close(os.open("f", os.O_CREAT, dir_fd=here))
        deeper = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)


def test_a_tree_4000_deep_is_listed_scanned_and_removed_with_few_descriptors() -> None:
    space = Workspace(None)
    dig(space.path, "d", 4000)
    with few_descriptors(len(os.listdir("/proc/self/fd")) + _walk.OPEN_LEVELS + 20):
        listed = space.list_files()
        assert len(listed) == 4000
        assert max(listed, key=len) == "d/" * 3999 + "f"
        assert space.scan().complete
        assert sorted(space.scan().files) == listed
        space.close()
    assert not os.path.exists(space.path)


def test_a_tree_4000_deep_of_the_longest_names_is_bounded_and_removed() -> None:
    space = Workspace(None)
    dig(space.path, "d" * 255, 4000)
    with pytest.raises(WorkspaceError, match="characters of directory names"):
        space.list_files()
    assert not space.scan().complete
    space.close()
    assert not os.path.exists(space.path)


def test_a_hundred_thousand_entries_are_removed() -> None:
    space = Workspace(None)
    os.mkdir(f"{space.path}/many")
    seed = f"{space.path}/seed"
    Path(seed).touch()
    folder = os.open(f"{space.path}/many", os.O_RDONLY)
    for number in range(90_000):
        os.symlink("x", str(number), dir_fd=folder)
    for number in range(_walk.SWEEP_BATCH + 100):
        os.mkdir(f"d{number}", dir_fd=folder)
        os.mkdir(f"d{number}/sub", dir_fd=folder)
    os.close(folder)
    assert space.list_files() == ["seed"]
    space.close()
    assert not os.path.exists(space.path)


# --- permissions ------------------------------------------------------------------------------------------------


def test_directories_without_permissions_are_removed_with_all_that_is_in_them() -> None:
    space = Workspace(None)
    for mode in (0o000, 0o100, 0o200, 0o400, 0o500, 0o600):
        space.write_file(f"d{mode:o}/sub/f", "x")
        os.chmod(f"{space.path}/d{mode:o}/sub", mode)
        os.chmod(f"{space.path}/d{mode:o}", mode)
    os.chmod(space.path, 0)
    space.close()
    assert not os.path.lexists(space.path)


@as_user_only
def test_what_the_user_may_not_read_is_left_out_and_the_rest_is_listed(space: Workspace) -> None:
    for name in ("open/f", "closed/f", "seen/f"):
        space.write_file(name, "x")
    os.chmod(Path(space.path, "closed"), 0)
    os.chmod(Path(space.path, "seen"), 0o400)
    try:
        assert space.list_files() == ["open/f", "seen/f"]
        assert list(space.scan().files) == ["open/f"]
        assert space.scan().complete
        with pytest.raises(WorkspaceError, match="a box may have set it") as caught:
            space.read_file("closed/f")
        assert caught.value.errno == errno.EACCES
    finally:
        os.chmod(Path(space.path, "closed"), 0o700)
        os.chmod(Path(space.path, "seen"), 0o700)


@as_user_only
def test_a_workspace_that_itself_may_not_be_read_is_named_and_a_scan_is_incomplete(space: Workspace) -> None:
    space.write_file("f", "x")
    os.chmod(space.path, 0)
    try:
        with pytest.raises(WorkspaceError, match="a box may have set it"):
            space.list_files()
        assert space.scan() == _workspace.Snapshot(complete=False)
    finally:
        os.chmod(space.path, 0o700)
    assert space.list_files() == ["f"]


def test_a_tree_that_cannot_be_removed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Workspace(None)
    space.write_file("d/keep", "x")
    unlink = os.unlink

    def stubborn(name: str, *, dir_fd: int) -> None:
        if name == "keep":
            raise PermissionError(errno.EPERM, "immutable", name)
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", stubborn)
        with pytest.raises(WorkspaceError, match=r"remove the temporary workspace.*by hand"):
            in_time(space.close)
    assert Path(space.path, "d/keep").exists()
    space.close()
    with Workspace(space.path) as again:
        assert _walk.empty_directory(again.fd)
    os.rmdir(space.path)


def test_importing_needs_nothing_that_only_linux_has() -> None:
    code = f"""
import sys; sys.path.insert(0, {SITE!r})
import os
for name in dir(os):
    if name.startswith("O_") and name not in ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL"):
        delattr(os, name)
import kern_sandbox.workspace
print("imported")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "imported\n", done.stderr
