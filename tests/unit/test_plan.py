"""A plan is decided without touching anything: it prints, travels, and differs when anything in it differs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kern_sandbox._box.decide import plan
from kern_sandbox._box.plan import Bind, Folder, Link, Plan, Text, Userland, from_wire
from kern_sandbox.spec import BoxSpec

USERLAND = Userland(
    "a userland", (Bind("/usr", "/usr"), Link("/bin", "usr/bin"), Folder("/etc")), "/usr/bin/py", "/bin"
)


WORKSPACE = Bind("/srv/w", "/workspace", writable=True, owned=True)


def planned(mounts: tuple[Bind, ...] = (), **options: Any) -> Plan:
    return plan(BoxSpec.of(**options), USERLAND, mounts, WORKSPACE, [Text("/.box/guest/x.py", "pass")])


def test_a_plan_survives_the_wire() -> None:
    before = planned(mounts=(Bind("/a", "/data", identity=(1, 2)),), memory_mb=64, tmpfs={"/tmp": "8m"}, user=7)
    after = from_wire(json.loads(json.dumps(before.to_wire())))
    assert after.key == before.key
    assert replace(after, workspace=before.workspace).lines() == before.lines()


@pytest.mark.parametrize(
    "options",
    [
        {"memory_mb": 64}, {"pids": 9}, {"cpus": 1}, {"network": True}, {"tmpfs": {}}, {"env": {"A": "b"}},
        {"require_limits": True}, {"security_profile": "untrusted"}, {"cap_drop": ()}, {"apparmor": "x"}, {"user": 5},
        {"mounts": (Bind("/a", "/data"),)}, {"preload": ["json"]},
    ],
)  # fmt: skip
def test_no_two_kinds_of_box_share_a_key(options: dict[str, Any]) -> None:
    assert planned(**options).key != planned().key


def test_the_same_options_give_the_same_key() -> None:
    assert planned().key == planned().key


def test_only_the_workspace_is_writable_of_what_the_host_shows() -> None:
    assert not [step for step in planned().base if isinstance(step, Bind) and step.writable]
    shown = planned().workspace
    assert shown is not None
    assert (shown.source, shown.target, shown.writable) == ("/srv/w", "/workspace", True)


def test_scratch_never_exceeds_memory() -> None:
    sizes = {step.target: step.size for step in planned(memory_mb=16).fresh}
    assert sizes["/tmp"] == 16 << 20
    assert sizes["/dev/shm"] == 8 << 20
    assert set(sizes) == {"/home/sandbox", "/run/cell", "/dev/shm", "/tmp"}


def test_without_tmpfs_scratch_is_in_the_home() -> None:
    bare = planned(tmpfs={})
    assert "/tmp" not in {step.target for step in bare.fresh}
    assert bare.env["TMPDIR"] == "/home/sandbox"
    assert planned().env["TMPDIR"] == "/tmp"


def test_what_free_reads_is_the_limit() -> None:
    text = next(
        step.content for step in planned(memory_mb=64).base if isinstance(step, Text) and "meminfo" in step.path
    )
    assert text.startswith("MemTotal:          65536 kB\n")


def test_the_printed_plan_names_every_layer() -> None:
    lines = "\n".join(planned().lines())
    for word in ("namespaces: user, mount", "network", "read-only", "pivot_root", "masked: ", "limits: memory 512 MiB",
                 "capabilities: none", "landlock", "seccomp"):  # fmt: skip
        assert word in lines
    assert "network" not in planned(network=True).lines()[0]


def test_a_person_has_a_name_in_the_box() -> None:
    passwd = next(step.content for step in planned(user=77).base if isinstance(step, Text) and "passwd" in step.path)
    assert "sandbox:x:77:77::/home/sandbox:/bin/sh\n" in passwd
    assert planned(user=77).env["USER"] == "sandbox"


def test_plans_that_differ_in_their_workspace_only_are_one_plan() -> None:
    elsewhere = planned()
    assert replace(elsewhere, workspace=Bind("/srv/other", "/workspace", writable=True)).key == elsewhere.key
