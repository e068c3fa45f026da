"""The MCP server goes with its client, whatever ends that, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import Any, Callable

import pytest

from command import environment, started
from rpc_client import Client
from support import leaks, need_boxes

ENDS = ["eof", "half a message", "SIGTERM", "SIGHUP", "SIGKILL", "nobody reads"]


@pytest.mark.parametrize("end", ENDS)
def test_when_the_client_is_gone_everything_ends(
    end: str, sleeper: Callable[[], Any], eventually: Callable[..., Any]
) -> None:
    need_boxes()
    sleeps = sleeper()
    with leaks(), started("mcp", stderr=None) as process:
        client = Client(process)
        line = "exec " + " ".join(sleeps.argv)
        client.send("tools/call", name="run_code", arguments={"code": line, "language": "sh"})
        chain = sleeps.chain()
        if end.startswith("SIG"):
            process.send_signal(signal.Signals[end])
        elif end == "nobody reads":
            client.stdout.close()
        else:
            client.say(b'{"jsonrpc": "2.0", "id": 1, "meth' if end == "half a message" else b"")
            client.stdin.close()
        status = process.wait(60)
        assert status == (-signal.Signals[end] if end.startswith("SIG") else 0)
        eventually(lambda: not chain.program.alive, "the end of what ran")  # its fork server sees to that


def test_what_was_asked_before_the_end_of_input_is_answered() -> None:
    need_boxes()
    with started("mcp", stderr=None) as process:
        client = Client(process)
        for _ in range(2):  # boxes are warm: an answer that comes late is not waited for
            client.ask("tools/call", name="run_code", arguments={"code": "1"})
        number = client.send("tools/call", name="run_code", arguments={"code": "print('late')"})
        client.stdin.close()
        assert "late" in client.answer(number)["result"]["content"][0]["text"]


def test_ctrl_c_on_a_shared_terminal_is_left_to_the_client() -> None:
    need_boxes()
    with started("mcp", stderr=None) as process:
        client = Client(process)
        assert client.ask("ping") == {}
        process.send_signal(signal.SIGINT)
        result = client.ask("tools/call", name="run_code", arguments={"code": "import signal\nsignal.getsignal(2)"})
        assert "default_int_handler" in result["content"][0]["text"]


def test_no_process_of_ours_but_the_server_holds_the_wire(sleeper: Callable[[], Any]) -> None:
    need_boxes()
    sleeps = sleeper()
    with started("mcp", stderr=None) as process:
        client = Client(process)
        line = "exec " + " ".join(sleeps.argv)
        client.send("tools/call", name="run_code", arguments={"code": line, "language": "sh"})
        chain = sleeps.chain()
        wires = {os.readlink(f"/proc/self/fd/{file.fileno()}") for file in (client.stdin, client.stdout)}

        def held(pid: int) -> set[str]:
            found = set()
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):  # closed meanwhile
                    found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
            return wires & found

        assert held(process.pid) == wires
        assert not held(chain.server.pid)
        process.kill()


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_while_it_serves_nothing_else_gets_at_the_wire(stream: str) -> None:
    code = """
import os, sys
from kern_sandbox._rpc import claimed
with claimed(1000) as wire:
    print("stray", flush=True)
    os.write(1, b"bytes\\n")
    os.system("echo child")
    assert sys.stdin.buffer.raw.read() == b""
    for frame in wire.frames():
        wire.send({"got": frame.decode()})
print("after", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"frame\n", capture_output=True, env=environment(), timeout=60
    )
    assert done.returncode == 0, done.stderr
    wanted = {"stdin": b'{"got":"frame"}\nafter\n', "stdout": b"stray\nbytes\nchild\n"}
    assert {"stdin": done.stdout, "stdout": done.stderr}[stream] == wanted[stream], os.fsdecode(done.stderr)


def test_with_a_kernel_state_stays_between_calls_until_it_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    need_boxes()
    monkeypatch.setenv("KERN_MCP_KERNEL", "1")
    with started("mcp", stderr=None) as process:
        client = Client(process)
        assert "reset" in [one["name"] for one in client.ask("tools/list")["tools"]]

        def run(code: str) -> Any:
            return client.ask("tools/call", name="run_code", arguments={"code": code})["structuredContent"]

        run("x = 41")
        assert run("x + 1")["values"] == ["42"]
        assert client.ask("tools/call", name="reset")["isError"] is False
        assert "NameError" in run("x")["stderr"]
