"""The pages that are made from the source are those that the source makes, and no public name is left out."""

from __future__ import annotations

from typing import Any

import pytest

import kern_sandbox
import kern_sandbox.errors
from loading import module_at
from support import REPO

REFERENCE = REPO / "docs" / "reference"


@pytest.fixture(scope="module")
def maker() -> Any:
    return module_at(REPO / "scripts" / "make_reference.py")


@pytest.mark.parametrize("name", ["python.md", "system-calls.md"])
def test_the_page_is_what_the_source_makes(maker: Any, name: str) -> None:
    made = maker.PAGES[name]()
    assert made == (REFERENCE / name).read_text(encoding="utf-8"), "run `make reference`"


def test_every_public_name_has_its_place() -> None:
    python = (REFERENCE / "python.md").read_text(encoding="utf-8")
    named = {name for name in kern_sandbox.__all__ if f"### `{name}`\n" in python}
    assert set(kern_sandbox.__all__) - named == {*kern_sandbox.errors.__all__, "__version__"}


@pytest.mark.parametrize("name", [name for name in kern_sandbox.errors.__all__ if name != "SandboxError"])
def test_every_error_is_shown_as_it_is_raised(name: str) -> None:
    """The page's blocks are run, and their output compared: a line that begins with the name was printed."""
    assert f"\n{name}: " in (REFERENCE / "errors.md").read_text(encoding="utf-8")


def test_every_fault_is_shown_in_its_own_words() -> None:
    from typing import get_args

    from kern_sandbox.results import FaultType

    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert not [fault for fault in get_args(FaultType) if f" {fault} (" not in page]


def test_a_docstring_becomes_markdown(maker: Any) -> None:
    doc = """Does a thing to ``what``.

    More words.

    Args:
        what: the thing; ``None`` for
            none | all.

    Raises:
        SpecError: it is no thing.
    """
    assert list(maker.described(doc)) == [
        "Does a thing to `what`.",
        "More words.",
        "| Arguments | |\n|---|---|\n| `what` | the thing; `None` for none \\| all. |",
        "| Raises | |\n|---|---|\n| `SpecError` | it is no thing. |",
    ]
