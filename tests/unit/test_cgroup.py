"""Cgroups without cgroups: what is read, named, decided and written, on trees of plain files."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kern_sandbox._linux import cgroup, cgroup_tree, cgroup_v1, cgroup_v2, systemd_scope
from kern_sandbox._linux.cgroup_group import CgroupHost, Group, Setting, put_in_force
from kern_sandbox._linux.cgroup_tree import Evidence, Limits, Mount, Owner
from kern_sandbox.errors import CgroupUnavailable

MIB = 1 << 20
ALL = frozenset(("memory", "pids", "cpu"))


def plant(directory: Path, **files: str) -> str:
    """Make a directory of control files; ``__`` in a name stands for a dot."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in {"cgroup__procs": "", **files}.items():
        (directory / name.replace("__", ".")).write_text(text)
    return str(directory)


# --- /proc ------------------------------------------------------------------------------------------------------


def test_mounts_of_both_versions_are_found_with_their_controllers() -> None:
    text = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "33 31 0:30 /docker/1 /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct\n"
        "41 31 0:38 / /sys/fs/cgroup/with\\040space rw - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    assert cgroup_tree.parse_mounts(text) == [
        Mount("/sys/fs/cgroup/cpu,cpuacct", "/docker/1", 1, frozenset({"cpu", "cpuacct"})),
        Mount("/sys/fs/cgroup/with space", "/", 2, frozenset()),
    ]


@pytest.mark.parametrize("text", ["", "\n", "garbage", "1 2 3 - cgroup", "1 2 0:3 / - cgroup2 x rw", " - \n - "])
def test_text_that_is_no_mountinfo_has_no_mounts(text: str) -> None:
    assert cgroup_tree.parse_mounts(text) == []


def test_own_paths_are_by_controller_and_may_hold_colons() -> None:
    text = "9:name=systemd:/a\n3:cpu,cpuacct:/b:c\n0::/user.slice\n"
    assert cgroup_tree.parse_own_paths(text) == {
        "name=systemd": "/a",
        "cpu": "/b:c",
        "cpuacct": "/b:c",
        "": "/user.slice",
    }


@pytest.mark.parametrize(
    ("root", "path", "directory"),
    [
        ("/", "/", "/mnt"),
        ("/", "/a/b", "/mnt/a/b"),
        ("/docker/1", "/docker/1", "/mnt"),
        ("/docker/1", "/docker/1/x", "/mnt/x"),
        ("/docker/1", "/docker/12", None),
        ("/docker/1", "/other", None),
        ("/", "/../other", None),
        ("/..", "/../other", None),
    ],
)
def test_own_directory_is_known_only_where_the_mount_shows_it(root: str, path: str, directory: str | None) -> None:
    assert cgroup_tree.own_directory(Mount("/mnt", root, 2, frozenset()), path) == directory


# --- names ------------------------------------------------------------------------------------------------------


def test_a_name_tells_its_owner_and_nobody_elses_name_does() -> None:
    owner = Owner(4026531836, 17, 12345)
    name = cgroup_tree.new_name(owner)
    assert cgroup_tree.owner_of(name) == owner
    assert cgroup_tree.owner_of(f"{name}.scope") == owner
    assert cgroup_tree.new_name(owner) != name
    for other in ("user.slice", "kern-1-2", f"{name}x", f"x{name}", f"{name}.service", f"{name}\n", ""):
        assert cgroup_tree.owner_of(other) is None


def fake_process(proc: Path, pid: int, start: int, state: str = "S") -> None:
    (proc / str(pid)).mkdir(parents=True)
    fields = [state, *["0"] * 18, str(start), "0"]
    (proc / str(pid) / "stat").write_text(f"{pid} (a ) b) {' '.join(fields)}\n")


def test_a_server_is_dead_when_its_pid_is_gone_reused_or_a_zombie(tmp_path: Path) -> None:
    fake_process(tmp_path, 10, start=500)
    fake_process(tmp_path, 11, start=500, state="Z")
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    proc = str(tmp_path)
    assert not cgroup_tree.is_dead(Owner(1, 10, 500), 1, proc)
    assert cgroup_tree.is_dead(Owner(1, 10, 499), 1, proc)
    assert cgroup_tree.is_dead(Owner(1, 11, 500), 1, proc)
    assert cgroup_tree.is_dead(Owner(1, gone, 500), 1, proc)


