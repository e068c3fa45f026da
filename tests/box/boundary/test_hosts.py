"""Attacks that need a special host: a terminal, a shared mount tree, supplementary groups, a processor quota."""

from __future__ import annotations

import json
import os
import pty
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, TypeVar

import pytest

from kern_sandbox import Sandbox
from support import REPO, applies, limits_enforced, need_boxes, need_limits

from .targets import Engine

T = TypeVar("T")
CODE = f"""
import sys
sys.path[:0] = [{str(REPO)!r}, {str(REPO / "tests")!r}, {str(REPO / "src")!r}]
from tests.box.boundary.targets import Engine
"""
TERMINAL = """
import fcntl, os
try:
    fd = os.open("/dev/tty", os.O_RDWR)
    print("a controlling terminal", os.ttyname(fd))
except OSError as error:
    print("none")
"""


def on_a_terminal(*removed: str) -> str:
    """What a box of a program that runs on a terminal says of ``/dev/tty``."""
    code = f"{CODE}\nwith Engine(*{removed!r}).room() as room: print(room.run({TERMINAL!r}).stdout)"
    pid, master = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])
    said = b""
    try:
        while data := os.read(master, 4096):
            said += data
    except OSError:  # EIO: the terminal has hung up
        pass
    os.close(master)
    os.waitpid(pid, 0)
    return said.decode()


def test_a_box_has_no_part_in_the_terminal_of_its_user() -> None:
    """B10."""
    need_boxes()
    assert "none" in on_a_terminal()


def test_without_its_own_session_a_box_would_hold_the_terminal() -> None:
    """B10, control."""
    need_boxes()
    assert "a controlling terminal" in on_a_terminal("session")


@pytest.mark.parametrize("argv", [["python3", "-c"], []], ids=["run", "run_code"])
def test_a_program_leads_a_session_and_a_group_of_its_own(argv: list[str]) -> None:
    need_boxes()
    code = "import os; print(os.getsid(0) == os.getpgrp() == os.getpid())"
    with Sandbox() as sandbox:
        result = sandbox.run([*argv, code]) if argv else sandbox.run_code(code)
    assert result.stdout == "True\n"


def test_the_fork_server_holds_nothing_of_its_users_environment_and_tells_no_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B04: what a box could look into, if it could look."""
    need_boxes()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/lib")
    code = f"""
import os, sys
sys.path[:0] = [{str(REPO / "src")!r}]
import kern_sandbox
from kern_sandbox._forkserver.client import existing_server
kern_sandbox.Sandbox().run(["true"])
for name in ("environ", "cmdline"):
    print([word for word in open(f"/proc/{{existing_server().pid}}/{{name}}").read().split(chr(0)) if word])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "['LD_LIBRARY_PATH=/usr/lib']\n['kern-forkserver']\n"


def table(prefix: str, *argv: str) -> dict[str, dict[str, dict[str, str]]]:
    """The table's lines for claims that begin with ``prefix``, from a process started through ``argv``."""
    code = f"{CODE}\nfrom tests.box.boundary.table import main\nmain(['--json', {prefix!r}])"
    ran = subprocess.run([*argv, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout, ran.stderr
    return {line["id"]: line["targets"] for line in map(json.loads, ran.stdout.splitlines())}


def test_where_the_hosts_mounts_are_shared_a_box_shares_none() -> None:
    """B43; the control leaves the propagation of mounts as it is."""
    need_boxes()
    applies(os.geteuid() == 0 and shutil.which("unshare") is not None, "only root can make its mounts shared")
    targets = table("B43", "unshare", "--mount", "--propagation", "shared")["B43"]
    assert targets["kern_sandbox"]["word"] == "held"
    assert targets["without propagation"]["word"] == "breached"


def test_supplementary_groups_of_root_stay_outside() -> None:
    """B36; the control keeps them."""
    need_boxes()
    applies(os.geteuid() == 0 and shutil.which("setpriv") is not None, "only root can take on a group")
    targets = table("B36", "setpriv", "--groups", "4242")["B36"]
    assert targets["kern_sandbox"]["word"] == "held"
    assert targets["without groups"]["word"] == "breached"


def quota(*removed: str) -> str:
    """The processor quota of the cgroup in which the host finds the box's program."""
    return of_a_box(_quota, *removed, cpus=0.5) or "no process"


def of_a_box(look: Callable[[dict[str, str]], T], *removed: str, **options: Any) -> T | None:
    """What ``look`` sees, while a box lives, in the cgroups in which the host finds its program, by controllers."""
    word = f"canary{secrets.token_hex(8)}"  # of this box alone: one before it may be about to end
    with (
        Engine(*removed).room(**options) as room,
        room.start(f"print(1, flush=True); import time; time.sleep(60) # {word}"),
    ):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and word.encode() in _command(entry):
                return look(_groups(entry))
    return None


def _groups(entry: Path) -> dict[str, str]:
    return dict(line.split(":", 2)[1:] for line in (entry / "cgroup").read_text().splitlines())


def test_a_box_weighs_as_much_as_one_program_however_many_it_starts() -> None:
    """B80: without a limit too, it is a group of its own for the scheduler; else 250 loops leave 250th parts."""
    need_boxes()
    need_limits(limits_enforced(), "no cgroups that this user may divide")
    own, box = _groups(Path("/proc/self")), of_a_box(dict)
    [name] = [names for names in own if "cpu" in names.split(",")] or [""]
    assert box
    assert box[name] != own[name]
    other = of_a_box(dict)
    assert other
    assert box[name] != other[name]


def _command(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""  # it has ended meanwhile


def _quota(groups: dict[str, str]) -> str:
    for names, path in groups.items():
        for mount in ("cpu", "cpu,cpuacct", ""):
            for name in ("cpu.cfs_quota_us", "cpu.max"):
                file = Path(f"/sys/fs/cgroup/{mount}{path}/{name}")
                if set(names.split(",")) & {"cpu", ""} and file.exists():
                    return file.read_text().split()[0]
    return "no cgroup"


def test_a_boxs_processor_time_is_limited_by_its_cgroup() -> None:
    """B83; without a limit in the plan the same place says so."""
    need_boxes()
    need_limits(limits_enforced(), "no cgroups that this user may divide")
    found = quota()
    if found == "no cgroup":
        pytest.skip("no cpu controller to divide")
    assert found not in ("max", "-1", "no process")
    assert quota("cpu limit") in ("max", "-1", "no cgroup")
