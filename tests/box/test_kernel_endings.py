"""A kernel's deadline, its death, and what is said about both."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

import kern_sandbox as kern
from support import leaks, past_a_deadline


@pytest.fixture
def kernel(sandbox):
    """A kernel that remembers something."""
    with sandbox.kernel() as made:
        made.run_code("kept = 'kept'")
        yield made


def assert_dead(kernel, why):
    """The next calls are refused and say why."""
    assert not kernel.alive
    for call in (lambda: kernel.run_code("1"), kernel.checkpoint, lambda: kernel.fork(1)):
        with pytest.raises(kern.SessionClosed, match=why):
            call()


def assert_kept(kernel):
    """The kernel has its memory."""
    assert kernel.alive
    assert kernel.run_code("print(kept)").stdout == "kept\n"


# --- the deadline -------------------------------------------------------------------------------------------------


SAY = "open('said', 'w').close()"
"""The cell has come to where it is to be late."""


def late(sandbox, run):
    """The result of ``run`` for a deadline that came after SAY, and that deadline."""
    return past_a_deadline(run, lambda _: "said" in sandbox.list_files(), 0.5)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "code",
    ["while True: pass", "import time; time.sleep(1000)", "import subprocess; subprocess.run(['sleep', '1000'])"],
)
def test_a_late_cell_is_interrupted_and_its_state_kept(sandbox, kernel, code):
    cell = f"print('said'); {SAY}\n{code}"
    result, limit = late(sandbox, lambda limit: kernel.run_code(cell, timeout_s=limit))
    assert (result.fault.type, result.fault.detail, result.exit_code) == ("timeout", f"{limit:g} s; state kept", 124)
    assert result.stdout == "said\n"
    assert "KeyboardInterrupt" in result.stderr
    assert ".box" not in result.stderr
    assert_kept(kernel)


@pytest.mark.parametrize(
    "code",
    [
        f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SAY}\nwhile True: pass",
        f"import time\nwhile True:\n    try: {SAY}; time.sleep(1000)\n    except KeyboardInterrupt: pass",
    ],
)
def test_a_cell_that_will_not_be_interrupted_is_killed(sandbox, code):
    with contextlib.ExitStack() as kernels:
        made = []

        def run(limit):
            made.append(kernels.enter_context(sandbox.kernel()))
            return made[-1].run_code("print('said')\n" + code, timeout_s=limit)

        result, limit = late(sandbox, run)
        detail = f"{limit:g} s; state lost"
        assert (result.fault.type, result.fault.detail, result.exit_code) == ("timeout", detail, 124)
        assert result.stdout == "said\n"
        assert any("state is lost" in note for note in result.runtime_notes)
        assert_dead(made[-1], f"did not end within {limit:g} s")


@pytest.mark.usefixtures("patient")
def test_a_late_cell_leaves_no_process_and_an_earlier_ones_live_on(sandbox, kernel):
    old = "old = subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    kernel.run_code(f"import subprocess, time\n{old}\ntime.sleep(0.05)")
    code = f"""
import subprocess, time
new = [subprocess.Popen(['sleep', '2000'], start_new_session=own) for own in (True, False)]
{SAY}
time.sleep(1000)
"""
    result, _ = late(sandbox, lambda limit: kernel.run_code(code, timeout_s=limit))
    assert result.fault.detail.endswith("state kept")
    assert kernel.run_code("print(old.poll(), [each.wait() for each in new])").stdout == "None [-9, -2]\n"


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "600"])
    os._exit(0)
os.wait()
"""
SLEEPERS = """
import os
commands = (open(f"/proc/{n}/cmdline").read() for n in os.listdir("/proc") if n.isdigit())
sum(command.startswith("sleep") for command in commands)
"""


