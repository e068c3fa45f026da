"""Run one file as a fresh ``python FILE`` would, and show its values as a notebook would.

What the code can observe is the plain interpreter: its own ``__main__``, tracebacks without a frame of ours, and
CPython's own exit (exceptions pass through `run_file`, their end is not imitated). On top of it values are shown:
each is written to a descriptor by ``show.py``, which is loaded when there is a first value to show.
Stdlib only, Python 3.8 or later. Every box pays for every import here, so annotations are builtins or quoted.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType, TracebackType
    from typing import Any, Callable, Iterator, Optional, Tuple

    Parts = Tuple[CodeType, Optional[CodeType], bool]

HERE = os.path.dirname(os.path.abspath(__file__))
DEPS = "/workspace/.deps"

WATCHED = frozenset(["matplotlib.pyplot", "IPython.core.display", "IPython.core.display_functions"])
"""Modules that are taught, when the code imports them, to show values here."""

ONLY_AST = 0x400  # `ast.PyCF_ONLY_AST` and its neighbours, without importing ast and inspect
ALLOW_TOP_LEVEL_AWAIT = 0x2000
CO_COROUTINE = 0x80


def run_file(path: str, results_fd: int, load: "Callable[[str], ModuleType]", ready: "Optional[Ready]" = None) -> None:
    """Run the file as ``__main__``; returns, or raises what the caller must let through to the interpreter.

    Args:
        path: the code, absolute.
        results_fd: where values go; closed in every child. Without one (a closed descriptor), values are dropped.
        load: gives a neighbour of this file by name.
        ready: what was prepared for ``path`` before it was there.
    """
    values, namespace = ready or Ready(path, load)
    values.attach(results_fd)
    enter(path)
    try:
        with open(path, "rb") as file:
            body, last, awaits = compiled(file.read(), path)
        if awaits:
            value = run_awaiting(body, last, namespace)
        else:
            exec(body, namespace)
            value = last and eval(last, namespace)  # noqa: S307  # what this file is for
    except SystemExit:
        values.finish()
        raise
    except BaseException:  # it goes on to the interpreter; only its traceback is changed on the way
        sys.excepthook = reporter(path, values)
        raise
    values.finish(value)


def keep_lone_surrogates() -> None:
    """Let ``print`` show half a character as its escape instead of stopping the code; standard error does already."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def new_main(path: str) -> "dict[str, Any]":
    """Put a ``__main__`` in place such as ``python path`` has, and return its namespace."""
    replaced = vars(sys.modules["__main__"])
    main = type(sys)("__main__")
    names = vars(main)
    names["__loader__"] = file_loader()("__main__", path)
    if "__annotations__" in replaced:
        names["__annotations__"] = {}
    names["__builtins__"] = sys.modules["builtins"]
    names["__file__"] = path
    if "__cached__" in replaced:
        names["__cached__"] = None
    sys.modules["__main__"] = main
    return names


def enter(path: str) -> None:
    """Set what ``python path`` sets: arguments, and the directory that its imports start from.

    In a Sandbox with a setup that directory comes last: what an earlier call left there must not take the place of
    an installed module.
    """
    sys.argv = [path]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [*sys.orig_argv[:1], path]
    try:
        start = os.getcwd()
    except OSError:
        start = ""
    own = bool(sys.path) and sys.path[0] == HERE
    if sys.prefix == DEPS:
        sys.path[:] = [*sys.path[own:], start]
    elif own:
        sys.path[0] = start
    else:
        sys.path.insert(0, start)


def compiled(source: bytes, path: str) -> "Parts":
    """Compile a cell, once, so that it is warned about once; a syntax error is CPython's own.

    Returns:
        All but the last expression, that expression if its value is to be shown, and whether they are to be awaited.
    """
    try:
        tree: "Any" = compile(source, path, "exec", ONLY_AST, True)
        last = last_expression(tree, source)
        return compiled_tree(tree, last, path)
    except RecursionError:  # too deep for a tree of objects, but perhaps not for the compiler
        pass
    return compile(source, path, "exec", 0, True), None, False


