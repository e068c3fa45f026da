"""What is done ahead of a call: modules imported once, boxes kept ready, templates shared by equal Sandboxes."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest

import kern_sandbox as kern
from support import leaks, need, need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator

SITE = next((path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)), "")
FROM_TEMPLATE = "print('template.py' in open('/proc/self/cmdline').read())"


@pytest.fixture(autouse=True)
def _boxes() -> None:
    need_boxes()


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[Callable[..., kern.Sandbox]]:
    """Make a Sandbox that preloads modules with the given sources."""
    made: list[kern.Sandbox] = []

    def one(options: dict[str, Any] | None = None, **sources: str) -> kern.Sandbox:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
        shown: dict[str, Any] = {
            "mounts": {str(tmp_path): "/opt/own"},
            "env": {"PYTHONPATH": "/opt/own"},
            "timeout_s": 60,
        }
        made.append(kern.Sandbox(preload=list(sources), **shown, **(options or {})))
        return made[-1]

    yield one
    for sandbox in made:
        sandbox.close()


# --- preload ----------------------------------------------------------------------------------------------------


def test_a_preloaded_module_is_imported_once_and_every_box_has_its_own_state_of_it(modules) -> None:
    sandbox = modules(own="import time\nborn = time.monotonic_ns()\nseen = []")
    code = "import own; own.seen.append(1); print(own.born, len(own.seen), own.__file__)"
    first, second = (sandbox.run_code(code) for _ in range(2))
    assert first.success, first.stderr
    assert first.stdout == second.stdout
    assert first.stdout.split()[1:] == ["1", "/opt/own/own.py"]


def test_without_preload_the_module_is_imported_by_each_box(modules) -> None:
    """The control of the test above."""
    sandbox = modules(own="import time\nborn = time.monotonic_ns()")
    code = "import importlib, own; importlib.reload(own); print(own.born)"
    assert len({sandbox.run_code(code).stdout for _ in range(2)}) == 2


def test_random_state_of_preloaded_modules_differs_between_boxes() -> None:
    code = """
import multiprocessing, random, secrets, ssl, tempfile, uuid
print(random.random())
print(random.getrandbits(64))
print(secrets.token_hex(8))
print(ssl.RAND_bytes(8))
print(tempfile.mktemp())
print(uuid.uuid4())
print(uuid.uuid1())
print(multiprocessing.current_process().authkey)
"""
    preload = ["multiprocessing", "random", "secrets", "ssl", "tempfile", "uuid"]
    with kern.Sandbox(preload=preload, timeout_s=60) as sandbox:
        runs = [sandbox.run_code(code) for _ in range(3)]
    assert all(run.success for run in runs), runs
    lines = [run.stdout.splitlines() for run in runs]
    assert [len(set(values)) for values in zip(*lines)] == [3] * 8


def test_numpy_can_be_preloaded_computes_with_threads_and_differs_between_boxes() -> None:
    need(bool(SITE) and os.path.isdir(f"{SITE}/numpy"), "numpy is not installed beside the tests")
    code = "import numpy; a = numpy.random.rand(300, 300); print(numpy.random.rand(), bool((a @ a).sum() > 0))"
    options: dict[str, Any] = {"mounts": {SITE: "/opt/site"}, "env": {"PYTHONPATH": "/opt/site"}, "timeout_s": 60}
    with kern.Sandbox(preload=["numpy"], **options) as sandbox:
        runs = [sandbox.run_code(code) for _ in range(3)]
        threads = sandbox.run_code("import os; print(len(os.listdir('/proc/self/task')))")
    assert [run.stdout.split()[1] for run in runs] == ["True"] * 3, runs[0].stderr
    assert len({run.stdout for run in runs}) == 3
    assert (threads.stdout, threads.runtime_notes) == ("1\n", runs[0].runtime_notes)


def test_a_preloaded_library_s_modules_are_the_ones_that_the_code_imports(modules) -> None:
    sandbox = modules(own="import json, enum, signal, socket")
    code = "import own, json, enum, signal, socket\nprint(own.json is json, own.enum is enum, own.signal is signal)"
    assert sandbox.run_code(code).stdout == "True True True\n"


def test_the_code_sees_no_module_of_the_engine(modules) -> None:
    sandbox = modules(own="")
    code = "import sys; print([name for name in sys.modules if 'kern' in name or name in ('run_once', 'cell')])"
    assert sandbox.run_code(code).stdout == "[]\n"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("1 / 0", ["import own", "own.py", "ZeroDivisionError"]),
        ("import no_such_module", ["ModuleNotFoundError", "no_such_module"]),
        ("raise SystemExit(3)", ["SystemExit: 3"]),
        ("def f(:", ["SyntaxError"]),
        ("raise ValueError('\\U0001f600' * 7900)", ["ValueError", "\U0001f600" * 1000]),
        ("import os; os._exit(0)", ["ended the process"]),
        ("import os; os.kill(os.getpid(), 9)", ["ended the process"]),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_start_error_with_its_traceback(modules, source, words) -> None:
    sandbox = modules(own=source)
    for _ in range(2):
        with pytest.raises(kern.StartError) as caught:
            sandbox.run_code("print(1)")
        assert caught.value.stage == "preload"
        assert all(word in str(caught.value) for word in words), str(caught.value)
        assert "_forkserver" not in str(caught.value)
    assert sandbox.run_code("echo still here", language="sh").stdout == "still here\n"


def test_what_a_module_prints_while_it_is_imported_is_in_nobody_s_output(modules) -> None:
    sandbox = modules(own="import sys\nprint('x' * 300_000)\nsys.stderr.write('y' * 300_000)")
    result = sandbox.run_code("import own; print('mine')")
    assert (result.stdout, result.stderr.replace((result.runtime_notes and "kern: note") or "-", "")[:1]) == (
        "mine\n",
        result.stderr[:0] if not result.runtime_notes else ": "[:1],
    )


def test_threads_that_an_import_starts_do_not_run_in_boxes_and_the_result_says_so(modules) -> None:
    source = """
