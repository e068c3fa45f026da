"""What restore makes of archives that nobody who means well has made."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kern_sandbox.errors import WorkspaceError
from kern_sandbox.workspace import Workspace, _workspace
from unit.archives_help import negative, of_type, packed, packed_raw, plain, repair, tree
from unit.workspace_help import fingerprint, quick_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

FEW = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


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


GOOD = packed(plain("new/file"))
RAW = gzip.decompress(GOOD)
SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s", "GNU.sparse.realsize": "100"}


def sparse(text: bytes, **records: str) -> bytes:
    body = text.ljust(512, b"\0") + b"x" * 10
    return packed(("s", {"pax_headers": {**SPARSE, **{f"GNU.sparse.{name}": v for name, v in records.items()}}}, body))


HOSTILE = {
    "absolute": packed(plain("ok"), plain("/etc/x")),
    "as a box says it": packed(plain("/workspace/x")),
    "parent": packed(plain("ok"), plain("../x")),
    "parent inside": packed(plain("a/../../x")),
    "symlink": packed(plain("ok"), of_type("l", tarfile.SYMTYPE, "/etc")),
    "through a symlink": packed(of_type("l", tarfile.SYMTYPE, "/tmp"), plain("l/x")),
    "hard link": packed(plain("ok"), of_type("l", tarfile.LNKTYPE, "ok")),
    "device": packed(of_type("d", tarfile.CHRTYPE)),
    "block device": packed(of_type("d", tarfile.BLKTYPE)),
    "fifo": packed(of_type("f", tarfile.FIFOTYPE)),
    "unknown kind": packed(("x", {"type": b"Z"}, b"")),
    "twice": packed(plain("a"), plain("a")),
    "twice otherwise": packed(plain("a"), plain("./a")),
    "file and folder": packed(plain("a"), plain("a/b")),
    "folder and file": packed(plain("a/b"), plain("a")),
    "line break": packed(plain("a\nb")),
    "nul": packed(("a", {"pax_headers": {"path": "a\0b"}}, b"x")),
    "long component": packed(plain("a" * 256)),
    "long path": packed(plain("/".join(["a" * 200] * 21))),
    "our own names": packed(plain(".deps/evil.py")),
    "a stage": packed(plain(".kern-restore-x/old/a")),
    "no name": packed(plain(".")),
    "huge record": packed(("a", {"pax_headers": {"comment": "c" * (1 << 17)}}, b"")),
    "global path": packed(plain("a"), pax={"path": "b"}),
    "sparse outside": sparse(b"1\n95\n10\n"),
    "sparse overlap": sparse(b"2\n0\n6\n5\n4\n"),
    "sparse short": sparse(b"1\n0\n9\n"),
    "sparse words": sparse(b"1\nx\n10\n"),
    "sparse many": sparse(b"99999999\n"),
    "sparse old": sparse(b"1\n0\n10\n", minor="1"),
    "sparse negative": sparse(b"1\n-1\n10\n"),
    "empty": b"",
    "no gzip": RAW,
    "empty gzip": gzip.compress(b""),
    "truncated": GOOD[:-9],
    "no end mark": gzip.compress(RAW[:1024]),
    "bad checksum": gzip.compress(RAW[:10] + b"X" + RAW[11:]),
    "something after": gzip.compress(RAW + b"x" * 512),
    "rubbish after": GOOD + b"rubbish",
    "negative size": gzip.compress(negative(RAW)),
    "folder twice": packed(of_type("d", tarfile.DIRTYPE), of_type("d", tarfile.DIRTYPE)),
    "folder with content": packed(("d", {"type": tarfile.DIRTYPE}, RAW[:1024])),
    "lone header": gzip.compress(packed_raw(("a", {"pax_headers": {"path": "b" * 99}}, b""))[:1024] + bytes(1024)),
    "bomb": packed(plain("zeros", bytes(3 << 20))),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_whole(name: str, place: Path, space: Workspace) -> None:
    space.write_file("old/file", "old")
    before = fingerprint(Path(space.path))
    (place / "bad").write_bytes(HOSTILE[name])
    with pytest.raises(WorkspaceError) as failure:
        space.restore(place / "bad", max_bytes=2 << 20)
    assert "bad" in str(failure.value)
    assert fingerprint(Path(space.path)) == before
    assert sorted(os.listdir(place)) == ["bad", "ws"]


def test_and_a_good_one_like_them_is_taken(place: Path, space: Workspace) -> None:
    (place / "good").write_bytes(GOOD)
    space.restore(place / "good")
    assert tree(space.path) == {"new": (None, 0o755), "new/file": (b"x", 0o644)}
    (place / "good").write_bytes(sparse(b"1\n50\n10\n"))
    space.restore(place / "good")
    assert space.read_file("s") == bytes(50) + b"x" * 10 + bytes(40)


def test_too_many_members_are_refused(place: Path, space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_workspace, "MAX_ENTRIES", 5)
    for count, taken in ((5, True), (6, False)):
        (place / "many").write_bytes(packed(*(plain(f"{number}") for number in range(count))))
        if taken:
            space.restore(place / "many")
        else:
            with pytest.raises(WorkspaceError, match="too many"):
                space.restore(place / "many")


def test_no_setuid_comes_out_of_an_archive(place: Path, space: Workspace) -> None:
    (place / "one").write_bytes(packed(("a", {"mode": 0o6777}, b"x")))
    space.restore(place / "one")
    assert os.stat(Path(space.path, "a")).st_mode & 0o7777 == 0o777


# --- properties -------------------------------------------------------------------------------------------------

NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: not set(name) & set(b"/\0\n") and name not in (b".", b"..")
)
CONTENTS = st.one_of(
    st.binary(max_size=300),
    st.tuples(st.integers(0, 300_000), st.binary(min_size=1, max_size=9), st.integers(0, 200_000)).map(
        lambda parts: bytes(parts[0]) + parts[1] + bytes(parts[2])
    ),
)
TREES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=4).map(tuple), CONTENTS, max_size=6)


@FEW
@given(TREES)
def test_any_tree_comes_back_as_it_was(place: Path, files: dict[tuple[bytes, ...], bytes]) -> None:
    with Workspace(None) as space, Workspace(None) as other:
        for parts, content in files.items():
            path = os.fsencode(space.path) + b"/" + b"/".join(parts)
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                Path(os.fsdecode(path)).write_bytes(content)
            except OSError:  # a name that is a file and a directory
                continue
        assert space.snapshot(place / "one") == []
        other.write_file("gone", "gone")
        other.restore(place / "one")
        assert tree(other.path) == tree(space.path)
        other.snapshot(place / "two")
        assert (place / "one").read_bytes() == (place / "two").read_bytes()


SEEDS = [gzip.decompress(data) for name, data in HOSTILE.items() if name in ("twice", "symlink", "sparse short")] + [
    RAW
]
EDITS = st.lists(
    st.tuples(st.integers(0, 4000), st.sampled_from(["set", "cut", "copy"]), st.binary(min_size=1, max_size=8))
)


@FEW
@given(st.sampled_from(range(len(SEEDS))), EDITS, st.booleans())
def test_a_mutated_archive_is_refused_and_changes_nothing_or_is_a_tree(
    place: Path, seed: int, edits: list[tuple[int, str, bytes]], repaired: bool
) -> None:
    data = bytearray(SEEDS[seed])
    for at, what, value in edits:
        where = at % (len(data) or 1)
        if what == "set":
            data[where : where + len(value)] = value
        elif what == "cut":
            del data[where:]
        else:
            data[where:where] = data[: at % 1024]
    if repaired:
        repair(data)
    (place / "fuzzed").write_bytes(gzip.compress(bytes(data)))
    with Workspace(None) as space:
        space.write_file("old", "old")
        before = tree(space.path)
        try:
            space.restore(place / "fuzzed", max_bytes=1 << 20)
        except WorkspaceError:
            assert tree(space.path) == before
        else:
            assert not [path for path in Path(space.path).rglob("*") if path.is_symlink()]
            assert not [name for name in os.listdir(space.path) if name.startswith(".kern")]
    assert sorted(os.listdir(place)) == ["fuzzed", "ws"]
