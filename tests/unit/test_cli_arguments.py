"""The command line before any box: help, version, what is refused, and which language a snippet is in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kern_sandbox
from kern_sandbox.cli import main
from kern_sandbox.cli._arguments import guess_language, parse, sandbox_options
from kern_sandbox.cli._stream import neutralised
from support import PACKAGE

COMMANDS = [
    "run", "exec", "doctor", "profiles", "pull", "images", "rmi", "load", "gc", "serve", "mcp", "completion", "eval",
]  # fmt: skip
SITE = str(Path(kern_sandbox.__path__[0]).parent)
FLAGS = {
    "workspace": "--workspace", "memory_mb": "--memory-mb",
    "workspace_mb": "--workspace-mb", "cpus": "--cpus", "pids": "--pids",
    "timeout_s": "--timeout-s", "network": "--network", "tmpfs": "--tmpfs",
    "profiles": "--profile", "env": "--env",
    "max_output_bytes": "--max-output-bytes", "require_limits": "--require-limits", "track_files": "--no-track-files",
    "protect": "--protect",
    "mounts": "--mount", "security_profile": "--security-profile", "apparmor": "--apparmor", "cap_drop": "--keep-caps",
    "user": "--user", "root": "--root", "prewarm": "--prewarm", "preload": "--preload",
    "setup": "--setup", "deps_readonly": "--deps-writable",
    "egress_allow": "--egress-allow", "setup_egress_allow": "--setup-egress-allow", "image": "--image",
}  # fmt: skip
Printed = pytest.CaptureFixture[str]


# --- help and version -------------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_package(capsys: Printed) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kern-sandbox {kern_sandbox.__version__}\n"


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
@pytest.mark.parametrize("columns", ["80", "200"])
def test_help_reads_at_80_columns(
    words: list[str], columns: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(words) == 0
    said = capsys.readouterr().out
    assert not [line for line in said.splitlines() if len(line) > 80]


def test_help_of_the_command_names_every_command(capsys: Printed) -> None:
    main(["--help"])
    assert re.findall(r"^    (\w+)(?: |$)", capsys.readouterr().out, re.MULTILINE) == COMMANDS


@pytest.mark.parametrize("command", ["run", "exec"])
def test_every_option_of_a_sandbox_has_a_flag_with_help(command: str, capsys: Printed) -> None:
    import inspect

    options = set(inspect.signature(kern_sandbox.Sandbox).parameters)
    assert set(FLAGS) == options
    main([command, "--help"])
    said = capsys.readouterr().out
    assert not [flag for flag in FLAGS.values() if not re.search(rf"^  {flag}\b.* \w+", said, re.MULTILINE)]


@pytest.mark.parametrize("command", ["run", "exec"])
def test_help_names_every_exit_status_that_is_not_the_codes_own(command: str, capsys: Printed) -> None:
    main([command, "--help"])
    said = capsys.readouterr().out
    for status in ("1  startup_failed", "124", "126", "127", "137", "159", "125", "130", "141"):
        assert status in said


# --- options ----------------------------------------------------------------------------------------------------


def test_without_flags_the_options_are_the_librarys_own_defaults() -> None:
    import inspect

    defaults = {name: one.default for name, one in inspect.signature(kern_sandbox.Sandbox).parameters.items()}
    arguments = parse(["run", "-c", "1"])
    assert {"workspace": arguments.workspace, **sandbox_options(arguments)} == defaults


def test_flags_become_options() -> None:
    words = "run -c 1 --memory-mb none --cpus 1.5 --pids 9 --timeout-s 2.5 --network --tmpfs /tmp=8m --tmpfs /data=1m"
    words += " --mount /srv/a:/a --mount /srv/b:/b:rw --security-profile untrusted --apparmor p --keep-caps --user 7"
    words += " --env A=1 --env B=x=y --env C= --max-output-bytes 10 --require-limits --no-track-files --root scratch"
    words += " --prewarm 3 --preload json --preload email.mime"
    words += " --setup true --deps-writable"
    words += " --workspace-mb 3 --profile vcpu:heavy --profile vdisk:scratch"
    words += " --protect /b/x --protect /b/y"
    words += " --egress-allow a.example --egress-allow *.b.example:5432"
    words += " --setup-egress-allow index.example --image a/b:c"
    assert sandbox_options(parse(words.split())) == {
        "memory_mb": None,
        "workspace_mb": 3,
        "profiles": ["vcpu:heavy", "vdisk:scratch"],
        "cpus": 1.5,
        "pids": 9,
        "timeout_s": 2.5,
        "network": True,
        "tmpfs": {"/tmp": "8m", "/data": "1m"},
        "env": {"A": "1", "B": "x=y", "C": ""},
        "max_output_bytes": 10,
        "require_limits": True,
        "track_files": False,
        "mounts": {"/srv/a": ("/a", "ro"), "/srv/b": ("/b", "rw")},
        "security_profile": "untrusted",
        "apparmor": "p",
        "cap_drop": (),
        "user": 7,
        "root": "scratch",
        "prewarm": 3,
        "preload": ("json", "email.mime"),
        "setup": "true",
        "deps_readonly": False,
        "protect": ["/b/x", "/b/y"],
        "egress_allow": ["a.example", "*.b.example:5432"],
        "setup_egress_allow": ["index.example"],
        "image": "a/b:c",
    }


def test_a_relative_mount_is_one_of_the_directory_that_the_shell_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mounts = sandbox_options(parse(["run", "-c", "1", "--mount", ".:/a", "--mount", "sub/:/b:rw"]))["mounts"]
    assert mounts == {str(tmp_path): ("/a", "ro"), str(tmp_path / "sub"): ("/b", "rw")}


def test_tmpfs_none_is_no_scratch_at_all() -> None:
    assert sandbox_options(parse(["run", "-c", "1", "--tmpfs", "none"]))["tmpfs"] == {}


def test_egress_none_is_a_proxy_that_refuses_everything() -> None:
    assert sandbox_options(parse(["run", "-c", "1", "--egress-allow", "none"]))["egress_allow"] == []
    assert sandbox_options(parse(["run", "-c", "1", "--setup-egress-allow", "none"]))["setup_egress_allow"] == []


def test_all_after_the_first_double_dash_is_the_program_and_its_arguments() -> None:
    arguments = parse(["exec", "--pids", "9", "--", "sh", "--json", "--", "-c"])
    assert arguments.argv == ["sh", "--json", "--", "-c"]
    assert not arguments.json
    assert parse(["exec", "ls", "there"]).argv == ["ls", "there"]


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "kern-sandbox --help lists them"),
        (["fly"], "fly"),
        (["run"], "FILE, -c CODE"),
        (["run", "-c", "1", "file.py"], "one thing to run"),
        (["run", "-c", "1", "--pid", "3"], "--pid"),
        (["run", "-c", "1", "--cpus", "many"], "--cpus: 'many' is not a number"),
        (["run", "-c", "1", "--pids", "many"], "--pids: 'many' is not a whole number"),
        (["run", "-c", "1", "--memory-mb", "1g"], "--memory-mb: '1g' is not a whole number of MiB"),
        (["eval", "--jobs", "x"], "--jobs: 'x' is not a whole number"),
        (["run", "-c", "1", "--env", "A"], "NAME=VALUE"),
        (["run", "-c", "1", "--env", "=x"], "NAME=VALUE"),
        (["run", "-c", "1", "--tmpfs", "/tmp"], "PATH=SIZE"),
        (["run", "-c", "1", "--mount", "/srv"], "DIR:TARGET"),
        (["run", "-c", "1", "--mount", "/srv:/a:rx"], "DIR:TARGET"),
        (["run", "-c", "1", "--language", "cobol"], "cobol"),
        (["run", "-c", "1", "--json", "--plan"], "not allowed"),
        (["run", "-c", "#!/usr/bin/ruby\n1"], "--language python, bash, sh, node"),
        (["run", "no/such/file.py"], "No such file"),
        (["run", "."], "Is a directory"),
        (["run", "-c", "1", "--stdin", "no/such/file"], "--stdin"),
        (["run", "-", "--stdin", "-"], "cannot be both"),
        (["exec"], "no program"),
        (["exec", "--"], "no program"),
        (["exec", "--language", "sh", "--", "ls"], "--language"),
        (["exec", "--memory-mb", "1", "--", "ls"], "error: --memory-mb: memory_mb=1"),
        (["run", "-c", "1", "--security-profile", "untrusted", "--keep-caps"], "error: --keep-caps: cap_drop=()"),
        (["exec", "--timeout-s", "nan", "--", "ls"], "timeout_s=nan"),
        (["exec", "--cwd", "there", "--", "ls"], "cwd"),
        (["exec", "--", ""], "argv"),
        (["doctor", "now"], "now"),
        (["runn", "-c", "1"], "did you mean run?"),
        (["run", "-c", "1", "--memry-mb=3"], "did you mean --memory-mb?"),
        (["run", "-c", "1", "--time", "3"], "did you mean --timeout-s?"),
        (["run", "-c", "1", "--language", "pyton"], "did you mean python?"),
        (["exec", "ls", "-l"], "say -- before the program"),
        (["completion", "csh"], "csh"),
    ],
)
def test_a_wrong_command_line_is_status_2_and_says_what_is_wrong(
    words: list[str], said: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    if words[:2] == ["run", "-"]:
        monkeypatch.setattr("builtins.open", lambda *_args, **_more: __import__("io").BytesIO(b"1"))
    assert main(words) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_code_that_is_not_text_is_refused(tmp_path: Path, capsys: Printed) -> None:
    file = tmp_path / "code.py"
    file.write_bytes(b"print('\xff')")
    assert main(["run", str(file)]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_with_json_a_refusal_is_json_too(capsys: Printed) -> None:
    import json

    assert main(["exec", "--json"]) == 2
    assert "no program" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert main(["exec", "--json", "--memory-mb", "1", "--", "ls"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["type"] == "SpecError"
    assert "memory_mb=1" in printed.err


@pytest.mark.parametrize("words", [["run", "-c", "1", "--xyzzy"], ["exec", "--language", "sh", "--", "ls"]])
def test_a_word_that_is_near_to_nothing_gets_no_guess(words: list[str], capsys: Printed) -> None:
    assert main(words) == 2
    assert not re.search("did you mean|say --", capsys.readouterr().err)


@pytest.mark.parametrize("debug", [False, True])
def test_a_defect_of_ours_is_status_125_and_a_traceback_only_with_debug(
    debug: bool, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("kern_sandbox.cli._main.doctor", broken)
    assert main(["doctor", *(["--debug"] if debug else [])]) == 125
    said = capsys.readouterr().err
    assert "ZeroDivisionError: a defect" in said
    assert ("Traceback" in said) is debug


# --- the language -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "path", "language"),
    [
        ("", None, "python"),
        ("x", "-", "python"),
        ("x", "a.py", "python"),
        ("x", "a.sh", "sh"),
        ("x", "a.bash", "bash"),
        ("x", "a.JS", "node"),
        ("x", "a.mjs", "node"),
        ("x", "a.txt", "python"),
        ("x", "dir.sh/a", "python"),
        ("#!/bin/bash\n", "a.sh", "bash"),
        ("#!/bin/bash -e\n", None, "bash"),
        ("#! /bin/sh\n", None, "sh"),
        ("#!/usr/bin/env node\n", None, "node"),
        ("#!/usr/bin/env -S python3.11 -u\n", None, "python"),
        ("#!/usr/bin/env -S A=b node\n", "a.py", "node"),
        ("#!/usr/bin/python3", "a", "python"),
        ("#!/bin/dash\r\n", None, "sh"),
        ("#!/usr/bin/ruby\n", None, None),
        ("#!/usr/bin/ruby\n", "a.py", "python"),
        ("#!\n", None, None),
        ("#!/usr/bin/env\n", None, None),
        (" #!/bin/sh\n", None, "python"),
    ],
)
def test_the_language_is_that_of_the_first_line_else_of_the_name_else_python(
    code: str, path: str | None, language: str | None
) -> None:
    assert guess_language(code, path) == language


# --- words for a terminal ---------------------------------------------------------------------------------------


def test_no_control_character_but_newline_and_tab_reaches_a_terminal() -> None:
    every = "".join(map(chr, range(0x100)))
    left = {char for char in neutralised(every) if not char.isprintable()} - {"\xa0", "\xad"}
    assert left == {"\n", "\t"}


@pytest.mark.parametrize("text", ["héllo wörld\n", "a\tb\n", "日本語 🙂\n", "سلام\n"])
def test_ordinary_text_reaches_a_terminal_as_it_is(text: str) -> None:
    assert neutralised(text) == text


def test_a_windows_line_end_is_a_line_end_and_a_lone_return_is_shown() -> None:
    assert neutralised("a\r\nb\rc") == "a\nb␍c"


# --- cost and place ---------------------------------------------------------------------------------------------


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kern_sandbox", "--version"],
        env={"PYTHONPATH": SITE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"kern-sandbox {kern_sandbox.__version__}\n")


def test_the_entry_point_of_the_distribution_is_there() -> None:
    project = (PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert 'kern-sandbox = "kern_sandbox.cli:main"' in project


def test_help_loads_no_engine() -> None:
    code = (
        f"import sys; sys.path.insert(0, {SITE!r}); from kern_sandbox.cli import main; main(['--version']); "
        "print([name for name in ('kern_sandbox.session', 'ctypes') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