def compiled_tree(tree: "Any", last: "Any", path: str) -> "Parts":
    """Compile as a file is, and only where that fails as a notebook's cell, which may await at its top level."""

    def parts(flags: int) -> "Parts":
        body = compile(tree, path, "exec", flags, True)
        return body, last and compile(last, path, "eval", flags, True), bool(flags)

    try:
        return parts(0)
    except SyntaxError as error:
        plain_error = error
    try:
        return parts(ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        pass
    raise plain_error


def last_expression(tree: "Any", source: bytes) -> "Any":
    """Cut the last statement off ``tree`` if a notebook would show its value; ``None`` otherwise."""
    if not tree.body or type(tree.body[-1]).__name__ != "Expr":
        return None
    statement = tree.body[-1]
    if followed_by_semicolon(statement, source):
        return None
    import _ast

    tree.body.pop()
    return _ast.Expression(body=statement.value)


def followed_by_semicolon(statement: "Any", source: bytes) -> bool:
    """Whether ``;`` comes after the last statement. Positions count bytes of UTF-8, as the code is sent."""
    if source.startswith(b"\xef\xbb\xbf"):
        source = source[3:]
    lines = source.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[statement.end_lineno - 1 :]
    lines[0] = lines[0][statement.end_col_offset :]
    return b"\n".join(lines).lstrip(b" \t\f\n\\").startswith(b";")


def run_awaiting(body: "CodeType", last: "Optional[CodeType]", namespace: "dict[str, Any]") -> object:
    """Run a cell that awaits at its top level, all of it in one event loop."""
    import asyncio

    async def evaluated(code: "CodeType") -> object:
        value = eval(code, namespace)  # noqa: S307  # what this file is for
        return await value if code.co_flags & CO_COROUTINE else value

    async def cell() -> object:
        await evaluated(body)
        return last and await evaluated(last)

    return asyncio.run(cell())


def reporter(path: str, values: "Values") -> "Callable[..., None]":
    """A last ``sys.excepthook``: the code's own (or CPython's), given a traceback that begins at its first line."""
    hook = sys.excepthook

    def report(kind: "type[BaseException]", error: BaseException, trace: "Optional[TracebackType]") -> None:
        trace = without_guest(trace, path)
        BaseException.with_traceback(error, trace)
        sys.excepthook = hook
        sys.last_traceback = trace
        try:
            hook(kind, error, trace)
        finally:
            values.finish()

    return report


def without_guest(trace: "Optional[TracebackType]", path: str) -> "Optional[TracebackType]":
    """The part of a traceback that a plain interpreter has: from the code's file on, without our frames."""
    links = []
    while trace is not None:
        if os.path.dirname(trace.tb_frame.f_code.co_filename) != HERE:
            links.append(trace)
        trace = trace.tb_next
    files = [link.tb_frame.f_code.co_filename for link in links]
    links = links[files.index(path) if path in files else 0 :]
    for link, following in zip(links, [*links[1:], None]):
        if link.tb_next is not following:
            link.tb_next = following
    return links[0] if links else None


class Ready:
    """What a file needs before it runs, all that can be had without it.

    Attributes:
        values: to be attached to the results descriptor.
        namespace: of its ``__main__``.
    """

    def __init__(self, path: str, load: "Callable[[str], ModuleType]") -> None:
        self.values = Values(load)
        self.namespace = new_main(path)
        keep_lone_surrogates()
        self.values.install()
        body, last, _ = compiled(b"1", path)  # as a file will be: what that sets up stands when it comes
        exec(body, {})
        last and eval(last, {})  # noqa: S307  # it is ours

    def __iter__(self) -> "Iterator[Any]":
        return iter((self.values, self.namespace))


class Values:
    """The results descriptor, and ``show.py`` from the first value on."""

    def __init__(self, load: "Callable[[str], ModuleType]") -> None:
        self._fd = -1
        self._load = load
        self._identity: "Optional[Tuple[int, int]]" = None
        self._show: "Any" = None

    def attach(self, fd: int) -> None:
        """Take over ``fd``: no child of this process, forked or executed, will hold it."""
        self.reopen(fd)
        if self._identity is not None:
            os.set_inheritable(fd, False)
            os.register_at_fork(after_in_child=self._leave)

    def install(self) -> None:
        """Offer ``display`` as a builtin, and watch for libraries that have values to show."""
        import builtins

        def display(*objects: object, **options: object) -> object:
            """Show each object as a notebook does; ``display(bundle, raw=True)`` shows MIME data as given."""
            return self.show().display(*objects, **options)

        display.__module__, display.__qualname__ = "builtins", "display"
        builtins.display = display  # type: ignore[attr-defined]  # that is the point: a builtin more
        os.environ.setdefault("MPLBACKEND", "agg")
        # A kernel may be forked from an interpreter that watches already; two would ask each other for ever.
        others = [finder for finder in sys.meta_path if type(finder).__name__ != type(self).__name__]
        sys.meta_path[:] = [self, *others]
        for name in WATCHED.intersection(sys.modules):
            self.show().teach(name, sys.modules[name])

    def show(self) -> "Any":
        """The `show.Show` of this process."""
        if self._show is None:
            self._show = self._load("show").Show(self._fd, self.is_open, self._load)
        return self._show

    def is_open(self) -> bool:
        """Whether the descriptor is still what we were given: the code may have closed it or put a file there."""
        return self._identity is not None and identity_of(self._fd) == self._identity

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """The import system's question; answered only for the modules we watch."""
        return self.show().find_spec(self, name, path, target) if name in WATCHED else None

    def finish(self, value: object = None) -> None:
        """Show the last expression's value and the open figures; what fails here never reaches the code."""
        try:
            if value is not None:
                self.show().last(value)
            if "matplotlib.pyplot" in sys.modules:
                self.show().figures()
        except BaseException:  # what cannot be shown must not change how the code ended
            pass

    def restart(self) -> None:
        """Begin a new call (a kernel's next cell)."""
        if self._show is not None:
            self._show.restart()

    def reopen(self, fd: int) -> None:
        """Show on the pipe ``fd`` from now on."""
        self._fd, self._identity = fd, identity_of(fd)
        if self._show is not None:
            self._show.reopen(fd)

    def _leave(self) -> None:
        """In a forked child: let the descriptor go."""
        if self.is_open():
            os.close(self._fd)
        self._identity = None


def identity_of(fd: int) -> "Optional[Tuple[int, int]]":
    """What ``fd`` leads to, or ``None`` if it is closed."""
    try:
        found = os.fstat(fd)
    except (OSError, OverflowError):
        return None
    return found.st_dev, found.st_ino


def file_loader() -> "Any":
    """`importlib.machinery.SourceFileLoader`, without importing importlib."""
    return sys.modules["_frozen_importlib_external"].SourceFileLoader
