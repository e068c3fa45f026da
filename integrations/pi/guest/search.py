"""grep and find as pi's own tools answer them, with ripgrep where the box has it.

A walk goes in the order of names, shows hidden files, follows no link, and leaves out ``.git`` and what ignore files
name.
"""

import base64
import collections
import json
import os
import re
import shutil
import stat
import subprocess

import globs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Pattern, Sequence
else:
    from typing import NamedTuple

MOST_BYTES = 50 * 1024
MOST_LINE = 500
PIECE = 1 << 20
BINARY_PREFIX = 8192


class Event(NamedTuple):
    """One line of a file, as ripgrep tells of it."""

    path: str
    number: int
    text: str
    match: bool


class Query(NamedTuple):
    """What grep was asked; ``path`` is absolute."""

    pattern: str
    path: str
    glob: "Optional[str]"
    ignore_case: bool
    literal: bool
    context: int
    limit: int


def grep(asked: "Dict[str, Any]") -> "Dict[str, Any]":
    """Search for a pattern; ``text`` is what the model gets before any notice."""
    glob = asked.get("glob")
    query = Query(
        asked["pattern"], asked["path"], re.sub(r"^(!?)(?:\./)+", r"\1", glob) if glob else None,
        bool(asked.get("ignoreCase")), bool(asked.get("literal")),
        max(0, min(int(asked.get("context") or 0), 1000)), max(1, int(asked.get("limit") or 100)),
    )  # fmt: skip
    os.stat(query.path)
    program = shutil.which("rg")
    report = Report(query)
    for event in own_events(query) if program is None else ripgrep_events(program, query):
        if report.add(event):
            break
    return report.result()


class Report:
    """The lines for the model; its bytes and matches are limited."""

    def __init__(self, query: Query) -> None:
        """Nothing found yet."""
        self.query = query
        self.lines: "List[str]" = []
        self.bytes = 0
        self.matches = 0
        self.more = False
        self.cut = False
        self.last = ("", 0)
        self.directory = os.path.isdir(query.path)

    def add(self, event: Event) -> bool:
        """Take a line; whether nothing more is wanted."""
        if self.matches < self.query.limit:
            self.push(event, event.match)
            self.matches += event.match
            self.last = (event.path, event.number + self.query.context)
            return False
        inside = event.path == self.last[0] and event.number <= self.last[1]
        if inside:
            self.push(event, False)
        self.more = self.more or event.match
        return self.more and not (inside and event.number < self.last[1])

    def push(self, event: Event, match: bool) -> None:
        """Keep a line, as far as there is room."""
        name = os.path.relpath(event.path, self.query.path) if self.directory else os.path.basename(event.path)
        text = re.sub(r"\r?\n?\Z", "", event.text)
        if len(text) > MOST_LINE:
            self.cut, text = True, text[:MOST_LINE] + "... [truncated]"
        line = ("%s:%d: %s" if match else "%s-%d- %s") % (name, event.number, text)
        self.bytes += len(line.encode("utf-8", "replace")) + 1
        if self.bytes - 1 <= MOST_BYTES:
            self.lines.append(line)

    def result(self) -> "Dict[str, Any]":
        """What was found."""
        return {
            "text": "\n".join(self.lines),
            "matches": self.matches,
            "limitReached": self.query.limit if self.more else None,
            "bytesReached": self.bytes - 1 > MOST_BYTES,
            "linesCut": self.cut,
        }


