"""``result.egress`` of a kernel's cells: what the box asked for since the cell before, once."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import kern_sandbox
from egress_help import PROXY, TALK, Keep, Server, closing_all, echo, proxies
from kern_sandbox import EgressEvent
from support import leaks, need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def keep() -> Iterator[Keep]:
    need_boxes()
    with closing_all() as keep:
        yield keep


@pytest.fixture
def server(keep: Keep) -> Server:
    """An echo on the host's loopback."""
    made: Server = keep(Server(echo))
    return made


@pytest.fixture
def kernel(keep: Keep, server: Server) -> kern_sandbox.Kernel:
    """A kernel that may reach it, and can talk to it."""
    sandbox = keep(kern_sandbox.Sandbox(egress_allow=[f"echo.localhost:{server.port}"]))
    made: kern_sandbox.Kernel = keep(sandbox.kernel(timeout_s=60))
    assert made.run_code(f"{TALK}\nhere = ('echo.localhost', {server.port})").egress == []
    return made


def test_each_cell_has_what_was_asked_for_during_it(kernel: kern_sandbox.Kernel, server: Server) -> None:
    talk = kernel.run_code("print(talk(here), talk(here))")
    assert talk.stdout == "b'ping' b'ping'\n"
    assert talk.egress == [EgressEvent("echo.localhost", server.port, "allowed", "", 2, 8, 8)]
    assert kernel.run_code("1").egress == []
    refused = kernel.run_code(f"print(talk({PROXY}, tunnel='evil.example:443'))")
    assert (refused.stdout, [event.host for event in refused.egress]) == ("403\n", ["evil.example"])
    assert [note for note in refused.runtime_notes if "evil.example port 443 was refused" in note]
    assert not [note for note in kernel.run_code("talk(here)").runtime_notes if "egress" in note]


def test_a_connection_that_stays_open_is_counted_once_and_its_bytes_where_they_flow(
    kernel: kern_sandbox.Kernel, server: Server
) -> None:
    say = "s.sendall(b'ping'); print(s.recv(4))"
    opened = kernel.run_code(f"s = socket.create_connection(here); {say}")
    assert opened.egress == [EgressEvent("echo.localhost", server.port, "allowed", "", 1, 4, 4)]
    assert kernel.run_code("1").egress == []
    used = kernel.run_code(f"{say}; {say}; s.close()")
    assert used.egress == [EgressEvent("echo.localhost", server.port, "allowed", "", 0, 8, 8)]
    assert kernel.run_code("1").egress == []


@pytest.mark.parametrize("end", ["os._exit(3)", "while True: pass"])
def test_a_cell_that_ends_the_kernel_or_is_stopped_keeps_its_record(
    end: str, kernel: kern_sandbox.Kernel, server: Server
) -> None:
    stop = kernel.interrupt if "while" in end else bool
    code = f"import os\nprint(talk(here), flush=True)\n{end}"
    result = kernel.run_code(code, on_stdout=lambda text: text.endswith("\n") and stop())
    assert result.stdout == "b'ping'\n"
    assert [(event.connections, event.bytes_down) for event in result.egress] == [(1, 4)]


def test_kernels_of_one_box_share_a_record_in_which_nothing_is_lost_or_counted_twice(
    kernel: kern_sandbox.Kernel, keep: Keep
) -> None:
    branches = [keep(each) for each in kernel.fork(3)]
    with ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda each: each.run_code("print(talk(here))"), branches))
    assert [result.stdout for result in results] == ["b'ping'\n"] * 3
    rest = kernel.run_code("1")
    assert sum(event.connections for result in (*results, rest) for event in result.egress) == 3


def test_a_cell_says_when_the_record_is_lost(kernel: kern_sandbox.Kernel) -> None:
    assert kernel.run_code("print(talk(here))").egress
    for pid in proxies():
        os.kill(pid, signal.SIGKILL)
    after = kernel.run_code("print('still here')")
    assert (after.stdout, after.egress) == ("still here\n", [])
    assert [note for note in after.runtime_notes if "the egress proxy has died" in note]


def test_kernels_with_doors_leave_nothing_behind(server: Server) -> None:
    def use() -> None:
        with (
            kern_sandbox.Sandbox(egress_allow=[f"echo.localhost:{server.port}"]) as sandbox,
            sandbox.kernel() as kernel,
        ):
            code = f"{TALK}\nprint(talk(('echo.localhost', {server.port})))"
            assert [len(kernel.run_code(code).egress) for _ in range(3)] == [1, 1, 1]

    use()
    with leaks():
        use()
