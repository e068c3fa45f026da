"""The session of a kernel: one namespace, one cell after another, and copies of all of it when the host asks.

A *branch* is a process whose memory is the session. It answers on a socket of its own: ``{"done": N, "code": C}`` for
a cell. A *copy* is a fork of a branch that waits, unchanged, on a line of its own, and forks a new branch each time
that it is asked. Stdlib only, Python 3.8 or later; loaded by `keeper`.
"""

import io
import linecache
import os
import signal
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Callable, Dict, List, NoReturn, Optional

HIGH = 900  # our own descriptors lie above what code closes that closes "all"; a box's limit is 1024
KEPT_CELLS = 200
KEPT_BYTES = 8 << 20
MODES = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
UNCAUGHT, LOST, INTERRUPTED = 1, 70, 130
COROUTINE = 0x80  # CO_COROUTINE, inspect


class Streams:
    """Descriptors 0, 1 and 2 and Python's names for them, put right again before each cell."""

    def __init__(self, cell: "ModuleType") -> None:
        """Take the standard streams as they are now for the right ones."""
        self.identity_of: "Any" = cell.identity_of
        self.ours: "Dict[str, Any]" = {name: getattr(sys, name) for name, _ in MODES}
        self.spares = [high(os.dup(number)) for number in range(3)]
        self.identities = [self.identity_of(fd) for fd in self.spares]

    def restore(self) -> None:
        """Undo what the code did to them: closed, replaced, redirected, made non-blocking."""
        for number, spare in enumerate(self.spares):
            if self.identity_of(number) != self.identities[number]:
                os.dup2(spare, number, inheritable=True)
            if not os.get_blocking(number):
                os.set_blocking(number, True)
        for number, (name, mode) in enumerate(MODES):
            if is_lost(self.ours[name]):
                self.ours[name] = opened(number, mode)
                setattr(sys, "__%s__" % name, self.ours[name])
            if getattr(sys, name, None) is not self.ours[name]:
                setattr(sys, name, self.ours[name])

    def replace(self, fds: "List[int]") -> None:
        """Use ``fds`` as standard output and error from now on."""
        for number, fd in enumerate(fds, 1):
            for target in (number, self.spares[number]):
                os.dup2(fd, target, inheritable=target == number)
            self.identities[number] = self.identity_of(fd)
            os.close(fd)

    def flush(self) -> None:
        """Hand over everything that is buffered."""
        for stream in {id(each): each for each in (sys.stdout, sys.stderr, *self.ours.values())}.values():
            try:
                stream.flush()
            except BaseException:  # whatever stands there is the code's own
                pass


def high(fd: int) -> int:
    """The same file under a high number, close-on-exec."""
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(fd)
    return moved


def is_lost(stream: "Any") -> bool:
    """Whether a stream is closed or detached."""
    try:
        return stream is None or bool(stream.closed)
    except ValueError:
        return True


def opened(number: int, mode: str) -> "Any":
    """A stream as Python opens it at its start with PYTHONUNBUFFERED."""
    raw: "Any" = io.FileIO(number, mode, closefd=False)
    errors = "strict" if mode == "r" else "backslashreplace"
    return io.TextIOWrapper(raw if mode == "w" else io.BufferedReader(raw), "utf-8", errors, write_through=mode == "w")


