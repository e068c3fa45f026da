"""``main``: from the words of the shell to an exit status; every failure becomes a line on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Callable, NoReturn

from .. import doctor
from .._streams import fill_standard_streams
from ..checks import LANGUAGES
from ..errors import SandboxError, SpecError
from ._arguments import flag_of, guess_language, parse, sandbox_options
from ._input import Usage, code_of, input_of, whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TextIO

    from ..results import ExecutionResult
    from ..session import How, Session
    from ._stream import Sink

__all__ = ["main"]

EXIT_NOT_OK = 1
EXIT_USAGE = 2
EXIT_SANDBOX = 125
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_BROKEN_PIPE = 128 + 13  # SIGPIPE, which not every system has


class _Unwritten(Exception):
    """One of this process's own streams cannot be written."""

    def __init__(self, stream: str, error: OSError) -> None:
        super().__init__(stream)
        self.stream = stream
        self.error = error


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after the command's name; ``sys.argv[1:]`` if ``None``.

    Returns:
        The exit status: the code's own, or one of those that ``kern-sandbox run --help`` lists.
    """
    fill_standard_streams()
    with _interruptible():
        try:
            status = _status(sys.argv[1:] if argv is None else argv)
            _flush()
            return status
        except KeyboardInterrupt:
            _say(f"{_after_echo()}interrupted: the box was stopped, and all that ran in it")
            return EXIT_INTERRUPTED
        except _Unwritten as failure:
            return _unwritten(failure)


def _status(argv: Sequence[str]) -> int:
    """The command's status; its errors are reported here, where it is known how."""
    try:
        arguments = parse(argv)
    except SystemExit as end:  # argparse has said its words
        return end.code if isinstance(end.code, int) else EXIT_USAGE
    except OSError as error:
        raise _Unwritten("standard output", error) from error
    try:
        return _COMMANDS[arguments.command](arguments)
    except _Unwritten:
        raise
    except Usage as error:
        _say_error(arguments, error, str(error), "")
        return EXIT_USAGE
    except SandboxError as error:
        _say_error(arguments, error, str(error), error.hint)
        return EXIT_USAGE if isinstance(error, SpecError) else EXIT_SANDBOX
    except Exception as error:  # a defect of ours is reported, and shown with --debug
        words = f"the command itself failed: {type(error).__name__}: {error} (--debug shows where)"
        _say_error(arguments, error, words, "")
        return EXIT_SANDBOX


def _say_error(arguments: argparse.Namespace, error: Exception, words: str, hint: str) -> None:
    if arguments.debug:
        sys.stderr.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    flag = flag_of(arguments.command, words) if isinstance(error, SpecError) else ""
    _say(f"error: {flag}: {words}" if flag else f"error: {words}")
    if arguments.json:
        _print_json({"error": {"type": type(error).__name__.lstrip("_"), "message": words, "hint": hint}})


# The commands


def _doctor(arguments: argparse.Namespace) -> int:
    report = doctor()
    if arguments.json:
        _print_json(report.to_dict())
    else:
        _print(str(report))
    return 0 if report.ok else EXIT_NOT_OK


def _profiles(arguments: argparse.Namespace) -> int:
    from .._profiles import config_path, listing  # late: only this command needs it

    rows = listing()
    if arguments.json:
        _print_json({"path": config_path(), "profiles": rows})
    elif not rows:
        _print(f"no profiles in {config_path()}")
    for row in () if arguments.json else rows:
        gives = ", ".join(f"{name} {value}" for name, value in row["gives"].items())
        _print(f"{row['profile']:<20} {row['problem'] or gives}")
    return 0


def _image_command(arguments: argparse.Namespace) -> int:
    from . import _images as images  # late: no other command needs it

    verbs = {
        "pull": images.pulled, "images": images.listed, "rmi": images.removed, "load": images.loaded,
        "gc": images.collect,
    }  # fmt: skip
    plain, lines = verbs[arguments.command](arguments)
    if arguments.json:
        _print_json(plain)
    elif lines:
        _print("\n".join(lines))
    return 0


def _eval(arguments: argparse.Namespace) -> int:
    from ..evals import evaluate  # late: the other commands need none of it

    return evaluate(arguments)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.plan:
        return _plan(arguments)
    code, from_stdin = code_of(arguments)
    language = arguments.language or guess_language(code, arguments.file)
    if language is None:
        raise Usage(f"the #! line names an interpreter that boxes do not have; say --language {', '.join(LANGUAGES)}")
    with input_of(arguments, taken=from_stdin) as stdin:
        return _call(arguments, stdin, lambda session, how: session.run_code(code, language, how))


def _exec(arguments: argparse.Namespace) -> int:
    if arguments.plan:
        return _plan(arguments)
    if not arguments.argv:
        raise Usage("no program is named; say kern-sandbox exec -- PROGRAM [ARGUMENT ...]")
    with input_of(arguments, taken=False) as stdin:
        return _call(arguments, stdin, lambda session, how: session.run(arguments.argv, arguments.cwd, how))


