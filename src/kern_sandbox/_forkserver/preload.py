"""Modules that a template imports once, for every box that is forked from it to have."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._box.plan import HOME

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["PreloadFailed", "import_all", "reseed"]

_MOST_WORDS = 8000


class PreloadFailed(Exception):
    """A module cannot be imported; its text is the traceback."""


def import_all(names: Sequence[str]) -> list[str]:
    """Import ``names`` as a program would, and leave this process with one thread again.

    Returns:
        What a program should be told.

    Raises:
        PreloadFailed: one of them raised.
    """
    ours = sys.path.pop(0)
    scratch = os.environ.get("TMPDIR", "")
    os.environ["TMPDIR"] = HOME
    streams = _silence()
    try:
        for name in names:
            _import(name)
    finally:
        _restore(streams)
        os.environ["TMPDIR"] = scratch
        sys.path.insert(0, ours)
    return _be_alone()


def _import(name: str) -> None:
    try:
        __import__(name)
    except BaseException as error:  # a module may raise anything, SystemExit too, and its caller is to see it
        import traceback

        words = "".join(traceback.format_exception(type(error), error, _above(error.__traceback__)))
        raise PreloadFailed(f"import {name}\n{words[-_MOST_WORDS:].rstrip()}") from None


def _above(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is the module's."""
    return trace and trace.tb_next


def _silence() -> list[int]:
    """What a module prints while it is imported would come up in nobody's output, and fill a pipe that nobody reads."""
    kept = [os.dup(fd) for fd in (1, 2)]
    nothing = os.open("/dev/null", os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)
    return kept


def _restore(kept: list[int]) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for fd, own in zip((1, 2), kept):
        os.dup2(own, fd)
        os.close(own)


def _be_alone() -> list[str]:
    """Where imports have started threads, go on in a fork of this process, which has one.

    It is the C library's own fork, so whoever asked to be told (pthread_atfork(3): OpenBLAS, OpenSSL) prepares for a
    life without threads, and starts new ones when a program first needs them. The raw clones of boxes tell nobody.
    """
    if len(os.listdir("/proc/self/task")) == 1:
        return []
    lost = _python_threads()
    if os.fork():
        os._exit(0)  # the stem is PID 1 here, so what goes on is its child now, and dies with it
    if not lost:
        return []
    return [f"preload: importing started threads that do not run in a box: {', '.join(lost)}"]


def _python_threads() -> list[str]:
    threading = sys.modules.get("threading")
    if threading is None:
        return []
    return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]


def reseed() -> None:
    """Give this process random state of its own, where a module that was imported ahead keeps some.

    ``random`` does it by itself at every fork; ``secrets``, ``uuid4`` and Python's hashes of sets need none.
    """
    modules = sys.modules
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "tempfile" in modules:
        vars(modules["tempfile"]).update(_name_sequence=None, tempdir=None)
    if "ssl" in modules:
        modules["ssl"].RAND_add(os.urandom(32), 32.0)
    if "multiprocessing.process" in modules:
        modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
