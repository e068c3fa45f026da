"""What makes a shell complete the command's words: made by shtab, a library of the extra ``cli``."""

from __future__ import annotations

from typing import Any

import shtab

from ._arguments import command_line

__all__ = ["script"]

_FILES = ("FILE",)
_DIRECTORIES = ("DIR", "DIR:TARGET")


def script(shell: str) -> str:
    """The words for ``shell``, whole; nothing of ours runs when a key is pressed."""
    top, commands = command_line()
    for command in commands.values():
        for action in command.actions():
            _place(action)
    return str(shtab.complete(top, shell=shell)).rstrip("\n")


def _place(action: Any) -> None:
    """Say which words are names of files."""
    if action.metavar in _FILES:
        action.complete = shtab.FILE
    elif action.metavar in _DIRECTORIES:
        action.complete = shtab.DIRECTORY
