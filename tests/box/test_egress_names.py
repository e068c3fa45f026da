"""Names that lead elsewhere the next time: what was checked is what is connected, asked of a real name server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kern_sandbox
from rebinding import PUBLIC
from support import REPO, need, need_boxes, user_namespaces

SITE = str(Path(kern_sandbox.__path__[0]).parent)
INSIDE = ["127.0.0.1", "169.254.169.254", "10.0.0.5", "::1", "fd00:ec2::254"]
ANSWERS: dict[str, list[list[str]]] = {
    "public.test": [[PUBLIC], [PUBLIC]],
    "rebinds.test": [[PUBLIC], ["127.0.0.1"], [PUBLIC], ["169.254.169.254"]],
    "inside.test": [[address] for address in INSIDE],
    "both.test": [["127.0.0.1", PUBLIC, "10.0.0.5"]],
    "nothing.test": [[]],
}


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, Any]]:
    """By name: what a box was told, which addresses were reached, and how often the name server was asked."""
    need_boxes()
    need(shutil.which("ip") is not None, "ip (iproute2) is not installed")
    need(user_namespaces() == "allowed", "user namespaces are refused")
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "--net"]
    program = [sys.executable, str(REPO / "tests/rebinding.py"), SITE, json.dumps(ANSWERS)]
    done = subprocess.run([*unshare, *program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_a_name_with_a_public_address_is_reached_and_looked_up_once_for_each_connection(told: dict[str, Any]) -> None:
    row = told["public.test"]
    assert (row["said"], row["reached"], row["asked"]) == ([f"200 {PUBLIC}"] * 2, [PUBLIC] * 2, 2), row


def test_a_name_that_leads_inside_the_next_time_is_refused_that_time(told: dict[str, Any]) -> None:
    row = told["rebinds.test"]
    assert [said.split()[0] for said in row["said"]] == ["200", "403", "200", "403"], row
    assert (row["reached"], row["asked"]) == ([PUBLIC] * 2, 4)
    assert any("a loopback address" in reason for reason in row["reasons"])
    assert any("a link-local address" in reason for reason in row["reasons"])


def test_a_name_that_only_leads_inside_is_refused_wherever_that_is(told: dict[str, Any]) -> None:
    row = told["inside.test"]
    assert [said.split()[0] for said in row["said"]] == ["403"] * len(INSIDE), row
    assert row["reached"] == []


def test_of_several_addresses_only_the_public_one_is_tried(told: dict[str, Any]) -> None:
    row = told["both.test"]
    assert (row["said"], row["reached"]) == ([f"200 {PUBLIC}"], [PUBLIC]), row


def test_a_name_without_an_address_is_no_refusal(told: dict[str, Any]) -> None:
    assert [said.split()[0] for said in told["nothing.test"]["said"]] == ["502"]
