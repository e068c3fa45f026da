"""The guest shows values as a notebook does, and nothing that a value does costs more than itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from guests import PROGRAM, guest
from kern_sandbox._box.values import decode_values

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty working directory below one of the test's own."""
    made = tmp_path / "workspace"
    made.mkdir()
    return made


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("1 + 1", ["2"]),
        ("x = 3\nx", ["3"]),
        ("(1,\n 2)\n\n# after\n", ["(1, 2)"]),
        ("'lone string'", ["'lone string'"]),
        ("'''doc'''\n__doc__", ["'doc'"]),
        ("x = 1; x", ["1"]),
        ("\ufeff'é'", ["'é'"]),
        ("1 \\\n+ 1", ["2"]),
        ("'é;'  # ; in a comment", ["'é;'"]),
        ("1\r\n", ["1"]),
        ("(yes := 5)", ["5"]),
        ("...", ["Ellipsis"]),
        ("False", ["False"]),
        ("from __future__ import annotations\n2", ["2"]),
        ("None", []),
        ("print('x')", []),
        ("x = 1", []),
        ("1;", []),
        ("\ufeff'abc';", []),
        ("1 ;  # quiet", []),
        ("'é' ; \n\n# quiet\n", []),
        ("1 \\\n;", []),
        ("'a\\r'\r\n'b';\r\n", []),
        ("if True:\n    1", []),
        ("def f():\n    1", []),
        ("for i in [1]: i", []),
        ("", []),
    ],
)
def test_the_last_bare_expression_is_shown(folder: Path, code: str, texts: list[str]) -> None:
    """Its value is, unless it is None or a semicolon follows."""
    assert guest(folder, code).texts == texts


def test_display_is_a_builtin_and_keeps_the_order(folder: Path) -> None:
    """What is displayed comes before the last expression, also from another thread."""
    code = (
        "import threading\ndisplay(1, 'two')\nthread = threading.Thread(target=display, args=(3,))\n"
        "thread.start(); thread.join()\nassert display() is None\n4"
    )
    shown = guest(folder, code)
    assert shown.texts == ["1", "'two'", "3", "4"]
    assert shown.ran == (b"", b"", 0)


@pytest.mark.parametrize("end", ["import os; os._exit(7)", "import os; os.kill(os.getpid(), 9)", "1 / 0", "exit(1)"])
def test_a_value_is_sent_at_once(folder: Path, end: str) -> None:
    """However the code ends, what it displayed is there."""
    assert guest(folder, f"display('early')\n{end}").texts == ["'early'"]


def test_every_form_has_its_type(folder: Path) -> None:
    """Images arrive as bytes, given as bytes or as base64; JSON as data; everything else as text."""
    code = """
import base64
png = b'\\x89PNG\\r\\n\\x1a\\n' + bytes(9)
class All:
    def __repr__(self): return 'all'
    def _repr_html_(self): return '<b>'
    def _repr_markdown_(self): return '*b*', {'meta': 'data'}
    def _repr_latex_(self): return '$b$'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return png
    def _repr_jpeg_(self): return base64.encodebytes(b'\\xff\\xd8\\xff' + bytes(99)).decode()
    def _repr_json_(self): return {'a': [1, None, True, 'x', (2.5,)]}
All()
"""
    (value,) = guest(folder, code).values
    assert (value.text, value.html, value.markdown, value.svg) == ("all", "<b>", "*b*", "<svg/>")
    assert value.data["text/latex"] == "$b$"
    assert value.png == b"\x89PNG\r\n\x1a\n" + bytes(9)
    assert value.jpeg == b"\xff\xd8\xff" + bytes(99)
    assert value.json == {"a": [1, None, True, "x", [2.5]]}


def test_a_mime_bundle_comes_before_the_single_forms(folder: Path) -> None:
    """With or without metadata; a form that it lacks is still asked for."""
    code = """
class A:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': 'bundle', 'application/vnd.vega+json': {'x': 1}, 'application/pdf': b'%PDF'}, {}
    def _repr_html_(self): return '<i>'
A()
"""
    (value,) = guest(folder, code).values
    assert value.data == {
        "text/plain": "bundle",
        "text/html": "<i>",
        "application/vnd.vega+json": '{"x": 1}',
        "application/pdf": "JVBERg==",
    }


def test_mime_data_can_be_given_and_chosen(folder: Path) -> None:
    """``raw``, ``include`` and ``exclude`` mean what they mean to IPython."""
    code = """
data = {'text/plain': 'p', 'text/html': 'h', 'text/markdown': 'm'}
display(data, raw=True)
display(data, raw=True, include=['text/html', 'text/plain'], exclude=['text/plain'])
display(7, raw=True)
"""
    shown = guest(folder, code)
    assert [set(value.data) for value in shown.values] == [{"text/plain", "text/html", "text/markdown"}, {"text/html"}]


