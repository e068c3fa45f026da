"""A shell completes the command's words."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from kern_sandbox.cli import main
from support import need

COMPLETE = r"""
source "$1"; shift
COMP_WORDS=(kern-sandbox "$@") COMP_CWORD=$#
function=$(complete -p kern-sandbox | sed 's/.*-F //; s/ .*//')
"$function" kern-sandbox "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ex"], ["exec"]),
        (["run", "--mem"], ["--memory-mb"]),
        (["run", "--language", ""], ["python", "bash", "sh", "node"]),
    ],
)
def test_bash_completes_commands_options_and_their_values(
    words: list[str], offered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need(importlib.util.find_spec("shtab") is not None, "shtab, of the extra cli, is not installed")
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    done = subprocess.run(
        ["bash", "-euc", COMPLETE, "bash", str(script), *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_words_of_their_own(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    need(importlib.util.find_spec("shtab") is not None, "shtab, of the extra cli, is not installed")
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert "kern-sandbox" in said
    assert "memory-mb" in said


def test_without_the_extra_the_command_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.delitem(sys.modules, "kern_sandbox.cli._completion", raising=False)
    assert main(["completion", "bash"]) == 2
    assert "kern-sandbox[cli]" in capsys.readouterr().err
