"""Globs and ignore files as git understands them (gitignore(5)), for names that are text below one directory."""

import os
import re
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, NamedTuple, Optional, Pattern, Sequence, Tuple
else:
    from typing import NamedTuple

IGNORE_FILES = (".gitignore", ".ignore")
MOST_RULES_BYTES = 1 << 20


class Rule(NamedTuple):
    """One line of an ignore file: what it matches, whether only directories, and whether it takes back another."""

    expression: "Pattern[str]"
    directories: bool
    negated: bool


def expression(glob: str, braces: bool = False) -> str:
    """A glob over a whole relative path as a regular expression; ``*`` and ``?`` stop at a slash, ``**`` does not."""
    out, place, depth = [], 0, 0
    while place < len(glob):
        rest = glob[place:]
        if rest.startswith("**/") and (place == 0 or glob[place - 1] == "/"):
            out.append("(?:.*/)?")
            place += 3
        elif rest == "**" and (place == 0 or glob[place - 1] == "/"):
            out.append(".+")
            place += 2
        elif rest[0] == "[":
            text, place = bracket(glob, place)
            out.append(text)
        else:
            text, place, depth = single(glob, place, depth if braces else -1)
            out.append(text)
            depth = max(depth, 0)
    return "".join(out) + ")" * depth


def single(glob: str, place: int, depth: int) -> "Tuple[str, int, int]":
    """The character at ``place``, where to go on, and how many braces are open (-1: they mean nothing)."""
    char = glob[place]
    if char == "*":
        while glob[place : place + 1] == "*":
            place += 1
        return "[^/]*", place, depth
    if char == "?":
        return "[^/]", place + 1, depth
    if char == "\\" and place + 1 < len(glob):
        return re.escape(glob[place + 1]), place + 2, depth
    if depth >= 0 and char == "{":
        return "(?:", place + 1, depth + 1
    if depth > 0 and char in ",}":
        return ("|", place + 1, depth) if char == "," else (")", place + 1, depth - 1)
    return re.escape(char), place + 1, depth


def bracket(glob: str, place: int) -> "Tuple[str, int]":
    """A set of characters; a ``[`` that nothing closes is itself."""
    start = place + 1 + (glob[place + 1 : place + 2] in ("!", "^"))
    end = glob.find("]", start + 1)
    if end == -1:
        return re.escape("["), place + 1
    inside = glob[start:end].replace("\\", "\\\\").replace("[", "\\[").replace("&&", "&\\&").replace("||", "|\\|")
    return "(?!/)[" + ("^" if start > place + 1 else "") + inside + "]", end + 1


def compiled(glob: str, flags: int = 0, braces: bool = False) -> "Pattern[str]":
    """A glob as ignore files have it: with a slash in it relative to their directory, else a name at any depth."""
    anchored = "/" in glob.rstrip("/")
    text = expression(glob.strip("/") if anchored else glob.rstrip("/"), braces)
    try:
        return re.compile(("" if anchored else "(?:.*/)?") + "(?:" + text + r")\Z", flags | re.DOTALL)
    except re.error as error:
        raise ValueError("the glob %r is not understood: %s" % (glob, error)) from None


def rules_of(text: str) -> "List[Rule]":
    """The rules of an ignore file; a line that is not understood is no rule."""
    rules = []
    for line in text.splitlines():
        trimmed = line.rstrip()
        if trimmed.endswith("\\") and len(trimmed) < len(line):
            trimmed += line[len(trimmed)]  # the space that is quoted
        negated = trimmed.startswith("!")
        glob = trimmed[1:] if negated else trimmed
        if not glob.strip("/") or trimmed.startswith("#"):
            continue
        try:
            rules.append(Rule(compiled(glob), glob.endswith("/"), negated))
        except ValueError:
            continue
    return rules


class Scope:
    """The ignore rules that hold in one directory: its own, and after them those above it.

    Attributes:
        root: the directory that the rules' paths are relative to.
        above: the scope of the directory above, if it counts.
    """

    def __init__(self, root: str, rules: "Sequence[Rule]", above: "Optional[Scope]") -> None:
        """``rules`` are in the order of their file: the last that matches counts."""
        self.root = root
        self.above = above
        self.rules = rules

    def ignores(self, path: str, directory: bool) -> bool:
        """Whether an absolute path below here is ignored."""
        scope: "Optional[Scope]" = self
        while scope is not None:
            name = os.path.relpath(path, scope.root) if scope.rules else ""
            for rule in reversed(scope.rules):
                if (directory or not rule.directories) and rule.expression.match(name):
                    return not rule.negated
            scope = scope.above
        return False


def repository_of(path: str) -> "Optional[str]":
    """The directory at or above ``path`` that has a ``.git``."""
    while True:
        if os.path.lexists(os.path.join(path, ".git")):
            return path
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above


def scope_of(directory: str, above: "Optional[Scope]", git: bool) -> Scope:
    """The scope of ``directory``; ``git``: whether ``.gitignore`` counts here."""
    rules = []
    if git and os.path.isdir(os.path.join(directory, ".git")):
        above = None  # rules of a repository do not reach into another
        rules += rules_of(read_rules(os.path.join(directory, ".git", "info", "exclude")))
    for name in IGNORE_FILES if git else IGNORE_FILES[1:]:
        rules += rules_of(read_rules(os.path.join(directory, name)))
    return Scope(directory, rules, above)


def read_rules(path: str) -> str:
    """The text of an ignore file; nothing where there is none, or what is there is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            regular = stat.S_ISREG(os.fstat(fd).st_mode)
            return file.read(MOST_RULES_BYTES).decode("utf-8", "replace") if regular else ""
    except OSError:
        return ""
