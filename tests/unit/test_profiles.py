"""Profiles of ``kern.toml``: what they stand for, what beats them, and what is wrong with them on which line."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kern_sandbox import HostError, SpecError
from kern_sandbox._profiles import config_path, listing, with_profiles
from kern_sandbox.cli import main
from kern_sandbox.spec import MEMORY_MB, PIDS, BoxSpec

if TYPE_CHECKING:
    from pathlib import Path

DEFAULTS: dict[str, Any] = {"memory_mb": MEMORY_MB, "pids": PIDS, "cpus": None, "tmpfs": None}
Write = Callable[[str], None]
GOOD = """\
# shared with another program
[[vcpu]]
name = "heavy"
cpus = 1.5
memory = "2 GB"
pids = 99
backend = "cpu:0"

[[vcpu]]
name = "small"
memory = "64m"

[[vdisk]]
name = "scratch"
size = "32m"

[[vgpio]]
name = "nothing"
extra = []

[box.api]
image = "someone-elses"
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Put a text where the profiles are looked for."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def put(text: str) -> None:
        (tmp_path / "kern").mkdir(exist_ok=True)
        (tmp_path / "kern" / "kern.toml").write_text(text, encoding="utf-8")

    return put


def spec(*profiles: str, **options: Any) -> BoxSpec:
    return BoxSpec.of(**with_profiles({**DEFAULTS, "profiles": list(profiles), **options}))


# --- precedence -------------------------------------------------------------------------------------------------


def test_a_profile_beats_a_default(write: Write) -> None:
    write(GOOD)
    made = spec("vcpu:heavy")
    assert (made.cpus, made.memory_mb, made.pids) == (1.5, 2048, 99)
    made = spec("vcpu:small")
    assert (made.cpus, made.memory_mb, made.pids) == (None, 64, 256)


def test_an_option_that_is_given_beats_a_profile_also_where_it_is_the_default(write: Write) -> None:
    write(GOOD)
    made = spec("vcpu:heavy", memory_mb=512, pids=256, cpus=2)
    assert (made.cpus, made.memory_mb, made.pids) == (2.0, 512, 256)
    assert spec("vcpu:heavy", memory_mb=None).memory_mb == 2048
    assert spec("vdisk:scratch", memory_mb=None).memory_mb is None


def test_without_profiles_the_defaults_hold_and_no_file_is_read(write: Write) -> None:
    write("not toml at all")
    assert BoxSpec.of(**with_profiles(DEFAULTS)) == BoxSpec.of()
    assert spec() == BoxSpec.of()
    assert (BoxSpec.of().memory_mb, BoxSpec.of().pids) == (512, 256)


def test_a_disk_is_scratch_beside_what_else_there_is(write: Write) -> None:
    write(GOOD)
    size = 32 << 20
    assert spec("vdisk:scratch").tmpfs == {"/vdisk/scratch": size, "/tmp": 64 << 20}
    assert spec("vdisk:scratch", tmpfs={}).tmpfs == {"/vdisk/scratch": size}
    assert spec("vdisk:scratch", tmpfs={"/vdisk/scratch": "1m"}).tmpfs == {"/vdisk/scratch": 1 << 20}
    with pytest.raises(SpecError, match="memory_mb=16"):
        spec("vdisk:scratch", memory_mb=16, tmpfs={})


def test_the_file_is_in_the_users_configuration(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(GOOD)
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config_path() == str(tmp_path / ".config" / "kern" / "kern.toml")
    assert listing() == []
    (tmp_path / "kern").rename(tmp_path / "moved")
    (tmp_path / ".config").mkdir()
    (tmp_path / "moved").rename(tmp_path / ".config" / "kern")
    assert [row["profile"] for row in listing()] == ["vcpu:heavy", "vcpu:small", "vdisk:scratch", "vgpio:nothing"]


# --- what is wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("vcpu:heavy", "a list of names"),
        ([1], "a list of names"),
        (["heavy"], "a list of names"),
        (["vgpu:big"], "a list of names"),
        (["vcpu:other"], "vcpu:heavy, vcpu:small, vdisk:scratch, vgpio:nothing"),
        (["vcpu:heavy", "vcpu:small"], "at most one vcpu"),
        (["vdisk:scratch", "vdisk:scratch"], "each profile once"),
    ],
)
def test_names_that_are_not_there_are_answered_with_those_that_are(names: object, said: str, write: Write) -> None:
    write(GOOD)
    with pytest.raises(SpecError, match="profiles") as failure:
        with_profiles({**DEFAULTS, "profiles": names})
    assert said in str(failure.value)


def test_where_there_is_no_file_there_are_no_profiles(write: Write) -> None:
    with pytest.raises(SpecError, match="there: none"):
        spec("vcpu:heavy")


ODD = ["size = 3", "[vcpu]", "name = 1", 'x."y" = """', "]", '"']


def vcpu(line: str) -> str:
    return f'\n[[vcpu]]\nname = "x"\n{line}\n'


