"""Paths that are refused as they stand, and links and nodes that a box has put where a file is expected."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kern_sandbox.errors import SpecError, WorkspaceError
from kern_sandbox.workspace import Workspace, _beneath
from support import need
from unit.workspace_help import KERNELS, fingerprint, guarded, in_time, workspace_on

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=KERNELS)
def space(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workspace]:
    yield from workspace_on(request.param, monkeypatch, tmp_path)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    yield from guarded(tmp_path)


# --- paths, by their text ---------------------------------------------------------------------------------------

REFUSED = {
    "../x": r"'\.\.'",
    "a/../x": r"'\.\.'",
    "..": r"'\.\.'",
    "/etc/passwd": "absolute",
    "//etc": "absolute",
    "/": "absolute",
    "/workspacex": "absolute",
    "/workspace/../etc/passwd": r"'\.\.'",
    "/workspace//etc/passwd": "absolute",
    "": "names no file",
    ".": "names no file",
    "/workspace/": "names no file",
    "./": "names no file",
    "a/./x": "component",
    "a//x": "component",
    "a/": "component",
    "file:///etc/passwd": "component",
    "a\0b": "NUL",
    "\ud800": "surrogate",
    "a/\udfff": "surrogate",
    "a" * 256: "255 bytes",
    "é" * 128: "255 bytes",
    "d/" * 3000 + "x": "4095 bytes",
}


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: ascii(path[:30]))
def test_a_path_that_is_refused_is_refused_by_every_verb_with_its_rule(space: Workspace, path: str) -> None:
    for use in (space.read_file, lambda p: space.write_file(p, "x")):
        with pytest.raises(WorkspaceError, match=REFUSED[path]) as caught:
            use(path)
        assert len(str(caught.value)) < 1000
    assert os.listdir(space.path) == []


@pytest.mark.parametrize("path", ["a/../x", "..", "/etc", "/", "//", "a//", "a\0", "\ud800", "d/" * 3000])
def test_a_directory_that_is_refused_is_not_listed(space: Workspace, path: str) -> None:
    with pytest.raises(WorkspaceError, match="use the path"):
        space.list_files(path)


@pytest.mark.parametrize("path", ["~/x", "~root/.ssh/id"])
def test_a_tilde_is_refused_where_the_caller_expects_it_to_be_expanded(space: Workspace, path: str) -> None:
    with pytest.raises(WorkspaceError, match="not expanded"):
        space.write_file(path, "x")
    space.write_file(f"./{path}", "x")
    space.write_file("~lock", "x")
    assert space.list_files() == sorted([path, "~lock"])
    assert space.read_file(path) == b"x"


@pytest.mark.parametrize(
    "path", ["a", "...", "..a", "a..", "a b", "-rf", "\\..\\x", "a\nb", "x" * 255, "a/" * 2000 + "f"]
)
def test_a_path_that_only_looks_strange_works(space: Workspace, path: str) -> None:
    space.write_file(path, "x")
    assert space.read_file(path) == b"x"
    assert space.list_files() == [path]


@pytest.mark.parametrize("path", [None, 3, b"f", Path("f"), ["f"]])
def test_a_path_that_is_no_text_is_a_spec_error(space: Workspace, path: Any) -> None:
    for use in (space.read_file, space.list_files, lambda p: space.write_file(p, "x")):
        with pytest.raises(SpecError, match=r"path=.* a str, relative to the workspace"):
            use(path)


COMPONENTS = st.sampled_from(
    ["..", ".", "", "a", "d", "workspace", "~", "outside", "\udcff", "\ud800", "\0", "x" * 256]
)
PATHS = st.one_of(
    st.lists(COMPONENTS, max_size=6).map("/".join),
    st.lists(COMPONENTS, max_size=6).map(lambda parts: "/workspace/" + "/".join(parts)),
    st.text(st.characters(codec=None), max_size=20),
    st.text("./~\0a\udc80\udcff", max_size=12),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=300)
@given(path=PATHS)
def test_whatever_the_path_nothing_outside_is_touched(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    """Either the path is refused and nothing appears, or the file is in the workspace and comes back."""
    base = tmp_path_factory.mktemp("any")
    (base / "outside").mkdir()
    (base / "outside" / "a").write_text("SECRET")
    (base / "ws").mkdir()
    before = fingerprint(base / "outside"), os.listdir(base)
    with Workspace(base / "ws") as space:
        try:
            space.write_file(path, "x")
        except WorkspaceError:
            assert space.list_files() == []
        else:
            assert space.read_file(path) == b"x"
            assert len(space.list_files() or [".deps"]) == 1
        with pytest.raises((WorkspaceError, AssertionError)):
            assert space.read_file(path) != b"x"
    assert (fingerprint(base / "outside"), os.listdir(base)) == before


# --- links ------------------------------------------------------------------------------------------------------


def plant(space: Workspace, outside: Path) -> dict[str, str]:
    """Links of every kind in the workspace; a path through each, and what it would lead to outside."""
    root = Path(space.path)
    (root / "real").mkdir()
    (root / "real" / "f").write_text("inside")
    links = {
        "absolute": str(outside / "secret"),
        "relative": "../outside/secret",
        "dangling": str(outside / "not-yet"),
        "to-inside": "real/f",
        "by-root": f"/proc/self/root{outside}/secret",
        "by-fd": "/proc/self/fd/0",
        "by-cwd": "/proc/self/cwd",
        "zero": "/dev/zero",
        "loop": "loop",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    (root / "middle").symlink_to(outside)
    (root / "real" / "up").symlink_to("../../outside")
    (root / "inside-dir").symlink_to("real")
    return dict.fromkeys([*links, "middle/secret", "middle/new", "middle/sub/f", "real/up/secret", "inside-dir/f"], "")


def test_no_verb_follows_a_link(space: Workspace, outside: Path) -> None:
    planted = plant(space, outside)
    for path in planted:
        with pytest.raises(WorkspaceError, match="symbolic link") as caught:
            in_time(space.read_file, path)
        assert caught.value.errno == errno.ELOOP, path
        with pytest.raises(WorkspaceError, match="symbolic link") as caught:
            in_time(space.write_file, path, "OVERWRITTEN")
        assert caught.value.errno == errno.ELOOP, path
    for path in ("middle", "middle/sub", "real/up", "inside-dir", "loop", "by-cwd"):
        with pytest.raises(WorkspaceError, match="symbolic link"):
            space.list_files(path)
    assert space.list_files() == ["real/f"]
    assert list(space.scan().files) == ["real/f"]
    assert space.read_file("real/f") == b"inside"
    assert (outside / "secret").read_text() == "SECRET"


def test_the_planted_links_do_lead_outside(space: Workspace, outside: Path) -> None:
    """The control of the test above."""
    plant(space, outside)
    for path in ("absolute", "relative", "by-root", "middle/secret", "real/up/secret"):
        assert Path(space.path, path).read_text() == "SECRET"


def test_removing_a_temporary_workspace_follows_no_link(tmp_path: Path, outside: Path) -> None:
    space = Workspace(None)
    plant(space, outside)
    space.close()
    assert not os.path.exists(space.path)


# --- what is no file --------------------------------------------------------------------------------------------


def test_fifos_sockets_and_directories_are_refused_at_once_and_by_their_kind(space: Workspace) -> None:
    root = Path(space.path)
    os.mkfifo(root / "a FIFO")
    (root / "a directory").mkdir()
    here = os.getcwd()
    os.chdir(root)  # a socket's path is limited to 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("a socket")
        listener.listen()
        os.chdir(here)
        for kind in ("a FIFO", "a directory", "a socket"):
            with pytest.raises(WorkspaceError, match=f"It is {kind}; only regular files"):
                in_time(space.read_file, kind)
            with pytest.raises(WorkspaceError, match=f"It is {kind}; only regular files"):
                in_time(space.write_file, kind, "x")
            with pytest.raises(WorkspaceError):
                in_time(space.read_file, f"{kind}/below")
    for kind in ("a FIFO", "a socket"):
        with pytest.raises(WorkspaceError):
            in_time(space.list_files, kind)
    space.write_file("a file", "x")
    assert in_time(space.list_files) == ["a file"]
    assert list(in_time(space.scan).files) == ["a file"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make device nodes")
def test_devices_are_refused_without_being_opened(space: Workspace) -> None:
    for name, kind, number in (("char", stat.S_IFCHR, (1, 5)), ("block", stat.S_IFBLK, (7, 250))):
        try:
            os.mknod(Path(space.path, name), kind | 0o666, os.makedev(*number))
        except PermissionError:
            need(False, "no device nodes can be made here")
        with pytest.raises(WorkspaceError, match=f"{name}.* device"):
            in_time(space.read_file, name, max_bytes=10)
    assert space.list_files() == []


def test_a_fifo_that_takes_the_place_of_a_file_after_the_look_does_not_hang(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.write_file("f", "x")
    look = _beneath.require_regular
    swapped: list[bool] = []

    def look_then_swap(status: os.stat_result) -> None:
        look(status)
        if not swapped:
            swapped.append(True)
            os.unlink(Path(space.path, "f"))
            os.mkfifo(Path(space.path, "f"))

    monkeypatch.setattr(_beneath, "require_regular", look_then_swap)
    with pytest.raises(WorkspaceError, match="a FIFO"):
        in_time(space.read_file, "f")
    assert swapped


def test_a_lease_on_a_file_does_not_hold_up_the_reader(space: Workspace) -> None:
    space.write_file("f", "x")
    old = signal.signal(signal.SIGIO, signal.SIG_IGN)
    holder = os.open(Path(space.path, "f"), os.O_RDWR)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(WorkspaceError) as caught:
            in_time(space.read_file, "f")
        assert caught.value.errno == errno.EAGAIN
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, old)
    assert space.read_file("f") == b"x"


def test_a_sparse_file_is_refused_by_its_size_and_not_read(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_read(fd: int, size: int) -> bytes:
        raise AssertionError(f"{size} bytes are read")

    with open(Path(space.path, "sparse"), "wb") as file:
        file.truncate(1 << 40)
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", no_read)
        with pytest.raises(WorkspaceError, match="max_bytes=67108864"):
            in_time(space.read_file, "sparse")
    with open(Path(space.path, "sparse"), "wb") as file:
        file.truncate(1 << 20)
    assert space.read_file("sparse") == bytes(1 << 20)


def test_no_more_than_the_limit_and_one_byte_is_read_of_a_file_that_grows(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.write_file("f", b"x" * 1000)
    read, total = os.read, [0]
    with open(Path(space.path, "f"), "ab", buffering=0) as grows:

        def grow_then_read(fd: int, size: int) -> bytes:
            grows.write(b"y" * 1000)
            piece = read(fd, size)
            total[0] += len(piece)
            return piece

        monkeypatch.setattr(os, "read", grow_then_read)
        with pytest.raises(WorkspaceError, match="max_bytes=5000"):
            in_time(space.read_file, "f", max_bytes=5000)
    assert total[0] == 5001
