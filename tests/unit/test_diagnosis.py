"""From evidence to diagnosis: every refusal that hosts are known for has its reason and its exact command."""

from __future__ import annotations

import errno
import shlex
import subprocess
from typing import Any

import pytest

from kern_sandbox import HostReport
from kern_sandbox._box.diagnosis import LayerReport, box_layer, diagnose

USER = {"uid": "1000", "executable": "/usr/bin/python3.12", "max_user_namespaces": "96364", "uid_map": "0 0 4294967295"}
NAMES = [
    "user", "nested", "mount", "pid", "ipc", "uts", "cgroup", "network", "proc", "root", "idmap", "capabilities",
    "seccomp", "listener", "pidfd",
]  # fmt: skip
LIMITS = {"mode": "v2", "held": {"memory": "seen", "pids": "seen", "cpu": "seen"}, "reasons": {}}
INTERPRETERS = {"python": "/usr/bin/python3", "bash": "/usr/bin/bash", "sh": "/bin/sh", "node": "/usr/bin/node"}
SERVICE = "0::/system.slice/agent.service"
USER_SERVICE = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/agent.service"
UNPRIVILEGED = "sudo sysctl -w kernel.unprivileged_userns_clone=1"
CONTAINER = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"


def evidence(facts: dict[str, str] | None = None, **tries: dict[str, Any]) -> dict[str, Any]:
    """A host where all is well, but for what is given."""
    fine: dict[str, dict[str, Any]] = {name: {"ok": True, "value": None} for name in NAMES}
    fine["limits"] = {"ok": True, "value": LIMITS}
    fine["landlock"] = {"ok": True, "value": 7}
    fine["temporary"] = {"ok": True, "value": "/tmp"}
    fine["interpreters"] = {"ok": True, "value": INTERPRETERS}
    return {"facts": {**USER, **(facts or {})}, "tries": {**fine, **tries}, "failed": ""}


def refused(code: int) -> dict[str, Any]:
    return {"ok": False, "errno": code, "text": "refused"}


def layer(found: list[LayerReport], name: str) -> LayerReport:
    return next(one for one in found if one.name == name)


def test_a_host_where_all_works_has_no_command_to_run() -> None:
    found = diagnose(evidence())
    assert {one.state for one in found} == {"works"}
    assert not [one for one in found if one.fix]


@pytest.mark.parametrize(
    ("code", "facts", "fix"),
    [
        (errno.EPERM, {"userns_clone": "0"}, UNPRIVILEGED),
        (errno.ENOSPC, {"max_user_namespaces": "0"}, "sudo sysctl -w user.max_user_namespaces=15000"),
        (errno.ENOSPC, {}, "sudo sysctl -w user.max_user_namespaces=120000"),
        (errno.EPERM, {"container": "/.dockerenv", "seccomp": "2"}, CONTAINER),
        (errno.EACCES, {"label": "some-profile (enforce)"}, "sudo aa-complain 'some-profile'"),
        (errno.EINVAL, {}, ""),
        (errno.EPERM, {"uid": "0", "uid_map": "0 1000 1", "container": "/.dockerenv"}, ""),
        (errno.EACCES, {"label": "system_u:system_r:init_t:s0"}, ""),
        (errno.EPERM, {}, ""),
    ],
)
def test_a_refused_user_namespace_has_the_command_for_its_cause(code: int, facts: dict[str, str], fix: str) -> None:
    found = layer(diagnose(evidence(facts, user=refused(code))), "user namespaces")
    assert (found.state, found.fix) == ("missing", fix)
    assert found.detail.startswith("refused: ")


def test_ubuntus_apparmor_rule_has_a_profile_for_this_python_and_names_the_sysctl() -> None:
    facts = {"apparmor_restricts": "1", "label": "unconfined"}
    found = layer(diagnose(evidence(facts, user=refused(errno.EPERM))), "user namespaces")
    assert "profile kern-sandbox /usr/bin/python3.12 flags=(unconfined) { userns, }" in found.fix
    assert "apparmor_parser -r" in found.fix
    assert "kernel.apparmor_restrict_unprivileged_userns=0" in found.detail


@pytest.mark.parametrize(
    ("cgroup", "words"),
    [
        (SERVICE, ["/etc/systemd/system/agent.service.d/", "sudo systemctl restart agent.service"]),
        (USER_SERVICE, ["~/.config/systemd/user/agent.service.d/", "systemctl --user restart agent.service"]),
    ],
)
def test_a_services_own_filter_has_the_setting_of_that_service(cgroup: str, words: list[str]) -> None:
    found = layer(diagnose(evidence({"seccomp": "2", "cgroup": cgroup}, user=refused(errno.EPERM))), "user namespaces")
    assert not [word for word in [*words, "RestrictNamespaces=no"] if word not in found.fix]


