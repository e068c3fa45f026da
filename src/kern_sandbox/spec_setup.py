"""How the options of a setup are checked."""

from __future__ import annotations

from .checks import bad

__all__ = ["check_setup"]

_MAX_COMMAND = 100_000  # it travels as one argument, of which Linux takes 128 KiB


def check_setup(setup: object) -> str | None:
    """A shell command, or ``None``."""
    if setup is None:
        return None
    accepted = 'None or a shell command, e.g. "pip install pandas"'
    if not isinstance(setup, str) or not setup.strip() or "\0" in setup or len(setup) > _MAX_COMMAND:
        raise bad("setup", setup, accepted)
    try:
        setup.encode("utf-8")
    except UnicodeEncodeError:
        raise bad("setup", setup, accepted) from None
    return setup
