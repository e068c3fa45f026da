"""``kern_sandbox.langchain`` is a door: it says what to install, and hands over what is there."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest


@pytest.fixture
def door() -> ModuleType:
    return importlib.import_module("kern_sandbox.langchain")


def test_without_the_adapter_the_error_says_what_to_install(door: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_kern_sandbox", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'kern-sandbox\[langchain\]'"):
        _ = door.kern_code_tool


def test_with_the_adapter_every_name_is_the_adapters_own(door: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = ModuleType("langchain_kern_sandbox")
    for name in door.__all__:
        setattr(adapter, name, object())
    monkeypatch.setitem(sys.modules, "langchain_kern_sandbox", adapter)
    assert [getattr(door, name) for name in door.__all__] == [getattr(adapter, name) for name in door.__all__]


def test_a_name_that_the_adapter_has_not_is_an_attribute_error(
    door: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langchain_kern_sandbox", ModuleType("langchain_kern_sandbox"))
    with pytest.raises(AttributeError, match="no_such"):
        _ = door.no_such
