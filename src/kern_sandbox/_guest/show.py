"""Show values as a notebook does: each becomes one frame on the results descriptor, at once.

A frame is a line of ASCII JSON: ``{"data": {MIME: value}, "b64": [MIMEs whose value is base64]}``, with ``"id"`` if a
later frame of the same id replaces it, and ``"note": true`` on a last one that says why no more follow. The host
believes nothing of it. Stdlib only, Python 3.8 or later; loaded by `cell`.
"""

import os
import sys
from _thread import RLock, get_ident

try:
    from _json import encode_basestring_ascii as quoted
except ImportError:  # an interpreter without the accelerator
    from json.encoder import encode_basestring_ascii as quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, Optional, Set

MAX_VALUES = 100
MAX_CALL_BYTES = (32 << 20) - 4096  # what the host reads of one call, less room for the note
IMAGES = ("image/png", "image/jpeg")
NO_MORE = "[no more values are shown: a call shows at most %d, of 32 MiB together]" % MAX_VALUES


class Frames:
    """The results descriptor: whole frames only, within a call's limits, silent about every failure."""

    def __init__(self, fd: int, is_open: "Callable[[], bool]") -> None:
        """Write to ``fd`` as long as ``is_open()``."""
        self._fd, self._is_open = fd, is_open
        self._lock = RLock()
        self.restart()

    def restart(self) -> None:
        """Begin a new call, with its own limits."""
        self._ids: "Set[str]" = set()
        self._values = self._bytes = 0
        self._full = self._torn = False

    def reopen(self, fd: int) -> None:
        """Write to ``fd`` from now on."""
        self._fd = fd

    def accepts(self) -> bool:
        """Whether anybody would see another value."""
        return not self._full and self._is_open()

    def send(self, parts: "Dict[str, str]", key: "Optional[str]" = None) -> None:
        """Write one value.

        Args:
            parts: MIME type to JSON text.
            key: a value of the same key replaces this one.
        """
        frame = framed(parts, ', "id": ' + quoted(key) if key is not None else "")
        with self._lock:
            known = key in self._ids
            self._values += not known
            self._bytes += len(frame)
            if self._full:
                return
            if self._values > MAX_VALUES or self._bytes > MAX_CALL_BYTES:
                self._full = True
                frame = framed({"text/plain": quoted(NO_MORE)}, ', "note": true')
            elif key is not None:
                self._ids.add(key)
            self._write(frame)

    def _write(self, frame: bytes) -> None:
        """All of ``frame``. One that an exception (a signal's handler) tears apart is ended before the next."""
        rest = memoryview(b"\n" + frame if self._torn else frame)
        self._torn = True
        while rest:
            if not self._is_open():
                return
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                wait_until_writable(self._fd)
            except OSError:
                return
        self._torn = False


def framed(parts: "Dict[str, str]", more: str) -> bytes:
    """The line of a frame, of parts that are JSON text already."""
    data = ", ".join(quoted(mime) + ": " + text for mime, text in parts.items())
    images = ", ".join(quoted(mime) for mime in parts if mime in IMAGES)
    return ('{"data": {%s}, "b64": [%s]%s}\n' % (data, images, more)).encode("ascii")


def wait_until_writable(fd: int) -> None:
    """Block: the code made the pipe non-blocking, or shares it with somebody who did."""
    import select

    waiting = select.poll()
    waiting.register(fd, select.POLLOUT)
    waiting.poll()