def ripgrep_events(program: str, query: Query) -> "Iterator[Event]":
    """What ripgrep finds; the child of it ends with this process's group."""
    directory = os.path.isdir(query.path)
    argv = [program, "--no-config", "--json", "--line-number", "--color=never", "--hidden", "--sort=path"]
    argv += ["--ignore-case"] * query.ignore_case + ["--fixed-strings"] * query.literal
    argv += ["--glob", query.glob] if query.glob else []
    argv += ["--glob", "!.git"] + (["--context", str(query.context)] if query.context else [])
    argv += ["--", query.pattern, "." if directory else query.path]
    with subprocess.Popen(
        argv, cwd=query.path if directory else None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stderr is not None
            for line in child.stdout:
                told = json.loads(line)
                if told["type"] in ("match", "context"):
                    yield event_of(told, query.path)
            words = child.stderr.read(PIECE).decode("utf-8", "replace").strip()
        finally:
            child.kill()
    if child.returncode not in (0, 1):
        raise ValueError(words or "ripgrep ended with %d" % child.returncode)


def event_of(told: "Dict[str, Any]", root: str) -> Event:
    """A line of ripgrep's JSON."""

    def text(value: "Dict[str, str]") -> str:
        return value["text"] if "text" in value else base64.b64decode(value["bytes"]).decode("utf-8", "replace")

    data = told["data"]
    path = os.path.normpath(os.path.join(root, text(data["path"])))
    return Event(path, data["line_number"], text(data["lines"]), told["type"] == "match")


def own_events(query: Query) -> "Iterator[Event]":
    """The same without ripgrep, in Python's dialect of regular expressions."""
    try:
        flags = re.IGNORECASE if query.ignore_case else 0
        pattern = re.compile(re.escape(query.pattern) if query.literal else query.pattern, flags)
    except re.error as error:
        raise ValueError("the pattern is not a regular expression: %s" % error) from None
    negated = (query.glob or "").startswith("!")
    wanted = globs.compiled(query.glob.lstrip("!"), braces=True) if query.glob else None
    if not os.path.isdir(query.path):
        yield from lines_of(query.path, pattern, query.context)
        return
    for path, directory in walk(query.path, git_needs_repository=True):
        name = os.path.relpath(path, query.path)
        if not directory and (wanted is None or bool(wanted.match(name)) != negated):
            yield from lines_of(path, pattern, query.context, os.O_NOFOLLOW)


def lines_of(path: str, pattern: "Pattern[str]", context: int, more: int = 0) -> "Iterator[Event]":
    """The matching lines of a file, and those around them; none of a binary one."""
    before: "Deque[Event]" = collections.deque(maxlen=context)
    after = 0
    for number, text in text_lines(path, more):
        found = pattern.search(text.rstrip("\r\n")) is not None
        event = Event(path, number, text, found)
        if found:
            yield from before
            before.clear()
            after = context
            yield event
        elif after > 0:
            after -= 1
            yield event
        else:
            before.append(event)


def text_lines(path: str, more: int) -> "Iterator[tuple]":
    """Numbered lines of a regular file; a line may come in pieces if it is huge."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | more)
    except OSError:
        return
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or b"\0" in file.peek(BINARY_PREFIX)[:BINARY_PREFIX]:
            return
        number = 1
        for line in iter(lambda: file.readline(PIECE), b""):
            yield number, line.decode("utf-8", "replace")
            number += line.endswith(b"\n")


def walk(root: str, git_needs_repository: bool, skip: "Sequence[str]" = (".git",)) -> "Iterator[tuple]":
    """Every path below ``root`` that is not ignored, and whether it is a directory."""
    repository = globs.repository_of(root)
    git = repository is not None or not git_needs_repository
    scope = None
    for directory in lineage(repository or root, os.path.dirname(root) if repository != root else None):
        scope = globs.scope_of(directory, scope, git)
    stack = [(root, scope)]
    while stack:
        directory, above = stack.pop()
        scope = globs.scope_of(directory, above, git)
        below = []
        for entry in entries_of(directory):
            is_directory = entry.is_dir(follow_symlinks=False)
            if entry.name in skip or scope.ignores(entry.path, is_directory):
                continue
            yield entry.path, is_directory
            if is_directory:
                below.append((entry.path, scope))
        stack += reversed(below)


def lineage(top: str, bottom: "Optional[str]") -> "List[str]":
    """The directories from ``top`` down to ``bottom``."""
    found: "List[str]" = []
    while bottom is not None and (bottom == top or bottom.startswith(top.rstrip("/") + "/")):
        found.append(bottom)
        bottom = None if bottom == top else os.path.dirname(bottom)
    return found[::-1]


def entries_of(directory: str) -> "List[os.DirEntry[str]]":
    """Its entries by name; none where it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def find(asked: "Dict[str, Any]") -> "Dict[str, Any]":
    """Paths that match a glob, relative to ``path``; a directory has a slash at its end."""
    root, limit = asked["path"], max(1, int(asked["limit"]))
    os.scandir(root).close()
    glob = re.sub(r"^(?:\./)+", "", asked["pattern"])
    absolute = glob.startswith("/")
    pattern = globs.compiled(glob, re.IGNORECASE if glob == glob.lower() else 0, braces=True)
    found: "List[str]" = []
    for path, directory in walk(root, git_needs_repository=False, skip=(".git", *asked.get("skip", ()))):
        name = path.lstrip("/") if absolute else os.path.relpath(path, root)
        if pattern.match(name):
            found.append(os.path.relpath(path, root) + "/" * directory)
            if len(found) >= limit:
                break
    return {"paths": found}