@pytest.mark.usefixtures("patient")
def test_a_late_cell_leaves_no_process_that_has_made_itself_an_orphan(sandbox, kernel):
    checkpoint = kernel.checkpoint()
    kernel.run_code(f"{DAEMON}\ntime.sleep(0.05)")
    code = f"{DAEMON}\n{SAY}; time.sleep(600)"
    result, _ = late(sandbox, lambda limit: kernel.run_code(code, timeout_s=limit))
    assert result.fault.detail.endswith("state kept")
    assert kernel.run_code(SLEEPERS).results[0].text == "1", "only that of the earlier cell"
    kernel.rollback(checkpoint)


def test_a_killed_session_takes_its_processes_along(kernel, sleeper, eventually):
    running = sleeper()
    code = f"import subprocess\nsubprocess.Popen(['sleep', '{running.marker}'], start_new_session=True)"
    kernel.run_code(code)
    eventually(lambda: running.running, "the sleeper")
    kernel.run_code("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout_s=2)
    assert not running.running


# --- death --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "ending", "why"),
    [
        ("import os; os._exit(3)", (3, None), "exit status 3"),
        ("import ctypes; ctypes.string_at(0)", (139, None), "signal 11"),
        ("import os; os.kill(os.getpid(), 9)", (137, "killed"), "SIGKILL"),
        ("import os, time; os.kill(os.getppid(), 9); time.sleep(1000)", (137, "killed"), "SIGKILL"),
        ("import os; os.closerange(3, 1024)", (70, None), "exit status 70"),
        ("import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)", (159, "escape_blocked"), "ptrace"),
    ],
    ids=["exit", "segfault", "killed", "keeper", "closes-everything", "escape"],
)
def test_a_dead_kernel_says_how_it_died(sandbox, kernel, code, ending, why):
    result = kernel.run_code("print('said')\nopen('file', 'w').close()\n" + code)
    assert (result.exit_code, result.fault and result.fault.type) == ending
    assert result.stdout == "said\n"
    assert any("state is lost" in note for note in result.runtime_notes)
    assert_dead(kernel, why)
    assert sandbox.list_files() == ["file"]


def test_a_kernel_that_dies_between_two_cells_says_so_in_the_next_call(kernel):
    kernel.run_code("import os, threading; threading.Timer(0.05, lambda: os._exit(4)).start()")

    def run_on():
        for _ in range(1000):
            kernel.run_code("import time; time.sleep(0.01)")

    with pytest.raises(kern.SessionClosed, match="exit status 4"):
        run_on()
    assert_dead(kernel, "exit status 4")


def test_a_kernel_out_of_memory_is_the_fault_oom(memory_cgroup, make):
    with make(memory_mb=96).kernel() as kernel:
        child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(200 << 20)']).returncode"
        lost = kernel.run_code(child)
        assert (lost.fault.type, lost.results[0].text) == ("oom", "-9")
        assert kernel.run_code("1").fault is None
        result = kernel.run_code("print('said')\nx = bytearray(200 << 20)")
        assert (result.fault.type, result.stdout, result.exit_code) == ("oom", "said\n", 137)
        assert_dead(kernel, "more memory")


def test_a_fork_server_that_dies_is_said(sandbox, kernel, sleeper, background):
    running = sleeper()
    cell = background(lambda: kernel.run_code(f"import subprocess; subprocess.run(['sleep', '{running.marker}'])"))
    running.chain().server.kill()
    with pytest.raises(kern.InternalError, match="fork server has died"):
        cell.result(60)
    assert_dead(kernel, "fork server has died")
    with sandbox.kernel() as another:
        assert another.run_code("print(1)").stdout == "1\n"


# --- the caller ends it -------------------------------------------------------------------------------------------


def test_interrupt_and_kill_reach_a_running_cell(kernel, sleeper, background):
    running = sleeper()
    code = f"import subprocess\nsubprocess.run(['sleep', '{running.marker}'])"
    cell = background(lambda: kernel.run_code(code))
    running.chain()
    kernel.interrupt()
    result = cell.result(60)
    assert (result.exit_code, result.fault) == (130, None)
    kernel.interrupt()
    assert_kept(kernel)
    cell = background(lambda: kernel.run_code(code))
    running.chain()
    kernel.kill()
    result = cell.result(60)
    assert (result.exit_code, result.fault.type, result.fault.detail) == (137, "killed", "caller")
    assert_dead(kernel, "the caller stopped")


