"""``doctor`` tells the truth: about this host, and about hosts that forbid one thing that a box needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kern_sandbox
from kern_sandbox import HostReport, doctor
from kern_sandbox._linux.syscalls import MACHINE
from support import leaks, need, need_boxes

SITE = str(Path(kern_sandbox.__path__[0]).parent)
NEEDS_USER_NAMESPACES = [
    "user namespaces", "nested user namespaces", "other namespaces", "network namespace", "fresh /proc",
    "read-only root", "capabilities",
]  # fmt: skip

FORBIDDING = """
import json, sys
sys.path.insert(0, sys.argv[1])
from kern_sandbox._linux import caps, seccomp
from kern_sandbox._linux.bpf import ARCH, NR, Action, Arch, Assembler, argument, errno_return
from kern_sandbox._linux.syscalls import MACHINE, NUMBERS
from kern_sandbox.cli import main

call, mask, errno = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
code = Assembler()
code.load(ARCH)
code.branch("jeq", {"x86_64": Arch.X86_64, "aarch64": Arch.AARCH64}[MACHINE], no="allow")
code.load(NR)
code.branch("jeq", NUMBERS[call], no="allow")
if mask:
    code.load(argument(1 if call == "seccomp" else 0))
    code.branch("jset", mask, no="allow")
code.ret(errno_return(errno))
code.label("allow")
code.ret(Action.ALLOW)
caps.no_new_privileges()
seccomp.install(code.assemble())
sys.exit(main(sys.argv[5:]))
"""
"""The command in a process, and for its descendants, where Linux refuses one call (if its argument has a bit)."""

EPERM, ENOSYS, EBUSY, ENOSPC = 1, 38, 16, 28
NEWNS, NEWUSER, NEWNET, NEWPID, NEWIPC = 0x20000, 0x10000000, 0x40000000, 0x20000000, 0x8000000
TSYNC, NEW_LISTENER = 1, 8


def forbidding(call: str, mask: int, errno: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command where ``call`` fails with ``errno``."""
    need(MACHINE in ("x86_64", "aarch64"), f"no filter is made for {MACHINE}")
    return subprocess.run(
        [sys.executable, "-c", FORBIDDING, SITE, call, str(mask), str(errno), *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def states(printed: str) -> dict[str, str]:
    """Layer to state, from a report as JSON."""
    return {layer["name"]: layer["state"] for layer in json.loads(printed)["layers"]}


@pytest.fixture(scope="module")
def report() -> HostReport:
    return doctor()


# --- this host --------------------------------------------------------------------------------------------------


def test_where_boxes_run_the_report_is_ok_and_its_last_layer_is_a_box(report: HostReport) -> None:
    need_boxes()
    assert report.ok
    assert (report.layers[-1].name, report.layers[-1].state) == ("a box", "works")


def test_every_layer_says_what_was_seen_and_only_what_can_be_changed_has_a_command(report: HostReport) -> None:
    assert len({layer.name for layer in report.layers}) == len(report.layers)
    assert all(layer.detail for layer in report.layers)
    assert not [layer for layer in report.layers if layer.state == "works" and layer.fix]


def test_the_report_names_the_host(report: HostReport) -> None:
    about = os.uname()
    assert about.release in report.linux
    assert (report.machine, report.uid) == (about.machine, os.geteuid())
    assert report.python == ".".join(map(str, sys.version_info[:3]))


def test_the_report_is_strict_json(report: HostReport) -> None:
    said = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (said["ok"], len(said["layers"])) == (report.ok, len(report.layers))
    assert set(said["layers"][0]) == {"name", "state", "detail", "fix"}


def test_the_table_reads_at_80_columns_and_has_every_layer_once(report: HostReport) -> None:
    lines = str(report).splitlines()
    assert not [line for line in lines if len(line) > 80]
    for layer in report.layers:
        starts = [line for line in lines if line.startswith(f"{layer.name}  ")]
        assert [line.split()[len(layer.name.split())] for line in starts] == [layer.state]


def test_limits_work_where_the_engine_can_require_them(report: HostReport) -> None:
    """What ``require_limits=True`` insists on is what the report says of memory and pids."""
    need_boxes()
    works = all(layer.state == "works" for layer in report.layers if layer.name in ("memory limit", "pids limit"))
    try:
        kern_sandbox.run_code("1", require_limits=True)
    except kern_sandbox.CgroupUnavailable:
        assert not works
    else:
        assert works


def test_asking_leaves_nothing_behind_and_this_process_as_it_was() -> None:
    def status() -> list[str]:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line.startswith(("Seccomp", "NoNewPrivs", "Cap", "Uid"))]

    was, group = status(), Path("/proc/self/cgroup").read_text(encoding="utf-8")
    with leaks():
        doctor()
    assert status() == was
    assert Path("/proc/self/cgroup").read_text(encoding="utf-8") == group


def test_the_command_prints_the_table_and_its_status_is_the_answer(report: HostReport) -> None:
    command = [sys.executable, "-m", "kern_sandbox", "doctor"]
    environment = {**os.environ, "PYTHONPATH": SITE}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if report.ok else 1)
    assert done.stdout.splitlines()[-1].startswith("Boxes run here" if report.ok else "Boxes do not run here")
    as_json = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, check=False)
    assert as_json.returncode == done.returncode
    assert list(states(as_json.stdout)) == [layer.name for layer in report.layers]


