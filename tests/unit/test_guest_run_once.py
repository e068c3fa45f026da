"""The guest runs a file so that the code cannot tell it from a plain ``python FILE``.

Every snippet runs twice, under the plain interpreter and under the guest; both streams and the exit status must be
equal byte for byte. ``KERN_TEST_PYTHONS`` names further interpreters to do this with, separated by colons; without it
the oldest that a box may have is one, where it is found.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from guests import PROGRAM, guest, run
from pythons import further

if TYPE_CHECKING:
    from pathlib import Path

PYTHONS = [sys.executable, *further()]

SNIPPETS: dict[str, str | bytes] = {
    "nothing": "",
    "comment only": "# nothing",
    "print": "print(1)",
    "no final newline": "import sys; sys.stdout.write('abc')",
    "main's names": "print(sorted(globals())); print(__name__, __file__, __doc__, __spec__, __package__)",
    "main's names, in order": "print(list(globals()))",
    "main's loader": "print(type(__loader__), __loader__.name, __loader__.path, type(__builtins__))",
    "docstring": "'''What it does.'''\nprint(__doc__)",
    "docstring only": "'''What it does.'''",
    "main is the module": "import sys; x = 1; m = sys.modules['__main__']; print(m.x, vars(m) is globals())",
    "arguments and path": "import sys; print(sys.argv, sys.path)",
    "own modules": "open('mine.py', 'w').write('y = 5'); import mine; print(mine.y, mine.__file__)",
    "a module named as a guest's": "open('show.py', 'w').write('y = 6'); import show; print(show.y)",
    "modules": "import sys; print(sorted(set(sys.modules) - {'_ast'}))",
    "main guard": "if __name__ == '__main__':\n    print('main')",
    "exception": "def f():\n    return 1 / 0\nf()",
    "exception in the last expression": "x = [1]\n(x[0] +\n   x[1])",
    "exception in a lambda": "f = lambda: {}['k']\n\n\nprint('a')\nf()",
    "chained exceptions": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('v') from e",
    "exception in an except block": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}['k']",
    "exception with notes": "e = ValueError('v')\ne.__notes__ = ['n']\nraise e",
    "exception in a module": "open('bad.py', 'w').write('def f():\\n    raise KeyError(1)\\n'); import bad\nbad.f()",
    "syntax error in a module": "open('bad.py', 'w').write('x = (\\n'); import bad",
    "missing module": "import surely_not_there",
    "name error": "print(undefined_name)",
    "attribute error": "import os\nos.getcwdd()",
    "str of the exception raises": "class X(BaseException):\n    def __str__(self): raise X\nraise X",
    "non-ascii source line": "é = 'ü'\nraise ValueError(é + '\\u4e2d')",
    "surrogate in the message": "raise ValueError('\\ud800')",
    "unclosed bracket": "x = (1,\n",
    "invalid syntax": "x = 1\ny = = 2\n",
    "bad indentation": "if 1:\nprint(1)",
    "tabs and spaces": "if 1:\n        a = 1\n\tb = 2",
    "unterminated string": "x = 'abc",
    "unterminated triple string": "x = '''abc\n\n",
    "return outside": "x = 1\nreturn x",
    "yield outside": "yield 1",
    "yield as last expression": "print(1)\n(yield)",
    "late future": "x = 1\nfrom __future__ import annotations",
    "assign to literal": "print('never')\n1 = x",
    "global declared late": "def f():\n    x = 1\n    global x\n",
    "await in a plain function": "def f():\n    await g()\n",
    "syntax error at run time": "exec('x = (')",
    "exit status": "import sys; sys.exit(3)",
    "exit with none": "import sys; sys.exit()",
    "exit with text": "import sys; sys.exit('bye')",
    "exit with a tuple": "raise SystemExit((1, 'a'))",
    "exit builtin": "exit(4)",
    "exit in the last expression": "import sys\n(lambda: sys.exit(5))()",
    "exit status out of range": "import sys; sys.exit(256 + 7)",
    "os._exit": "import os; print('a', flush=True); os._exit(9)",
    "signal": "import os; print('a', flush=True); os.kill(os.getpid(), 9)",
    "keyboard interrupt": "def f():\n    raise KeyboardInterrupt('x')\nf()",
    "sigint": "import os, signal; os.kill(os.getpid(), signal.SIGINT); import time\nwhile True: time.sleep(1)",
    "interrupt with a hook": (
        "import atexit, sys\nsys.excepthook = lambda *a: print('hook', a[0], sys.excepthook.__name__)\n"
        "atexit.register(lambda: print(sys.excepthook.__name__, sys.last_type))\nraise KeyboardInterrupt"
    ),
    "atexit": "import atexit; atexit.register(print, 'bye'); print('hi'); 1 / 0",
    "atexit after the last value": "import atexit; atexit.register(print, 'bye'); print('hi')\n5",
    "finalizers": "class A:\n    def __del__(self): print('del', __name__)\na = A(); print('end')",
    "finalizer of the last value": "class A:\n    def __del__(self): print('del')\nA();",
    "threads are joined": (
        "import threading, time\ngo = threading.Event()\n"
        "def work():\n    go.wait(); print('thread')\n    raise ValueError('in thread')\n"
        "threading.Thread(target=work, name='T').start(); go.set() or print('main')"
    ),
    "daemon thread": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start(); print(1)",
    "excepthook": "import sys; sys.excepthook = lambda t, v, tb: print(t, v, tb.tb_frame.f_code.co_name); 1 / 0",
    "excepthook gets the context": (
        "import sys, traceback\ndef hook(t, v, tb):\n    traceback.print_tb(tb); print(v.__traceback__ is tb)\n"
        "    print(sys.exc_info(), sys.last_value is v, sys.last_traceback is tb)\nsys.excepthook = hook\n{}[1]"
    ),
    "excepthook exits": "import sys; sys.excepthook = lambda *a: sys.exit(6)\n1 / 0",
    "post mortem": "import atexit, sys, traceback as t\natexit.register(lambda: t.print_tb(sys.last_traceback))\n1 / 0",
    "print_exc": "import traceback\ntry:\n    {}[1]\nexcept KeyError:\n    traceback.print_exc()",
    "pickle": "import pickle\nclass A:\n    x = 1\nb = pickle.loads(pickle.dumps(A())); print(type(b), b.x)",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: 'int' = 1\nprint(P(2))",
    "named tuple": "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\nprint(P(1), P.__module__)",
    "annotations": "x: int = 1\nprint(__annotations__)",
    "future annotations": "from __future__ import annotations\ndef f(a: missing): pass\nprint(f.__annotations__)",
    "getsource": "import inspect\ndef f():\n    return 1  # here\nprint(inspect.getsource(f))",
    "type hints": "import typing\nclass A:\n    b: 'A'\nprint(typing.get_type_hints(A))",
    "asyncio.run": "import asyncio\nasync def f():\n    await asyncio.sleep(0); return 7\nprint(asyncio.run(f()))",
    "asyncio error": "import asyncio\nasync def f():\n    1 / 0\nasyncio.run(f())",
    "byte order mark": b"\xef\xbb\xbfprint('x')\n1 / 0",
    "carriage returns": b"x = 1\r\nif x:\r\n    print(x)\r\n1 / 0\r\n",
    "coding cookie": b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n",
    "line continuation at the end": "print(1); \\\n2",
    "form feed": "print(1)\n\x0cprint(2)\n",
    "syntax warnings, once": "x = 1\nprint(x is 1)\nx is 'a'\n",
    "escape warnings, once": "x = '\\d'\n'\\d'\n",
    "user warning": "import warnings; warnings.warn('careful')\nwarnings.warn('deprecated', DeprecationWarning)",
    "warnings as errors": "import warnings; warnings.simplefilter('error')\nwarnings.warn('careful')",
    "closed streams": "import os, sys; print(1); sys.stdout.close(); os.close(2)",
    "replaced stdout": "import io, sys; sys.stdout = io.StringIO(); print(1); sys.stderr.write('e')",
    "closed descriptors": "import os; os.closerange(3, 4096); print(1)\n5",
    "forked child ends": "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('twice', flush=True)\n7",
    "forked child raises": "import os, sys\npid = os.fork()\nif not pid: 1 / 0\nprint(os.waitpid(pid, 0)[1] >> 8)",
    "spawn": (
        "import multiprocessing\ndef f(x):\n    print(__name__, x, flush=True)\nprint('top', __name__, flush=True)\n"
        "if __name__ == '__main__':\n    p = multiprocessing.get_context('spawn').Process(target=f, args=(1,))\n"
        "    p.start(); p.join(); print(p.exitcode)"
    ),
    "forkserver": (
        "import multiprocessing\ndef f(x):\n    return x * 2\n"
        "if __name__ == '__main__':\n    with multiprocessing.get_context('forkserver').Pool(1) as pool:\n"
        "        print(pool.map(f, [1, 2]))"
    ),
    "fork pool": (
        "import multiprocessing\ndef f(x):\n    return x * 2\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool:\n    print(pool.map(f, [1, 2]))"
    ),
    "process pool raises": (
        "import concurrent.futures as c, multiprocessing as m\ndef f():\n    1 / 0\n"
        "if __name__ == '__main__':\n    with c.ProcessPoolExecutor(1, m.get_context('fork')) as pool:\n"
        "        print(repr(pool.submit(f).exception()))"
    ),
    "deep nesting": "x = " + "-" * 3000 + "1",
    "long sum": "x = " + "+".join(["1"] * 3000) + "\nprint(x)",
    "deleted main": "import sys; del sys.modules['__main__']; print(1)\n1 / 0",
    "stdin": "import sys; print(repr(sys.stdin.read()))\ninput()",
    "broken builtins": "import builtins\nbuiltins.repr = None\nprint(1)\n5",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty working directory below one of the test's own."""
    made = tmp_path / "workspace"
    made.mkdir()
    return made


