"""The official MCP clients of both generations, and LangChain's adapter, use our server.

Each lives in an environment of its own, which is made once; for that, pip has to reach a package index.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from command import COMMAND, SITE
from support import REPO, applies, leaks, need, need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def v2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of an environment with the client of generation 2."""
    yield from _made(tmp_path_factory.mktemp("v2"), ["mcp==2.3.0"])


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same for generation 1, with LangChain."""
    packages = ["mcp==1.30.0", "langchain-mcp-adapters==0.3.2", "langchain==1.5.2"]
    yield from _made(tmp_path_factory.mktemp("v1"), packages)


def _made(folder: Path, packages: list[str]) -> Iterator[Path]:
    need_boxes()
    applies(sys.version_info >= (3, 11), "the clients need Python 3.11")
    python, complaint = _environment(folder, packages)
    need(not complaint, f"pip cannot install {packages[0]}: {complaint}")
    yield python
    shutil.rmtree(folder)


def _environment(folder: Path, packages: list[str]) -> tuple[Path, str]:
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    done = subprocess.run(
        [*pip, "install", "-q", "--no-compile", "--only-binary", ":all:", *packages],
        capture_output=True,
        text=True,
        timeout=300,
    )
    complaints = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
    return python, complaints[-1] if done.returncode else ""


def seen(python: Path, script: str, mode: str = "") -> dict[str, Any]:
    """What a client saw, from its start to its end."""
    with leaks():
        done = subprocess.run(
            [str(python), str(REPO / "tests" / "clients" / script), mode, json.dumps([*COMMAND, "mcp"])],
            env={"PATH": os.environ["PATH"], "SERVER_PYTHONPATH": SITE, "TMPDIR": tempfile.gettempdir()},
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def judge(found: dict[str, Any], version: str) -> None:
    """A client ran, failed, drew, was told, and went on."""
    assert found["version"] == version
    assert found["tools"] == ["run_code", "write_file", "read_file", "list_files"]
    assert found["ran"].split()[:4] == ["stdout:", "hello", "value:", "42"]
    assert found["data"]["stdout"] == "hello\n"
    assert found["failed"][0] is True
    assert found["failed"][1].startswith("[sandbox: killed]")
    assert found["image"] == ["text", "image"]
    assert found["read"] == "A"
    assert "after" in found["after"]
    assert "hello" in "".join(found["told"])
    assert found["logged"][:1] == ["warning"]


# One test for each environment: where tests run side by side, it is then made once.


@pytest.mark.timeout(400)  # installing counts
def test_the_official_client_of_generation_2_works_in_every_mode(v2: Path) -> None:
    modes = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25", "session": "2025-11-25"}
    for mode, version in modes.items():
        judge(seen(v2, "mcp_v2.py", mode), version)


@pytest.mark.timeout(400)
def test_the_official_client_of_generation_1_and_a_langchain_agent_work(v1: Path) -> None:
    judge(seen(v1, "mcp_v1.py"), "2025-11-25")
    found = seen(v1, "langchain_agent.py")
    assert found["tools"] == ["run_code", "write_file", "read_file", "list_files"]
    assert "42" in found["given"][1]
    assert found["given"][2].startswith("[sandbox: timeout]")
    assert found["statuses"] == ["success", "success", "error"]
