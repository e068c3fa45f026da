"""The guest watches imports once, also in a kernel that was forked from an interpreter which did so already."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from typing import Any

import pytest

from support import PACKAGE


def load(name: str) -> Any:
    """A copy of ``cell.py`` of its own, as each start of the guest has one."""
    spec = importlib.util.spec_from_file_location(name, PACKAGE / "_guest" / "cell.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_second_copy_takes_the_place_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that ask each other never come to an end: importing matplotlib was a RecursionError."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(builtins, "display", None, raising=False)
    monkeypatch.setenv("MPLBACKEND", "agg")
    before = list(sys.meta_path)
    copies = [load(name).Values(lambda name: None) for name in ("first_cell", "second_cell")]
    for copy in copies:
        copy.install()
    assert sys.meta_path == [copies[1], *before]
