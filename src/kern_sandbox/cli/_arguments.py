"""The command line as a parser: words of the shell to options of a Sandbox, and the language of a snippet."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import __version__
from ..checks import LANGUAGES
from ..spec import MEMORY_MB, PIDS
from ._values import count, mebibytes, mount, number, pair, tmpfs, whole

__all__ = ["Parser", "command_line", "flag_of", "guess_language", "parse", "sandbox_options"]

_SUFFIXES = {
    ".py": "python", ".pyw": "python", ".bash": "bash", ".sh": "sh", ".js": "node", ".cjs": "node", ".mjs": "node",
}  # fmt: skip
_PROGRAMS = {
    "python": "python",
    "pypy": "python",
    "bash": "bash",
    "sh": "sh",
    "dash": "sh",
    "node": "node",
    "nodejs": "node",
}
_OPTIONS = (
    "memory_mb", "workspace_mb", "cpus", "pids", "timeout_s", "network", "tmpfs", "env", "max_output_bytes",
    "profiles", "require_limits", "track_files", "mounts", "security_profile", "apparmor", "cap_drop", "user", "root",
    "protect", "prewarm", "preload", "setup", "deps_readonly", "egress_allow", "setup_egress_allow", "image",
)  # fmt: skip
_STATUS = """\
exit status:
  that of the code (128+n where signal n ended it), and
    1  startup_failed: the image cannot be had
  124  timeout: it ran past --timeout-s
  126  exec_failed: the program cannot be executed     127  it was not found
  137  oom, killed or disk_full: it was killed          159  escape_blocked
  125  the sandbox itself failed (`kern-sandbox doctor` may say why)
    2  the command line is wrong                       130  Ctrl-C
  141  nobody reads the output any more
"""
_TYPED = """\
A program reads nothing where standard input is a terminal. To type to one:
  kern-sandbox exec --stdin - -- bash

"""
_IMAGE_STATUS = """\
exit status:
  0 done     125 it could not be done     2 the command line is wrong
"""
_MCP = """\
kern-mcp --help lists the variables of the environment that configure it
"""
_COMPLETION = """\
It needs the extra `kern-sandbox[cli]`. Put it where the shell looks, e.g.
  bash  kern-sandbox completion bash >
            ~/.local/share/bash-completion/completions/kern-sandbox
  zsh   kern-sandbox completion zsh > a directory of $fpath, as _kern-sandbox
  fish  kern-sandbox completion fish >
            ~/.config/fish/completions/kern-sandbox.fish
"""
_ABOUT = """\
Run code that nobody has read in a fresh, rootless box on this machine:
no host files but the operating system's, no network, limits on everything.
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help for a terminal of at most 80 columns."""

    def __init__(self, prog: str) -> None:
        width = min(80, shutil.get_terminal_size().columns)
        super().__init__(prog, width=width - 2, max_help_position=26)


class Parser(argparse.ArgumentParser):
    """One that does not hide that its words could not be written, and that says what may have been meant."""

    def _print_message(self, message: str, file: Any = None) -> None:
        (sys.stderr if file is None else file).write(message)

    def error(self, message: str) -> NoReturn:
        """As of argparse, with the nearest word that is accepted."""
        if message.endswith("required: COMMAND"):
            super().error(f"no command is named; {self.prog} --help lists them")
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        super().error(message + (_meant(choice[1], re.findall(r"[\w-]+", choice[2])) if choice else ""))

    def actions(self) -> list[argparse.Action]:
        """What it takes."""
        return list(self._actions)

    def refuse(self, words: Sequence[str], before: bool) -> NoReturn:
        """Say that this command takes no such words; ``before``: they stood before a ``--``."""
        known = [option for action in self.actions() for option in action.option_strings]
        hint = _meant(words[0].partition("=")[0], known)
        if self.prog.endswith(" exec") and not hint and not before:
            hint = "; say -- before the program, and what follows is its own"
        self.error(f"unrecognized arguments: {' '.join(words)}{hint}")


def _meant(word: str, known: Sequence[str]) -> str:
    begun = [name for name in known if len(word) > len("--x") and name.startswith(word)]
    bare = {name.lstrip("-"): name for name in known}  # the dashes, which all options have, make none alike
    near = begun or [bare[name] for name in difflib.get_close_matches(word.lstrip("-"), bare, n=1)]
    return f"; did you mean {near[0]}?" if near else ""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Take a command line apart; ``command`` names the command. What stands after ``exec … --`` is left as it is.

    Raises:
        SystemExit: it is wrong, or asks for help or the version; the words have been printed.
        OSError: they could not be.
    """
    words, rest = list(argv), []
    if words[:1] == ["exec"] and "--" in words:
        cut = words.index("--")
        words, rest = words[:cut], words[cut + 1 :]
    top, commands = command_line()
    arguments, unknown = top.parse_known_args(words)
    if unknown:
        commands[arguments.command].refuse(unknown, before="--" in argv)
    if rest:
        arguments.argv += rest
    return arguments


