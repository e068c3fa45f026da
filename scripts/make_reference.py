"""Make the pages of the reference that are generated: the Python API from docstrings, the table of system calls.

    python scripts/make_reference.py            # say which pages are out of date; status 1 if one is
    python scripts/make_reference.py --write    # write them

``tests/docs/test_reference.py`` holds that what is committed is what this makes.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
_MADE = "<!-- Made by scripts/make_reference.py from the source; edit that instead. -->"
_SECTIONS = ("Args", "Attributes", "Returns", "Raises")
_WORDS = {"Args": "Arguments", "Raises": "Raises", "Attributes": "Attributes", "Returns": "Returns"}


class Chapter(NamedTuple):
    """A heading, what stands under it, and the public names that it describes, of one module."""

    title: str
    words: str
    module: str
    names: tuple[str, ...]


CHAPTERS = (
    Chapter("Running code", "", "kern_sandbox", ("run_code", "Sandbox", "AsyncSandbox", "Process")),
    Chapter(
        "Kernels",
        "What they are good for: [kernels and branching](../guides/kernels.md).",
        "kern_sandbox",
        ("Kernel", "AsyncKernel", "Checkpoint"),
    ),
    Chapter(
        "Results",
        "What each fault means: [faults](../concepts/faults.md).",
        "kern_sandbox",
        ("ExecutionResult", "SandboxFault", "Result", "FileInfo", "Usage", "EgressEvent"),
    ),
    Chapter(
        "Rendering",
        "What is done, and what no renderer can do: [rendering](../concepts/rendering.md). `kern_sandbox.render` is a "
        "function and a module.",
        "kern_sandbox.render",
        ("render", "neutralise", "blocks", "TextPart", "ImagePart"),
    ),
    Chapter(
        "Tools for a model",
        "The names of `kern_sandbox.tool`; how to use them: [agents](../guides/agents.md).",
        "kern_sandbox.tool",
        ("Toolbox", "Definition", "Answer", "Cancel", "describe_error"),
    ),
    Chapter("This machine", "", "kern_sandbox.doctor", ("doctor", "HostReport", "LayerReport")),
    Chapter("Setup layers", "The names of `kern_sandbox.setup`.", "kern_sandbox.setup", ("collect",)),
)
"""Everything public except for the errors, which have a page of their own."""


# --- docstrings -------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Docstring words as Markdown: one line, single backticks."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split()))


def cell(text: str) -> str:
    """Words in a table."""
    return plain(text).replace("|", "\\|")


def sections(doc: str) -> Iterator[tuple[str, str]]:
    """The parts of a Google-style docstring: ``""`` and the free text, then each section's name and its lines."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in inspect.cleandoc(doc).splitlines():
        name = line.rstrip(":")
        if line.endswith(":") and name in _SECTIONS:
            found.append((name, []))
        elif found[-1][0] and line and not line.startswith(" "):
            found.append(("", [line]))
        else:
            found[-1][1].append(line)
    for name, lines in found:
        text = textwrap.dedent("\n".join(lines)).strip() if name else "\n".join(lines)
        if text.strip():
            yield name, text


def entries(text: str) -> Iterator[tuple[str, str]]:
    """The ``name: words`` of a section; a line that is indented goes on."""
    joined = re.sub(r"\n\s+", " ", text)
    for line in joined.splitlines():
        name, colon, words = line.partition(": ")
        yield (name, words) if colon else ("", line)


def free_text(text: str) -> Iterator[str]:
    """Paragraphs, and indented examples as code that another page runs."""
    for paragraph in re.split(r"\n\s*\n", text):
        if all(line.startswith("    ") for line in paragraph.splitlines() if line.strip()):
            yield f"<!-- not run: an example in a docstring -->\n```python\n{inspect.cleandoc(paragraph)}\n```"
        else:
            yield plain(paragraph)


def described(doc: str) -> Iterator[str]:
    """A docstring as blocks of Markdown."""
    for name, text in sections(doc):
        if not name:
            yield from free_text(text)
        elif name == "Returns":
            yield f"Returns: {plain(text)}"
        else:
            rows = [
                f"| `{entry}` | {cell(words)} |" if entry else f"| | {cell(words)} |" for entry, words in entries(text)
            ]
            yield "\n".join([f"| {_WORDS[name]} | |", "|---|---|", *rows])


# --- signatures -------------------------------------------------------------------------------------------------


def signature(name: str, thing: Any) -> str:
    """``name(arguments) -> type``, a parameter a line where it is long."""
    shape = inspect.signature(thing)
    parts = [_parameter(each) for each in shape.parameters.values() if each.name != "self"]
    stars = [index for index, each in enumerate(shape.parameters.values()) if each.kind is each.KEYWORD_ONLY]
    skipped = int("self" in shape.parameters)
    if stars and not any(each.kind is each.VAR_POSITIONAL for each in shape.parameters.values()):
        parts.insert(stars[0] - skipped, "*")
    returns = "" if shape.return_annotation in (shape.empty, "None") else f" -> {shape.return_annotation}"
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars: dict[object, str] = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}
    prefix = stars.get(parameter.kind, "")
    kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    if parameter.default is parameter.empty:
        return f"{prefix}{parameter.name}{kind}"
    return f"{prefix}{parameter.name}{kind}{' = ' if kind else '='}{parameter.default!r}"


def fenced(code: str) -> str:
    """A signature as a block that nothing runs."""
    return f"<!-- not run: a signature -->\n```python\n{code}\n```"


# --- names ------------------------------------------------------------------------------------------------------


def members(kind: type) -> list[tuple[str, Any]]:
    """The public methods and properties that a class defines itself, in the order of its source."""
    return [(name, value) for name, value in vars(kind).items() if not name.startswith("_") and _is_member(value)]


