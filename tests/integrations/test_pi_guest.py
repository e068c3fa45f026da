"""The file helper of the pi extension, run on the host: ignore rules as git has them, grep and find as pi answers."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pythons import further
from support import REPO, need

if TYPE_CHECKING:
    from collections.abc import Iterator

GUEST = REPO / "integrations" / "pi" / "guest"


@pytest.fixture(autouse=True)
def guest_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper's modules can be imported, as they can where it runs."""
    monkeypatch.syspath_prepend(str(GUEST))


# --- ignore rules -----------------------------------------------------------------------------------------------

NAMES = [
    "a.txt", "b.log", "keep.log", "build/x", "build/keep", "src/build/y", "src/a.log", "src/deep/er/a.txt", "doc/a.pdf",
    "doc/sub/a.pdf", "#x", "!y", "sp ", "a[1].c", "a1.c", "ab/c/d.o", "ab/d.o", "x/foo/bar", "foo/bar", "é.txt",
    ".hidden/a", ".env", "trail\\", "src/only/a", "q?.txt", "qa.txt",
]  # fmt: skip
RULES = [
    "*.log\n!keep.log", "build/", "/build", "build\n!build/keep", "src/*.log", "doc/**/*.pdf", "**/a.txt", "ab/**",
    "foo/bar", "**/foo/bar", "\\#x\n\\!y", "sp\\ ", "a[0-9].c", "a\\[1\\].c", "*\n!*/\n!*.txt", "# nothing\n\n   ",
    "/*\n!/src", ".*", "[!a]*.txt", "q\\?.txt", "q?.txt", "a[", "**", "src/**/a.txt", "é*", "*/a", "er/\n", "[^a-c]/",
]  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with NAMES in it, none of them added."""
    need(shutil.which("git") is not None, "git is not installed")
    root = tmp_path / "r"
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    git(root, "init", "-q")
    return root


def git(root: Path, *words: str) -> list[str]:
    """What git says, without any configuration but the repository's."""
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(root)}
    said = subprocess.run(["git", *words], cwd=root, env=env, capture_output=True, check=True).stdout
    return sorted(filter(None, said.decode().split("\0")))


def walked(root: Path) -> list[str]:
    import search

    found = search.walk(str(root), git_needs_repository=True)
    return sorted(os.path.relpath(path, root) for path, directory in found if not directory)


@pytest.mark.parametrize("rules", RULES)
def test_what_is_ignored_is_what_git_ignores(repository: Path, rules: str) -> None:
    (repository / ".gitignore").write_text(rules)
    assert walked(repository) == git(repository, "ls-files", "-z", "--others", "--exclude-standard")


def test_rules_of_deeper_directories_and_of_the_repository_count_too(repository: Path) -> None:
    (repository / ".gitignore").write_text("*.txt\n*.o\n")
    (repository / "src/.gitignore").write_text("!a.txt\n/only\n")
    (repository / ".git/info/exclude").write_text("doc/\n")
    expected = git(repository, "ls-files", "-z", "--others", "--exclude-standard")
    assert walked(repository) == expected
    assert "src/deep/er/a.txt" in expected
    assert walked(repository / "src") == [name[4:] for name in expected if name.startswith("src/")]


