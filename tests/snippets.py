"""The code blocks of a Markdown page: finding them, and running them in order as a reader would.

    python tests/snippets.py PAGE.md

runs every block of the page that is not marked ``<!-- not run: REASON -->``. The ``python`` blocks of a page share one
namespace, ``bash`` blocks the directory; a ``text`` block after ``<!-- output -->`` is what the block before it prints.
``<!-- needs: NAME… -->`` at the top of a page names modules and programs without which its blocks cannot run.
Ends with status 1 and the reason at the first block that fails or prints something else.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RUN = ("python", "bash")
KNOWN = (*RUN, "diff", "ini", "json", "text", "toml", "yaml")
"""A fence of another language, or of none, would slip past the runner: it is refused."""

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)``` *$", re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"<!--\s*(?P<word>not run:|output)\s*(?P<reason>(?:(?!-->).)*?)\s*-->\s*\Z", re.DOTALL)


_NEEDS = re.compile(r"\A<!--\s*needs:\s*(?P<names>[\w\s.-]+?)\s*-->")


def missing(text: str) -> list[str]:
    """The modules and programs that the page says it needs, and this machine does not have."""
    needs = _NEEDS.match(text)
    names = needs["names"].split() if needs else []
    return [name for name in names if not (shutil.which(name) or importlib.util.find_spec(name))]


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        line: of its opening fence, from 1.
        language: as the fence names it.
        code: what stands in it, with the fence's indentation taken off.
        not_run: the reason of its ``<!-- not run: … -->`` mark; ``None`` if it has none.
        is_output: it stands after an ``<!-- output -->`` mark.
    """

    line: int
    language: str
    code: str
    not_run: str | None
    is_output: bool

    @property
    def runs(self) -> bool:
        """Whether this block is one to run."""
        return self.language in RUN and self.not_run is None


def blocks(text: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    found = []
    for fence in _FENCE.finditer(text):
        mark = _MARK.search(text, 0, fence.start())
        word = mark["word"] if mark else ""
        code = re.sub(rf"^{fence['indent']}", "", fence["code"], flags=re.MULTILINE)
        found.append(
            Block(
                line=text.count("\n", 0, fence.start()) + 1,
                language=fence["language"].strip(),
                code=code,
                not_run=mark["reason"] if mark and word == "not run:" else None,
                is_output=word == "output",
            )
        )
    return found


def unlawful(text: str) -> list[str]:
    """What the page does that would leave a block untested without saying so."""
    wrong = []
    previous: Block | None = None
    for block in blocks(text):
        if block.language not in KNOWN:
            wrong.append(f"line {block.line}: language {block.language!r}; use one of {', '.join(KNOWN)}")
        if block.not_run is not None and len(block.not_run.split()) < 2:
            wrong.append(f"line {block.line}: 'not run' needs a reason")
        if block.language == "bash" and block.runs and not block.code.startswith("kern-sandbox "):
            wrong.append(f"line {block.line}: a bash block that is run starts with kern-sandbox; mark this one")
        if block.language == "python" and block.runs:
            lines = [block.line + line for line in _at_the_prompt(block.code)]
            wrong += [f"line {line}: Python's prompt refuses it: blank lines end blocks there" for line in lines]
        if block.is_output and not (previous and previous.runs and block.language in ("text", "json")):
            wrong.append(f"line {block.line}: output of no block that is run")
        previous = block
    return wrong


def _at_the_prompt(code: str) -> list[int]:
    """Lines at which Python's prompt, up to 3.12, refuses code that is pasted there: a blank line ends a block."""
    lines = code.splitlines()
    blank = set(_blank_lines(code))
    blocks = [each for each in ast.parse(code).body if hasattr(each, "body")]
    ends = [each.end_lineno or 0 for each in blocks]
    glued = [end + 1 for end in ends if end < len(lines) and lines[end].strip()]
    return glued + [line for each, end in zip(blocks, ends) for line in sorted(blank & {*range(each.lineno, end)})]


def _blank_lines(code: str) -> Iterator[int]:
    """Those outside of strings and brackets."""
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        if token.type == tokenize.NL and not depth and not token.line.strip():
            yield token.start[0]


def run_page(path: Path) -> None:
    """Run the page's blocks in the working directory; raises `AssertionError` with the reason of the first failure."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(path.read_text(encoding="utf-8")):
        where = f"{path.name}:{block.line}"
        if block.is_output:
            assert printed.strip() == block.code.strip(), f"{where}: the page says\n{block.code}\nit printed\n{printed}"
        elif block.runs:
            printed = _run_python(block, where, namespace) if block.language == "python" else _run_bash(block, where)


def _run_python(block: Block, where: str, namespace: dict[str, object]) -> str:
    out = io.StringIO()
    padded = "\n" * block.line + block.code  # a traceback shows the page's own line numbers
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(padded, where.partition(":")[0], "exec", dont_inherit=True), namespace)
    except BaseException as error:  # a page may raise anything, SystemExit included
        raise AssertionError(f"{where}: {traceback.format_exc()}\nit had printed\n{out.getvalue()}") from error
    return out.getvalue()


def _run_bash(block: Block, where: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{where}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    try:
        run_page(Path(sys.argv[1]))
    except AssertionError as failure:
        sys.exit(str(failure))
