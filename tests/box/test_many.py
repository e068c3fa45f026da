"""Many calls: at once, in a row, from many Sandboxes. Each gets its own, and nothing is left behind."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import kern_sandbox as kern
from support import applies, leaks, need_boxes


@pytest.fixture
def warm(options):
    """The engine has run a call of the kind that a test makes, so that what lives on is there already."""
    need_boxes()
    with kern.Sandbox(**options) as sandbox:
        sandbox.run(["true"])
        sandbox.run_code("print(1)")


def test_a_hundred_threads_on_one_sandbox_each_get_their_own_text(sandbox):
    with ThreadPoolExecutor(100) as threads:
        results = list(threads.map(lambda i: sandbox.run_code(f"print({i})"), range(100)))
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(100)]
    assert {(result.exit_code, result.fault, result.code_stderr) for result in results} == {(0, None, "")}


def test_calls_at_once_do_not_share_scratch_processes_or_random_numbers(sandbox):
    code = """
import os, random, tempfile, uuid
open('/tmp/mine', 'x').write('x')
print(random.random(), uuid.uuid4(), tempfile.mktemp(), len([p for p in os.listdir('/proc') if p.isdigit()]))
"""
    with ThreadPoolExecutor(20) as threads:
        lines = [result.stdout.split() for result in threads.map(lambda _: sandbox.run_code(code), range(40))]
    assert [len(set(column)) for column in zip(*lines)] == [40, 40, 40, 1]


def test_threads_whose_calls_end_in_every_way_each_get_their_own_verdict(sandbox):
    ways = [
        (["echo", "fine"], None),
        (["sh", "-c", "exit 3"], None),
        (["nope"], "exec_failed"),
        (["sh", "-c", "kill -9 $$"], "killed"),
        (["sleep", "1000"], "timeout"),
    ]
    with ThreadPoolExecutor(20) as threads:
        got = list(threads.map(lambda i: sandbox.run(ways[i % 5][0], timeout_s=(60, 1)[i % 5 == 4]), range(40)))
    assert [result.fault and result.fault.type for result in got] == [ways[i % 5][1] for i in range(40)]


def test_many_sandboxes_at_once_each_see_their_own_workspace(make):
    sandboxes = [make() for _ in range(20)]
    for i, sandbox in enumerate(sandboxes):
        sandbox.write_file("name", str(i))
    with ThreadPoolExecutor(20) as threads:
        seen = list(threads.map(lambda sandbox: sandbox.run(["cat", "name"]).stdout, sandboxes))
    assert seen == [str(i) for i in range(20)]


def _calls_of_every_kind(sandbox, count):
    for i in range(count):
        if i % 4 == 0:
            assert sandbox.run_code(f"print({i})").stdout == f"{i}\n"
        elif i % 4 == 1:
            assert sandbox.run(["sh", "-c", "(setsid sleep 1000 &); cat"], stdin="x", on_stdout=len).stdout == "x"
        elif i % 4 == 2:
            assert sandbox.run(["nope"]).fault.type == "exec_failed"
        else:
            with sandbox.spawn(["cat"]) as process:
                process.stdin.write(b"x\n")
                assert process.stdout.readline() == b"x\n"


@pytest.mark.usefixtures("warm")
def test_two_hundred_calls_in_a_row_leave_nothing_behind(options):
    with leaks(), kern.Sandbox(**options) as sandbox:
        _calls_of_every_kind(sandbox, 200)


@pytest.mark.usefixtures("warm")
def test_a_hundred_calls_at_once_leave_nothing_behind(options):
    with leaks():
        with kern.Sandbox(**options) as sandbox, ThreadPoolExecutor(50) as threads:
            results = list(threads.map(lambda i: sandbox.run(["echo", str(i)]).stdout, range(100)))
        assert results == [f"{i}\n" for i in range(100)]


@pytest.mark.usefixtures("warm")
def test_timeouts_faults_and_refusals_leave_nothing_behind(options):
    with leaks(), kern.Sandbox(**options) as sandbox:
        for _ in range(5):
            sandbox.run_code("import subprocess as s; s.Popen(['setsid', 'sleep', '1000']).wait()", timeout_s=0.5)
            sandbox.run_code("import os; os.kill(os.getpid(), 9)")
            sandbox.run_code("import ctypes; ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None)")
            with pytest.raises(kern.StartError):
                sandbox.run(["true"], cwd="/nowhere")
            with pytest.raises(ZeroDivisionError):
                sandbox.run(["echo"], on_stdout=lambda _: 1 / 0)


@pytest.mark.usefixtures("warm")
def test_fifty_sandboxes_opened_used_and_closed_leave_nothing_behind(options):
    with leaks():
        for i in range(50):
            with kern.Sandbox(**options) as sandbox:
                if i % 5:
                    assert sandbox.run(["echo", str(i)]).stdout == f"{i}\n"


@pytest.mark.usefixtures("warm")
@pytest.mark.timeout(1200)
def test_a_thousand_calls_in_a_row_and_a_hundred_at_once_leave_nothing_behind(options):
    applies(os.environ.get("KERN_LONG") == "1", "it takes long; KERN_LONG=1 asks for it")
    with leaks(), kern.Sandbox(**options) as sandbox, ThreadPoolExecutor(100) as threads:
        _calls_of_every_kind(sandbox, 1000)
        assert all(threads.map(lambda _: sandbox.run(["true"]), range(1000)))