@pytest.mark.parametrize("name", SNIPPETS)
@pytest.mark.parametrize("python", PYTHONS)
def test_code_runs_as_under_the_plain_interpreter(folder: Path, python: str, name: str) -> None:
    """Output, traceback and exit status are those of ``python FILE``, byte for byte."""
    ours, _ = guest(folder, SNIPPETS[name], python)
    plain = run(folder, python, str(folder / "main.py"))
    if b"SyntaxError: unexpected EOF" in plain.stderr or b"SyntaxError: EOF while" in plain.stderr:
        # Python 3.8 and 3.9 count a file's last line differently when they are given the file's text.
        ours, plain = (ran._replace(stderr=ran.stderr.splitlines()[-1]) for ran in (ours, plain))
    assert ours == plain


@pytest.mark.parametrize("flags", [("-I",), ("-S", "-E"), ("-OO",), ("-W", "error"), ("-u", "-B")])
def test_the_interpreters_flags_are_kept(folder: Path, flags: tuple[str, ...]) -> None:
    """A box may start the guest with flags of its choice."""
    ran, _ = guest(
        folder, "import sys; assert sys.argv == [__file__]; print(sys.path[0], tuple(sys.flags)[:9])", flags=flags
    )
    plain = run(folder, sys.executable, *flags, "-c", "import sys; print(tuple(sys.flags)[:9])")
    assert ran == (f"{folder} ".encode() + plain.stdout, b"", 0)