def test_without_user_namespaces_what_needs_them_is_missing_for_that_reason() -> None:
    found = diagnose(evidence(user=refused(errno.EPERM), network=refused(errno.EPERM), root=refused(errno.EPERM)))
    assert layer(found, "network namespace").detail == "needs user namespaces"
    assert layer(found, "read-only root").detail == "needs user namespaces"
    assert layer(found, "pidfd").state == "works"


@pytest.mark.parametrize(
    ("name", "tries", "facts", "state", "fix"),
    [
        ("network namespace", {"network": refused(errno.ENOSPC)}, {}, "missing", "user.max_net_namespaces=15000"),
        ("other namespaces", {"mount": refused(errno.ENOSPC)}, {}, "missing", "user.max_mnt_namespaces=15000"),
        ("fresh /proc", {"proc": refused(errno.EPERM)}, {"container": "/x"}, "missing", "systempaths=unconfined"),
        ("nested user namespaces", {"nested": refused(errno.ENOSPC)}, {}, "degraded", "max_user_namespaces=120000"),
        ("landlock", {"landlock": {"ok": True, "value": 0}}, {}, "degraded", ""),
        ("landlock", {"landlock": {"ok": True, "value": 2}}, {}, "works", ""),
        ("temporary workspace", {"temporary": refused(errno.ENOSPC)}, {}, "missing", "export TMPDIR=/var/tmp"),
        ("idmapped mounts", {"idmap": refused(errno.EINVAL)}, {"uid": "0"}, "degraded", "TMPDIR"),
        ("idmapped mounts", {"idmap": refused(errno.EINVAL)}, {}, "works", ""),
        ("read-only root", {"root": refused(errno.ENOSYS)}, {}, "missing", ""),
        ("seccomp listener", {"listener": refused(errno.EBUSY)}, {}, "degraded", ""),
    ],
)
def test_a_layer_that_is_refused_has_its_state_and_its_command(
    name: str, tries: dict[str, Any], facts: dict[str, str], state: str, fix: str
) -> None:
    found = layer(diagnose(evidence(facts, **tries)), name)
    assert found.state == state
    assert fix in found.fix
    assert bool(found.fix) is bool(fix)


# The words of the cgroup probe, as its module has them.
NO_BUS = (
    "there is no bus at /run/user/7/bus; run: sudo loginctl enable-linger 7 (and install dbus-user-session where it is "
    "missing); /a/b holds other processes, so it cannot be divided; move them: for p in $(x); do y; done"
)
NOT_DELEGATED = (
    "cpu is not delegated to your systemd user manager; run: sudo mkdir -p /etc/x && printf 'a\\n' | sudo tee /etc/x/y "
    "&& sudo systemctl restart user@7.service (ends this user's session)"
)
NOT_DOWN = "cpu is not handed down to /c/d; run: echo +cpu | sudo tee /c/cgroup.subtree_control"
ONLY_ROOT = (
    "on cgroup v1 only root can make groups; boot with cgroup v2: add systemd.unified_cgroup_hierarchy=1 to the "
    "kernel's command line"
)
NOT_IN_LINUX = "this Linux runs without the memory controller; add cgroup_enable=memory to the kernel's command line"


GRUB = (
    "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&systemd.unified_cgroup_hierarchy=1 /' /etc/default/grub && "
    "sudo update-grub && sudo reboot"
)


@pytest.mark.parametrize(
    ("reason", "facts", "fix"),
    [
        (NO_BUS, {}, "sudo loginctl enable-linger 7"),
        (NOT_DELEGATED, {}, NOT_DELEGATED.partition("run: ")[2].partition(" (")[0]),
        (NOT_DOWN, {}, "echo +cpu | sudo tee /c/cgroup.subtree_control"),
        (ONLY_ROOT, {}, ""),
        (
            ONLY_ROOT,
            {"boot": "/etc/default/grub"},
            GRUB,
        ),
        (
            NOT_IN_LINUX,
            {"boot": "/boot/firmware/cmdline.txt"},
            "sudo sed -i '1s/$/ cgroup_enable=memory/' /boot/firmware/cmdline.txt && sudo reboot",
        ),
        ("/sys/fs/cgroup/x: Permission denied", {"cgroup": SERVICE}, "Delegate=cpu memory pids"),
        ("/proc cannot be read", {"cgroup": SERVICE}, ""),
    ],
)
def test_a_limit_that_is_not_enforced_is_degraded_with_the_command_of_its_reason(
    reason: str, facts: dict[str, str], fix: str
) -> None:
    limits = {"mode": "none", "held": {}, "reasons": dict.fromkeys(("memory", "pids", "cpu"), reason)}
    found = diagnose(evidence(facts, limits={"ok": True, "value": limits}))
    for name in ("memory limit", "pids limit", "cpu limit"):
        one = layer(found, name)
        assert one.state == "degraded"
        assert one.fix == fix or (fix.startswith("Delegate") and fix in one.fix)
        assert "run: " not in one.detail


