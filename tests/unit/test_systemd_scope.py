"""Asking systemd for a scope, with a stand-in for busctl: every way of not getting one is a reason in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kern_sandbox._box import attempts, probe
from kern_sandbox._forkserver import nursery
from kern_sandbox._linux import cgroup_v2, systemd_scope


def test_the_request_counts_its_properties_and_quotes_nothing() -> None:
    words = systemd_scope.request_arguments(17, "kern-x.scope", ("OOMPolicy", "s", "continue"), 2.0)
    at = words.index("kern-x.scope")
    assert words[at - 1] == "ssa(sv)a(sa(sv))"
    assert words[at + 1 : at + 7] == ["fail", "5", "PIDs", "au", "1", "17"]
    assert words[-4:] == ["OOMPolicy", "s", "continue", "0"]


@pytest.mark.parametrize(
    ("script", "patience_s", "reason"),
    [
        ("echo 'Access denied' >&2; exit 1", 30, "Access denied"),
        ("exec sleep 60", 0.3, "no answer in time"),
        ("exit 0", 2, "did not move us in time"),
    ],
)
def test_a_systemd_that_refuses_or_hangs_is_a_reason(
    script: str, patience_s: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "busctl"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(systemd_scope, "DIRECTORIES", (str(tmp_path),))
    monkeypatch.setattr(systemd_scope, "_bus_of", lambda _uid: systemd_scope._Bus("--user", str(tool), {}))
    answer = systemd_scope.adopt(os.getpid(), "kern-x.scope", patience_s)
    assert answer.path is None
    assert reason in answer.reason


def test_an_older_systemd_is_asked_again_without_the_oom_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "busctl"
    tool.write_text(
        f'#!/bin/sh\ncase "$*" in *OOMPolicy*) echo "unknown property OOMPolicy" >&2; exit 1;; esac\n'
        f'echo "$*" >{tmp_path}/asked\n'
    )
    tool.chmod(0o755)
    monkeypatch.setattr(systemd_scope, "DIRECTORIES", (str(tmp_path),))
    monkeypatch.setattr(systemd_scope, "_bus_of", lambda _uid: systemd_scope._Bus("--user", str(tool), {}))
    systemd_scope.adopt(os.getpid(), "kern-x.scope", 2)
    assert "fail 4 PIDs" in (tmp_path / "asked").read_text()


def test_a_missing_bus_is_a_reason_with_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_scope, "_bus_of", lambda _uid: systemd_scope._Bus("--user", str(tmp_path / "none"), {}))
    answer = systemd_scope.adopt(os.getpid(), "kern-x.scope", 0.3)
    assert answer.path is None
    assert "there is no bus" in answer.reason
    assert "run: " in answer.reason


def test_whoever_waits_for_a_scope_waits_longer_than_systemd_may_take() -> None:
    """Else a busy machine would be told that it has no limits, or that its box could not be made."""
    assert cgroup_v2._SCOPE_TIMEOUT_S < attempts._ATTEMPT_S < probe._PATIENCE_S
    assert cgroup_v2._SCOPE_TIMEOUT_S < nursery.START_LIMIT_S