def test_a_handle_replaces_what_it_showed(folder: Path) -> None:
    """A display with an id is one value, the latest."""
    code = "h = display(0, display_id=True)\ndisplay('other')\nfor n in range(500): h.update(n)\n"
    assert guest(folder, code + "display('x', display_id='b');").texts == ["499", "'other'", "'x'"]


def test_json_that_json_lacks_becomes_text(folder: Path) -> None:
    """NaN and the infinities do not make the frame invalid."""
    code = "class A:\n    def _repr_json_(self): return [float('nan'), float('inf'), {1: -float('inf')}]\nA()\n"
    shown = guest(folder, code)
    assert shown.values[0].json == ["nan", "inf", {"1": "-inf"}]
    json.loads(shown.raw, parse_constant=pytest.fail)


LIAR = """
class B:
    def __repr__(s): raise KeyError('x')
    def _repr_png_(s): return 'not bytes'
    def _repr_mimebundle_(s,**k): return {'text/plain':1,5:object(),'application/json':{1,2}}
B()
"""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (LIAR, "<B object, whose repr raised KeyError: 'x'>"),
        ("class A:\n    def __repr__(self): return 5\nA()", "<A object, whose repr raised TypeError"),
        ("class A:\n    def __repr__(self): return repr(self)\nA()", "<A object, whose repr raised RecursionError"),
        ("class A:\n    def __repr__(self): raise SystemExit(3)\nA()", "<A object, whose repr raised SystemExit: 3>"),
        (
            "class E(Exception):\n    def __str__(self): raise self\nclass A:\n    def __repr__(self): raise E\nA()",
            "<A obj",
        ),
        ("class M(type):\n    def __repr__(self): 1 / 0\n    __name__ = 1\nclass A(metaclass=M): pass\nA", "<M object"),
        (
            "class S(str):\n    def __len__(self): return -1\nclass A:\n    def __repr__(self): return S('fine')\nA()",
            "fine",
        ),
        ("class A:\n    __class__ = str\n    def __repr__(self): return 'fine'\nA()", "fine"),
        (
            "class A:\n    def __getattr__(self, name): return dict\n    def __repr__(self): return 'x'\nA()",
            "x",
        ),
        (
            "class A:\n    def __getattribute__(self, name): raise SystemExit\n    def __repr__(self): return 'x'\nA()",
            "x",
        ),
        ("class A:\n    def _repr_html_(self): return '<i>'\nA", "<class '__main__.A'>"),
        ("l = [1]\nl.append(l)\nl", "[1, [...]]"),
        ("l = []\nfor _ in range(99999): l = [l]\nl", "<list object, whose repr raised RecursionError"),
        ("from unittest.mock import MagicMock\nm = MagicMock(name='m')\nm", "<MagicMock name='m' id="),
        ("print('out', flush=True)\n'\\ud800'", "'\\ud800'"),
    ],
)
def test_a_repr_that_raises_or_lies_costs_its_own_form(folder: Path, code: str, text: str) -> None:
    """What works is shown, the rest is a word of error; status and output are the code's own."""
    shown = guest(folder, f"display('before')\n{code}")
    assert shown.texts[0] == "'before'"
    assert str(shown.texts[1]).startswith(text)
    assert len(shown.values) == 2
    assert shown.ran == (b"out\n" if "'out'" in code else b"", b"", 0)


@pytest.mark.parametrize("form", ["html", "png", "json", "mimebundle"])
def test_a_form_that_raises_leaves_the_others(folder: Path, form: str) -> None:
    """Also if what it raises would end the process."""
    code = (
        f"class A:\n    def _repr_{form}_(self, **k): raise SystemExit(4)\n    def _repr_markdown_(self): return '*'\n"
        "    def __repr__(self): return 'a'\nA()"
    )
    shown = guest(folder, code)
    assert [dict(value.data) for value in shown.values] == [{"text/plain": "a", "text/markdown": "*"}]
    assert shown.ran == (b"", b"", 0)


def test_what_a_repr_prints_is_not_the_codes_output(folder: Path) -> None:
    """A plain interpreter would not have called it; another thread's output is kept."""
    code = """
import sys, threading, warnings
class A:
    def __repr__(self):
        global kept
        kept = sys.stdout; print('from repr'); warnings.warn('from repr')
        thread = threading.Thread(target=print, args=('from a thread',)); thread.start(); thread.join()
        return 'a'
display(A())
print('after', file=kept)
"""
    shown = guest(folder, code)
    assert shown.texts == ["a"]
    assert shown.ran == (b"from a thread\nafter\n", b"", 0)