def _serve(_: argparse.Namespace) -> int:
    from ..serve import main as serve

    return serve()


def _mcp(_: argparse.Namespace) -> int:
    from ..mcp import serve

    return serve()


def _completion(arguments: argparse.Namespace) -> int:
    try:
        from ._completion import script  # needs the extra

        _print(script(arguments.shell))
    except ImportError as error:
        raise Usage("completion needs shtab: pip install 'kern-sandbox[cli]'") from error
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from ..session import Session  # late: --help and --version need no engine

    with contextlib.closing(Session(arguments.workspace, sandbox_options(arguments))) as session:
        _print("\n".join(session.plan.lines()))
    return 0


def _call(arguments: argparse.Namespace, stdin: int | None, verb: Callable[[Session, How], ExecutionResult]) -> int:
    """One call, its output as JSON at the end, or live and followed by what the sandbox has to say."""
    from ..session import How, Session
    from ._stream import LiveSession, Sink, Streams

    options = sandbox_options(arguments)
    if arguments.json or arguments.render:
        with contextlib.closing(Session(arguments.workspace, options)) as session:
            result = _unfetched(session)
            if result is None:
                result = verb(session, How(stdin=whole(stdin, arguments.timeout_s)))
        _print_result(result, as_json=arguments.json)
        return result.exit_code
    sinks = [Sink(fd, arguments.max_output_bytes, raw=arguments.raw) for fd in (1, 2)]
    with contextlib.closing(LiveSession(arguments.workspace, options, Streams(stdin, *sinks))) as session:
        result = _unfetched(session)
        if result is None:
            result = verb(session, How())
    for sink in sinks:
        if sink.error is not None:
            raise _Unwritten({1: "standard output", 2: "standard error"}[sink.fd], sink.error)
    _conclude(result, sinks)
    return result.exit_code


def _unfetched(session: Session) -> ExecutionResult | None:
    """Fetch the image, which a person at a terminal sees; the result where that fails."""
    if session.spec.image is None:
        return None
    from ._images import progress

    with progress() as shown:
        return session.image_failure(shown)


def _conclude(result: ExecutionResult, sinks: Sequence[Sink]) -> None:
    lines = [f"note: {note}" for note in result.runtime_notes]
    for name, sink in zip(("standard output", "standard error"), sinks):
        if sink.truncated:
            lines.append(f"note: {name} went beyond --max-output-bytes; the rest was dropped")
    if result.fault is not None:
        lines.append(f"{result.fault.type}: {result.fault.message}")
    elif result.exit_code - 128 in set(signal.Signals):
        name = signal.Signals(result.exit_code - 128).name
        lines.append(f"note: {result.exit_code} is the exit status of a program that {name} has ended")
    if lines and not all(sink.at_line_start for sink in sinks if sink.fd == 2 or sink.terminal):
        lines[0] = "\n" + lines[0]
    for line in lines:
        _say(line)


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "exec": _exec,
    "doctor": _doctor,
    "profiles": _profiles,
    **dict.fromkeys(("pull", "images", "rmi", "load", "gc"), _image_command),
    "serve": _serve,
    "mcp": _mcp,
    "completion": _completion,
    "eval": _eval,
}

# What goes out


def _print(text: str) -> None:
    """Write a line to standard output, where it is open."""
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    except OSError as error:
        raise _Unwritten("standard output", error) from error


def _print_result(result: ExecutionResult, *, as_json: bool) -> None:
    if as_json:
        _print_json(result.to_dict())
        return
    from ..render import render

    _print(render(result))


def _print_json(value: object) -> None:
    _print(json.dumps(value, allow_nan=False))


def _say(text: str) -> None:
    """Write a line of the sandbox's own to standard error; nothing in it moves a terminal."""
    head = "\n" if text.startswith("\n") else ""
    line = "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text.strip())
    try:
        sys.stderr.write(f"{head}kern-sandbox: {line}\n")
        sys.stderr.flush()
    except (OSError, AttributeError):
        _let_go(sys.stderr)  # nobody can be told


def _after_echo() -> str:
    """A terminal has shown ``^C`` by then, and is not at the start of a line."""
    return "\n" if sys.stderr is not None and sys.stderr.isatty() else ""


def _flush() -> None:
    """Write everything out, which Python would else do after the last chance to say that it failed."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise _Unwritten("standard output", error) from error


def _let_go(stream: TextIO | None) -> None:
    """Nothing more can be written there: else Python tries again at its end, and the status is its own."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]  # suppressed


def _unwritten(failure: _Unwritten) -> int:
    """The status where nobody reads us, which is no error, or where a write failed, which is."""
    _let_go(sys.stdout)
    if isinstance(failure.error, BrokenPipeError):
        return EXIT_BROKEN_PIPE
    _say(f"error: writing to {failure.stream}: {os.strerror(failure.error.errno or 0)}; what ran was stopped")
    return EXIT_SANDBOX


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """The first Ctrl-C ends the box, and further ones do not disturb that."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    yield
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, before)


def _interrupt(*_: object) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
