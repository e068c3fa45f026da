"""What happens where two threads, or a thread and an end, meet in one Sandbox, process or kernel."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

import kern_sandbox as kern
from kern_sandbox._forkserver.client import ForkServer, existing_server
from kern_sandbox.workspace import Workspace
from support import descendants, need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sandbox() -> Iterator[kern.Sandbox]:
    """How a box for Python comes to be does not matter here."""
    need_boxes()
    with kern.Sandbox(timeout_s=60) as made:
        yield made


def test_a_process_can_be_asked_while_another_thread_waits_for_it(sandbox, sleeper, background):
    running = sleeper()
    with sandbox.spawn(running.argv) as process:
        running.chain()
        waiting = background(process.wait)
        assert background(process.poll).result(30) is None
        with pytest.raises(TimeoutError, match="still running"):
            background(lambda: process.wait(0.01)).result(30)
        process.kill()
        assert waiting.result(60).fault.type == "killed"
        assert process.poll() is process.wait()


@pytest.mark.parametrize("patience", [float("inf"), 1e9, 60])
def test_patience_without_end_is_as_long_as_the_program_runs(sandbox, patience):
    with sandbox.spawn(["true"]) as process:
        assert process.wait(patience).exit_code == 0


@pytest.mark.parametrize("patience", [0, -1])
def test_no_patience_is_one_look(sandbox, patience):
    with sandbox.spawn(["cat"]) as process, pytest.raises(TimeoutError):
        process.wait(patience)


def test_a_callback_may_close_the_kernel_whose_cell_it_hears(sandbox, background):
    kernel = sandbox.kernel()
    code = "print('said', flush=True)\nimport time\ntime.sleep(1000)"
    cell = background(lambda: kernel.run_code(code, on_stdout=lambda _: kernel.close()))
    with pytest.raises(kern.SessionClosed):
        cell.result(60)
    assert not kernel.alive


def test_a_callback_may_run_a_cell_in_the_kernel_whose_cell_it_hears(sandbox, background):
    said: list[str] = []
    with sandbox.kernel() as kernel:
        other = "print('other')"

        def hear(_: str) -> None:
            if not said:  # a line may come in two pieces
                said.append(kernel.run_code(other).stdout)

        cell = background(lambda: kernel.run_code("print('one')", on_stdout=hear))
        assert cell.result(60).stdout == "one\n"
    assert set(said) == {"other\n"}  # once for each write, and `print` makes two


def test_a_sandbox_that_is_closed_as_a_call_opens_it_is_closed_for_the_fork_server_too(monkeypatch):
    need_boxes()
    sandbox, opened, closed = kern.Sandbox(), ForkServer.open, ForkServer.close_owner
    events: list[str] = []

    def late(server: ForkServer, *rest: Any) -> None:
        sandbox.close()
        opened(server, *rest)
        events.append("opened")

    def close(server: ForkServer, owner: str) -> None:
        events.append("closed")
        closed(server, owner)

    monkeypatch.setattr(ForkServer, "open", late)
    monkeypatch.setattr(ForkServer, "close_owner", close)
    with pytest.raises(kern.SessionClosed):
        sandbox.run(["true"])
    assert events[-2:] == ["opened", "closed"]


def test_a_box_whose_workspace_has_just_vanished_does_not_stay(monkeypatch):
    need_boxes()
    calls, may_wait = 12, 4  # boxes for a next call, and what they are made from
    until = time.monotonic() + 40  # a box that is not needed goes by itself after 60 s
    monkeypatch.setattr(Workspace, "check", lambda self: None)  # as if it vanished after that
    with kern.Sandbox(track_files=False) as sandbox:
        assert sandbox.run(["true"]).success
        os.rmdir(sandbox.workspace)
        before = len(descendants())
        for _ in range(calls):
            with pytest.raises(kern.SandboxError, match="No such file"):
                sandbox.run(["true"])
        while len(descendants()) > before + may_wait:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_closing_as_the_fork_server_dies_is_closing(sandbox):
    for _ in range(2):  # sessions for further ones wait from now on; their workspaces go with the fork server
        assert kern.run_code("print('on')").stdout == "on\n"
    sandbox.run(["true"])
    server = existing_server()
    assert server is not None
    server._control.shutdown(socket.SHUT_RDWR)  # it sees the end of its line, and ends
    sandbox.close()
    assert not os.path.exists(sandbox.workspace)
    assert kern.run_code("print('on')").stdout == "on\n"


def test_an_async_sandbox_that_nobody_holds_any_more_is_closed():
    need_boxes()
    sandbox = kern.AsyncSandbox()
    workspace = sandbox.workspace
    assert asyncio.run(sandbox.run(["true"])).success
    assert os.path.exists(workspace)
    del sandbox
    gc.collect()
    assert not os.path.exists(workspace)


def test_an_async_sandbox_lives_as_long_as_its_kernel():
    need_boxes()

    async def alone() -> str:
        kernel = await kern.AsyncSandbox().kernel()
        gc.collect()
        async with kernel:
            return (await kernel.run_code("print('alive')")).stdout

    assert asyncio.run(alone()) == "alive\n"


# --- forked children of the user's process --------------------------------------------------------------------------

FORKED = """
import gc, signal, threading
def in_child(body):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        body()
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def refused(verb):
    try: verb()
    except kern.SessionClosed: return
    os._exit(1)
"""


def test_a_forked_child_that_forgets_a_process_leaves_it_to_its_parent(user_process):
    user = user_process(f"""{FORKED}
import warnings
warnings.simplefilter('ignore')
sandbox = kern.Sandbox(workspace_mb=10)
process = sandbox.spawn(['cat'])
def forget():
    global process
    refused(lambda: process.wait(0))
    del process
    gc.collect()
print(in_child(forget))
process.stdin.write(b'alive\\n')
print(process.stdout.readline().decode(), end='')
process.stdin.close()
print(process.wait().exit_code)
""")
    assert user.ends() == "7\nalive\n0\n"


def test_a_kernel_that_is_busy_in_the_parent_is_refused_in_a_forked_child_and_not_waited_for(user_process):
    user = user_process(f"""{FORKED}
import warnings
warnings.simplefilter('ignore')
kernel = kern.Sandbox().kernel()
said = threading.Event()
busy = "print(1, flush=True)\\nimport time\\nwhile True: time.sleep(1)"
cell = threading.Thread(target=lambda: kernel.run_code(busy, on_stdout=lambda _: said.set()))
cell.start()
said.wait()
def use():
    for verb in (lambda: kernel.run_code('1'), kernel.checkpoint, lambda: kernel.fork(1)): refused(verb)
    if kernel.alive: os._exit(2)
    kernel.close()
print(in_child(use))
kernel.interrupt()
cell.join()
print(kernel.run_code("print('alive')").stdout, end='')
kernel.close()
""")
    assert user.ends() == "7\nalive\n"