def test_a_process_whose_name_is_no_text_has_an_identity_too(tmp_path: Path) -> None:
    """A box may give itself any name, and may get the number of a server that has died."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_bytes(b"7 (\xff) \xfe) S " + b"1 " * 18 + b"42 0")
    assert cgroup_tree.is_dead(Owner(1, 7, 41), 1, str(tmp_path))
    assert not cgroup_tree.is_dead(Owner(1, 7, 42), 1, str(tmp_path))


def test_a_server_that_cannot_be_seen_is_not_called_dead(tmp_path: Path) -> None:
    """Another pid namespace has pids of its own; ``hidepid`` hides a living process from ``/proc``."""
    fake_process(tmp_path, 10, start=500)
    assert not cgroup_tree.is_dead(Owner(2, 10, 499), 1, str(tmp_path))
    assert not cgroup_tree.is_dead(Owner(1, os.getpid(), 1), 1, str(tmp_path))


def test_this_process_is_alive_by_its_own_name() -> None:
    me = cgroup_tree.this_process()
    assert me.pid == os.getpid()
    assert not cgroup_tree.is_dead(me, me.namespace)
    assert cgroup_tree.is_dead(me._replace(start=me.start + 1), me.namespace)


def test_only_dead_servers_directories_are_collected(tmp_path: Path) -> None:
    """Where the server is, above it, and where another session's servers were beside it."""
    me = cgroup_tree.this_process()
    dead = me._replace(start=me.start + 1)
    places = [tmp_path / "slice" / "mine", tmp_path / "slice" / "other", tmp_path / "slice", tmp_path]
    stale = [place / cgroup_tree.new_name(dead) for place in places]
    kept = [
        tmp_path / "slice" / "mine" / cgroup_tree.new_name(me),
        tmp_path / "slice" / "mine" / cgroup_tree.new_name(me._replace(namespace=1, start=1)),
        tmp_path / "elsewhere" / "deep" / cgroup_tree.new_name(dead),
    ]
    for directory in stale + kept:
        (directory / "box-1").mkdir(parents=True)
    found = cgroup_tree.collect_stale(str(places[0]), str(tmp_path), me.namespace)
    assert sorted(found) == sorted(map(str, stale))
    assert not any(directory.exists() for directory in stale)
    assert all(directory.exists() for directory in kept)


# --- limits -----------------------------------------------------------------------------------------------------


def test_v2_settings_forbid_swap_beside_memory() -> None:
    found = cgroup_v2.settings("/g", Limits(memory_bytes=64 * MIB, pids=9, cpus=1.5))
    assert [(each.controller, each.path, each.value) for each in found] == [
        ("memory", "/g/memory.max", str(64 * MIB)),
        ("memory", "/g/memory.swap.max", "0"),
        ("pids", "/g/pids.max", "9"),
        ("cpu", "/g/cpu.max", "150000 100000"),
    ]


def test_v1_settings_lower_memory_before_memory_with_swap() -> None:
    places = {"memory": "/m", "pids": "/p", "cpu": "/c", "cpuacct": "/c"}
    found = [(each.path, each.value) for each in cgroup_v1.settings(places, Limits(64 * MIB, 9, 0.5))]
    assert found == [
        ("/m/memory.limit_in_bytes", str(64 * MIB)),
        ("/m/memory.memsw.limit_in_bytes", str(64 * MIB)),
        ("/m/memory.swappiness", "0"),
        ("/m/memory.kmem.tcp.limit_in_bytes", str(64 * MIB)),
        ("/p/pids.max", "9"),
        ("/c/cpu.cfs_period_us", "100000"),
        ("/c/cpu.cfs_quota_us", "50000"),
    ]


def test_no_limit_is_no_setting() -> None:
    assert cgroup_v2.settings("/g", Limits()) == []
    assert cgroup_v1.settings({"memory": "/m", "pids": "/p", "cpu": "/c"}, Limits()) == []