# --- hosts that forbid something --------------------------------------------------------------------------------


def test_where_user_namespaces_are_forbidden_the_report_says_so_and_no_traceback() -> None:
    done = forbidding("clone", NEWUSER, EPERM, "doctor", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    found = states(done.stdout)
    assert [name for name in NEEDS_USER_NAMESPACES if found[name] != "missing"] == []
    assert found["a box"] == "missing"
    assert found["pidfd"] == found["seccomp filter"] == "works"
    table = forbidding("clone", NEWUSER, EPERM, "doctor").stdout
    assert "Operation not permitted" in table
    assert "Boxes do not run here" in table


def test_where_user_namespaces_are_forbidden_a_run_is_status_125_and_points_to_doctor() -> None:
    done = forbidding("clone", NEWUSER, EPERM, "run", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (125, "")
    assert "kern-sandbox doctor" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("call", "mask", "errno", "layer"),
    [
        ("clone", NEWUSER, ENOSPC, "user namespaces"),
        ("clone", NEWIPC, EPERM, "other namespaces"),
        ("unshare", 0, EPERM, "other namespaces"),
        ("clone", NEWNET, ENOSPC, "network namespace"),
        ("mount_setattr", 0, ENOSYS, "read-only root"),
        ("pivot_root", 0, EPERM, "read-only root"),
        ("mount", 0, EPERM, "fresh /proc"),
        ("sethostname", 0, EPERM, "other namespaces"),
        ("seccomp", TSYNC, EPERM, "seccomp filter"),
        ("seccomp", NEW_LISTENER, EBUSY, "seccomp listener"),
        ("capset", 0, EPERM, "capabilities"),
        ("landlock_create_ruleset", 0, ENOSYS, "landlock"),
        ("pidfd_open", 0, ENOSYS, "pidfd"),
        ("mkdirat" if MACHINE == "aarch64" else "mkdir", 0, ENOSPC, "temporary workspace"),
    ],
)
def test_a_layer_works_only_where_trying_it_works(call: str, mask: int, errno: int, layer: str) -> None:
    """Each is tried for real: a call that Linux refuses takes its layer away, and with it the box, or says why not."""
    need_boxes()
    found = states(forbidding(call, mask, errno, "doctor", "--json").stdout)
    assert found[layer] != "works"
    assert found["a box"] == ("works" if found[layer] == "degraded" else "missing")


def test_a_call_that_no_box_needs_takes_no_layer_away(report: HostReport) -> None:
    """The control of the tests above: a filter as such changes nothing."""
    found = states(forbidding("swapon", 0, EPERM, "doctor", "--json").stdout)
    assert found == {layer.name: layer.state for layer in report.layers}


# --- elsewhere --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_the_report_says_linux_only(platform: str) -> None:
    code = (
        "import argparse, platform, shutil, sys, textwrap, traceback; platform.system = lambda: 'Elsewhere'; "
        f"sys.platform = {platform!r}; sys.path.insert(0, {SITE!r}); from kern_sandbox.cli import main; "
        "sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "boxes need Linux, and this is Elsewhere" in " ".join(done.stdout.split())
