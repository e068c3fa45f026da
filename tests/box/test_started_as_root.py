"""What root gets: boxes that are nobody on the host, and a workspace whose owner stays its owner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kern_sandbox
from support import need_boxes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="about what happens when root starts a Sandbox")

HOST_ID = "open('/proc/self/uid_map').read().split()[1]"


@pytest.fixture(autouse=True)
def _boxes() -> None:
    need_boxes()


def host_uid(pid: str) -> int:
    """The real uid of a process as the host sees it."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(next(line for line in file if line.startswith("Uid:")).split()[1])


def sleeper_uid(sandbox: kern_sandbox.Sandbox, mark: str) -> int:
    """Host uid of a program that runs in a box of ``sandbox``; ``mark`` is an argument that finds it."""
    with sandbox.spawn(["sh", "-c", f"echo ready; exec sleep 1{mark}"]) as process:
        assert process.stdout.readline() == b"ready\n"
        while True:
            for name in filter(str.isdigit, os.listdir("/proc")):
                try:
                    line = Path(f"/proc/{name}/cmdline").read_bytes()
                except OSError:
                    continue
                if line == f"sleep\0001{mark}\0".encode():
                    return host_uid(name)


@pytest.mark.parametrize(
    ("options", "distinct"), [((None, None), 1), ((None, "untrusted"), 2), (("untrusted", "untrusted"), 2)]
)
def test_no_program_has_host_uid_zero_and_an_untrusted_one_shares_it_with_nobody(
    options: tuple[str | None, str | None], distinct: int
) -> None:
    first, second = (kern_sandbox.Sandbox(security_profile=profile) for profile in options)
    with first as one, second as other:
        uids = {sleeper_uid(one, f"00001.{os.getpid()}"), sleeper_uid(other, f"00002.{os.getpid()}")}
    assert len(uids) == distinct
    assert min(uids) >= 0x70000000


@pytest.mark.parametrize("owner", [0, 4321])
def test_files_that_a_box_makes_belong_to_the_workspace_owner(tmp_path: Path, owner: int) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "old").write_text("x")
    for path in (workspace, workspace / "old"):
        os.chown(path, owner, owner)
    with kern_sandbox.Sandbox(workspace=workspace) as sandbox:
        sandbox.write_file("host", "x")
        result = sandbox.run(
            ["sh", "-c", "mkdir -p d && echo y > d/new && echo z >> old && echo z >> host && stat -c %u old"]
        )
    assert (result.exit_code, result.stdout) == (0, "0\n"), result.stderr
    assert {path.stat().st_uid for path in workspace.rglob("*")} == {owner}


def test_an_owned_file_of_a_mount_can_be_read_and_a_stranger_s_cannot(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, owner in (("mine", 0), ("yours", 4321)):
        (tmp_path / "data" / name).write_text("x")
        (tmp_path / "data" / name).chmod(0o600)
        os.chown(tmp_path / "data" / name, owner, owner)
    with kern_sandbox.Sandbox(mounts={str(tmp_path / "data"): "/data"}) as sandbox:
        assert sandbox.run(["cat", "/data/mine"]).stdout == "x"
        assert sandbox.run(["cat", "/data/yours"]).exit_code == 1


WITHOUT_IDMAP = """
import os, subprocess, sys
from kern_sandbox._linux import mounts, processes
from kern_sandbox._forkserver.workspaces import _can_translate
import kern_sandbox
workspace = sys.argv[1]
mounts.make_private("/")
with subprocess.Popen(["unshare", "-U", "sh", "-c", "echo; read x"], stdin=-1, stdout=-1) as holder:
    holder.stdout.readline()
    for name in ("gid_map", "uid_map"):
        processes.write_text(f"/proc/{holder.pid}/{name}", f"0 0 {2**32 - 1}")
    userns = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY)
    holder.communicate(b"")
tree = mounts.clone_tree(workspace)
mounts.translate_ids(tree, userns)
mounts.attach_tree(tree, workspace)
assert not _can_translate(workspace), "control: a translated mount cannot be translated again"
with kern_sandbox.Sandbox(workspace=workspace) as sandbox:
    sandbox.write_file("host", "x")
    result = sandbox.run(["sh", "-c", "echo y > new && echo z >> old && echo z >> host && ln -s /etc/shadow link"])
    assert result.success, result
    sandbox.write_file("late", "x")
    assert sandbox.run(["sh", "-c", "echo y >> late"]).success
"""


def test_without_idmapped_mounts_the_workspace_is_its_owner_s_again_afterwards(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "old").write_text("x")
    shadow = os.stat("/etc/shadow").st_uid
    code = ["unshare", "-m", sys.executable, "-c", WITHOUT_IDMAP, str(workspace)]
    done = subprocess.run(code, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {path.lstat().st_uid for path in [workspace, *workspace.rglob("*")]} == {0}
    assert (workspace / "new").read_text() == "y\n"
    assert os.stat("/etc/shadow").st_uid == shadow


lesser_roots = pytest.mark.parametrize(
    "launcher",
    [
        ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"],
        ["unshare", "-r"],
    ],
    ids=["container's root, without SYS_ADMIN", "root of a user namespace with one id"],
)


@lesser_roots
def test_a_root_that_is_less_than_the_host_s_gets_boxes_too(tmp_path: Path, launcher: list[str]) -> None:
    code = """
import sys, kern_sandbox as kern
with kern.Sandbox(workspace=sys.argv[1]) as sandbox:
    result = sandbox.run(["sh", "-c", "id -u; grep -c . /proc/self/uid_map; echo x > made"])
    print(result.stdout.split(), result.exit_code)
"""
    done = subprocess.run(
        [*launcher, sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "['0', '1'] 0\n"), done.stderr
    assert (tmp_path / "made").stat().st_uid == 0


@lesser_roots
def test_a_lesser_roots_code_changes_its_own_copy_of_a_setup(tmp_path: Path, launcher: list[str]) -> None:
    code = """
import sys, tempfile, kern_sandbox as kern
tempfile.tempdir = sys.argv[1]
setup = {"setup": "mkdir .deps/d; echo one > .deps/d/word", "deps_readonly": False}
with kern.Sandbox(**setup) as sandbox:
    result = sandbox.run(["sh", "-c", "echo two >> .deps/d/word; echo new > .deps/new; cat .deps/d/word .deps/new"])
    print(result.stdout.split(), result.stderr)
print(kern.Sandbox(**setup).run(["cat", ".deps/d/word"]).stdout)
"""
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [*launcher, sys.executable, "-c", code, str(tmp_path / "tmp")],
        capture_output=True, text=True, timeout=120, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "['one', 'two', 'new'] \none\n\n"), done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