def flag_of(command: str, words: str) -> str:
    """The flag of a command for the option of a Sandbox that an error's words begin with, or ``""``."""
    option = re.match(r"\w*", words)
    flags = {one.dest: one.option_strings[0] for one in command_line()[1][command].actions() if one.option_strings}
    return flags.get(option[0] if option else "", "")


def command_line() -> tuple[Parser, dict[str, Parser]]:
    """The parser of everything, and that of each command."""
    top = Parser("kern-sandbox", description=_ABOUT, formatter_class=_Help, allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"kern-sandbox {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _run(commands)
    _exec(commands)
    _doctor(commands)
    _profiles(commands)
    _images(commands)
    _serve(commands)
    _command(commands, "mcp", "serve the sandbox's tools to an MCP client (kern-mcp is the same)", epilog=_MCP)
    _completion(commands)
    _eval(commands)
    for made in commands.choices.values():
        made.add_argument("--debug", action="store_true", help="show a traceback where the command itself fails")
    return top, dict(commands.choices)


def _command(commands: Any, name: str, summary: str, **more: Any) -> Parser:
    made = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", formatter_class=_Help,
        allow_abbrev=False, **more,
    )  # fmt: skip
    assert isinstance(made, Parser)
    made.set_defaults(json=False)
    return made


def _run(commands: Any) -> None:
    usage = "kern-sandbox run [options] (FILE | -c CODE | -)"
    run = _command(commands, "run", "run a snippet in a fresh box", usage=usage, epilog=_STATUS)
    run.add_argument("file", nargs="?", metavar="FILE", help="file with the code; - is standard input")
    run.add_argument("-c", dest="code", metavar="CODE", help="the code itself")
    words = "python, bash, sh or node; guessed from the code's #! line or the file's name, else python"
    run.add_argument("--language", choices=LANGUAGES, metavar="NAME", help=words)
    _add_common(run)


def _exec(commands: Any) -> None:
    usage = "kern-sandbox exec [options] -- PROGRAM [ARGUMENT ...]"
    made = _command(commands, "exec", "run a program in a fresh box", usage=usage, epilog=_TYPED + _STATUS)
    made.add_argument("argv", nargs="*", metavar="PROGRAM", help="the program and its arguments, after --")
    made.add_argument("--cwd", metavar="DIR", help="start there, as the box shows it (default: /workspace)")
    _add_common(made)


def _doctor(commands: Any) -> None:
    words = "say what this machine can do for a box, and the commands that would change it"
    made = _command(commands, "doctor", words, epilog="exit status: 0 where boxes run, else 1")
    made.add_argument("--json", action="store_true", help="print the report as JSON")


def _serve(commands: Any) -> None:
    words = "serve Sandboxes to a program in another language, as JSON-RPC on its pipes"
    _command(commands, "serve", words, epilog="exit status: 0 when the other side is gone")


def _completion(commands: Any) -> None:
    words = "print what makes a shell complete this command's words"
    made = _command(commands, "completion", words, epilog=_COMPLETION)
    made.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")


def _profiles(commands: Any) -> None:
    made = _command(commands, "profiles", "list the resource profiles of kern.toml, and what each gives a box")
    made.add_argument("--json", action="store_true", help="print them as JSON")