def test_a_cell_may_await_at_its_top_level(folder: Path) -> None:
    """What a file may not and a notebook's cell may: await, async for and async with outside a function."""
    code = """
import asyncio
async def numbers():
    for n in range(2):
        yield n
async for n in numbers():
    print(n)
await asyncio.sleep(0, 'value')
"""
    shown = guest(folder, code)
    assert shown.ran == (b"0\n1\n", b"", 0)
    assert shown.texts == ["'value'"]


def test_an_error_in_an_awaiting_cell_has_only_the_codes_frames(folder: Path) -> None:
    """Neither the event loop's frames nor ours stand in its traceback."""
    ran, _ = guest(folder, "import asyncio\nawait asyncio.sleep(0)\n1 / 0\n")
    lines = ran.stderr.decode().splitlines()
    assert lines[1] == f'  File "{folder}/main.py", line 3, in <module>'
    assert ran.status == 1
    assert ran.stderr.count(b"File ") == 1


def test_a_file_of_the_code_on_our_number_gets_no_frame(folder: Path) -> None:
    """Once the code has closed our descriptor, its number may lead to a file of the code's own."""
    code = "import os\nos.closerange(3, 4096)\nfiles = [open(str(n), 'w') for n in range(40)]\n5"
    ran, raw = guest(folder, code)
    assert (ran, raw) == ((b"", b"", 0), b"")
    assert all((folder / str(n)).stat().st_size == 0 for n in range(40))


def test_children_do_not_hold_the_results_descriptor(folder: Path) -> None:
    """Neither an executed nor a forked child keeps the host waiting, or can write values; the code itself can."""
    code = """
import os, subprocess, sys
def held():
    links = []
    for fd in os.listdir('/proc/self/fd'):
        try: links.append(os.path.basename(os.readlink('/proc/self/fd/' + fd)))
        except OSError: pass
    return [link for link in links if link.startswith('pipe:')]
print(len(held()), flush=True)
subprocess.run(['ls', '-l', '/proc/self/fd'], close_fds=False, stdout=open('listing', 'w'))
pid = os.fork()
if not pid:
    print(len(held()), flush=True)
    display('from the child')
    os._exit(0)
os.waitpid(pid, 0);
"""
    ran, raw = guest(folder, code)
    assert ran.stdout == b"3\n2\n"  # standard output and standard error are pipes, too
    assert raw == b""
    assert (folder / "listing").read_text().count("pipe:") == 1
    assert guest(folder, "display('shown')").texts == ["'shown'"]


@pytest.mark.parametrize(("chosen", "backend"), [("-uMPLBACKEND", b"agg\n"), ("MPLBACKEND=svg", b"svg\n")])
def test_matplotlibs_backend_is_chosen_for_who_does_not(folder: Path, chosen: str, backend: bytes) -> None:
    """By a variable, so that children have it, too."""
    (folder / "main.py").write_text("import os; print(os.environ['MPLBACKEND'])")
    argv = ["env", chosen, sys.executable, str(PROGRAM), str(folder / "main.py"), "77"]
    assert run(folder, *argv) == (backend, b"", 0)


def test_a_missing_results_descriptor_costs_only_the_values(folder: Path) -> None:
    """A closed number is taken for: nobody wants values."""
    (folder / "main.py").write_text("print(1)\n5")
    assert run(folder, sys.executable, str(PROGRAM), str(folder / "main.py"), "77") == (b"1\n", b"", 0)


@pytest.mark.parametrize("code", ["def f(n):\n    return f(n + 1)\nf(0)", "import sys\nsys.setrecursionlimit(60)\n5"])
def test_recursion_ends_as_python_says(folder: Path, code: str) -> None:
    """Our few frames below the code shift only how many repetitions a traceback counts."""
    ours, _ = guest(folder, code)
    plain = run(folder, sys.executable, str(folder / "main.py"))
    assert ours.status == plain.status
    assert ours.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
    assert b"_guest" not in ours.stderr
