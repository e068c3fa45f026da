"""What a process that was forked from a template does about random state that a module had made ahead."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from kern_sandbox._forkserver import preload


def test_random_state_of_modules_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[tuple[bytes, float]] = []
    seeded: list[bool] = []
    process = SimpleNamespace(authkey=b"the template's")
    modules = {
        "ssl": SimpleNamespace(RAND_add=lambda data, entropy: fed.append((data, entropy))),
        "numpy.random": SimpleNamespace(seed=lambda: seeded.append(True)),
        "tempfile": SimpleNamespace(_name_sequence="the template's", tempdir="/home/sandbox"),
        "multiprocessing.process": SimpleNamespace(current_process=lambda: process),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    keys = set()
    for _ in range(2):
        preload.reseed()
        keys.add(process.authkey)
    assert len(seeded) == 2
    assert len({data for data, _ in fed}) == 2
    assert all(len(data) == entropy == 32 for data, entropy in fed)
    assert vars(modules["tempfile"]) == {"_name_sequence": None, "tempdir": None}
    assert len(keys - {b"the template's"}) == 2


def test_modules_that_were_not_imported_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ssl", "numpy.random", "tempfile", "multiprocessing.process"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    preload.reseed()
    assert not {"ssl", "tempfile"} & set(sys.modules)
