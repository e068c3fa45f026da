"""Cgroups on this very host: limits hold, kills are counted, nothing is left. Runs on v1, v2, as root and as a user.

``probe`` may move its caller into a scope of its own, so every test acts as a server in a forked child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cgroup_server import (
    PATIENCE_S,
    SLEEP,
    Ran,
    Server,
    eventually,
    in_child,
    in_server,
    lives,
    made,
    python,
    run,
    start,
)
from kern_sandbox._box import probe_limits
from kern_sandbox._linux.cgroup import CgroupHost, Group, Limits, probe
from support import PACKAGE, need, need_limits

MIB = 1 << 20
CLONE_NEWUSER = 0x10000000
HOG = "import mmap; m = mmap.mmap(-1, 300 << 20)\nfor at in range(0, len(m), 4096): m[at] = 1"
"""Touches 300 MiB page by page, with nothing that could fail before Linux says no."""


# --- memory -----------------------------------------------------------------------------------------------------


@in_server
def test_a_process_past_the_memory_limit_is_killed_and_counted(host: CgroupHost) -> None:
    with made(host, Limits(memory_bytes=64 * MIB)) as group:
        assert python(group, HOG).code == -signal.SIGKILL
        assert group.evidence().oom_kills >= 1
        peak = group.evidence().max_memory_bytes
        assert peak is None or 48 * MIB < peak <= 65 * MIB


@in_server
def test_within_the_memory_limit_nobody_is_killed(host: CgroupHost) -> None:
    with made(host, Limits(memory_bytes=512 * MIB)) as group:
        assert python(group, HOG).code == 0
        assert group.evidence().oom_kills == 0
        peak = group.evidence().max_memory_bytes
        assert peak is None or peak >= 300 * MIB


@in_server
def test_a_kill_that_a_shell_absorbs_is_counted_and_the_shell_lives_on(host: CgroupHost) -> None:
    with made(host, Limits(memory_bytes=64 * MIB)) as group:
        ran = run(group, "sh", "-c", f"{sys.executable} -I -S -c '{HOG}'; echo lives on")
        assert ran == Ran(0, "lives on\n")
        assert group.evidence().oom_kills == 1


@in_server
def test_swap_does_not_stretch_the_memory_limit(host: CgroupHost) -> None:
    if len(Path("/proc/swaps").read_text().splitlines()) < 2:
        pytest.skip("this host has no swap: nothing to forbid")
    with made(host, Limits(memory_bytes=64 * MIB)) as group:
        assert python(group, HOG).code == -signal.SIGKILL
        assert group.evidence().oom_kills == 1


@in_server
def test_one_box_out_of_memory_leaves_its_neighbour_alone(host: CgroupHost) -> None:
    with made(host, Limits(memory_bytes=64 * MIB)) as hog, made(host, Limits(memory_bytes=64 * MIB)) as calm:
        neighbour = start(calm, SLEEP)
        python(hog, HOG)
        assert (hog.evidence().oom_kills, calm.evidence().oom_kills) == (1, 0)
        assert neighbour.poll() is None
        calm.kill()
        neighbour.communicate()


# --- pids -------------------------------------------------------------------------------------------------------

FORK_EIGHT = "import os\nfor _ in range(8):\n    if os.fork() == 0: os.read(0, 1); os._exit(0)"


@in_server
def test_forks_past_the_limit_are_refused_and_counted(host: CgroupHost) -> None:
    with made(host, Limits(pids=4)) as group:
        assert python(group, f"try:\n{indented(FORK_EIGHT)}\nexcept BlockingIOError: print('refused')").code == 0
        assert group.evidence().pids_refused >= 1
        assert group.evidence().max_pids in (None, 4)


@in_server
def test_forks_within_the_limit_are_not_counted(host: CgroupHost) -> None:
    with made(host, Limits(pids=16)) as group:
        assert python(group, FORK_EIGHT).code == 0
        assert group.evidence().pids_refused == 0


def indented(code: str) -> str:
    return "\n".join("    " + line for line in code.splitlines())


# --- cpu --------------------------------------------------------------------------------------------------------

SPIN = "import time\nwhile time.process_time() < 0.05: pass"


def throttled(group: Group) -> int:
    """How often Linux made the group wait for its next period."""
    for directory in group.directories:
        with contextlib.suppress(OSError, KeyError):
            lines = Path(directory, "cpu.stat").read_text().splitlines()
            return int(dict(line.split() for line in lines)["nr_throttled"])
    return 0


@in_server
def test_a_share_of_a_core_is_held_and_use_is_measured(host: CgroupHost) -> None:
    need_limits("cpu" in host.enforces, f"cgroups cannot limit cpu here: {host.reasons.get('cpu')}")
    with made(host, Limits(cpus=0.02)) as group:  # less than a busy machine leaves to each process by itself
        assert python(group, SPIN).code == 0
        assert throttled(group) > 0
        used = group.evidence().cpu_ms
        assert used is None or used >= 50


@in_server
def test_doctor_tries_longer_where_a_first_try_was_too_short_to_be_slowed_down(host: CgroupHost) -> None:
    need_limits("cpu" in host.enforces, f"cgroups cannot limit cpu here: {host.reasons.get('cpu')}")
    probe_limits._CPU_S = (0.0, 0.0, 0.01)
    assert "slowed down" in probe_limits._cpu(host)


@in_server
def test_two_cores_do_not_hold_back_one_thread(host: CgroupHost) -> None:
    with made(host, Limits(cpus=2.0)) as group:
        assert python(group, SPIN).code == 0
        assert throttled(group) == 0


# --- joining and killing ----------------------------------------------------------------------------------------


@in_server
def test_a_process_in_another_user_namespace_joins_by_the_descriptors(host: CgroupHost) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    need(in_child(lambda: unshare_user(libc)) == "", "user namespaces are not allowed here")
    with made(host, Limits(pids=8)) as group:
        program = start(group, SLEEP, before=lambda: unshare_user(libc))
        eventually(lambda: not group.empty(), "the program is in the group")
        assert not group.remove()
        group.kill()
        assert program.wait(timeout=PATIENCE_S) == -signal.SIGKILL


def unshare_user(libc: ctypes.CDLL) -> None:
    if libc.unshare(CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare")


FORK_BOMB = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print('on', flush=True)
while True:
    try: os.fork()
    except OSError: pass
"""