def _is_member(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))


def name_page(name: str, thing: Any) -> Iterator[str]:
    """Everything about one public name."""
    yield f"### `{name}`"
    doc = inspect.getdoc(thing) or ""
    if not inspect.isclass(thing):
        yield fenced(signature(name, thing))
        yield from described(doc)
        return
    if _is_made_by_callers(thing):
        yield fenced(signature(name, thing))
    yield from described(doc)
    for member, value in members(thing):
        yield f"#### `{name}.{member}`"
        if not isinstance(value, property):
            called = getattr(thing, member)
            coroutine = "await " if inspect.iscoroutinefunction(called) else ""
            yield fenced(coroutine + signature(member, called))
        yield from described(inspect.getdoc(value.fget if isinstance(value, property) else value) or "")


def _is_made_by_callers(kind: type) -> bool:
    return kind.__name__ in {"Sandbox", "AsyncSandbox", "Toolbox", "Cancel"}


def python_page() -> str:
    """``python.md``."""
    words = (
        "Everything below is public; without another module being named, it is a name of `kern_sandbox`. What is "
        "raised is in [errors](errors.md)."
    )
    blocks = [
        "# Python API",
        _MADE,
        words,
    ]
    for chapter in CHAPTERS:
        blocks.append(f"## {chapter.title}")
        if chapter.words:
            blocks.append(chapter.words)
        home = importlib.import_module(chapter.module)
        for name in chapter.names:
            blocks += name_page(name, getattr(home, name))
    return "\n\n".join(blocks) + "\n"


# --- system calls -----------------------------------------------------------------------------------------------

_ACTIONS = {"allow": "is allowed", "escape": "ends the box", "rule": "is decided by its arguments"}


def _becomes(action: str) -> str:
    return _ACTIONS.get(action, f"fails with `{action}`")


def _grouped(rows: Iterable[Any]) -> list[tuple[str, str, str]]:
    """Action, reason and the calls that share both."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        groups.setdefault((row.action, row.reason), []).append(f"`{row.name}`")
    return [(action, reason, " ".join(groups[action, reason])) for action, reason in sorted(groups)]


def _table(rows: Iterable[Any], *, say: bool = True) -> str:
    """Calls, what becomes of them (unless it is said above the table), and why."""
    lines = (
        ["| system calls | what becomes of them | why |", "|---|---|---|"]
        if say
        else ["| system calls | |", "|---|---|"]
    )
    for action, reason, calls in _grouped(rows):
        lines.append(f"| {calls} | {_becomes(action)} | {cell(reason)} |" if say else f"| {calls} | {cell(reason)} |")
    return "\n".join(lines)


def _rules(policy: Any) -> str:
    from kern_sandbox._box.filter_rules import rules

    lines = ["| system call | argument | where nothing matches, it | why |", "|---|---|---|---|"]
    for name, rule in rules(policy).items():
        arguments = sorted({test.argument + 1 for case in rule.cases for test in case.tests})
        which = ", ".join(str(number) for number in arguments)
        lines.append(f"| `{name}` | {which} | {_becomes(rule.otherwise)} | {cell(rule.reason)} |")
    return "\n".join(lines)


def _differences(default: Iterable[Any], other: Iterable[Any]) -> list[Any]:
    known = set(default)
    return [row for row in other if row not in known]


def system_calls_page() -> str:
    """``system-calls.md``."""
    from kern_sandbox._box.filter import FilterPolicy, table

    default = table(FilterPolicy(), "x86_64")
    arm = {row.name for row in table(FilterPolicy(), "aarch64")}
    only = [f"`{row.name}`" for row in default if row.name not in arm]
    count = {action: sum(row.action == action for row in default) for action in ("allow", "escape", "rule")}
    words = (
        f"What the code in a box may ask of Linux, on x86_64: of {len(default)} calls {count['allow']} are allowed, "
        f"{count['rule']} are decided by their arguments, {count['escape']} end the box and are named, and the rest "
        "fail. A call that Linux gets in the future fails with `ENOSYS`. Why it is so: "
        "[decision 3](../decisions/0003-seccomp.md)."
    )
    blocks = [
        "# System calls",
        _MADE,
        words,
        "## Calls that end the box",
        "As the fault [`escape_blocked`](../concepts/faults.md), with the name of the call.",
        _table((row for row in default if row.action == "escape"), say=False),
        "## Calls that are decided by their arguments",
        "Arguments are counted from 1.",
        _rules(FilterPolicy()),
        "## Calls that fail",
        _table(row for row in default if row.action not in _ACTIONS),
        "## Calls that are allowed",
        _table((row for row in default if row.action == "allow"), say=False),
        '## With `security_profile="untrusted"`',
        "The same, apart from these:",
        _table(_differences(default, table(FilterPolicy(untrusted=True), "x86_64"))),
        "## With `cap_drop=()`",
        _table(_differences(default, table(FilterPolicy(capabilities=True), "x86_64"))),
        "## On aarch64",
        "The same policy. These calls do not exist there: " + " ".join(only) + ".",
    ]
    return "\n\n".join(blocks) + "\n"


PAGES = {"python.md": python_page, "system-calls.md": system_calls_page}


def main(arguments: list[str]) -> int:
    """Compare, or write; the exit status."""
    stale = [name for name, make in PAGES.items() if not _is(REFERENCE / name, make())]
    if arguments == ["--write"]:
        for name in stale:
            (REFERENCE / name).write_text(PAGES[name](), encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"{'written' if arguments else 'out of date'}: docs/reference/{name}\n")
    return int(bool(stale) and not arguments)


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