def test_a_tiny_share_of_a_core_is_what_linux_accepts() -> None:
    assert cgroup_tree.cpu_quota_us(0.0001) == cgroup_tree.CPU_QUOTA_FLOOR_US


def test_a_refused_setting_raises_unless_it_is_forgiven(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("")
    gone = str(tmp_path / "gone")
    put_in_force([Setting("memory", gone, "0", (2,)), Setting("memory", str(there), "7")])
    assert there.read_text() == "7"
    with pytest.raises(OSError, match="writing '0'"):
        put_in_force([Setting("memory", gone, "0")])


# --- evidence ---------------------------------------------------------------------------------------------------


def v2_group(tmp_path: Path) -> cgroup_v2.V2Group:
    at = plant(
        tmp_path / "box",
        memory__events="low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
        memory__peak="4096\n",
        pids__events="max 5\n",
        pids__peak="7\n",
        cpu__stat="usage_usec 12999\nuser_usec 1\n",
    )
    return cgroup_v2.V2Group(at, ALL)


def v1_group(tmp_path: Path) -> cgroup_v1.V1Group:
    places = {
        "memory": plant(
            tmp_path / "memory",
            memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            memory__max_usage_in_bytes="4096\n",
        ),
        "pids": plant(tmp_path / "pids", pids__events="max 5\n", pids__peak="7\n"),
        "cpuacct": plant(tmp_path / "cpuacct", cpuacct__usage="12999000\n"),
    }
    return cgroup_v1.V1Group(places, ALL)


def test_both_versions_tell_the_same_evidence(tmp_path: Path) -> None:
    expected = Evidence(oom_kills=2, pids_refused=5, max_memory_bytes=4096, max_pids=7, cpu_ms=12)
    assert v2_group(tmp_path / "2").evidence() == expected
    assert v1_group(tmp_path / "1").evidence() == expected


def test_what_an_older_linux_does_not_count_is_none(tmp_path: Path) -> None:
    at = plant(tmp_path / "box", memory__events="oom_kill 1\n", pids__events="max 0\n")
    assert cgroup_v2.V2Group(at, ALL).evidence() == Evidence(1, 0, None, None, None)


def test_an_unreadable_counter_of_a_limit_in_force_raises(tmp_path: Path) -> None:
    """A missing out-of-memory count must not read as "nobody was killed"."""
    at = plant(tmp_path / "box", pids__events="max 0\n")
    with pytest.raises(CgroupUnavailable, match=r"memory\.events"):
        cgroup_v2.V2Group(at, ALL).evidence()
    assert cgroup_v2.V2Group(at, frozenset({"pids"})).evidence().oom_kills == 0


# --- killing ----------------------------------------------------------------------------------------------------


def test_kill_uses_cgroup_kill_where_it_is(tmp_path: Path) -> None:
    group = v2_group(tmp_path)
    plant(tmp_path / "box", cgroup__kill="", pids__max="64")
    group.kill()
    assert (tmp_path / "box" / "cgroup.kill").read_text() == "1"
    assert (tmp_path / "box" / "pids.max").read_text() == "64"


@pytest.mark.parametrize(("files", "door"), [(("tasks", "cgroup.procs"), "tasks"), (("cgroup.procs",), "cgroup.procs")])
def test_the_door_is_the_one_that_needs_no_lock(files: tuple[str, ...], door: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_text("")
    (fd,) = Group([str(tmp_path)]).join_fds()
    assert os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) == door
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_kill_elsewhere_stops_forks_and_kills_everyone_listed(tmp_path: Path) -> None:
    group = v1_group(tmp_path)
    child = os.fork()
    if child == 0:
        signal.pause()
    (tmp_path / "pids" / "pids.max").write_text("")
    (tmp_path / "pids" / "cgroup.procs").write_text(f"0\n{child}\n")
    assert not group.empty()
    group.kill()
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert (tmp_path / "pids" / "pids.max").read_text() == "0"


def test_a_tree_without_cgroup_kill_is_stopped_from_forking(tmp_path: Path) -> None:
    at = plant(tmp_path / "server", pids__max="")
    cgroup_tree.kill_all(at)
    assert (tmp_path / "server" / "pids.max").read_text() == "0"


def test_forks_that_the_kill_itself_refused_are_not_evidence(tmp_path: Path) -> None:
    group = v1_group(tmp_path)
    (tmp_path / "memory" / "cgroup.procs").write_text("0\n")
    group.kill()
    (tmp_path / "pids" / "pids.events").write_text("max 900\n")
    assert group.evidence().pids_refused == 5


def test_everything_is_killed_also_where_counters_cannot_be_read(tmp_path: Path) -> None:
    group = v1_group(tmp_path)
    (tmp_path / "pids" / "cgroup.procs").write_text("0\n")
    (tmp_path / "memory" / "memory.oom_control").unlink()
    (tmp_path / "pids" / "pids.max").write_text("")
    group.kill()
    assert (tmp_path / "pids" / "pids.max").read_text() == "0"


# --- hosts without cgroups --------------------------------------------------------------------------------------


def test_a_host_without_cgroups_says_why_and_its_groups_are_harmless() -> None:
    host = CgroupHost.nothing("because")
    assert (host.mode, host.enforces, host.reasons) == ("none", frozenset(), dict.fromkeys(ALL, "because"))
    group = host.make(Limits(64 * MIB, 9, 1.0))
    assert group.join_fds() == []
    assert group.evidence() == Evidence(0, 0, None, None, None)
    group.kill()
    assert group.empty()
    assert group.remove()
    host.close()


def test_a_required_limit_that_is_not_enforced_raises_with_the_reason() -> None:
    host = CgroupHost("v2", frozenset({"pids"}), {"memory": "run this command"})
    host.require("pids")
    with pytest.raises(CgroupUnavailable, match=r"memory limit.*run this command"):
        host.require("pids", "memory")


def test_no_mounted_hierarchy_is_a_reason() -> None:
    host = cgroup._best(Owner(1, 2, 3), [], {})
    assert host.mode == "none"
    assert "mount -t cgroup2" in host.reasons["memory"]


def test_v2_beside_v1_without_controllers_moves_nobody(tmp_path: Path) -> None:
    plant(tmp_path, cgroup__controllers="\n")
    host = cgroup_v2.probe(cgroup_tree.this_process(), [Mount(str(tmp_path), "/", 2, frozenset())], {"": "/"})
    assert host.mode == "none"
    assert "no controllers" in host.reasons["pids"]


def test_a_threaded_cgroup_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_scope, "runs_here", lambda: False)
    for place in (tmp_path, tmp_path / "own"):
        plant(place, cgroup__controllers="memory pids cpu\n", cgroup__type="domain threaded\n")
    mount = Mount(str(tmp_path), "/", 2, frozenset())
    host = cgroup_v2.probe(cgroup_tree.this_process(), [mount], {"": "/own"})
    assert host.mode == "none"
    assert "'domain threaded'" in host.reasons["memory"]
    assert f"mkdir {tmp_path}/own/main" in host.reasons["memory"]


