"""Paths below a writable mount that the code cannot change, make, rename or replace; each beside what it can."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

import kern_sandbox
from kern_sandbox.tool import Toolbox
from support import applies, need_boxes

Make = Callable[..., kern_sandbox.Sandbox]
PLACE = "/srv/project"
WANTED = {
    f"{PLACE}/.pi": None, f"{PLACE}/.git/hooks": None, f"{PLACE}/.git/config": None, f"{PLACE}/.git/commondir": ".\n",
}  # fmt: skip
CLIENT = """
import sys, kern_sandbox
sandbox = kern_sandbox.Sandbox(mounts={sys.argv[1]: ("/p", "rw")}, protect=["/p/.pi"])
process = sandbox.spawn(["sh", "-c", "ls -d /p/.pi; exec sleep 600"])
print(process.stdout.readline().decode(), end="", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def box_path() -> str:
    """How a box comes to be does not matter here: it is built the same."""
    return "exec"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with its configuration and a hook."""
    (tmp_path / "p/.git/hooks").mkdir(parents=True)
    (tmp_path / "p/.git/config").write_text("mine\n")
    (tmp_path / "p/.git/hooks/pre-commit").write_text("mine\n")
    return tmp_path / "p"


def tree(root: Path) -> dict[str, str | None]:
    """Every name below a directory, and what files hold."""
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() else None for path in sorted(root.rglob("*"))
    }


def protected(make: Make, project: Path, **more: Any) -> kern_sandbox.Sandbox:
    return make(mounts={str(project): (PLACE, "rw")}, protect=WANTED, track_files=False, **more)


ATTACKS = [
    "echo x > .git/config", "echo x > .git/hooks/post-commit", "rm .git/hooks/pre-commit", "chmod 777 .git/config",
    "echo x > n && mv n .git/config", "mv .git/config .git/old", "mv .git old", "mv .git/hooks .git/old",
    "rm -rf .git/hooks/*", "mkdir .pi/extensions", "mv .pi old", "rmdir .pi", "ln -s /tmp n2 && mv -T n2 .pi",
    "ln .git/config hard", "echo ../evil > .git/commondir", "rm .git/commondir", "truncate -s 0 .git/config",
]  # fmt: skip


def test_nothing_reaches_a_protected_path_and_its_neighbours_stay_writable(make: Make, project: Path) -> None:
    sandbox = protected(make, project)
    lines = [f"if sh -c {shlex.quote(line)} 2>/dev/null; then echo WORKED: {shlex.quote(line)}; fi" for line in ATTACKS]
    neighbours = "echo a > .git/index && mkdir .git/objects && echo b > file && cat .git/config"
    result = sandbox.run(["sh", "-c", "\n".join([f"cd {PLACE}", *lines, neighbours])])
    assert (result.stdout, result.exit_code, result.fault) == ("mine\n", 0, None)
    assert (project / ".git/config").read_text() == "mine\n"
    assert [path.name for path in (project / ".git/hooks").iterdir()] == ["pre-commit"]
    assert ((project / ".git/index").read_text(), (project / "file").read_text()) == ("a\n", "b\n")


def test_the_same_attacks_work_where_nothing_is_protected(make: Make, project: Path) -> None:
    sandbox = make(mounts={str(project): (PLACE, "rw")})
    script = f"cd {PLACE}; echo x > .git/config; mv .git old; mkdir -p .git/hooks .pi/extensions; echo x > .git/hooks/a"
    assert sandbox.run(["sh", "-c", script]).exit_code == 0
    assert (project / "old/config").read_text() == "x\n"
    assert {".pi/extensions", ".git/hooks/a"} <= set(tree(project))


def test_what_is_absent_has_a_placeholder_that_leaves_nothing_behind(
    make: Make, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    first, second = protected(make, empty), protected(make, empty)
    line = f"cd {PLACE}; for x in .git .git/hooks .pi; do mkdir -p $x/y 2>/dev/null && echo $x; done; mv .git g; echo z"
    for sandbox in (first, second):
        assert sandbox.run(["sh", "-c", line]).stdout == "z\n"
    first.close()
    assert second.run(["sh", "-c", line]).stdout == "z\n"
    assert set(tree(empty)) == {".git", ".pi"}
    second.close()
    eventually(lambda: not tree(empty), "the placeholders gone")


def test_a_placeholder_that_somebody_has_filled_stays(
    make: Make, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    sandbox = make(mounts={str(tmp_path): (PLACE, "rw")}, protect=[f"{PLACE}/.pi", f"{PLACE}/.gone"])
    assert sandbox.run(["true"]).success
    (tmp_path / ".pi").chmod(0o755)
    (tmp_path / ".pi/settings.json").write_text("{}")
    sandbox.close()
    eventually(lambda: set(tree(tmp_path)) == {".pi", ".pi/settings.json"}, "only what is not ours")


def test_a_killed_client_leaves_no_placeholder(tmp_path: Path, eventually: Callable[..., Any]) -> None:
    need_boxes()
    argv = [sys.executable, "-c", CLIENT, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "/p/.pi\n"
        assert (tmp_path / ".pi").is_dir()
        client.send_signal(signal.SIGKILL)
    eventually(lambda: not os.listdir(tmp_path), "the placeholder gone")


def test_a_path_that_the_host_replaces_is_never_left_open(make: Make, project: Path) -> None:
    """git on the host writes its configuration by a rename, which takes a mount on it away (Linux 3.18)."""
    sandbox = protected(make, project)
    line = ["sh", "-c", f"echo x 2>/dev/null > {PLACE}/.git/config || echo refused"]
    assert sandbox.run(line).stdout == "refused\n"
    (project / ".git/new").write_text("theirs\n")
    os.replace(project / ".git/new", project / ".git/config")
    outcomes = []
    for _ in range(3):
        try:
            outcomes.append(sandbox.run(line).stdout)
        except kern_sandbox.StartError as error:
            outcomes.append("replaced" if "replaced" in str(error) else str(error))
    assert outcomes[-1] == "refused\n"
    assert set(outcomes) <= {"refused\n", "replaced"}
    assert (project / ".git/config").read_text() == "theirs\n"


@pytest.mark.parametrize("name", [".pi", ".git"])
def test_a_link_on_the_way_is_refused(make: Make, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).symlink_to("elsewhere")
    with pytest.raises(kern_sandbox.MountRefused, match="symbolic link"):
        protected(make, tmp_path, used=False)
    assert set(tree(tmp_path)) == {"elsewhere", name}


def test_a_link_that_the_host_puts_in_its_place_is_refused(make: Make, project: Path) -> None:
    sandbox = protected(make, project)
    assert sandbox.run(["true"]).success
    (project / ".git").rename(project / "moved")
    (project / ".git").symlink_to("moved")
    said = []
    for _ in range(3):  # a box that waited already only sees that something is not what it was
        with pytest.raises(kern_sandbox.StartError) as refused:
            sandbox.run(["true"])
        said.append(str(refused.value))
    assert "symbolic link" in said[-1], said


def test_a_repository_whose_git_is_a_file_is_protected_as_a_whole(make: Make, tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /elsewhere\n")
    sandbox = protected(make, tmp_path)
    line = f"cd {PLACE}; echo x 2>/dev/null > .git || echo refused; mv .git g 2>/dev/null || echo refused"
    assert sandbox.run(["sh", "-c", line]).stdout == "refused\nrefused\n"
    assert (tmp_path / ".git").read_text() == "gitdir: /elsewhere\n"


def test_the_workspace_can_be_protected_too(make: Make) -> None:
    sandbox = make(protect=["/workspace/kept"])
    line = "mkdir kept/x 2>/dev/null || echo refused; echo a > free && cat free"
    assert sandbox.run(["sh", "-c", line]).stdout == "refused\na\n"


def test_as_many_as_are_accepted_are_protected(make: Make, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    paths = [f"{PLACE}/x{number}" for number in range(32)]
    sandbox = make(mounts={str(tmp_path): (PLACE, "rw")}, protect=paths)
    line = f"cd {PLACE}; ls | wc -l; rmdir * 2>/dev/null; ls | wc -l"
    assert sandbox.run(["sh", "-c", line]).stdout.split() == ["32", "32"]
    with pytest.raises(kern_sandbox.SpecError, match="at most 32"):
        make(mounts={str(tmp_path): (PLACE, "rw")}, protect=[*paths, f"{PLACE}/y"], used=False)
    sandbox.close()
    eventually(lambda: not os.listdir(tmp_path), "the placeholders gone")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("/workspace/a", "protect="), (["workspace/a"], "protect="), (["/workspace/../a"], "protect="),
        ([1], "protect="), ({"/workspace/a": 1}, "protect="), (["/etc/x"], "below a writable"),
        (["/ro/x"], "below a writable"),
    ],
)  # fmt: skip
def test_what_cannot_be_protected_is_said(tmp_path: Path, given: Any, words: str) -> None:
    with pytest.raises(kern_sandbox.SpecError, match=words):
        kern_sandbox.Sandbox(protect=given, mounts={str(tmp_path): "/ro"})


STAGE = "/workspace/.kern-restore-0123456789abcdef"
FORGED = f"""
import os
os.makedirs("{STAGE}/old/.git/hooks")
os.mkdir("{STAGE}/moving")
open("{STAGE}/old/.git/hooks/post-commit", "w")
for way in (os.chmod, lambda path, mode: os.mkdir(path + "b", mode)):
    try: way("{STAGE}", 0o4700)
    except PermissionError: print("refused")
"""


def test_a_tree_that_looks_like_one_of_a_broken_restore_replaces_nothing(make: Make, project: Path) -> None:
    """The control is test_a_kill_in_the_exchange_leaves_the_old_tree_to_the_next_who_opens_it, of the archives."""
    how = {"workspace": str(project), "protect": ["/workspace/.git/hooks"]}
    assert make(**how).run_code(FORGED).stdout == "refused\n" * 2
    make(**how).close()
    assert [path.name for path in (project / ".git/hooks").iterdir()] == ["pre-commit"]


def test_a_placeholder_that_code_has_locked_does_not_keep_a_sandbox_waiting(make: Make, project: Path) -> None:
    lock = "import fcntl, os, time; os.mkdir('.pi'); os.chmod('.pi', 0o1555); fd = os.open('.pi', os.O_RDONLY)\n"
    hold = "fcntl.flock(fd, fcntl.LOCK_EX); print(1, flush=True); time.sleep(600)"
    first = make(workspace=str(project))
    with first.spawn([first.plan.python, "-c", lock + hold]) as holder:
        assert holder.stdout.readline() == b"1\n"
        with pytest.raises(kern_sandbox.SpecError, match="locked"):
            make(workspace=str(project), protect=["/workspace/.pi"], used=False)
        holder.kill()
        holder.wait()
    assert make(workspace=str(project), protect=["/workspace/.pi"]).run(["true"]).success


def test_a_mode_that_keeps_its_owner_out_is_an_error_of_ours(make: Make, project: Path) -> None:
    applies(os.geteuid() != 0, "root looks everywhere")
    make(workspace=str(project)).run(["chmod", "000", ".git"])
    with pytest.raises(kern_sandbox.SpecError, match="Permission denied"):
        make(workspace=str(project), protect=["/workspace/.git/hooks"], used=False)
    (project / ".git").chmod(0o755)


def test_what_a_model_writes_by_a_tool_is_code_as_well(make: Make) -> None:
    tools = Toolbox(make(protect=["/workspace/.git/config"]))
    for path in (".git/config", "/workspace/.git/config", "./.git/config", ".git/config/x"):
        answer = tools.call("write_file", {"path": path, "content": "x"})
        assert answer.text.startswith("[sandbox: refused] ")
        assert "protect=" in answer.text
    assert not tools.call("write_file", {"path": ".gitignore", "content": "x"}).is_error


def test_code_that_could_unmount_is_refused() -> None:
    with pytest.raises(kern_sandbox.SpecError, match="unmount"):
        kern_sandbox.Sandbox(protect=["/workspace/a"], cap_drop=())
