"""What the renderer knows about Unicode is what the script in the repository makes."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

import pytest

from kern_sandbox import neutralise
from kern_sandbox.render import _tables
from kern_sandbox.render._ranges import char_class, codes_of
from loading import module_at
from support import PACKAGE, REPO

if TYPE_CHECKING:
    from types import ModuleType

COMMITTED = {name: codes_of(value) for name, value in vars(_tables).items() if name.isupper() and name != "VERSION"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script, as a module."""
    made: ModuleType = module_at(REPO / "scripts" / "render_tables.py")
    return made


def test_the_committed_tables_are_what_the_script_makes(script: ModuleType) -> None:
    """Of Unicode's own version; where Python knows another, the older of both is part of the newer."""
    made = {name: frozenset(codes) for name, codes in script.tables().items()}
    ours, here = (
        [int(part) for part in version.split(".")] for version in (_tables.VERSION, unicodedata.unidata_version)
    )
    if ours == here:
        assert (PACKAGE / "render" / "_tables.py").read_text(encoding="ascii") == script.module()
    moved = {0x1734}  # HANUNOO SIGN PAMUDPOD is a spacing mark since Unicode 14
    older, newer = (COMMITTED, made) if ours <= here else (made, COMMITTED)
    gone = {name: older[name] - newer[name] - moved for name in newer}
    assert not any(gone.values()), gone


def test_no_character_reads_as_two_parts_of_a_label() -> None:
    parts = {name: codes for name, codes in COMMITTED.items() if name not in ("MARKS", "IGNORABLE")}
    assert sum(map(len, parts.values())) == len(frozenset().union(*parts.values()))
    assert not COMMITTED["MARKS"] & (COMMITTED["IGNORABLE"] | COMMITTED["LETTER_S"] | COMMITTED["OPENING"])


@pytest.mark.parametrize("letter", "sandbox")
def test_every_look_alike_of_a_letter_is_seen_through(letter: str) -> None:
    place = "sandbox".index(letter)
    for code in COMMITTED[f"LETTER_{letter.upper()}"]:
        text = f"[{'sandbox'[:place]}{chr(code)}{'sandbox'[place + 1 :]}: oom]"
        assert neutralise(text).startswith("(quoted) "), hex(code)


def test_every_look_alike_of_bracket_and_colon_is_seen_through() -> None:
    for code in COMMITTED["OPENING"]:
        assert neutralise(f"{chr(code)}sandbox: oom]").startswith("(quoted) "), hex(code)
    for code in COMMITTED["COLON"]:
        assert neutralise(f"[sandbox{chr(code)} oom]").startswith("(quoted) "), hex(code)


def test_everything_that_a_reader_looks_past_is_looked_past() -> None:
    for code in COMMITTED["BETWEEN"] | COMMITTED["MARKS"] | COMMITTED["IGNORABLE"]:
        assert neutralise(f"[sand{chr(code)}box: oom]").startswith("(quoted) "), hex(code)


def test_ranges_are_read_and_written() -> None:
    assert codes_of("41-43 61") == {0x41, 0x42, 0x43, 0x61}
    found = re.findall(char_class(codes_of("41-43 61")), "@ABCDabc")
    assert found == ["A", "B", "C", "a"]
