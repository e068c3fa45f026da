"""Snapshots of a workspace and what restore makes of them, and what is left where it breaks off."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kern_sandbox.errors import SpecError, WorkspaceError
from kern_sandbox.workspace import Workspace, _exchange
from unit.archives_help import fill, packed, plain, tree
from unit.workspace_help import SITE, fingerprint, quick_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that holds ``ws``."""
    for path in quick_directory():
        (path / "ws").mkdir()
        yield path


@pytest.fixture
def space(place: Path) -> Iterator[Workspace]:
    with Workspace(place / "ws") as workspace:
        yield workspace


# --- what a snapshot is -----------------------------------------------------------------------------------------


def test_what_was_there_comes_back_and_what_was_not_is_gone(place: Path, space: Workspace) -> None:
    fill(space)
    before = tree(space.path)
    assert space.snapshot(place / "one.tar.gz") == []
    space.write_file("later", "x")
    space.write_file("a.bin", "changed")
    inode = os.stat(space.path).st_ino
    space.restore(place / "one.tar.gz")
    assert tree(space.path) == before
    assert os.stat(space.path).st_ino == inode
    space.check()


def test_the_same_tree_gives_the_same_bytes_whoever_wrote_it_when(place: Path, space: Workspace) -> None:
    fill(space)
    space.snapshot(place / "one")
    os.mkdir(place / "other")
    with Workspace(place / "other") as other:
        other.restore(place / "one")
        os.utime(Path(other.path, "a.bin"), (1, 1))
        other.snapshot(place / "two")
        assert (place / "one").read_bytes() == (place / "two").read_bytes()
        other.write_file("a.bin", "changed")
        other.snapshot(place / "two")
    assert (place / "one").read_bytes() != (place / "two").read_bytes()


def test_other_programs_read_it(place: Path, space: Workspace) -> None:
    fill(space)
    with open(Path(space.path, "sparse"), "wb") as file:
        file.seek(3 << 20)
        file.write(b"end")
        file.truncate(8 << 20)
    space.snapshot(place / "one.tar.gz")
    for name, command in (("py", [sys.executable, "-m", "tarfile", "-e"]), ("gnu", ["tar", "-xpzf"])):
        os.mkdir(place / name)
        words = [*command, str(place / "one.tar.gz")]
        subprocess.run(words + ([str(place / name)] if name == "py" else ["-C", str(place / name)]), check=True)
        assert {path: value[0] for path, value in tree(place / name).items()} == {
            path: value[0] for path, value in tree(space.path).items()
        }
    with tarfile.open(place / "one.tar.gz") as archive:
        assert {(info.uid, info.gid, info.mtime, info.uname) for info in archive} == {(0, 0, 0, "")}


