"""A kernel's cells share one process: what they see of each other, and what one of them cannot spoil for the next."""

from __future__ import annotations

import importlib.util
import os
import textwrap
from pathlib import Path

import pytest

import kern_sandbox as kern
from support import need


@pytest.fixture
def kernel(sandbox):
    """A kernel of a Sandbox with no options of its own."""
    with sandbox.kernel() as made:
        yield made


def texts(result):
    """The plain text of each value."""
    return [value.text for value in result.results]


def test_names_and_modules_of_a_cell_are_there_in_the_next(kernel):
    assert kernel.run_code("import math\ndef area(r): return round(math.pi * r * r, 2)").success
    result = kernel.run_code("print(area(1), __name__)\narea(2)")
    assert (result.stdout, result.exit_code, texts(result)) == ("3.14 __main__\n", 0, ["12.57"])


def test_an_error_costs_only_its_cell_and_shows_the_cells_lines(kernel):
    kernel.run_code("x = 1\ndef half():\n    return x / 0  # here")
    result = kernel.run_code("half()")
    assert (result.exit_code, result.fault) == (1, None)
    lines = result.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert '  File "<cell 2>", line 1, in <module>' in lines
    assert '  File "<cell 1>", line 3, in half' in lines
    assert "    return x / 0  # here" in lines
    assert ".box" not in result.stderr
    assert texts(kernel.run_code("x")) == ["1"]


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("exit(5)", 5, ""),
        ("import sys; sys.exit()", 0, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("x = (", 1, "SyntaxError: "),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("import sys\nsys.excepthook = lambda *_: print('mine', file=sys.stderr)\n1/0", 1, "mine\n"),
        ("class E(Exception):\n  def __str__(self): raise ValueError\nraise E", 1, "E"),
        ("def f(): f()\nf()", 1, "RecursionError"),
    ],
)
def test_however_a_cell_ends_the_session_goes_on(kernel, code, exit_code, stderr):
    result = kernel.run_code(code)
    assert (result.exit_code, result.fault) == (exit_code, None)
    assert stderr in result.stderr
    assert texts(kernel.run_code("1 + 1")) == ["2"]


SPOILERS = {
    "closed descriptors": "import os; os.closerange(0, 500)",
    "a closed sys.stdout": "import sys; sys.stdout.close(); sys.stderr.close()",
    "a detached sys.stdout": "import sys; sys.stdout.detach(); sys.stdin.detach()",
    "a replaced sys.stdout": "import io, sys; sys.stdout = sys.stderr = io.StringIO(); sys.stdin = None",
    "redirected descriptors": "import os; f = os.open('/dev/null', os.O_WRONLY); os.dup2(f, 1); os.dup2(f, 2)",
    "non-blocking descriptors": "import os; os.set_blocking(1, False); os.set_blocking(2, False)",
    "a forked child that returns": "import os\nif os.fork() == 0: raise ValueError\nos.wait();",
    "a child that holds the pipes": "import subprocess; p = subprocess.Popen(['sleep', '1000'])",
    "a handler for interrupts": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);",
    "a thread that runs on": "import threading, time\n"
    "threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)], daemon=True).start()",
}


@pytest.mark.parametrize("code", SPOILERS.values(), ids=SPOILERS)
def test_what_a_cell_does_to_its_streams_does_not_reach_the_next(kernel, code):
    assert kernel.run_code(code).fault is None
    result = kernel.run_code("import sys\nprint('out')\nprint('err', file=sys.stderr)\ninput()")
    assert (result.stdout, result.exit_code) == ("out\n", 1)
    assert result.stderr.startswith("err\nTraceback")
    assert "EOFError" in result.stderr


def test_output_of_every_kind_belongs_to_its_cell(kernel):
    code = """
    import ctypes, os, subprocess, sys
    print("python", end="")
    os.write(1, b"|descriptor|")
    subprocess.run(["printf", "child|"])
    ctypes.CDLL(None).printf(b"C library");
    """
    assert kernel.run_code(textwrap.dedent(code)).stdout == "python|descriptor|child|C library"
    assert kernel.run_code("print('\\ud800', 'é')").stdout == "\\ud800 é\n"


def test_a_flood_of_output_is_capped_for_each_cell(make):
    with make(max_output_bytes=100_000).kernel() as kernel:
        flood = kernel.run_code("import os\nfor _ in range(300): os.write(1, b'x' * 10_000)")
        assert (len(flood.stdout), flood.truncated, flood.exit_code) == (100_000, True, 0)
        after = kernel.run_code("print('y')")
        assert (after.stdout, after.truncated) == ("y\n", False)


def test_callbacks_get_output_as_it_comes_and_their_errors_are_raised(kernel):
    out: list[str] = []
    err: list[str] = []
    code = "import sys\nprint('a'); print('b', file=sys.stderr)"
    kernel.run_code(code, on_stdout=out.append, on_stderr=err.append)
    assert ("".join(out), "".join(err)) == ("a\n", "b\n")

    def fail(text):
        raise LookupError(text)

    with pytest.raises(LookupError, match="a"):
        kernel.run_code(code, on_stdout=fail)
    assert kernel.run_code(code).stdout == "a\n"