def vgpio(line: str) -> str:
    return f'\n[[vgpio]]\nname = "x"\n{line}\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (vcpu('cpus = "2"'), 4, "a finite number above 0"),
        (vcpu("cpus = 0"), 4, "above 0"),
        (vcpu("cpus = nan"), 4, "finite"),
        (vcpu("cpus = true"), 4, "cpus = True"),
        (vcpu("pids = 1.5"), 4, "whole number"),
        (vcpu('memory = "15m"'), 4, "at least 16384k"),
        (vcpu('memory = "2"'), 4, "size with a unit"),
        (vcpu("memory = 512"), 4, "memory = 512"),
        (vcpu('memory = "-1g"'), 4, "size with a unit"),
        (vcpu('cpuset = "0-7"'), 4, "accepted are cpus, memory, pids"),
        (vcpu('extends = "base"'), 4, "cannot be held to it"),
        (vcpu('\n# a comment\n"nice"=3'), 6, "nice = 3"),
        ('\n[[vdisk]]\nname = "x"\n', 2, "no size"),
        ('\n[[vdisk]]\nname = "x"\nsize = "0m"\n', 4, "size"),
        ('\n[[vdisk]]\nname = "x"\nsize = "1m"\npersistent = true\n', 5, "goes with its box"),
        ('\n[[vdisk]]\nname = "x"\nsize = "1m"\niops = 5\n', 5, "iops = 5"),
        (vgpio("pins = [17]"), 4, "pins = [17]"),
        (vgpio('extra = "/dev/gpiochip0"'), 4, "a list of strings"),
        (vgpio('extra = ["/dev/mem"]'), 4, "no other device"),
        (vgpio('extra = ["/dev/../dev/gpiochip0"]'), 4, "no other device"),
        (vgpio('extra = ["/dev/gpiochip0/../mem"]'), 4, "no other device"),
        (vgpio('extra = ["/dev/gpiochip0\\n"]'), 4, "no other device"),
        (vgpio('i2c = ["../mem"]'), 4, "no other device"),
        (vgpio('spi = ["77.99"]'), 4, "No such file"),
    ],
)
def test_a_profile_that_no_box_can_have_is_refused_with_its_line(text: str, line: int, said: str, write: Write) -> None:
    write(text)
    name = next(row["profile"] for row in listing())
    with pytest.raises(SpecError) as failure:
        spec(name)
    assert f"kern.toml, line {line}: {name}" in str(failure.value)
    assert said in str(failure.value)
    assert said in listing()[0]["problem"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\nb = \n", "line 2"),
        ("\n[vcpu.heavy]\ncpus = 1\n", "line 2: write a vcpu profile as [[vcpu]]"),
        ("vcpu = 3\n", "write a vcpu profile as"),
        ("[[vcpu]]\ncpus = 1\n", "line 1: vcpu: has no name"),
        ("[[vcpu]]\ncpus = 1\nname = 5\n", "line 3: vcpu:5 has name = 5"),
        ('[[vdisk]]\nname = "../x"\n', "line 2"),
        ('[[vdisk]]\nname = "a..b"\n', "line 2"),
        ('[[vcpu]]\nname = "x"\n[[vcpu]]\n\nname = "x"\n', "line 5"),
        ("[" * 50_000, "not TOML"),
        ("#" * (1 << 20 | 1), "larger than"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_refused_with_the_place(text: str, said: str, write: Write) -> None:
    write(text)
    for call in (listing, lambda: spec("vcpu:x")):
        with pytest.raises(SpecError) as failure:
            call()
        assert said in str(failure.value)


def test_a_file_that_is_not_utf_8_or_no_file_is_refused(write: Write, tmp_path: Path) -> None:
    write("")
    (tmp_path / "kern" / "kern.toml").write_bytes(b"\xff")
    with pytest.raises(SpecError, match="not TOML"):
        listing()
    (tmp_path / "kern" / "kern.toml").unlink()
    (tmp_path / "kern" / "kern.toml").mkdir()
    with pytest.raises(SpecError, match="Is a directory"):
        listing()


def test_where_python_reads_no_toml_the_error_says_what_to_install(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(GOOD)

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(HostError, match=r"pip install 'kern-sandbox\[profiles\]'"):
        spec("vcpu:heavy")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.sampled_from([*GOOD.splitlines(), *ODD]), max_size=9))
def test_any_file_is_a_listing_or_one_error(write: Write, lines: list[str]) -> None:
    write("\n".join(lines))
    try:
        rows = listing()
    except SpecError as error:
        assert "kern.toml" in str(error)  # noqa: PT017 - a property: either way is right
    else:
        json.dumps(rows)


# --- the command ------------------------------------------------------------------------------------------------


def test_the_command_lists_them(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD + vcpu("nice = 3"))
    assert main(["profiles"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines][:3] == ["vcpu:heavy", "vcpu:small", "vcpu:x"]
    assert "cpus 1.5, memory_mb 2048, pids 99" in lines[0]
    assert "line 26: vcpu:x has nice = 3" in lines[2]
    assert main(["profiles", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["path"] == config_path()
    assert said["profiles"][0] == {
        "profile": "vcpu:heavy",
        "line": 2,
        "gives": {"cpus": 1.5, "memory_mb": 2048, "pids": 99},
        "problem": "",
    }


def test_the_command_says_where_it_looked_and_what_is_wrong(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles"]) == 0
    assert capsys.readouterr().out == f"no profiles in {config_path()}\n"
    write("x = \n")
    assert main(["profiles"]) == 2
    assert "line 1" in capsys.readouterr().err


def test_a_profile_on_the_command_line_gives_way_to_a_flag(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD)
    for flags, said in (([], "memory 64 MiB, pids 256"), (["--memory-mb", "512"], "memory 512 MiB, pids 256")):
        assert main(["exec", "--plan", "--profile", "vcpu:small", *flags]) == 0
        assert said in capsys.readouterr().out
