"""matplotlib, pandas and IPython show their values through the guest as they do in a notebook.

They run in the first interpreter that has them: this one, or one of ``KERN_TEST_PYTHONS`` (separated by colons).
"""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from guests import Shown, guest
from pythons import further
from support import need

if TYPE_CHECKING:
    from pathlib import Path

PLT = "import matplotlib.pyplot as plt\n"
FIGURE = {"image/png", "text/plain"}


@functools.cache
def python_with(module: str) -> str:
    """An interpreter that can import ``module``; the test skips (or fails) where there is none."""
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    for python in [sys.executable, *further()]:
        if subprocess.run([python, "-c", look]).returncode == 0:
            return python
    return ""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all, so that matplotlib builds its font cache once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Path:
    """An empty working directory below the common home."""
    made = home / tmp_path.name
    made.mkdir()
    return made


def shown(folder: Path, module: str, code: str) -> Shown:
    """Run ``code`` where ``module`` is installed."""
    python = python_with(module)
    need(bool(python), f"{module} is not installed")
    done = guest(folder, code, python)
    assert done.ran.stderr == b""
    assert done.ran.status == 0
    return done


def kinds(done: Shown) -> list[set[str]]:
    """The MIME types of each value."""
    return [set(value.data) for value in done.values]


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("f = plt.figure(); plt.plot([1]); plt.show(); f", 1),
        ("plt.plot([1]);", 1),
        ("plt.plot([1]); plt.show()", 1),
        ("plt.plot([1]); plt.show(); plt.show()", 1),
        ("plt.plot([1]); plt.show(); plt.plot([2]); plt.show()", 2),
        ("fig, ax = plt.subplots(); ax.plot([1])\nfig", 1),
        ("fig, ax = plt.subplots(); ax.plot([1])\ndisplay(fig)", 1),
        ("fig, ax = plt.subplots(); ax.plot([1])\ndisplay(fig)\ndisplay(fig)", 2),
        ("fig, ax = plt.subplots(); ax.plot([1]); plt.close(fig)", 0),
        ("fig, ax = plt.subplots(); ax.plot([1]); plt.close(fig)\nfig", 1),
        ("for n in range(3): plt.figure(); plt.plot([n])", 3),
        ("plt.plot([1]); exit()", 1),
        ("from matplotlib.pyplot import *\nplot([1]); show()", 1),
        ("plt.switch_backend('svg'); plt.plot([1]);", 1),
        ("from matplotlib.figure import Figure\nf = Figure(); f.subplots().plot([1])\nf", 1),
        ("x = 1", 0),
    ],
)
def test_each_figure_is_shown_once(folder: Path, code: str, count: int) -> None:
    """By ``show``, as a last expression or at the end: whichever comes first."""
    done = shown(folder, "matplotlib", PLT + code)
    assert kinds(done) == [FIGURE] * count
    assert done.ran.stdout == b""


def test_figures_are_shown_in_the_order_of_their_making(folder: Path) -> None:
    """Whichever of them was drawn on last."""
    code = "for n in (1, 2, 3): plt.figure(figsize=(n, n)); plt.plot([n])\nplt.figure(1);"
    widths = [
        int.from_bytes((value.png or b"")[16:20], "big") for value in shown(folder, "matplotlib", PLT + code).values
    ]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


def test_figures_are_shown_after_an_error(folder: Path) -> None:
    """The traceback is the plain one."""
    python = python_with("matplotlib")
    need(bool(python), "matplotlib is not installed")
    done = guest(folder, PLT + "plt.plot([1])\n1 / 0", python)
    assert kinds(done) == [FIGURE]
    assert done.ran.status == 1
    assert done.ran.stderr.decode().startswith(f'Traceback (most recent call last):\n  File "{folder}/main.py", line 3')


def test_a_figure_that_cannot_be_drawn_costs_only_its_image(folder: Path) -> None:
    """What goes wrong while it is drawn, or is warned about, stays out of the output."""
    code = "import warnings; warnings.simplefilter('error')\n"
    code += "plt.title('$\\\\frac$')\nplt.figure(); plt.title('\\u4e2d\\ue000'); plt.plot([1]);"
    assert kinds(shown(folder, "matplotlib", PLT + code)) == [{"text/plain"}, FIGURE]


def test_an_empty_figure_is_its_text(folder: Path) -> None:
    """As in a notebook."""
    assert kinds(shown(folder, "matplotlib", PLT + "plt.figure();")) == [{"text/plain"}]


def test_matplotlib_is_left_as_it_is(folder: Path) -> None:
    """It is not imported unless the code does so, its backend is Agg, and its module knows its own loader."""
    code = (
        "import sys; print('matplotlib' in sys.modules)\n"
        + PLT
        + "import matplotlib; print(matplotlib.get_backend().lower(), plt.__loader__ is plt.__spec__.loader)\n"
        "print(type(plt.__loader__).__name__); import inspect; print('def show' in inspect.getsource(plt))"
    )
    assert shown(folder, "matplotlib", code).ran.stdout == b"False\nagg True\nSourceFileLoader\nTrue\n"


def test_a_data_frame_is_a_table(folder: Path) -> None:
    """HTML and text."""
    (value,) = shown(folder, "pandas", "import pandas as pd\npd.DataFrame({'a': [1, 2]})").values
    assert value.html is not None
    assert "<table" in value.html
    assert str(value.text).split() == ["a", "0", "1", "1", "2"]


@pytest.mark.parametrize(
    ("code", "mime", "value"),
    [
        ("display(HTML('<b>'))", "text/html", "<b>"),
        ("HTML('<b>')", "text/html", "<b>"),
        ("display(Markdown('*b*'))", "text/markdown", "*b*"),
        ("display(Latex('$b$'))", "text/latex", "$b$"),
        ("display(JSON({'a': float('nan'), 'b': float('inf')}))", "application/json", {"a": "nan", "b": "inf"}),
        (
            "display(Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(30), format='png'))",
            "image/png",
            b"\x89PNG\r\n\x1a\n" + bytes(30),
        ),
        ("display({'image/png': 'iVBORw0KGgo='}, raw=True)", "image/png", b"\x89PNG\r\n\x1a\n"),
        ("publish_display_data({'text/html': '<p>'})", "text/html", "<p>"),
        ("h = display(1, display_id=True); update_display(HTML('u'), display_id=h.display_id)", "text/html", "u"),
        ("h = display(1, display_id='x'); h.update(HTML('u'))", "text/html", "u"),
        ("import IPython.display as d; d.display(d.HTML('<b>')); d.clear_output(wait=True)", "text/html", "<b>"),
        ("import IPython; IPython.display.display(IPython.display.HTML('<b>'))", "text/html", "<b>"),
    ],
)
def test_ipythons_display_is_captured(folder: Path, code: str, mime: str, value: object) -> None:
    """It prints nothing, as it would outside IPython."""
    done = shown(folder, "IPython", "from IPython.display import *\n" + code)
    assert [shown.data.get(mime) for shown in done.values] == [value]
    assert done.ran.stdout == b""


def test_an_svg_of_ipython_is_text(folder: Path) -> None:
    """Not bytes, as the bitmap types are."""
    code = 'from IPython.display import SVG\nSVG(\'<svg xmlns="http://www.w3.org/2000/svg" width="1"/>\')'
    assert str(shown(folder, "IPython", code).values[0].svg).startswith("<svg")