def test_await_works_at_the_top_level_in_one_loop(kernel, patient):
    kernel.run_code(
        "import asyncio\nqueue = asyncio.Queue()\ntask = asyncio.ensure_future(queue.get()); await queue.put(7)"
    )
    assert texts(kernel.run_code("await task")) == ["7"]
    assert kernel.run_code("asyncio.run(asyncio.sleep(0))").success
    late = kernel.run_code("await asyncio.sleep(1000)", timeout_s=0.2)
    assert late.fault.detail.endswith("state kept")
    assert texts(kernel.run_code("await asyncio.sleep(0, 'on')")) == ["'on'"]


def test_files_and_processor_time_are_told_for_each_cell(sandbox):
    with sandbox.kernel() as kernel:
        made = kernel.run_code("open('new.txt', 'w').write('12345');")
        assert [(file.path, file.size, file.change) for file in made.files] == [("new.txt", 5, "created")]
        assert list(kernel.run_code("pass").files) == []
        assert sandbox.read_file("new.txt") == b"12345"
        usage = kernel.run_code("for _ in range(3_000_000): pass").usage
    assert usage.cpu_ms is None or usage.cpu_ms > 0


def test_code_of_any_size_and_any_characters_runs(kernel):
    filler = "# " + "x" * 1_000_000 + "\n"
    assert texts(kernel.run_code(filler + "'é' * 2")) == ["'éé'"]
    assert "SyntaxError" in kernel.run_code("'\ud800'").stderr
    assert kernel.run_code("").success


def test_multiprocessing_and_pickle_find_what_cells_define(kernel):
    code = """
    import multiprocessing, pickle
    class Point: pass
    def square(x): return x * x
    assert isinstance(pickle.loads(pickle.dumps(Point())), Point)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(square, range(4)))
    """
    result = kernel.run_code(textwrap.dedent(code))
    assert (result.stdout, result.stderr.replace("".join(_notes(result)), "")) == ("[0, 1, 4, 9]\n", "")


def _notes(result):
    return [f"kern: note: {note}\n" for note in result.runtime_notes]


def test_two_kernels_of_a_sandbox_share_nothing_but_the_workspace(sandbox):
    with sandbox.kernel(env={"WHO": "a"}) as one, sandbox.kernel() as other:
        one.run_code("x = 1; open('shared', 'w').close(); open('/tmp/own', 'w').close()")
        result = other.run_code(
            "import os\nprint('x' in globals(), os.path.exists('shared'), os.path.exists('/tmp/own'))"
        )
        assert result.stdout == "False True False\n"
        assert one.run_code("import os\nprint(os.environ['WHO'])").stdout == "a\n"


def test_two_thousand_cells_leave_nothing_behind(kernel):
    inside = """
import os, linecache
(len(os.listdir('/proc/self/fd')), len([name for name in linecache.cache if '<cell' in name]))
"""
    kernel.run_code("x = 0")
    before = kernel.run_code(inside)
    ours = len(os.listdir("/proc/self/fd"))
    for _ in range(2000):
        kernel.run_code("x += 1")
    assert len(os.listdir("/proc/self/fd")) <= ours  # what an earlier test has left may go meanwhile
    descriptors, lines = map(int, texts(kernel.run_code(inside))[0].strip("()").split(","))
    assert descriptors == int(texts(before)[0].strip("()").split(",")[0])
    assert lines <= 200
    assert texts(kernel.run_code("x")) == ["2000"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(("x", {"timeout_s": 0}), "timeout_s"), ((7, {}), "code"), (("x", {"on_stdout": 7}), "on_stdout")],
)
def test_a_bad_argument_is_refused_and_named(kernel, arguments, word):
    code, options = arguments
    with pytest.raises(kern.SpecError, match=word):
        kernel.run_code(code, **options)
    assert kernel.alive


# --- rich values --------------------------------------------------------------------------------------------------


@pytest.fixture
def rich(make):
    """A kernel that can import matplotlib, pandas and IPython, from where this interpreter has them."""
    found = importlib.util.find_spec("matplotlib")
    place = found.origin if found else None
    need(place is not None, "matplotlib is not installed")
    site = Path(str(place)).parent.parent
    with make(mounts={str(site): "/opt/site"}, memory_mb=1024).kernel(env={"PYTHONPATH": "/opt/site"}) as kernel:
        yield kernel


def kinds(result):
    """The MIME types of each value."""
    assert result.exit_code == 0, result.stderr
    return [set(value.data) for value in result.results]


def test_values_are_shown_as_in_a_notebook(rich):
    assert kinds(rich.run_code("1; 2;")) == []
    assert texts(rich.run_code("display('a'); 'b'")) == ["'a'", "'b'"]
    figure = {"image/png", "text/plain"}
    assert kinds(rich.run_code("import matplotlib.pyplot as plt\nfig = plt.figure(); plt.plot([1, 2]);")) == [figure]
    assert kinds(rich.run_code("1;")) == []
    assert kinds(rich.run_code("plt.plot([3]);")) == [figure]
    again = rich.run_code("fig")
    assert kinds(again) == [figure]
    assert again.results[0].png.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("module", "code", "kind"),
    [
        ("pandas", "import pandas\npandas.DataFrame({'a': [1, 2]})", "text/html"),
        ("IPython", "from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))", "text/html"),
    ],
)
def test_libraries_show_their_own_forms(rich, module, code, kind):
    need(importlib.util.find_spec(module) is not None, f"{module} is not installed")
    assert kind in kinds(rich.run_code(code))[0]