import threading, time
def work():
    while True: time.sleep(0.01)
threading.Thread(target=work, daemon=True, name="heartbeat").start()
lock = threading.Lock()
"""
    sandbox = modules(own=source)
    for _ in range(2):
        result = sandbox.run_code("import own, threading\nwith own.lock: print(threading.active_count())")
        assert result.stdout == "1\n", result.stderr
        assert any("heartbeat" in note for note in result.runtime_notes)
    plain = modules(other="import threading")
    assert not any("thread" in note for note in plain.run_code("1").runtime_notes)


def test_a_module_is_imported_with_no_more_than_a_box_has(modules) -> None:
    """No capability, no network, no workspace, no variable and no file of the host's."""
    source = """
import os
status = dict(line.split(":\\t") for line in open("/proc/self/status") if line.startswith("Cap"))
capabilities = {int(value, 16) for value in status.values()}
interfaces = sorted(os.listdir("/proc/self/net/dev_snmp6")) if os.path.isdir("/proc/self/net/dev_snmp6") else ["lo"]
workspace = os.listdir("/workspace")
home = os.path.isdir("/root/.cache") or os.path.isdir("/home/user")
try:
    open("/tmp/x", "w"); written = True
except OSError:
    written = False
"""
    sandbox = modules(own=source)
    sandbox.write_file("secret", "x")
    code = "import own; print(own.capabilities, own.interfaces, own.workspace, own.home, own.written)"
    assert sandbox.run_code(code).stdout == "{0} ['lo'] [] False False\n"
    assert sandbox.run_code("import os; print(os.listdir('.'))").stdout == "['secret']\n"


def test_what_an_import_writes_to_its_home_is_in_no_box(modules) -> None:
    source = "import os, tempfile\nopen(os.path.expanduser('~/left'), 'w').close()\nfile = tempfile.mkstemp()[1]"
    sandbox = modules(own=source)
    code = "import os, own, tempfile as t; print(os.listdir(os.path.expanduser('~')), os.path.exists(own.file))"
    code += "; print(t.gettempdir())"
    assert sandbox.run_code(code).stdout == "[] False\n/tmp\n"