def test_archives_of_other_programs_are_taken(place: Path, space: Workspace) -> None:
    fill(space)
    with open(Path(space.path, "sparse"), "wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    for number, options in enumerate((["--format=gnu"], ["--format=pax", "--sparse"], ["--format=pax"])):
        archive = place / f"{number}.tar.gz"
        subprocess.run(["tar", *options, "-czf", archive, "-C", space.path, "."], check=True)
        os.mkdir(place / str(number))
        with Workspace(place / str(number)) as other:
            other.restore(archive)
            assert tree(other.path) == {
                path: (content, mode if content is not None else mode | 0o700)
                for path, (content, mode) in tree(space.path).items()
            }


def test_ten_gibibytes_of_hole_take_no_room(place: Path, space: Workspace) -> None:
    size = 10 << 30
    with open(Path(space.path, "sparse"), "wb") as file:
        file.seek(5 << 30)
        file.write(b"middle")
        file.truncate(size)
    space.snapshot(place / "one", max_bytes=1 << 20)
    assert os.stat(place / "one").st_size < 1 << 16
    os.unlink(Path(space.path, "sparse"))
    space.restore(place / "one", max_bytes=1 << 20)
    about = os.stat(Path(space.path, "sparse"))
    assert (about.st_size, about.st_blocks * 512 < 1 << 20) == (size, True)
    with open(Path(space.path, "sparse"), "rb") as file:
        file.seek((5 << 30) - 2)
        assert file.read(10) == b"\0\0middle\0\0"


def test_what_is_no_plain_file_is_left_out_and_told(place: Path, space: Workspace) -> None:
    space.write_file("sub/kept", "kept")
    os.symlink("/etc/passwd", Path(space.path, "sub/link"))
    os.mkfifo(Path(space.path, "fifo"))
    Path(space.path, "line\nbreak").touch()
    os.link(Path(space.path, "sub/kept"), Path(space.path, "twin"))
    assert space.snapshot(place / "one") == ["fifo", "line\nbreak", "sub/link"]
    space.restore(place / "one")
    assert tree(space.path) == {"sub": (None, 0o755), "sub/kept": (b"kept", 0o644), "twin": (b"kept", 0o644)}


def test_more_than_max_bytes_is_refused_both_ways(place: Path, space: Workspace) -> None:
    space.write_file("big", os.urandom(5000))
    with pytest.raises(WorkspaceError, match="max_bytes"):
        space.snapshot(place / "one", max_bytes=4999)
    assert not (place / "one").exists()
    space.snapshot(place / "one", max_bytes=5000)
    before = fingerprint(Path(space.path))
    with pytest.raises(WorkspaceError, match="max_bytes"):
        space.restore(place / "one", max_bytes=4999)
    assert fingerprint(Path(space.path)) == before
    space.restore(place / "one", max_bytes=5000)


def test_an_archive_lies_outside_of_the_workspace_and_is_a_file(place: Path, space: Workspace) -> None:
    os.mkdir(place / "folder")
    os.symlink(space.path, place / "way")
    os.mkfifo(place / "fifo")
    for path in (f"{space.path}/x", place / "way" / "x", place / "folder", place / "no" / "x"):
        with pytest.raises(WorkspaceError):
            space.snapshot(path)
        with pytest.raises(WorkspaceError):
            space.restore(path)
    with pytest.raises(WorkspaceError, match="FIFO"):
        space.restore(place / "fifo")
    for wrong in (None, 3, "", "a\0b"):
        with pytest.raises(SpecError):
            space.snapshot(wrong)  # type: ignore[arg-type]
    assert sorted(os.listdir(place)) == ["fifo", "folder", "way", "ws"]


def test_a_snapshot_replaces_the_file_that_is_there(place: Path, space: Workspace) -> None:
    (place / "one").write_text("old")
    space.snapshot(place / "one")
    assert gzip.decompress((place / "one").read_bytes()) == bytes(1024)


# --- breaking off -----------------------------------------------------------------------------------------------


def test_a_failure_in_the_exchange_brings_the_old_tree_back(
    place: Path, space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(space)
    (place / "one").write_bytes(packed(plain("a.bin"), plain("x"), plain("y")))
    before = tree(space.path)
    moves = len(os.listdir(space.path)) + 3
    for breaking in range(moves + 1):
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", _failing(os.rename, breaking))
            with pytest.raises(WorkspaceError, match="No space left"):
                space.restore(place / "one")
        assert tree(space.path) == before
    space.restore(place / "one")
    assert sorted(tree(space.path)) == ["a.bin", "x", "y"]


def _failing(rename: Callable[..., None], after: int) -> Callable[..., None]:
    left = [after]

    def one(*args: Any, **more: Any) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(28, os.strerror(28))
        rename(*args, **more)

    return one


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from kern_sandbox.workspace import Workspace
rename, left = os.rename, int(sys.argv[4])
def dying(*args, **more):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)
    rename(*args, **more)
os.rename = dying
Workspace(sys.argv[2]).restore(sys.argv[3])
"""


@pytest.mark.parametrize("at", [0, 1, 3, 4, 6])
def test_a_kill_in_the_exchange_leaves_the_old_tree_to_the_next_who_opens_it(at: int, place: Path) -> None:
    for name in ("one", "two", "three"):
        (place / "ws" / name).write_text("old")
    before = tree(place / "ws")
    (place / "new").write_bytes(packed(plain("one"), plain("more"), plain("four")))
    words = [sys.executable, "-c", KILLED, SITE, str(place / "ws"), str(place / "new"), str(at)]
    assert subprocess.run(words, check=False).returncode == -9
    with Workspace(place / "ws") as space:
        assert tree(space.path) == before
        space.restore(place / "new")
        assert sorted(tree(space.path)) == ["four", "more", "one"]


def test_old_names_that_cannot_go_back_are_kept_for_the_next_who_opens_it(
    place: Path, space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(space)
    (place / "one").write_bytes(packed(plain("new")))
    before = tree(space.path)
    with monkeypatch.context() as patch:
        patch.setattr(_exchange, "_move_all", _failing(_exchange._move_all, 1))
        patch.setattr(_exchange, "_take_back", _failing(_exchange._take_back, 0))
        with pytest.raises(WorkspaceError, match="No space left"):
            space.restore(place / "one")
    assert [name[:14] for name in os.listdir(space.path)] == [".kern-restore-"]
    assert space.list_files() == []
    space.write_file("b", "taken by a box meanwhile")
    with Workspace(space.path):
        assert tree(space.path) == before


def test_what_a_box_has_put_under_a_stages_name_is_no_tree_to_bring_back(place: Path, space: Workspace) -> None:
    (place / "outside").mkdir()
    space.write_file("kept", "kept")
    os.symlink(place / "outside", Path(space.path, ".kern-restore-link"))
    Path(space.path, ".kern-restore-file").touch()
    os.mkdir(Path(space.path, ".kern-restore-dir"))
    os.symlink(place / "outside", Path(space.path, ".kern-restore-dir", "old"))
    (place / "outside" / "file").touch()
    with Workspace(space.path) as other:
        assert other.list_files() == ["kept"]
    assert os.listdir(place / "outside") == ["file"]
    assert sorted(os.listdir(space.path)) == [".kern-restore-file", ".kern-restore-link", "kept"]


def test_a_tree_that_has_no_mark_of_ours_is_not_brought_back(place: Path, space: Workspace) -> None:
    space.write_file("kept", "kept")
    forged = Path(space.path, ".kern-restore-forged")
    (forged / "old").mkdir(parents=True)
    (forged / "old/kept").write_text("evil")
    Workspace(space.path).close()
    assert space.read_file("kept") == b"kept"
    forged.chmod(0o4700)  # the control, as a restore marks its own
    Workspace(space.path).close()
    assert (space.read_file("kept"), forged.exists()) == (b"evil", False)


def test_a_directory_that_a_box_has_taken_from_a_restore_has_lost_its_mark(place: Path, space: Workspace) -> None:
    with _exchange.open_root(space.fd) as root, _exchange.stage(root, None):
        [name] = os.listdir(space.path)
        os.rename(Path(space.path, name), Path(space.path, "taken"))
    assert Path(space.path, "taken").stat().st_mode & 0o7777 == 0o700


def test_a_restore_under_way_is_not_taken_for_a_broken_one(place: Path, space: Workspace) -> None:
    space.write_file("old", "old")
    with _exchange.open_root(space.fd) as root, _exchange.stage(root, None) as staged:
        os.rename("old", "old/old", src_dir_fd=root, dst_dir_fd=staged)
        with Workspace(space.path) as other:
            assert other.list_files() == []
        os.rename("old/old", "old", src_dir_fd=staged, dst_dir_fd=root)
    assert space.read_file("old") == b"old"


def test_links_planted_while_it_works_lead_nowhere(place: Path, space: Workspace) -> None:
    """A process that exchanges everything it sees for links into a directory that nobody may touch."""
    (place / "outside").mkdir()
    (place / "outside" / "file").write_text("outside")
    before = fingerprint(place / "outside")
    fill(space)
    space.snapshot(place / "one")
    done = threading.Event()

    def plant() -> None:
        while not done.is_set():
            for name in os.listdir(space.path):
                for part in ("", "/new", "/old", "/new/b"):
                    _plant(f"{space.path}/{name}{part}", str(place / "outside"))

    planter = threading.Thread(target=plant)
    planter.start()
    try:
        for _ in range(60):
            for verb in (space.snapshot, space.restore):
                try:
                    verb(place / "one")
                except WorkspaceError:
                    continue
    finally:
        done.set()
        planter.join()
    assert fingerprint(place / "outside") == before


def _plant(path: str, target: str) -> None:
    try:
        os.rename(path, f"{path}.away")
        os.symlink(target, path)
    except OSError:
        return
