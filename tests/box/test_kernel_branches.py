"""Checkpoints, rollbacks and forks: a kernel's memory at one moment, used again."""

from __future__ import annotations

import gc

import pytest

import kern_sandbox as kern


@pytest.fixture
def kernel(sandbox):
    """A kernel that remembers something."""
    with sandbox.kernel() as made:
        made.run_code("x = [1]")
        yield made


def text(kernel, code):
    """What the last expression of ``code`` shows."""
    result = kernel.run_code(code)
    assert result.success, result
    return result.results[0].text


def test_rolling_back_brings_memory_back_any_number_of_times(kernel):
    first = kernel.checkpoint()
    kernel.run_code("x.append(2)")
    second = kernel.checkpoint()
    kernel.run_code("del x")
    for checkpoint, value in ((second, "[1, 2]"), (first, "[1]"), (second, "[1, 2]"), (first, "[1]")):
        kernel.rollback(checkpoint)
        assert text(kernel, "x") == value
        kernel.run_code("x.append('tried')")


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(3)",
        "import ctypes; ctypes.string_at(0)",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    ],
    ids=["exit", "crash", "timeout"],
)
def test_a_session_that_has_died_can_be_rolled_back(kernel, code, request):
    checkpoint = kernel.checkpoint()
    kernel.run_code("x.append(2)")
    kernel.run_code(code, timeout_s=2 if "while" in code else None)
    assert not kernel.alive
    kernel.rollback(checkpoint)
    assert kernel.alive
    result = kernel.run_code("import sys\nprint(x); print('err', file=sys.stderr)\nx")
    assert (result.stdout, result.code_stderr, result.results[0].text) == ("[1]\n", "err\n", "[1]")
    request.getfixturevalue("patient")
    late = kernel.run_code("while True: pass", timeout_s=0.2)
    assert late.fault.detail == "0.2 s; state kept"


def test_a_checkpoint_does_not_disturb_the_session(kernel):
    kernel.run_code("import threading, random, os, subprocess\nrandom.seed(1); stop = threading.Event()")
    kernel.run_code("t = threading.Thread(target=stop.wait); t.start(); child = subprocess.Popen(['sleep', '1000'])")
    pid = text(kernel, "os.getpid()")
    kernel.checkpoint()
    assert text(kernel, "os.getpid(), t.is_alive(), child.poll()") == f"({pid}, True, None)"
    assert (
        kernel.run_code("stop.set(); t.join(); print(random.random() == random.Random(1).random())").stdout == "True\n"
    )


def test_random_numbers_go_on_after_a_rollback_and_differ_after_a_fork(kernel):
    kernel.run_code("import random, uuid\nrandom.seed(7)")
    checkpoint = kernel.checkpoint()
    numbers = [text(kernel, "random.random()")]
    ids = [text(kernel, "uuid.uuid4().hex")]
    siblings = kernel.fork(2)
    for sibling in siblings:
        numbers.append(text(sibling, "random.random()"))
        ids.append(text(sibling, "uuid.uuid4().hex"))
        sibling.close()
    assert len({*numbers}) == len({*ids}) == 3
    kernel.rollback(checkpoint)
    assert text(kernel, "random.random()") == numbers[0]
    assert text(kernel, "uuid.uuid4().hex") != ids[0]


def test_forks_run_side_by_side_and_end_on_their_own(kernel, background):
    kernel.run_code("import time, os")
    siblings = kernel.fork(5)
    code = """
x.append({0})
open('turn{0}', 'w').close()
while len([name for name in os.listdir() if 'turn' in name]) < 5: time.sleep(0.01)
x
"""
    cells = [background(lambda n=n: siblings[n].run_code(code.format(n))) for n in range(5)]
    assert [cell.result(60).results[0].text for cell in cells] == [f"[1, {n}]" for n in range(5)]
    siblings[0].run_code("os._exit(1)")
    siblings[1].close()
    assert [sibling.alive for sibling in siblings] == [False, False, True, True, True]
    kernel.close()
    assert text(siblings[2], "x") == "[1, 2]"
    grandchild = siblings[2].fork(1)[0]
    for sibling in siblings:
        sibling.close()
    assert text(grandchild, "x") == "[1, 2]"
    grandchild.close()


