"""What a workspace takes of the disk is counted as the disk counts it, and a call's guard hears of it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kern_sandbox.errors import SessionClosed, SpecError, WorkspaceError
from kern_sandbox.spec import BoxSpec
from kern_sandbox.workspace import Workspace, _ceiling
from kern_sandbox.workspace._usage import usage
from support import applies
from unit.workspace_help import in_time, quick_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
ALL = 1 << 60


@pytest.fixture
def top() -> Iterator[Path]:
    yield from quick_directory()


def counted(top: Path, enough: int = ALL) -> int:
    fd = os.open(top, os.O_PATH)
    try:
        return usage(fd, enough)
    finally:
        os.close(fd)


def test_content_counts_as_allocated_and_every_name_a_little(top: Path) -> None:
    assert counted(top) == 0
    (top / "a").write_bytes(os.urandom(MIB))
    assert MIB + 512 <= counted(top) <= MIB + 100_000
    before = counted(top)
    os.link(top / "a", top / "twin")
    os.symlink("/", top / "link")
    os.mkfifo(top / "fifo")
    assert 1536 <= counted(top) - before <= 1536 + 8192
    with open(top / "hole", "wb") as file:
        file.truncate(1 << 40)
    assert counted(top) - before < MIB
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "e" / "b").write_bytes(os.urandom(MIB))
    assert counted(top) > 2 * MIB
    assert counted(top, enough=MIB) > MIB


def test_a_tree_deeper_than_the_open_levels_is_counted_whole(top: Path) -> None:
    deep = top.joinpath(*"d" * 100)
    deep.mkdir(parents=True)
    (deep / "big").write_bytes(os.urandom(MIB))
    (top / "d" / "beside").write_bytes(os.urandom(MIB))
    assert counted(top) > 2 * MIB


@pytest.mark.parametrize("mode", [0, 0o400, 0o100, 0o222])
def test_a_directory_that_may_not_be_read_is_counted_by_its_owner(top: Path, mode: int) -> None:
    applies(os.geteuid() != 0, "root may read everything")
    (top / "d").mkdir()
    (top / "d" / "big").write_bytes(os.urandom(MIB))
    os.chmod(top / "d", mode)
    assert counted(top) > MIB
    assert os.stat(top / "d").st_mode & 0o777 == mode | 0o500


def test_a_workspace_that_code_has_closed_is_counted_too(top: Path) -> None:
    applies(os.geteuid() != 0, "root may read everything")
    (top / "big").write_bytes(b"x" * MIB)
    top.chmod(0)
    assert counted(top) >= MIB


def test_a_guard_hears_once_that_its_call_went_too_far_and_nothing_before(top: Path) -> None:
    with Workspace(top, MIB) as space:
        told = threading.Semaphore(0)
        guard = space.guard()
        guard.watch(told.release)
        (top / "small").write_bytes(bytes(MIB // 2))
        assert not told.acquire(blocking=False)
        (top / "big").write_bytes(os.urandom(MIB))
        assert told.acquire(timeout=30)
        evidence = guard.conclude({"notes": ["first"]})
        assert (evidence["disk_full"], evidence["notes"][0], len(evidence["notes"])) == (True, "first", 2)
        assert not told.acquire(blocking=False)


def test_a_call_that_begins_above_the_ceiling_may_shrink_the_workspace_and_not_let_it_grow(top: Path) -> None:
    (top / "big").write_bytes(os.urandom(2 * MIB))
    with Workspace(top, MIB) as space:
        same = space.guard().conclude({})
        assert (same["disk_full"], len(same["notes"])) == (False, 1)
        guard = space.guard()
        (top / "more").write_bytes(os.urandom(MIB))
        assert guard.conclude({})["disk_full"]
        (top / "big").unlink()
        (top / "more").unlink()
        assert space.guard().conclude({}) == {"disk_full": False, "notes": []}


def test_a_workspace_that_is_closed_meanwhile_ends_the_watching(top: Path) -> None:
    space = Workspace(top, MIB)
    guard = space.guard()
    guard.watch(lambda: None)
    space.close()
    assert guard.conclude({"status": 0}) == {"status": 0}
    with pytest.raises(SessionClosed):
        space.guard()


def test_a_count_that_fails_for_want_of_descriptors_does_not_end_the_watching(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Workspace(top, MIB) as space:
        told = threading.Event()
        failures = [OSError(errno.EMFILE, "no descriptor is left")] * 3

        def held() -> int:
            if failures:
                raise failures.pop()
            return space._held()

        guard = space.guard()
        monkeypatch.setattr(guard._ceiling, "_held", held)
        (top / "big").write_bytes(os.urandom(2 * MIB))
        guard.watch(told.set)
        assert told.wait(30)
        assert not failures
        guard.release()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_watches_its_own_calls_and_not_its_parents(top: Path) -> None:
    def body() -> int:
        child = os.fork()
        if child == 0:
            told = threading.Semaphore(0)
            space.guard().watch(told.release)
            (top / "big").write_bytes(os.urandom(2 * MIB))
            os._exit(0 if told.acquire(timeout=20) and not heard else 1)
        return os.waitpid(child, 0)[1]

    heard: list[int] = []
    with Workspace(top, MIB) as space:
        guard = space.guard()
        guard.watch(lambda: heard.append(os.getpid()))
        assert in_time(body) == 0
        guard.release()
    assert heard in ([], [os.getpid()])


def test_without_a_ceiling_nothing_is_counted(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ceiling, "usage", lambda *_: pytest.fail("it was counted"))
    with Workspace(top) as space:
        guard = space.guard()
        guard.watch(lambda: pytest.fail("it was told"))
        space.write_file("x", "x")
        assert guard.conclude({"status": 0}) == {"status": 0}


def test_a_file_that_does_not_fit_is_refused_and_one_that_does_is_written(top: Path) -> None:
    with Workspace(top, MIB) as space:
        space.write_file("fits", bytes(MIB // 2))
        with pytest.raises(WorkspaceError) as failure:
            space.write_file("more", bytes(MIB))
        assert failure.value.errno == errno.ENOSPC
        assert space.list_files() == ["fits"]


@pytest.mark.parametrize("value", [0, -1, 1.5, "10", True, 1 << 40])
def test_a_ceiling_is_a_whole_number_of_mebibytes(value: object) -> None:
    with pytest.raises(SpecError, match="workspace_mb"):
        BoxSpec.of(workspace_mb=value)
    assert BoxSpec.of(workspace_mb=1).workspace_mb == 1
    assert BoxSpec.of().workspace_mb is None