@pytest.mark.parametrize(
    ("top", "place", "reason"),
    [
        ({"cgroup__controllers": "pids\n"}, "x", "add cgroup_enable=memory"),
        ({"cgroup__controllers": "pids\n", "cgroup__type": "domain\n"}, "", "the container's engine decides"),
        ({"cgroup__controllers": "memory\n"}, "x/y", "/x/cgroup.subtree_control"),
        ({"cgroup__controllers": "memory\n"}, f"user@{os.geteuid()}.service/app.slice/x.scope", "delegate.conf"),
    ],
)
def test_a_missing_controller_has_the_command_of_whoever_withholds_it(
    top: dict[str, str], place: str, reason: str, tmp_path: Path
) -> None:
    plant(tmp_path, **top)
    search = cgroup_v2._Search(Owner(1, 2, 3), Mount(str(tmp_path), "/", 2, frozenset()), str(tmp_path))
    assert reason in cgroup_v2._why_missing("memory", str(tmp_path / place), search)


def test_v1_without_visible_hierarchies_says_which_are_missing() -> None:
    host = cgroup_v1.probe(Owner(1, 2, 3), [], {})
    assert host.mode == "none"
    assert "with memory" in host.reasons["memory"]


def test_a_bare_group_counts_nothing() -> None:
    assert Group().evidence() == Evidence(0, 0, None, None, None)
