"""The end of a snippet that runs in a fork of a booted interpreter, as CPython ends a program (``Py_RunMain``).

An interpreter that ends takes down everything that it ever made. In a fork that would copy all of the template's memory
only to free it, so what the snippet made is taken down here, and the rest goes with the process. Stdlib only, Python
3.8 or later.
"""

import atexit
import gc
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

FLUSH_FAILED = 120  # Py_RunMain's status when standard output cannot be flushed


def run_to_the_end(body: "Callable[[], None]") -> None:
    """Run ``body`` as a program's main part; the process ends in here."""
    main_modules = frozenset(sys.modules)
    interrupted = False
    try:
        body()
        status = 0
    except SystemExit as error:
        status = status_of(error)
    except BaseException as error:  # what a program may raise; the interpreter would report it in just this way
        report(error)
        status = 1
        interrupted = isinstance(error, KeyboardInterrupt)
    end(main_modules, status, interrupted)


def status_of(error: SystemExit) -> int:
    """Exit status of a program that ends with ``error``; what is no number is printed."""
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    try:
        print(code, file=sys.stderr)
    except Exception:  # the stream or the object is the program's own, and either may fail in any way
        return 1
    return 1


def report(error: BaseException) -> None:
    """Call ``sys.excepthook``, or what CPython falls back on."""
    details = (type(error), error, error.__traceback__)
    try:
        sys.excepthook(*details)
    except SystemExit:
        raise
    except BaseException:  # a hook of the program's own may raise anything; then the error itself is shown
        sys.__excepthook__(*details)


def end(main_modules: "frozenset[str]", status: int, interrupted: bool) -> None:
    """Wait for threads, run exit functions, finalise the program's objects, flush, and end the process."""
    # Names that CPython's own C code calls at this point.
    join_threads = getattr(sys.modules.get("threading"), "_shutdown", None)
    run_exit_functions = getattr(atexit, "_run_exitfuncs")  # noqa: B009  # as above
    for step in (*([join_threads] if join_threads else []), run_exit_functions):
        try:
            step()
        except BaseException as error:  # an exit function or an interrupt; CPython prints it and goes on
            sys.__excepthook__(type(error), error, error.__traceback__)
    first = flush()
    finalise(main_modules)
    if not (first and flush()):
        status = FLUSH_FAILED
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def flush() -> bool:
    """Flush standard output and error; whether output went well."""
    went_well = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BaseException:  # whatever stands there is the program's own
            went_well = went_well and stream is not sys.stdout
    return went_well


def finalise(main_modules: "frozenset[str]") -> None:
    """Let go of what the program made, in CPython's order: names of ``__main__``, then its modules, then cycles."""
    streams = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
    kept = [getattr(sys, name, None) for name in streams]  # flushed at the very end
    main: "dict[str, Any]" = vars(sys.modules.get("__main__", sys))
    if main is not vars(sys):
        for private in (True, False):
            for name in [name for name in main if name.startswith("_") is private and name != "__builtins__"]:
                main[name] = None
    for name in [name for name in sys.modules if name not in main_modules]:
        if is_the_programs_own(sys.modules.get(name)):
            del sys.modules[name]
    gc.collect()
    del kept


def is_the_programs_own(module: "Any") -> bool:
    """Whether a module lies in the workspace: a library's own objects are not worth taking down one by one."""
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and path.startswith(os.getcwd() + "/")