@pytest.mark.parametrize(
    "value", ["numpy", ["a b"], ["a-b"], [1], ["."], ["os", ""], [f"m{i}" for i in range(65)], None]
)
def test_preload_takes_module_names(value: Any) -> None:
    with pytest.raises(kern.SpecError, match="preload="):
        kern.Sandbox(preload=value)


@pytest.mark.parametrize("value", [-1, 129, True, "3", 1.0, None])
def test_prewarm_takes_a_small_number(value: Any) -> None:
    with pytest.raises(kern.SpecError, match="prewarm="):
        kern.Sandbox(prewarm=value)


# --- prewarm ----------------------------------------------------------------------------------------------------


def _waiting() -> list[int]:
    """Process ids of programs that were forked from a template and have no order yet."""
    return [pid for pid in _below(os.getpid()) if _is_waiting(pid)]


def _below(top: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(name))
    found, todo = [], [top]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _is_waiting(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(numbers) == 3 and numbers[-1] == "2" and "\nState:\tZ" not in status


def test_prewarm_keeps_boxes_ready_before_the_first_call_and_after_each(eventually) -> None:
    with kern.Sandbox(prewarm=4, timeout_s=60) as sandbox:
        eventually(lambda: len(_waiting()) >= 4, "four boxes that wait")
        before = set(_waiting())
        results = [sandbox.run_code(f"print({number})") for number in range(4)]
        assert [result.stdout for result in results] == ["0\n", "1\n", "2\n", "3\n"]
        eventually(lambda: len(set(_waiting()) - before) >= 4, "four boxes in the place of those that served")


def test_a_box_that_died_while_it_waited_is_never_handed_out(eventually) -> None:
    with kern.Sandbox(prewarm=3, timeout_s=60) as sandbox:
        for _ in range(3):
            waiting = eventually(lambda: len(_waiting()) >= 3 and _waiting(), "three boxes that wait")
            for pid in waiting:
                os.kill(pid, signal.SIGKILL)
            assert [sandbox.run_code("print(1)").stdout for _ in range(3)] == ["1\n"] * 3


def test_a_prewarmed_box_shows_the_workspace_as_it_is_when_the_call_comes(eventually) -> None:
    with kern.Sandbox(prewarm=2, timeout_s=60) as sandbox:
        eventually(lambda: len(_waiting()) >= 2, "two boxes that wait")
        sandbox.write_file("late.txt", "late")
        assert sandbox.run_code("print(open('late.txt').read())").stdout == "late\n"


def test_closing_a_sandbox_ends_its_prewarmed_boxes(eventually) -> None:
    kern.run_code("1")
    with leaks(), kern.Sandbox(prewarm=5):
        eventually(lambda: len(_waiting()) >= 5, "five boxes that wait")


# --- sharing ----------------------------------------------------------------------------------------------------


def _warm(sandbox: kern.Sandbox, eventually: Callable[..., Any]) -> None:
    eventually(lambda: sandbox.run_code(FROM_TEMPLATE).stdout == "True\n", "a booted interpreter")


def test_a_new_sandbox_with_equal_options_is_served_by_the_template_at_once(eventually) -> None:
    with kern.Sandbox(pids=77) as first:
        _warm(first, eventually)
        with kern.Sandbox(pids=77) as second:
            assert second.run_code(FROM_TEMPLATE).stdout == "True\n"
        with kern.Sandbox(pids=76) as other:  # which no other test has made something stand ready for
            assert other.run_code(FROM_TEMPLATE).stdout == "False\n"
    assert kern.run_code(FROM_TEMPLATE, pids=77).stdout == "True\n"


def test_an_untrusted_sandbox_is_served_by_nothing_that_serves_another(eventually) -> None:
    with kern.Sandbox(security_profile="untrusted") as first:
        try:
            _warm(first, eventually)
        except kern.CgroupUnavailable:
            pytest.skip("this host enforces no limits, which untrusted asks for")
        with kern.Sandbox(security_profile="untrusted") as second:
            assert second.run_code(FROM_TEMPLATE).stdout == "False\n"


def test_sandboxes_that_share_a_template_share_nothing_else(eventually) -> None:
    with kern.Sandbox() as first, kern.Sandbox() as second:
        _warm(first, eventually)
        first.run_code("import builtins, os; builtins.mark = 1; open('mine', 'w').write('x'); os.environ['MARK'] = '1'")
        seen = second.run_code(
            "import builtins, os; print(hasattr(builtins, 'mark'), os.listdir('.'), 'MARK' in os.environ)"
        )
        assert seen.stdout == "False [] False\n"
        assert first.run_code("import os; print(os.listdir('.'))").stdout == "['mine']\n"
        first.close()
        assert second.run_code("print(1)").stdout == "1\n"


def test_one_shot_calls_leave_nothing_behind_once_they_are_let_go() -> None:
    kern.run_code("1")
    with leaks():
        for number in range(30):
            assert kern.run_code(f"print({number})").stdout == f"{number}\n"


def test_one_shot_calls_in_a_loop_see_nothing_of_each_other(eventually) -> None:
    code = (
        "import os; print(os.listdir('.'), os.stat('.').st_mode & 0o777)\nopen('mine', 'w').close(); os.chmod('.', 511)"
    )
    seen = {kern.run_code(code, pids=79).stdout for _ in range(6)}
    assert seen == {"[] 448\n"}
    eventually(lambda: kern.run_code(FROM_TEMPLATE, pids=79).stdout == "True\n", "a booted interpreter")


def test_what_a_waiting_box_rehearses_leaves_no_trace(sandbox) -> None:
    code = "import os; print(os.listdir('/run/cell'), os.getcwd(), sorted(os.listdir('/proc/self/fd'))[:4])"
    sandbox.run_code("1")
    time.sleep(0.1)  # it begins when no order has come for 20 ms
    waited = sandbox.run_code(code)
    assert waited.stdout == "['main.py'] /workspace ['0', '1', '2', '3']\n", waited.stderr
    time.sleep(0.1)
    assert sandbox.run(["sh", "-c", "ls /run/cell; pwd; echo $PPID"]).stdout == "/workspace\n1\n"


def test_what_waits_for_the_next_one_shot_call_stays_the_parent_s_in_a_forked_child(user_process) -> None:
    user = user_process("""
for _ in range(4): kern.run_code("1")
pid = os.fork()
if pid == 0:
    print(kern.run_code("print('child')").stdout, end="", flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print([kern.run_code("print('parent')").stdout for _ in range(3)])
""")
    assert user.ends() == "child\n['parent\\n', 'parent\\n', 'parent\\n']\n"


def test_one_shot_calls_from_many_threads_each_get_their_own(background) -> None:
    code = "import os, sys; print(sys.argv, os.listdir('.')); open('x', 'w').close()"
    calls = [background(lambda: kern.run_code(code, pids=78)) for _ in range(20)]
    assert {call.result(60).stdout for call in calls} == {"['/run/cell/main.py'] []\n"}


def test_options_that_cannot_be_compared_are_refused_as_ever() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    with pytest.raises(kern.SpecError, match="pids="):
        kern.run_code("1", pids=Odd())


def test_the_standard_library_is_whole_in_a_box_that_is_forked_from_a_template(eventually) -> None:
    code = """
import sys, warnings
warnings.simplefilter("ignore")
odd = {"antigravity", "this", "idlelib", "turtledemo", "turtle", "tkinter", "lib2to3"}
for name in sorted(getattr(sys, "stdlib_module_names", ())):
    if name.startswith("_") or name in odd: continue
    try: __import__(name)
    except ImportError: pass
    except BaseException as error: print(name, repr(error))
import collections.abc, os.path, concurrent.futures, xml.etree.ElementTree, email.mime.text, importlib.metadata
import logging.handlers, multiprocessing.pool, urllib.request, http.server, json.decoder
print(collections.abc.Mapping, json.decoder.JSONDecodeError)
"""
    with kern.Sandbox(timeout_s=60) as sandbox:
        _warm(sandbox, eventually)
        result = sandbox.run_code(code)
    assert result.stdout == "<class 'collections.abc.Mapping'> <class 'json.decoder.JSONDecodeError'>\n", result.stderr
