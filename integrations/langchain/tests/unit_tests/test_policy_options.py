"""The policy's options: its own, those of a Sandbox, and Docker's words for the same."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from kern_sandbox import SpecError
from langchain.agents.middleware import DockerExecutionPolicy
from langchain.agents.middleware._execution import BaseExecutionPolicy

from langchain_kern_sandbox import KernExecutionPolicy, kern_execution_policy


@pytest.mark.parametrize(
    ("docker", "ours"),
    [
        ({"memory_bytes": 256 << 20}, {"memory_mb": 256}),
        ({"memory_bytes": (256 << 20) + 1}, {"memory_mb": 257}),
        ({"network_enabled": True}, {"network": True}),
        ({"network_enabled": False}, {"network": False}),
        ({"cpus": "0.5"}, {"cpus": 0.5}),
        ({"user": "1000:1000"}, {"user": 1000}),
        ({"read_only_rootfs": True}, {"root": "read-only"}),
        ({"read_only_rootfs": False}, {"root": "scratch"}),
        ({"match_docker_capabilities": True}, {"cap_drop": ()}),
        ({"memory_mb": 64, "cpus": 1.5, "network": False}, {"memory_mb": 64, "cpus": 1.5, "network": False}),
        ({"extra_run_args": None, "cpu_time_seconds": None}, {}),
    ],
)
def test_dockers_words_mean_what_they_mean_there(docker: dict[str, Any], ours: dict[str, Any]) -> None:
    policy = kern_execution_policy(**docker)
    assert policy.sandbox_options == ours


@pytest.mark.parametrize(
    "options",
    [
        {"memory_bytes": 1 << 30, "memory_mb": 1024},
        {"network": True, "network_enabled": True},
        {"root": "scratch", "read_only_rootfs": True},
        {"cap_drop": (), "match_docker_capabilities": True},
        {"memory_bytes": 0},
        {"cpus": "many"},
        {"user": "root"},
        {"extra_run_args": ["--privileged"]},
        {"binary": "podman"},
        {"cpu_time_seconds": 5},
        {"remove_container_on_exit": False},
        {"workspace": "/srv"},
        {"timeout_s": 5},
        {"memory_mb": -1},
    ],
)
def test_what_cannot_be_had_is_refused_when_the_policy_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(reversed(options)).split("_")[0]):
        kern_execution_policy(**options)


def test_an_option_that_nobody_knows_is_refused() -> None:
    with pytest.raises(TypeError, match="no_such"):
        kern_execution_policy(no_such=1)


def test_the_limits_of_every_policy_are_its_own() -> None:
    policy = kern_execution_policy(command_timeout=5, max_output_lines=7, max_output_bytes=8, termination_timeout=1)
    assert isinstance(policy, BaseExecutionPolicy)
    assert (policy.command_timeout, policy.max_output_lines, policy.max_output_bytes) == (5, 7, 8)
    with pytest.raises(ValueError, match="max_output_lines"):
        kern_execution_policy(max_output_lines=0)


@pytest.mark.parametrize("name", ["langchain-shell-abc", "project"])
def test_which_workspace_is_mounted_by_dockers_rule(name: str) -> None:
    policy = KernExecutionPolicy(mount_workspace=None)
    docker = DockerExecutionPolicy._should_mount_workspace
    assert bool(policy._shown(Path("/srv") / name)) == docker(Path("/srv") / name)


def test_a_copy_is_equal_and_independent() -> None:
    policy = kern_execution_policy(memory_mb=64, command_timeout=3)
    for again in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert (again.sandbox_options, again.command_timeout) == ({"memory_mb": 64}, 3)