@pytest.mark.parametrize("what", ["kernel", "sandbox"])
def test_closing_ends_a_running_cell(request, kernel, sleeper, background, what):
    running = sleeper()
    cell = background(lambda: kernel.run_code(f"import subprocess; subprocess.run(['sleep', '{running.marker}'])"))
    chain = running.chain()
    request.getfixturevalue(what).close()
    with pytest.raises(kern.SessionClosed, match="closed"):
        cell.result(60)
    assert_dead(kernel, "closed")
    request.getfixturevalue("eventually")(lambda: not chain.program.alive, "the end of the cell's process")
    kernel.close()


def test_threads_take_turns(kernel, background):
    kernel.run_code("import time\nlog = []")
    code = "log.append('in'); time.sleep(0.01); log.append('out')"
    for cell in [background(lambda: kernel.run_code(code)) for _ in range(8)]:
        assert cell.result(60).success
    assert kernel.run_code("print(log == ['in', 'out'] * 8)").stdout == "True\n"


def test_an_interpreter_that_does_not_start_raises_with_its_own_words(sandbox):
    with pytest.raises(kern.StartError, match="encodings"):
        sandbox.kernel(env={"PYTHONHOME": "/nowhere"})
    with sandbox.kernel() as kernel:
        assert kernel.run_code("print(1)").stdout == "1\n"


def test_nothing_is_left_behind(make):
    with leaks(), make() as sandbox:
        with sandbox.kernel() as kernel:
            checkpoint = kernel.checkpoint()
            kernel.run_code("import os; os._exit(1)")
            kernel.rollback(checkpoint)
            siblings = kernel.fork(2)
            siblings[0].run_code("import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)")
        for sibling in siblings:
            sibling.close()
        forgotten = sandbox.kernel()
        forgotten.run_code("1")
        del forgotten, checkpoint
        gc.collect()


def test_a_forgotten_sandbox_lives_as_long_as_its_kernel(make):
    kernel = kern.Sandbox().kernel()
    gc.collect()
    assert kernel.run_code("print(1)").stdout == "1\n"
    kernel.close()


# --- asyncio ------------------------------------------------------------------------------------------------------


def test_the_verbs_can_be_awaited():
    async def go():
        async with kern.AsyncSandbox() as sandbox, await sandbox.kernel() as kernel:
            await kernel.run_code("x = 1")
            checkpoint = await kernel.checkpoint()
            await kernel.run_code("x = 2")
            await kernel.rollback(checkpoint)
            siblings = await kernel.fork(2)
            cells = await asyncio.gather(*(each.run_code("print(x)") for each in [kernel, *siblings]))
            for sibling in siblings:
                await sibling.close()
            return [cell.stdout for cell in cells]

    assert asyncio.run(go()) == ["1\n"] * 3


@pytest.mark.parametrize(
    ("code", "survives"),
    [
        ("print('go'); time.sleep(1000)", True),
        ("while True:\n    try: print('go'); time.sleep(1000)\n    except KeyboardInterrupt: pass", False),
    ],
)
def test_cancelling_a_task_ends_its_cell(request, code, survives):
    if survives:
        request.getfixturevalue("patient")

    async def go():
        async with kern.AsyncSandbox() as sandbox, await sandbox.kernel() as kernel:
            started = asyncio.Event()
            loop = asyncio.get_running_loop()

            def say(_):
                loop.call_soon_threadsafe(started.set)

            task = asyncio.ensure_future(kernel.run_code(f"import time\n{code}", on_stdout=say))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            if not survives:
                with pytest.raises(kern.SessionClosed):
                    await kernel.run_code("1")
            return kernel.alive

    assert asyncio.run(go()) is survives