@in_server
def test_a_fork_bomb_is_gone_after_a_kill(host: CgroupHost) -> None:
    with made(host, Limits(memory_bytes=256 * MIB, pids=64)) as group:
        program = start(group, [sys.executable, "-I", "-S", "-c", FORK_BOMB])
        eventually(lambda: group.evidence().pids_refused > 0, "the bomb hits its limit")
        group.kill()
        eventually(group.remove, "the group is removed")
        assert program.wait(timeout=PATIENCE_S) == -signal.SIGKILL


@in_server
def test_a_fork_bomb_dies_without_cgroup_kill_too(host: CgroupHost) -> None:
    """As on v1 and on Linux before 5.14: ``remove`` finishes what ``kill`` began."""
    with made(host, Limits(memory_bytes=256 * MIB, pids=64)) as group:
        program = start(group, [sys.executable, "-I", "-S", "-c", FORK_BOMB])
        eventually(lambda: group.evidence().pids_refused > 0, "the bomb hits its limit")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kern_sandbox._linux.cgroup_tree.write_if_possible", write_all_but_kill)
            group.kill()
            eventually(group.remove, "the group is removed")
        assert program.wait(timeout=PATIENCE_S) == -signal.SIGKILL


def write_all_but_kill(path: str, value: str) -> bool:
    if path.endswith("cgroup.kill"):
        return False
    Path(path).write_text(value) if Path(path).exists() else None
    return True


@in_server
def test_a_kill_is_neither_an_out_of_memory_nor_a_refused_fork(host: CgroupHost) -> None:
    with made(host, Limits(memory_bytes=64 * MIB, pids=16)) as group:
        program = start(group, SLEEP)
        group.kill()
        program.communicate()
        evidence = group.evidence()
        assert (evidence.oom_kills, evidence.pids_refused) == (0, 0)


@in_server
def test_a_removed_group_can_be_killed_and_not_joined(host: CgroupHost) -> None:
    from kern_sandbox.errors import CgroupUnavailable

    group = host.make(Limits(pids=8))
    assert group.remove()
    assert group.remove()
    group.kill()
    with pytest.raises(CgroupUnavailable, match="opening a box's cgroup"):
        group.join_fds()


# --- what stays -------------------------------------------------------------------------------------------------


@in_server
def test_a_host_closed_with_boxes_running_removes_all_of_them(host: CgroupHost) -> None:
    group = host.make(Limits(pids=8))
    program = start(group, SLEEP)
    host.close()
    assert program.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert not any(Path(directory).exists() for directory in group.directories)
    assert not any(Path(directory).parent.exists() for directory in group.directories)


def test_descriptors_are_not_used_up() -> None:
    """Two hundred groups under a limit of 64 descriptors."""

    def body(host: CgroupHost) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        for _ in range(200):
            with made(host, Limits(pids=8)) as group:
                for door in group.join_fds():
                    os.close(door)
                group.evidence()

    in_server(body)()


def test_the_process_that_starts_a_server_is_not_moved() -> None:
    before = Path("/proc/self/cgroup").read_text()
    assert in_child(lambda: probe().close()) == ""
    assert Path("/proc/self/cgroup").read_text() == before


def test_a_server_that_ended_leaves_no_cgroup() -> None:
    ended = Server()
    try:
        need_limits(bool(ended.directories), "cgroups cannot limit memory and pids here")
        assert all(map(os.path.exists, ended.directories)), "control: they are there while it serves"
    finally:
        ended.stop()
    eventually(lambda: not any(Path(each).parent.exists() for each in ended.directories), "its cgroups are gone")


def test_a_killed_servers_boxes_are_collected_and_a_living_servers_are_not() -> None:
    living, dead = Server(), Server()
    try:
        need_limits(bool(dead.directories), "cgroups cannot limit memory and pids here")
        dead.kill()
        assert in_child(lambda: probe().close()) == ""
        eventually(lambda: not any(map(os.path.exists, dead.directories)), "the dead server's cgroups are gone")
        eventually(lambda: not lives(dead.program), "its program is gone")
        assert all(map(os.path.exists, living.directories))
        assert lives(living.program)
    finally:
        living.stop()
        dead.stop()


def test_probing_keeps_the_server_small() -> None:
    """What a server imports stays in the memory of every box that is forked from it."""
    code = (
        f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
        "from kern_sandbox._linux import cgroup\n"
        "cgroup.probe().close()\n"
        "print(*{'subprocess', 'asyncio', 'ssl', 'urllib', 'socket'} & set(sys.modules))"
    )
    asked = subprocess.run([sys.executable, "-I", "-S", "-c", code], env={}, capture_output=True, text=True)
    assert (asked.stdout, asked.stderr) == ("\n", "")