def _images(commands: Any) -> None:
    """The commands about images."""
    pull = _command(commands, "pull", "fetch images, or what their tags name by now", epilog=_IMAGE_STATUS)
    pull.add_argument("names", nargs="+", metavar="NAME", help="e.g. python:3.12-slim, or oci-archive:FILE")
    made = [pull, _command(commands, "images", "list the images that are stored here", epilog=_IMAGE_STATUS)]
    words = "forget images; what no other name names and no box uses is removed"
    remove = _command(commands, "rmi", words, epilog=_IMAGE_STATUS)
    remove.add_argument("names", nargs="+", metavar="NAME", help="a name, or a digest or its first 12 digits")
    load = _command(commands, "load", "store the images of an archive", epilog=_IMAGE_STATUS)
    load.add_argument("file", metavar="FILE", help="what docker save writes, or an OCI layout in a tar")
    load.add_argument("--name", metavar="NAME", help="call it so (default: the names in the archive)")
    words = "remove nameless images, what broken pulls left, and setup layers long unused"
    made += [remove, load, _command(commands, "gc", words, epilog=_IMAGE_STATUS)]
    for each in made:
        each.add_argument("--json", action="store_true", help="print the result as JSON")


def _eval(commands: Any) -> None:
    words = "attack boxes, run honest snippets in them, and judge both from outside"
    end = "exit status: 0 where every claim was kept and all honest code worked, else 1"
    made = _command(commands, "eval", words, epilog=end)
    add = made.add_argument
    add("--family", action="append", metavar="NAME", help="only this family of cases; may be repeated")
    words = "only cases whose name, claim or source fits, e.g. 'escape/path-*' or B23; may be repeated"
    add("--case", action="append", metavar="PATTERN", help=words)
    add(
        "--target", action="append", metavar="NAME", help="only on this target; may be repeated (default: all that run)"
    )
    add("--repeat", type=count, default=1, metavar="N", help="run every case N times, to find what fails now and then")
    add("--jobs", type=count, default=1, metavar="N", help="run N cases at once (default: 1)")
    words = "do not run the control of each attack that failed, which shows that it proves something"
    add("--no-controls", dest="controls", action="store_false", help=words)
    add("--list", action="store_true", help="list the cases and run nothing")
    add("--jsonl", metavar="FILE", help="write one JSON object a line for each case on each target")
    add("--html", metavar="FILE", help="write one page with everything, which needs no other file")
    made.set_defaults(json=False)


def _add_common(to: argparse.ArgumentParser) -> None:
    _add_limits(to.add_argument_group("the box"))
    _add_security(to.add_argument_group("what the box may"))
    out = to.add_argument_group("input and output")
    words = "what the code reads: a file, or - (default: standard input unless that is a terminal)"
    out.add_argument("--stdin", metavar="FILE", help=words)
    output = out.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print the whole result as JSON, and nothing else")
    words = "print the result as a model would get it, cleaned and shortened, and nothing else"
    output.add_argument("--render", action="store_true", help=words)
    output.add_argument("--plan", action="store_true", help="print what the box would consist of; run nothing")
    words = "let control characters through to a terminal; a box can then do to it what it likes"
    out.add_argument("--raw", action="store_true", help=words)