def test_an_event_loop_goes_on_in_every_branch(kernel):
    code = """
import asyncio
ticks = 0
async def tick():
    global ticks
    while True:
        ticks += 1
        await asyncio.sleep(0)
"""
    kernel.run_code(code)
    kernel.run_code("task = asyncio.ensure_future(tick()); await asyncio.sleep(0)")
    (sibling,) = kernel.fork(1)
    for each in (kernel, sibling):
        before = int(text(each, "ticks"))
        each.run_code("await asyncio.get_running_loop().run_in_executor(None, int)")
        assert int(text(each, "await asyncio.sleep(0, ticks)")) > before
    sibling.close()


def test_values_are_shown_in_branches_too(kernel):
    kernel.run_code("display('early');")
    checkpoint = kernel.checkpoint()
    kernel.rollback(checkpoint)
    assert [value.text for value in kernel.run_code("display('a'); 'b'").results] == ["'a'", "'b'"]


def test_a_checkpoint_that_is_closed_or_forgotten_ends_its_process(kernel, eventually):
    count = "import os\nlen([n for n in os.listdir('/proc') if n.isdigit()])"
    before = text(kernel, count)
    checkpoint, forgotten = kernel.checkpoint(), kernel.checkpoint()
    assert int(text(kernel, count)) == int(before) + 2
    checkpoint.close()
    checkpoint.close()
    del forgotten
    gc.collect()
    eventually(lambda: text(kernel, count) == before, "the end of both copies")
    with pytest.raises(kern.SessionClosed, match="checkpoint"):
        kernel.rollback(checkpoint)
    assert text(kernel, "x") == "[1]"


def test_a_copy_that_the_code_has_killed_is_said_to_be_gone(kernel):
    kernel.run_code("import os\nbefore = set(os.listdir('/proc'))")
    checkpoint = kernel.checkpoint()
    kernel.run_code("for n in set(os.listdir('/proc')) - before: os.kill(int(n), 9)")
    with pytest.raises(kern.SessionClosed, match="ended"):
        kernel.rollback(checkpoint)
    assert text(kernel, "x") == "[1]"


def test_a_box_without_room_for_another_process_says_so(pids_cgroup, make):
    with make(pids=6).kernel() as kernel:
        kept = []

        def fill():
            while True:
                kept.append(kernel.checkpoint())

        with pytest.raises(kern.StartError, match="raise pids"):
            fill()
        assert 0 < len(kept) < 6
        assert text(kernel, "1") == "1"
        with pytest.raises(kern.StartError, match="raise pids"):
            kernel.fork(5)
        assert text(kernel, "1") == "1"


@pytest.mark.parametrize("n", [0, 1001, "2", True])
def test_a_number_of_forks_is_a_whole_one_within_bounds(kernel, n):
    with pytest.raises(kern.SpecError, match="n="):
        kernel.fork(n)


def test_only_a_checkpoint_of_the_same_box_is_accepted(sandbox, kernel):
    with sandbox.kernel() as other:
        foreign = other.checkpoint()
        with pytest.raises(kern.SpecError, match="another kernel"):
            kernel.rollback(foreign)
        (sibling,) = other.fork(1)
        sibling.rollback(foreign)
        sibling.close()
    with pytest.raises(kern.SpecError, match="checkpoint="):
        kernel.rollback("it")
    with pytest.raises(kern.SessionClosed, match="closed"):
        other.rollback(foreign)


@pytest.mark.parametrize("shape", [{"user": 1000}, {"cap_drop": ()}, {"root": "scratch"}, {"tmpfs": {}}], ids=str)
def test_a_box_of_any_shape_holds_a_kernel(make, shape):
    with make(used=False, **shape).kernel() as kernel:
        kernel.run_code("x = [1]")
        checkpoint = kernel.checkpoint()
        kernel.run_code("import os; os._exit(1)")
        kernel.rollback(checkpoint)
        assert text(kernel, "x") == "[1]"


FORGED = """
import gc
session = next(each for each in gc.get_objects() if type(each).__name__ == "Session")
session.copying.freeze = lambda session, fd: session.line.send(failed={})
"""


@pytest.mark.parametrize("failed", ["10**30", "-5", "'x'", "[1]", "None"])
def test_an_error_number_that_the_code_has_made_up_is_an_error_that_can_be_shown(kernel, failed):
    kernel.run_code(FORGED.format(failed))
    with pytest.raises(kern.StartError, match="forking the session"):
        kernel.checkpoint()
    assert text(kernel, "x") == "[1]"