class Show:
    """What a call shows, and how libraries are taught to show it here."""

    def __init__(self, fd: int, is_open: "Callable[[], bool]", load: "Callable[[str], ModuleType]") -> None:
        """Show on ``fd`` as long as ``is_open()``; ``load`` gives a neighbour of this file."""
        self._frames = Frames(fd, is_open)
        self._forms: "Any" = load("forms")
        self._seen: "Any" = None
        self._count = 0

    def restart(self) -> None:
        """Begin a new call (a kernel's next cell)."""
        self._frames.restart()
        self._seen = None

    def reopen(self, fd: int) -> None:
        """Show on ``fd`` from now on."""
        self._frames.reopen(fd)

    def last(self, value: object) -> None:
        """Show the value of a cell's last expression; a figure that was shown before is not shown again."""
        if not (self._forms.is_figure(value) and value in self._figures_seen()):
            self.display(value)

    def display(self, *objects: object, **options: "Any") -> "Optional[Handle]":
        """IPython's ``display``: ``raw``, ``include``, ``exclude`` and ``display_id`` mean what they mean there.

        Returns:
            A handle that can replace what was shown, if ``display_id`` is given.
        """
        key = options.get("display_id")
        if key is True:
            self._count += 1
            key = "display-%d" % self._count
        for value in objects:
            self._display_one(value, None if key is None else str(key), options)
        return None if key is None else Handle(self, str(key))

    def _display_one(self, value: "Any", key: "Optional[str]", options: "Dict[str, Any]") -> None:
        if not self._frames.accepts():
            return
        with muted():
            parts = self._forms.parts_of(value, options)
        if self._forms.is_figure(value):
            self._figures_seen().add(value)
        if parts:
            self._frames.send(parts, key)

    def publish(self, data: "Any", *_: object, **options: "Any") -> None:
        """IPython's ``publish_display_data``."""
        transient = options.get("transient")
        key = transient.get("display_id") if isinstance(transient, dict) else None
        self.display(data, raw=True, display_id=key)

    def update(self, value: object, **options: "Any") -> None:
        """IPython's ``update_display``."""
        self.display(value, **options)

    def figures(self) -> None:
        """Show every open matplotlib figure that was not shown yet, oldest first."""
        helpers: "Any" = sys.modules.get("matplotlib._pylab_helpers")
        if helpers is None:
            return
        managers = dict(helpers.Gcf.figs)
        for number in sorted(managers):
            self.last(managers[number].canvas.figure)

    def _figures_seen(self) -> "Any":
        if self._seen is None:
            from weakref import WeakSet

            self._seen = WeakSet()
        return self._seen

    def find_spec(self, asked: object, name: str, path: "Any", target: "Any") -> "Any":
        """The spec that the other finders give, with a loader that teaches the module once it is executed."""
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not asked else None
            if spec is not None:
                break
        else:
            return None
        if hasattr(spec.loader, "exec_module"):
            spec.loader = Teacher(spec.loader, self)
        return spec

    def teach(self, name: str, module: "Any") -> None:
        """Make a module of `run_once.WATCHED` show its values here."""
        if name == "matplotlib.pyplot":
            module.show = self._show_and_close(module)
            return
        ours = {
            "display": self.display,
            "update_display": self.update,
            "publish_display_data": self.publish,
            "clear_output": ignored,
        }
        for attribute in set(ours).intersection(vars(module)):
            setattr(module, attribute, ours[attribute])

    def _show_and_close(self, pyplot: "Any") -> "Callable[..., None]":
        def show(*_: object, **__: object) -> None:
            """Show the open figures, and close them as a window's user or a notebook does."""
            self.figures()
            pyplot.close("all")

        return show


def ignored(*_: object, **__: object) -> None:
    """IPython's ``clear_output``: what was shown has left this process."""


class Handle:
    """What ``display(..., display_id=...)`` returns."""

    def __init__(self, show: Show, display_id: str) -> None:
        """The value that ``show`` knows as ``display_id``."""
        self._show, self.display_id = show, display_id

    def __repr__(self) -> str:
        return "<DisplayHandle display_id=%s>" % self.display_id

    def display(self, value: object, **options: "Any") -> None:
        """Show ``value`` in place of what is there."""
        self._show.display(value, **dict(options, display_id=self.display_id))

    update = display


class Teacher:
    """A loader that steps aside before the module runs, and teaches it afterwards."""

    def __init__(self, loader: "Any", show: Show) -> None:
        """Stand before ``loader``."""
        self._loader, self._show = loader, show

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._loader, name)

    def create_module(self, spec: "Any") -> "Any":
        """Whatever the real loader makes."""
        return self._loader.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        """Run the module as its real loader does; then teach it."""
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        try:
            self._show.teach(module.__name__, module)
        except Exception:  # a version we do not know keeps its own way of showing
            pass


class muted:  # noqa: N801  # used as a statement, like contextlib.suppress
    """Keep what a repr prints or warns out of the program's output; other threads write on as before."""

    def __enter__(self) -> None:
        self._muted = [(name, Muted(getattr(sys, name, None))) for name in ("stdout", "stderr")]
        for name, stream in self._muted:
            setattr(sys, name, stream)

    def __exit__(self, *_: object) -> None:
        for name, stream in self._muted:
            stream.thread = None
            if getattr(sys, name, None) is stream:
                setattr(sys, name, stream.stream)


class Muted:
    """A stream that is deaf to the thread that made it."""

    def __init__(self, stream: "Any") -> None:
        """Stand for ``stream``."""
        self.stream = stream
        self.thread: "Optional[int]" = get_ident()

    def write(self, text: str) -> int:
        """What the stream does, or nothing."""
        if self.stream is None or get_ident() == self.thread:
            return len(text)
        return int(self.stream.write(text))

    def __getattr__(self, name: str) -> "Any":
        return getattr(self.stream, name)