def test_outside_a_repository_its_rules_do_not_count(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("a\n")
    (tmp_path / ".ignore").write_text("b\n")
    for name in "abc":
        (tmp_path / name).write_text("")
    assert walked(tmp_path) == [".gitignore", ".ignore", "a", "c"]


def test_an_ignore_file_that_is_no_file_is_passed_over(repository: Path) -> None:
    os.mkfifo(repository / ".gitignore")
    (repository / "src/.gitignore").symlink_to("/dev/zero")
    assert "a.txt" in walked(repository)


# --- grep -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["own", "ripgrep"])
def searcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With ripgrep, and without."""
    if request.param == "own":
        monkeypatch.setattr(shutil, "which", lambda program: None)
    else:
        need(shutil.which("rg") is not None, "ripgrep is not installed")
    return str(request.param)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Some files in a repository."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("one\nneedle two\nthree\nfour\nNeedle five\r\nsix\n")
    (tmp_path / "sub/b.py").write_text("needle.x\nneedleyx\n")
    (tmp_path / ".hid").write_text("needle\n")
    (tmp_path / "ignored").write_text("needle\n")
    (tmp_path / "bin").write_bytes(b"\0needle\n")
    (tmp_path / "out").symlink_to("/etc/passwd")
    return tmp_path


def grepped(root: Path, pattern: str, **more: Any) -> tuple[list[str], dict[str, Any]]:
    import search

    found = search.grep({"pattern": pattern, "path": str(root), **more})
    return found["text"].split("\n"), found


GREPS = [
    ({"pattern": "needle"}, [".hid:1: needle", "a.txt:2: needle two", "sub/b.py:1: needle.x", "sub/b.py:2: needleyx"]),
    ({"pattern": "needle", "ignoreCase": True, "glob": "a.*"}, ["a.txt:2: needle two", "a.txt:5: Needle five"]),
    ({"pattern": "needle.x", "literal": True}, ["sub/b.py:1: needle.x"]),
    ({"pattern": "needle", "glob": "*.py"}, ["sub/b.py:1: needle.x", "sub/b.py:2: needleyx"]),
    ({"pattern": "needle", "glob": "./sub/*.py"}, ["sub/b.py:1: needle.x", "sub/b.py:2: needleyx"]),
    ({"pattern": "needle", "glob": "*.{py,rs}"}, ["sub/b.py:1: needle.x", "sub/b.py:2: needleyx"]),
    ({"pattern": "needle", "glob": "!*.py"}, [".hid:1: needle", "a.txt:2: needle two"]),
    ({"pattern": "five|two", "context": 1}, [
        "a.txt-1- one", "a.txt:2: needle two", "a.txt-3- three", "a.txt-4- four", "a.txt:5: Needle five",
        "a.txt-6- six",
    ]),
    ({"pattern": r"^t\w+e$"}, ["a.txt:3: three"]),
    ({"pattern": "root:"}, [""]),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "lines"), GREPS, ids=[json.dumps(asked) for asked, _ in GREPS])
def test_grep_answers_as_pi_does(tree: Path, searcher: str, asked: dict[str, Any], lines: list[str]) -> None:
    found = grepped(tree, **asked)
    assert found[0] == lines
    assert (found[1]["limitReached"], found[1]["linesCut"], found[1]["bytesReached"]) == (None, False, False)


def test_grep_in_one_file_names_it_by_its_base(tree: Path, searcher: str) -> None:
    assert grepped(tree / "sub/b.py", "y")[0] == ["b.py:2: needleyx"]


def test_grep_says_where_it_stopped(tree: Path, searcher: str) -> None:
    (tree / "long").write_text("q" * 600 + "\n" + "q\n" * 9)
    lines, found = grepped(tree, "^q", limit=3)
    assert (lines[1:], found["limitReached"], found["linesCut"]) == (["long:2: q", "long:3: q"], 3, True)
    assert lines[0] == "long:1: " + "q" * 500 + "... [truncated]"
    assert grepped(tree, "^q", limit=10)[1]["limitReached"] is None
    (tree / "long").write_text(("q" * 400 + "\n") * 300)
    lines, found = grepped(tree, "^q", limit=300)
    assert found["bytesReached"]
    assert len("\n".join(lines)) <= 50 * 1024


def test_grep_shows_a_match_in_the_last_context_as_context(tree: Path, searcher: str) -> None:
    (tree / "c").write_text("m1\nm2\nx\nm3\n")
    assert grepped(tree, "^m", context=2, limit=1)[0] == ["c:1: m1", "c-2- m2", "c-3- x"]


def test_grep_says_what_is_wrong_with_a_pattern(tree: Path, searcher: str) -> None:
    with pytest.raises(ValueError, match=r"(?i)unclosed|unterminated"):
        grepped(tree, "(")
    with pytest.raises(FileNotFoundError):
        grepped(tree / "none", "x")


# --- find -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.py", ["sub/b.py"]), ("sub", ["sub/"]), ("*/*.py", ["sub/b.py"]), ("./sub/*", ["sub/b.py"]),
        ("**/*.PY", []), ("**/*.txt", ["a.txt"]), ("A.txt", []), ("{a,b}.*", ["a.txt", "sub/b.py"]), ("*", [
            ".gitignore", ".hid", "a.txt", "bin", "out", "sub/", "sub/b.py",
        ]),
    ],
)  # fmt: skip
def test_find_answers_as_pi_does(tree: Path, pattern: str, paths: list[str]) -> None:
    import search

    (tree / "node_modules").mkdir()
    asked = {"pattern": pattern, "path": str(tree), "limit": 100, "skip": ["node_modules"]}
    assert search.find(asked)["paths"] == paths
    assert search.find({**asked, "limit": 1})["paths"] == paths[:1]


# --- the helper's own loop --------------------------------------------------------------------------------------


class Helper:
    """The helper as a process of the host."""

    def __init__(self, root: Path, python: str) -> None:
        told = {
            "protected": [f"{root}/.pi", f"{root}/.git/config"],
            "context": [f"{root}/AGENTS.md", f"{root}/CLAUDE.md"],
        }
        argv = [python, "-B", str(GUEST / "helper.py"), json.dumps(told)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.answer() == {"id": 0, "ok": {"leaving": [f"{root}/AGENTS.md"]}}

    def send(self, **request: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def ask(self, op: str, path: Path, **more: Any) -> Any:
        self.send(id=7, op=op, path=str(path), **more)
        answer = self.answer()
        return answer["ok"] if "ok" in answer else answer["error"]["code"]


@pytest.fixture(params=[sys.executable, *further()])
def helper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Helper]:
    (tmp_path / ".git").mkdir()
    (tmp_path / "AGENTS.md").symlink_to("/etc/hostname")
    one = Helper(tmp_path, request.param)
    yield one
    assert one.process.stdin is not None
    one.process.stdin.close()
    assert one.process.wait(30) == 0
    assert one.process.stdout is not None
    one.process.stdout.close()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_files_are_read_written_and_listed(helper: Helper, tmp_path: Path) -> None:
    assert helper.ask("mkdir", tmp_path / "d/e") == {}
    assert helper.ask("write", tmp_path / "d/f", data=b64(b"longer\n")) == {}
    assert helper.ask("write", tmp_path / "d/f", data=b64(b"\xffab\n")) == {}
    assert (tmp_path / "d/f").read_bytes() == b"\xffab\n"
    assert helper.ask("read", tmp_path / "d/f", offset=1, bytes=2) == {"data": b64(b"ab"), "size": 4}
    assert sorted(helper.ask("list", tmp_path / "d")["entries"]) == [["e", True], ["f", False]]
    assert helper.ask("stat", tmp_path / "d") == {"directory": True}
    assert helper.ask("access", tmp_path / "d/f", write=True) == {}
    assert helper.ask("access", tmp_path / "none") == "ENOENT"
    assert helper.ask("read", tmp_path / "d", offset=0, bytes=1) == "EISDIR"


def test_what_is_no_file_is_refused_at_once(helper: Helper, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert helper.ask("read", tmp_path / "fifo", bytes=1) == "EINVAL"
    assert helper.ask("write", tmp_path / "fifo", data="") == "ENXIO"
    assert helper.ask("nonsense", tmp_path) == "EINVAL"


def test_protected_paths_are_refused_whatever_leads_there(helper: Helper, tmp_path: Path) -> None:
    (tmp_path / ".pi").mkdir()
    (tmp_path / "link").symlink_to(".pi")
    for name in (".pi/x", "link/x", ".git/config", ".git/../.pi/x"):
        assert helper.ask("write", tmp_path / name, data="") == "EROFS"
    assert helper.ask("mkdir", tmp_path / ".pi/y") == "EROFS"
    assert helper.ask("write", tmp_path / ".pix", data="") == {}
    assert list((tmp_path / ".pi").iterdir()) == []


def test_a_planted_context_file_is_swept_and_the_users_own_is_not(helper: Helper, tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").symlink_to("/etc/passwd")
    assert helper.ask("sweep", tmp_path) == {"removed": [f"{tmp_path}/CLAUDE.md"]}
    (tmp_path / "CLAUDE.md").symlink_to(".pix")
    assert helper.ask("sweep", tmp_path) == {"removed": []}
    (tmp_path / "AGENTS.md").unlink()
    (tmp_path / "AGENTS.md").symlink_to("/etc/passwd")
    assert helper.ask("sweep", tmp_path) == {"removed": [f"{tmp_path}/AGENTS.md"]}


def test_a_search_that_takes_for_ever_keeps_nobody_waiting_and_can_be_ended(helper: Helper, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("a" * 40 + "\n")
    helper.send(id=1, op="grep", path=str(tmp_path / "slow"), pattern="(?=(a+)+b)(a+)+b")
    assert helper.ask("stat", tmp_path) == {"directory": True}
    helper.send(id=1, op="cancel")
    ended = helper.answer()
    assert (ended["id"], set(ended)) == (1, {"id", "ok"}) or ended["error"]["code"] == "EINTR"
    assert helper.ask("grep", tmp_path / "slow", pattern="b")["matches"] == 0