def _add_limits(box: Any) -> None:
    add = box.add_argument
    words = "the operating system of the box, e.g. python:3.12-slim or dir:/srv/rootfs (default: this machine's own)"
    add("--image", metavar="NAME", help=words)
    add("--workspace", metavar="DIR", help="shown at /workspace and kept (default: temporary)")
    add("--memory-mb", type=mebibytes, default=MEMORY_MB, metavar="N", help="MiB, or none (default: 512)")
    words = "MiB that the workspace may take, watched (default: no ceiling)"
    add("--workspace-mb", type=mebibytes, metavar="N", help=words)
    add("--cpus", type=number, metavar="N", help="processors, e.g. 1.5 (default: all)")
    add("--pids", type=whole, default=PIDS, metavar="N", help="processes and threads (default: 256)")
    add("--timeout-s", type=number, default=30.0, metavar="S", help="seconds of wall clock (default: 30)")
    words = "scratch in memory, e.g. /tmp=512m; none for none (default: /tmp=64m); may be repeated"
    add("--tmpfs", action="append", type=tmpfs, metavar="PATH=SIZE", help=words)
    words = "a profile of kern.toml, e.g. vcpu:heavy; may be repeated (kern-sandbox profiles lists them)"
    add("--profile", dest="profiles", action="append", metavar="KIND:NAME", help=words)
    add("--env", action="append", type=pair, metavar="NAME=VALUE", help="a variable; may be repeated")
    words = "run once with the network, e.g. 'pip install pandas'; what it installs is kept"
    add("--setup", metavar="COMMAND", help=words)
    words = "give the code a copy of what --setup installed, which it may change"
    add("--deps-writable", dest="deps_readonly", action="store_false", help=words)
    words = "kept of stdout and stderr each (default: 67108864)"
    add("--max-output-bytes", type=whole, default=64 << 20, metavar="N", help=words)
    words = "refuse to run where memory and pids limits do not hold for the box as a whole"
    add("--require-limits", action="store_true", help=words)
    add("--prewarm", type=whole, default=0, metavar="N", help="boxes for Python kept ready (default: 0)")
    add("--preload", action="append", metavar="MODULE", help="a module imported ahead; may be repeated")
    words = "do not look for changed files (they are part of --json)"
    add("--no-track-files", dest="track_files", action="store_false", help=words)


def _add_security(box: Any) -> None:
    add = box.add_argument
    add("--network", action="store_true", help="share this machine's network, its loopback included")
    words = "a host that the code may reach, e.g. *.example.com or db.internal:5432; none for none; may be repeated"
    add("--egress-allow", action="append", metavar="HOST", help=words)
    words = "the same for --setup alone, instead of --egress-allow; may be repeated"
    add("--setup-egress-allow", action="append", metavar="HOST", help=words)
    words = "show a directory of this machine, read-only unless :rw follows; may be repeated"
    add("--mount", dest="mounts", action="append", type=mount, metavar="DIR:TARGET", help=words)
    words = "a path in the box that stays read-only below a writable mount; may be repeated"
    add("--protect", action="append", metavar="PATH", help=words)
    words = "untrusted turns every tightening on and refuses an option that loosens one"
    add("--security-profile", metavar="NAME", help=words)
    add("--apparmor", metavar="PROFILE", help="a loaded AppArmor profile for the code")
    words = "keep capabilities over the box's own namespaces"
    add("--keep-caps", dest="cap_drop", action="store_const", const=(), default=("ALL",), help=words)
    add("--user", type=whole, metavar="UID", help="the user and group id that the code sees itself as (default: 0)")
    words = "read-only (the default), or scratch: writable, in memory, gone with the box"
    add("--root", default="read-only", metavar="KIND", help=words)


def sandbox_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the command line says, as the options of a Session: those of ``Sandbox`` but the workspace."""
    options = {name: getattr(arguments, name) for name in _OPTIONS}
    options["preload"] = tuple(arguments.preload or ())
    if arguments.env is not None:
        options["env"] = dict(arguments.env)
    if arguments.mounts is not None:
        options["mounts"] = dict(arguments.mounts)
    for name in ("egress_allow", "setup_egress_allow"):
        if options[name] is not None:
            options[name] = [host for host in options[name] if host != "none"]
    if arguments.tmpfs is not None:
        options["tmpfs"] = {path: size for path, size in arguments.tmpfs if path != "none"}
    return options


def guess_language(code: str, path: str | None) -> str | None:
    """The language of a snippet by its ``#!`` line, else by its file's name, else Python.

    Returns:
        ``None`` where the ``#!`` line names an interpreter that is none of ours.
    """
    first = code.partition("\n")[0]
    suffix = _SUFFIXES.get(os.path.splitext(path or "")[1].lower())
    if first.startswith("#!"):
        return _PROGRAMS.get(_interpreter(first[2:].split())) or suffix
    return suffix or "python"


def _interpreter(words: Sequence[str]) -> str:
    """The program of a ``#!`` line, without directory and version: ``/usr/bin/env -S python3.11`` is python."""
    names = [os.path.basename(word) for word in words if not word.startswith("-") and "=" not in word]
    if names[:1] == ["env"]:
        names = names[1:]
    return re.sub(r"[\d.]+\Z", "", names[0]) if names else ""
