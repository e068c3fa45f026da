"""The commands about images: ``pull``, ``images``, ``rmi``, ``load`` and ``gc``."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import sys
from typing import TYPE_CHECKING, Any

from .._image.images import Making, Progress, load, obtain
from .._image.reference import parse
from .._image.store import Store
from ..bytecode import add_bytecode
from ..bytecode import collect as collect_libraries
from ..errors import SpecError
from ..setup import collect as collect_setups

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["collect", "listed", "loaded", "progress", "pulled", "removed"]

Said = tuple[object, list[str]]
"""What a command has to say: as JSON, and as lines."""


def pulled(arguments: argparse.Namespace) -> Said:
    """Fetch images, or what their tags name now."""
    references = [parse(name) for name in arguments.names]
    for reference in references:
        if reference.kind == "dir":
            raise SpecError(f"pulling {reference.name}: a directory is used as it is", hint="Say it as --image")
    store = Store()
    got = []
    for reference in references:
        with progress() as shown:
            image = obtain(reference, store, making=Making(shown, finish=add_bytecode), fresh=True)
        image.close()
        got.append({"name": image.name, "digest": image.digest})
    return got, [f"{each['name']} {each['digest']}" for each in got]


def loaded(arguments: argparse.Namespace) -> Said:
    """Put the images of an archive into the store."""
    with progress() as shown:
        got = load(arguments.file, arguments.name, Store(), Making(shown, finish=add_bytecode))
    plain = [{"name": name, "digest": digest} for name, digest in got]
    return plain, [f"{name} {digest}" for name, digest in got]


def listed(_: argparse.Namespace) -> Said:
    """What the store holds."""
    store = Store()
    images = store.images()
    plain = [
        {"name": each.name or None, "digest": each.digest, "size": each.size, "made": _day(each.made)}
        for each in images
    ]
    if not images:
        return plain, [f"no images in {store.folder}"]
    width = max(len(each.name or "(no name)") for each in images)
    head = f"{'NAME':<{width}}  {'DIGEST':<19}  {'SIZE':>9}  MADE"
    rows = [
        f"{each.name or '(no name)':<{width}}  {each.digest[:19]}  {size_words(each.size):>9}  {_day(each.made)}"
        for each in images
    ]
    return plain, [head, *rows]


def removed(arguments: argparse.Namespace) -> Said:
    """Forget names, and the images that nothing else names."""
    store = Store()
    gone = []
    for word in arguments.names:
        known = {each.name for each in store.images()}
        name = word if word in known or word.startswith("sha256:") else _full(word)
        gone.append(store.remove(name))
    plain = [{"name": each.name or None, "digest": each.digest} for each in gone]
    return plain, [f"{each.name or '(no name)'} {each.digest}" for each in gone]


def _full(word: str) -> str:
    """A name in full; what is none may be the beginning of a digest."""
    if len(word) >= 12 and all(char in "0123456789abcdef" for char in word):
        return word
    return parse(word).name


def collect(_: argparse.Namespace) -> Said:
    """Remove what nothing names and nobody uses, and what was made and not used for a month."""
    store = Store()
    setups = collect_setups()
    before = store.size()
    gone = store.collect()
    freed = before - store.size() + setups.size + collect_libraries().size
    plain = {"removed": gone, "setups": setups.entries, "freed_bytes": freed}
    return plain, [*gone, f"{setups.entries} setup layers removed", f"{size_words(freed)} freed"]


def size_words(size: float) -> str:
    """A size for a person."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _day(made: float) -> str:
    return dt.datetime.fromtimestamp(made, dt.timezone.utc).strftime("%Y-%m-%d")


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Bars on a terminal where rich is installed, lines where it is not, and nothing into a pipe."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Progress()
        return
    try:
        rich: Any = importlib.import_module("rich.progress")
        console: Any = importlib.import_module("rich.console")
    except ImportError:
        yield _Lines()
        return
    columns = (
        rich.TextColumn("{task.description}"), rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn(),
    )  # fmt: skip
    with rich.Progress(*columns, console=console.Console(stderr=True), transient=True) as bars:
        yield _Bars(bars)


class _Lines(Progress):
    """A line for each step."""

    def begin(self, words: str, total: int) -> None:
        sys.stderr.write(f"{words} {size_words(total)}\n" if total else f"{words}\n")


class _Bars(Progress):
    """A bar for each step."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task: Any = None

    def begin(self, words: str, total: int) -> None:
        self._task = self._bars.add_task(words, total=total or None)

    def step(self, count: int) -> None:
        self._bars.advance(self._task, count)
