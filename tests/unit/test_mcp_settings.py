"""The variables that configure the MCP server, and its command line, before any box."""

from __future__ import annotations

import subprocess
import sys

import pytest

from command import environment
from kern_sandbox import SpecError
from kern_sandbox.mcp import main
from kern_sandbox.mcp._settings import settings


def test_variables_become_options() -> None:
    found = settings({"KERN_MCP_MEMORY_MB": "64", "KERN_MCP_TIMEOUT": "2.5", "KERN_MCP_WORKSPACE": "/srv", "HOME": "/"})
    assert found.options["memory_mb"] == 64
    assert found.options["timeout_s"] == 2.5
    assert found.options["workspace"] == "/srv"
    assert not found.kernel
    assert settings({"KERN_MCP_KERNEL": "1"}).kernel
    assert settings({"KERN_MCP_MEMORY_MB": "none"}).options["memory_mb"] is None


def test_a_variable_that_is_empty_is_not_set() -> None:
    assert settings({"KERN_MCP_MEMORY_MB": "", "KERN_MCP_IMAGE": ""}) == settings({})


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("KERN_MCP_MEMORY_MB", "512m", "16 or more, or none"),
        ("KERN_MCP_MEMORY_MB", "3", "16 or more, or none"),
        ("KERN_MCP_TIMEOUT", "inf", "seconds"),
        ("KERN_MCP_TIMEOUT", "-1", "seconds"),
        ("KERN_MCP_PROFILES", "vcpu", "names from kern.toml"),
        ("KERN_MCP_KERNEL", "yes", "1: Python keeps"),
        ("KERN_MCP_IMAGE", "UPPER", "python:3.12-slim"),
        ("KERN_MCP_MEMORY", "512", "KERN_MCP_MEMORY_MB"),
    ],
)
def test_a_bad_value_is_refused_with_the_name_and_what_is_accepted(name: str, value: str, accepted: str) -> None:
    with pytest.raises(SpecError) as refused:
        settings({name: value})
    assert name in str(refused.value)
    assert accepted in str(refused.value)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"KERN_MCP_TIMEOUT": "soon"}, "KERN_MCP_TIMEOUT='soon'"),
        ({"KERN_MCP_WORKSPACE": "/etc"}, "KERN_MCP_WORKSPACE: using '/etc'"),
        ({"KERN_MCP_WORKSPACE": "/no/such"}, "KERN_MCP_WORKSPACE: open the workspace"),
    ],
)
def test_the_server_does_not_start_with_a_bad_value(variables: dict[str, str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kern_sandbox.mcp"],
        env={**environment(), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_every_variable_and_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for name in ("IMAGE", "SETUP", "MEMORY_MB", "TIMEOUT", "WORKSPACE", "PROFILES", "EGRESS", "KERNEL"):
        assert f"KERN_MCP_{name}" in said
    assert max(map(len, said.splitlines())) <= 80
    assert main(["--version"]) == 0
    assert main(["--port", "80"]) == 2