def test_swap_is_off_where_there_is_none_or_a_memory_limit_held_in_spite_of_it() -> None:
    none_held = {"mode": "none", "held": {}, "reasons": {}}
    unlimited = diagnose(evidence({"swap": "/swap file 1 0 -2"}, limits={"ok": True, "value": none_held}))
    assert layer(diagnose(evidence()), "swap off").state == "works"
    assert layer(diagnose(evidence({"swap": "/swap file 1 0 -2"})), "swap off").state == "works"
    assert layer(unlimited, "swap off").state == "degraded"


def test_an_interpreter_that_is_not_there_is_named_with_its_package() -> None:
    absent = {**INTERPRETERS, "node": None}
    found = layer(diagnose(evidence(interpreters={"ok": True, "value": absent})), "interpreters")
    assert (found.state, found.fix) == ("degraded", "sudo apt-get install nodejs")
    assert "node" in found.detail


def test_a_probe_that_failed_is_the_one_layer() -> None:
    found = diagnose({"facts": {}, "tries": {}, "failed": "no interpreter"})
    assert [(one.name, one.state) for one in found] == [("probe", "missing")]


@pytest.mark.parametrize("name", [*NAMES, "limits", "landlock", "temporary", "interpreters"])
def test_an_attempt_that_was_killed_or_not_made_never_counts_as_working(name: str) -> None:
    for outcome in ({"ok": False, "signal": 31, "text": "the attempt was ended by signal 31"}, None):
        given = evidence({"uid": "0"})
        given["tries"].pop(name)
        if outcome:
            given["tries"][name] = outcome
        assert [one for one in diagnose(given) if one.state != "works"]


@pytest.mark.parametrize(
    ("said", "words", "state", "detail"),
    [
        (None, "", "missing", "no answer"),
        (None, "it broke", "missing", "it broke"),
        ({"error": {"message": "refused"}}, "", "missing", "refused"),
        ({"success": False, "fault": {"type": "oom", "message": "m"}, "exit_code": 137}, "", "missing", "oom: m"),
        ({"success": False, "fault": None, "exit_code": 139}, "", "missing", "SIGSEGV"),
        ({"success": False, "fault": None, "exit_code": 3}, "", "missing", "exit status 3"),
        ({"success": True, "fault": None, "exit_code": 0, "duration_ms": 5}, "", "works", "5 ms"),
    ],
)
def test_the_last_layer_is_what_a_true_run_gave(
    said: dict[str, Any] | None, words: str, state: str, detail: str
) -> None:
    found = box_layer(said, words)
    assert found.state == state
    assert detail in found.detail


COMMANDS = [
    diagnose(evidence({"apparmor_restricts": "1"}, user=refused(errno.EPERM))),
    diagnose(evidence({"seccomp": "2", "cgroup": SERVICE}, user=refused(errno.EPERM))),
    diagnose(evidence({"seccomp": "2", "cgroup": USER_SERVICE}, user=refused(errno.EPERM))),
    diagnose(
        evidence(limits={"ok": True, "value": {"mode": "none", "held": {}, "reasons": {"cpu": NOT_DELEGATED}}}),
    ),
]


@pytest.mark.parametrize("layers", COMMANDS, ids=str)
def test_a_command_as_the_table_shows_it_is_still_that_command(layers: list[LayerReport]) -> None:
    """Pasted with its indentation and its line breaks, the shell reads the same words."""
    fix = next(one.fix for one in layers if one.fix)
    table = str(HostReport(False, layers, "Linux", "m", 1, "3")).splitlines()
    assert not [line for line in table if len(line) > 100]
    start = table.index("    # fix:") + 1
    shown = [line for line in table[start:] if line.startswith("    ")]
    pasted = "\n".join(shown[: next((at for at, line in enumerate(table[start:]) if not line.startswith("    ")))])
    assert shlex.split(pasted) == shlex.split(fix)
    for text in (fix, pasted):
        assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