class Session:
    """One branch: what it holds, and its answers to the host."""

    def __init__(self, load: "Callable[[str], ModuleType]", frames: "ModuleType", libc: "Any") -> None:
        """In a fresh fork of the keeper; ``libc`` is the C library."""
        self.cell: "Any" = load("cell")
        self.ending: "Any" = load("ending")
        self.copying: "Any" = load("copying")
        self.load = load
        self.frames: "Any" = frames
        self.flush_c: "Any" = libc.fflush
        self.line: "Any" = None
        self.high = high
        self.pid = os.getpid()
        self.armed = self.missed = False
        self.loop: "Any" = None
        self.kept: "List[str]" = []
        self.kept_bytes = 0

    def run(self, control: int, out: int, err: int, values: int) -> None:
        """Serve until the host's line ends. The descriptors become the session's own."""
        for number, fd in ((1, out), (2, err)):
            os.dup2(fd, number, inheritable=True)
            os.close(fd)
        self.line = self.frames.Line(high(control))
        self.values = self.cell.Values(self.load)
        self.values.attach(high(values))
        self.streams = Streams(self.cell)
        self.namespace = new_main()
        self.cell.enter("")
        self.cell.keep_lone_surrogates()
        self.values.install()
        os.register_at_fork(after_in_child=self.leave)
        signal.signal(signal.SIGINT, self.interrupt)
        self.line.send(pid=self.pid)
        while True:
            try:
                self.serve()
            except BaseException as error:  # a signal's handler of the code's own, between two cells
                self.report(error, "")

    def serve(self) -> None:
        """Answer one request."""
        word = self.line.receive()
        if word is None:
            os._exit(0)
        body, fds = word
        if "run" in body:
            self.run_cell(body["run"], body["code"])
        elif "freeze" in body:
            self.copying.freeze(self, fds[0])
        elif "begin" in body:
            os.setsid()

    # One cell

    def run_cell(self, number: int, text: str) -> None:
        """Run a cell and say how it ended."""
        path = "<cell %d>" % number
        source = text.encode("utf-8", "surrogatepass")
        code = INTERRUPTED
        try:
            self.streams.restore()
            self.values.restart()
            self.remember(path, source)
            if signal.getsignal(signal.SIGINT) != self.interrupt:
                signal.signal(signal.SIGINT, self.interrupt)
            self.missed, self.armed = False, True
            code = self.executed(source, path)
        except BaseException as error:  # an interrupt, or a handler of the code's, as the cell was ending
            self.report(error, path)
        self.armed = False
        if os.getpid() != self.pid:
            self.end_child(code)
        self.streams.flush()
        self.flush_c(None)
        try:
            self.line.send(done=number, code=code)
        except OSError:
            self.say("the code has closed the kernel's own descriptors")
            os._exit(LOST)

    def executed(self, source: bytes, path: str) -> int:
        """Run a cell as a notebook does; its exit code."""
        value = None
        try:
            body, last, awaits = self.cell.compiled(source, path)
            if self.missed:
                raise KeyboardInterrupt
            if awaits:
                value = self.awaited(body, last)
            else:
                exec(body, self.namespace)
                value = last and eval(last, self.namespace)  # noqa: S307  # what this file is for
            code = 0
        except SystemExit as error:
            code = self.ending.status_of(error)
        except BaseException as error:  # the code's own, of any kind; it costs only this cell
            self.report(error, path)
            code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else UNCAUGHT
        if os.getpid() == self.pid:
            self.show(value)
        return code

    def show(self, value: object) -> None:
        """Show the value and the open figures, and close these, or the next cell would draw into them unseen."""
        self.values.finish(value)
        pyplot: "Any" = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            try:
                pyplot.close("all")
            except Exception:  # half imported, or the code's own module of that name
                pass

    def awaited(self, body: "CodeType", last: "Optional[CodeType]") -> object:
        """Run a cell that awaits at its top level in the session's own event loop."""
        loop = self.event_loop()

        async def value_of(code: "CodeType") -> object:
            value = eval(code, self.namespace)  # noqa: S307  # what this file is for
            return await value if code.co_flags & COROUTINE else value

        async def whole() -> object:
            await value_of(body)
            return last and await value_of(last)

        task = loop.create_task(whole())
        try:
            return loop.run_until_complete(task)
        except BaseException:  # an interrupt leaves the task half done; what a task raised passes through
            if not task.done() and not loop.is_closed():
                task.cancel()
                loop.run_until_complete(self.copying.quietly(task))
            raise

    def event_loop(self) -> "Any":
        """The session's loop: by poll(2), which keeps nothing in Linux, so that a fork has one of its own."""
        import asyncio
        import selectors

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        asyncio.set_event_loop(self.loop)
        return self.loop

    def remember(self, path: str, source: bytes) -> None:
        """Let tracebacks and `inspect` find the lines of the last cells."""
        lines = source.decode("utf-8", "replace").splitlines(True)
        linecache.cache[path] = (len(source), None, lines, path)
        self.kept.append(path)
        self.kept_bytes += len(source)
        while len(self.kept) > KEPT_CELLS or (self.kept_bytes > KEPT_BYTES and len(self.kept) > 1):
            entry: "Any" = linecache.cache.pop(self.kept.pop(0), None)
            self.kept_bytes -= entry[0] if entry else 0

    def report(self, error: BaseException, path: str) -> None:
        """Print a traceback as the interpreter would, from the cell's first line on."""
        try:
            trace = self.cell.without_guest(error.__traceback__, path)
            BaseException.with_traceback(error, trace)
            sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
            if sys.excepthook is sys.__excepthook__:
                traceback.print_exception(type(error), error, trace)
            else:
                sys.excepthook(type(error), error, trace)
        except BaseException as worse:  # the stream, the hook or the error's own text is the code's
            self.say("%s, and %s in reporting it" % (type(error), type(worse)))

    def say(self, words: str) -> None:
        """Write to standard error past all of Python's own ways, where there is one."""
        try:
            os.write(2, (words + "\n").encode("utf-8", "replace"))
        except OSError:
            return

    # Signals and forks

    def interrupt(self, _: int, frame: "Any") -> None:
        """SIGINT: an interrupt to the code, never to the session's own lines."""
        if not self.armed:
            return
        if frame is not None and frame.f_code.co_filename == __file__:
            self.missed = True
            return
        raise KeyboardInterrupt

    def leave(self) -> None:
        """In a child: it is not the session, or not yet."""
        if self.line is not None:
            self.line.close()
            self.line = None

    def end_child(self, code: int) -> "NoReturn":
        """A child that the code forked has come to the end of its cell: so it ends."""
        self.streams.flush()
        self.flush_c(None)
        os._exit(code)


def new_main() -> "Dict[str, Any]":
    """Put a ``__main__`` in place such as an interactive interpreter has, and return its namespace."""
    main = type(sys)("__main__")
    names = vars(main)
    names["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    return names
