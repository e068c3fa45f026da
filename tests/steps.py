"""Count the steps of a regular expression, as an engine that backtracks takes them: a clock for tests of growth."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

try:
    from re import _parser as parser  # type: ignore[attr-defined]  # Python 3.11 moved it there
except ImportError:  # Python 3.9, 3.10
    import sre_parse as parser

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["steps_of_search"]


def steps_of_search(pattern: re.Pattern[str], text: str) -> int:
    """How many characters are looked at where every match of the pattern in the text is sought, as ``sub`` does."""
    return _Matcher(pattern, text).search_all()


class _Matcher:
    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self.nodes = list(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
        self.fold = bool(pattern.flags & re.IGNORECASE)
        self.text = text
        self.steps = 0
        self.seen: dict[tuple[int, str], bool] = {}
        self.kinds = {
            "MAX_REPEAT": self.max_repeat,
            "BRANCH": self.branch,
            "SUBPATTERN": self.subpattern,
            "ASSERT": self.look,
            "ASSERT_NOT": self.look_away,
            "AT": self.beginning,
        }

    def search_all(self) -> int:
        at = 0
        while at <= len(self.text):
            end = next(self.match(self.nodes, at), None)
            at = at + 1 if end is None or end == at else end
        return self.steps

    def match(self, nodes: list[Any], at: int) -> Iterator[int]:
        """Every place where ``nodes`` can end that start at ``at``, in the order of the engine."""
        if not nodes:
            yield at
            return
        name, argument = str(nodes[0][0]), nodes[0][1]
        for end in self.kinds.get(name, self.one)(nodes[0], argument, at):
            yield from self.match(nodes[1:], end)

    def one(self, node: Any, _: Any, at: int) -> Iterator[int]:
        self.steps += 1
        if at < len(self.text) and self.is_in(node, self.text[at]):
            yield at + 1

    def max_repeat(self, _: Any, argument: Any, at: int) -> Iterator[int]:
        low, high, body = argument
        (item,) = body  # every repeat of ours is of one character
        end = at
        while end - at < high and next(self.one(item, None, end), None) is not None:
            end += 1
        for place in range(end, at + low - 1, -1):
            self.steps += 1
            yield place

    def branch(self, _: Any, argument: Any, at: int) -> Iterator[int]:
        for choice in argument[1]:
            yield from self.match(list(choice), at)

    def subpattern(self, _: Any, argument: Any, at: int) -> Iterator[int]:
        yield from self.match(list(argument[-1]), at)

    def looks(self, argument: Any, at: int) -> bool:
        direction, body = argument
        start = at if direction > 0 else at - body.getwidth()[0]
        return start >= 0 and next(self.match(list(body), start), None) is not None

    def look(self, _: Any, argument: Any, at: int) -> Iterator[int]:
        if self.looks(argument, at):
            yield at

    def look_away(self, _: Any, argument: Any, at: int) -> Iterator[int]:
        if not self.looks(argument, at):
            yield at

    def beginning(self, _: Any, argument: Any, at: int) -> Iterator[int]:
        assert str(argument) == "AT_BEGINNING"
        if at == 0 or self.text[at - 1] == "\n":
            yield at

    def is_in(self, node: Any, char: str) -> bool:
        key = id(node), char
        if key not in self.seen:
            cases = {char, char.lower(), char.upper()} if self.fold else {char}
            self.seen[key] = any(_holds(node, case) for case in cases)
        return self.seen[key]


def _holds(node: Any, char: str) -> bool:
    """Whether a node for one character takes this one."""
    name, argument = str(node[0]), node[1]
    if name == "IN":
        negated = str(argument[0][0]) == "NEGATE"
        return any(_holds(item, char) for item in argument[negated:]) != negated
    if name == "CATEGORY":
        assert str(argument) == "CATEGORY_WORD"
        return char.isalnum() or char == "_"
    if name == "RANGE":
        return len(char) == 1 and argument[0] <= ord(char) <= argument[1]
    assert name in ("LITERAL", "NOT_LITERAL"), name
    return (char == chr(argument)) == (name == "LITERAL")
