"""The bridge from its start to its end: it goes with its client, and its client for Node works."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from command import COMMAND, environment, started
from rpc_client import Client
from support import REPO, leaks, need, need_boxes

# --- the end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["eof", "half", "killed"])
def test_when_the_client_is_gone_everything_ends(
    end: str, sleeper: Callable[[], Any], eventually: Callable[..., Any]
) -> None:
    need_boxes()
    sleeps = sleeper()
    with leaks(), started("serve", stderr=None) as process:
        client = Client(process)
        name = client.ask("sandbox.open")["sandbox"]
        client.send("run", sandbox=name, argv=sleeps.argv)
        chain = sleeps.chain()
        if end == "killed":
            process.kill()
        else:
            client.say(b'{"jsonrpc": "2.0", "id"' if end == "half" else b"")
            client.stdin.close()
        assert process.wait(60) == (-9 if end == "killed" else 0)
        client.stdout.close()
        eventually(lambda: not chain.program.alive, "the end of what ran")


# --- the client for Node ----------------------------------------------------------------------------------------


def test_the_client_for_node_passes_its_own_tests(no_leaks: None, tmp_path: Path) -> None:
    node = shutil.which("node")
    need(node is not None, "there is no node")
    version = subprocess.run([str(node), "-p", "process.versions.node"], capture_output=True, text=True, check=True)
    need(int(version.stdout.split(".")[0]) >= 20, f"node is {version.stdout.strip()}, older than 20")
    done = subprocess.run(
        [str(node), "--test", "--test-reporter=tap", "test/"],
        cwd=REPO / "integrations" / "node",
        env={**environment(), "KERN_COMMAND": json.dumps([*COMMAND, "serve"]), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# fail 0" in done.stdout
    assert "# pass 0" not in done.stdout
