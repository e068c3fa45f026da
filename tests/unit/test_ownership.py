"""A workspace that changes hands, where no mount can translate its owner: only what is its owner's does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kern_sandbox._forkserver import ownership
from kern_sandbox._linux.libc import syscall
from support import applies

OWNER, BOX = 65533, 165533


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    applies(os.geteuid() == 0, "only root gives files away")
    (tmp_path / "in").mkdir()
    for name in ("mine", "in/mine", "theirs"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("theirs")
    for path in (tmp_path, tmp_path / "in", tmp_path / "mine", tmp_path / "in/mine", tmp_path / "link"):
        os.lchown(path, OWNER, OWNER)
    return tmp_path


def owners(tree: Path) -> dict[str, int]:
    return {str(path.relative_to(tree)): path.lstat().st_uid for path in tree.rglob("*")}


def test_what_is_lent_is_given_back_with_what_has_been_made_meanwhile(tree: Path) -> None:
    loan = ownership.lend(str(tree), BOX)
    assert owners(tree) == {"in": BOX, "mine": BOX, "in/mine": BOX, "link": BOX, "theirs": 0}
    (tree / "in/new").touch()
    os.chown(tree / "in/new", BOX, BOX)
    ownership.give_back(loan)
    assert owners(tree) == {**dict.fromkeys(("in", "mine", "in/mine", "link", "in/new"), OWNER), "theirs": 0}


def test_a_file_that_is_put_under_a_name_after_the_look_keeps_its_owner(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fstat = os.fstat
    swapped: list[int] = []

    def look(fd: int) -> Any:
        about = fstat(fd)
        if about.st_ino == (tree / "mine").lstat().st_ino and not swapped:
            swapped.append(about.st_ino)
            (tree / "mine").rename(tree / "in/away")
            (tree / "theirs").rename(tree / "mine")
        return about

    monkeypatch.setattr(os, "fstat", look)
    os.close(ownership.lend(str(tree), BOX).fd)
    assert swapped
    assert (owners(tree)["mine"], owners(tree)["in/away"]) == (0, BOX)


def stubborn(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nobody can change the owner of ``mine``, as of an immutable file."""
    number, real = (tree / "mine").lstat().st_ino, syscall

    def call(name: str, file: int, *rest: Any) -> int:
        if os.fstat(file).st_ino == number:
            raise PermissionError(1, "Operation not permitted")
        return real(name, file, *rest)

    monkeypatch.setattr("kern_sandbox._forkserver.ownership.syscall", call)


def test_a_file_that_cannot_be_given_back_keeps_nothing_else_from_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loan = ownership.lend(str(tree), BOX)
    stubborn(tree, monkeypatch)
    ownership.give_back(loan)
    assert owners(tree) == {**dict.fromkeys(("in", "in/mine", "link"), OWNER), "mine": BOX, "theirs": 0}
    assert tree.stat().st_uid == OWNER


def test_what_cannot_be_lent_whole_is_not_lent(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = owners(tree)
    stubborn(tree, monkeypatch)
    with pytest.raises(PermissionError):
        ownership.lend(str(tree), BOX)
    assert owners(tree) == before