@pytest.mark.parametrize(
    "code", ["'x' * 5_000_000", "b'x' * 5_000_000", "[0] * 5_000_000", "'\\0' * 5_000_000", "'😀' * 5_000_000"]
)
def test_a_huge_repr_is_cut(folder: Path, code: str) -> None:
    """At a mebibyte, between characters, and it says so."""
    (text,) = guest(folder, code).texts
    assert text is not None
    assert MIB // 2 < len(text.encode()) <= MIB
    assert text.endswith("characters are shown]")


def test_a_huge_form_is_left_out(folder: Path) -> None:
    """A value has eight mebibytes; its other forms stay, and its text names the missing one."""
    code = (
        "class A:\n    def _repr_html_(self): return 'x' * (9 << 20)\n    def _repr_markdown_(self): return '*'\n"
        "    def _repr_json_(self): return [0] * 3_000_000\n    def __repr__(self): return 'a'\nA()"
    )
    (value,) = guest(folder, code).values
    assert dict(value.data) == {"text/plain": "a\n[text/html left out: a value may have 8 MiB]", "text/markdown": "*"}


def test_endless_data_is_left_out(folder: Path) -> None:
    """JSON that never ends, or refers to itself, is not JSON."""
    code = (
        "class L(list):\n    def __iter__(self): return iter(int, 1)\nclass A:\n    def _repr_json_(self): return L()\n"
        "d = {}\nd['d'] = d\nclass B:\n    def _repr_json_(self): return d\ndisplay(A(), B())"
    )
    assert [set(value.data) for value in guest(folder, code).values] == [{"text/plain"}] * 2


@pytest.mark.parametrize("each", ["display(n)", "display('x' * 900_000)"])
def test_a_call_shows_a_bounded_number_of_values(folder: Path, each: str) -> None:
    """A last value says that there were more; the code runs on."""
    shown = guest(folder, f"for n in range(300): {each}\nprint('end')")
    assert shown.ran == (b"end\n", b"", 0)
    assert len(shown.raw) <= 32 * MIB
    assert len(shown.values) <= 101
    assert "no more values are shown" in str(shown.texts[-1])
    assert "no more values" not in str(shown.texts[-2])


def test_a_full_pipe_that_does_not_block_loses_nothing(folder: Path) -> None:
    """The guest waits until the host has read."""
    code = (
        "import os\nfor fd in map(int, os.listdir('/proc/self/fd')):\n    if fd > 2:\n"
        "        try: os.set_blocking(fd, False)\n        except OSError: pass\ndisplay('x' * 900_000)"
    )
    assert [len(str(text)) for text in guest(folder, code).texts] == [900_002]


def test_a_reader_who_leaves_is_not_noticed(folder: Path) -> None:
    """Writing to a pipe that nobody reads fails in silence."""
    (folder / "main.py").write_text("display('x' * 900_000)\nprint(1)\n5")
    read_end, write_end = os.pipe()
    os.close(read_end)
    argv = [sys.executable, str(PROGRAM), str(folder / "main.py"), str(write_end)]
    ran = subprocess.run(argv, cwd=folder, pass_fds=[write_end], capture_output=True)
    os.close(write_end)
    assert (ran.stdout, ran.stderr, ran.returncode) == (b"1\n", b"", 0)


def test_a_frame_torn_by_a_signal_costs_only_itself(folder: Path) -> None:
    """An exception from a signal's handler may end a write in the middle; the next frame begins a line."""
    code = """
import os, signal
def handler(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
write = os.write
def torn(fd, data):
    os.write = write
    write(fd, data[:10])
    os.kill(os.getpid(), signal.SIGALRM)
    return 10
os.write = torn
try: display('torn')
except KeyboardInterrupt: print('interrupted')
display('whole')
"""
    shown = guest(folder, code)
    assert shown.ran.stdout == b"interrupted\n"
    assert shown.texts == ["'whole'"]


def test_nothing_is_unpickled_on_the_host(folder: Path) -> None:
    """An object with ``__reduce__`` is its repr, and a file that unpickling would make is not there."""
    made = folder / "made"
    code = f"class A:\n    def __reduce__(self): return open, ({str(made)!r}, 'w')\n"
    code += "    def __repr__(self): return 'a'\nA()"
    assert guest(folder, code).texts == ["a"]
    assert not made.exists()


def test_frames_are_single_ascii_lines(folder: Path) -> None:
    """Whatever a value holds."""
    raw = guest(folder, "display('\\n\\r\\u2028\\x85\\x00é\\ud800', {'text/html': '\\n'})\n'\\n'").raw
    assert raw.isascii()
    assert raw.count(b"\n") == 3 == len(decode_values(raw))
