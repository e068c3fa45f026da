"""A template: an interpreter that is booted and has run no user code, from which boxes for Python are forked.

A stem starts it in the base that boxes share, with no capability, and it does what a stem does: clone a child into
fresh namespaces below its own. The child is an init like any other; only its program is not another interpreter but a
fork of this one.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Callable

from .._box.confine import Confinement
from .._box.plan import GUEST, Plan, from_wire
from .._linux import caps, fds, processes
from . import wire
from .cradle import Cradle
from .preload import PreloadFailed, import_all, reseed

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from .init import Snippet

__all__ = ["become_fresh", "hide", "serve", "start", "take_environment"]


_FREE = 20
_PROGRAM = f"{GUEST}/template.py"


def _terms(plan: Plan, part: Confinement) -> bytes:
    """What a template needs to know, for a file that it inherits."""
    known = {"plan": plan.to_wire(), "part": {**part._asdict(), "program": part.program.hex()}}
    return json.dumps(known).encode("ascii")


def serve(control_fd: int, terms_fd: int, get_ready: Callable[[], object]) -> Snippet:
    """Make boxes until ``control_fd`` ends; returns only in the process of a snippet, which is to run it.

    Args:
        control_fd: frames from and to the fork server.
        terms_fd: a file with what ``start`` was given.
        get_ready: called in the process of a snippet before it has its order.
    """
    with open(terms_fd, "rb") as file:
        known = json.load(file)
    part = Confinement(**{**known["part"], "program": bytes.fromhex(known["part"]["program"])})
    processes.reset_signals()  # an interrupt from a box must not reach what Python does about it
    control = socket.socket(fileno=control_fd)
    os.set_inheritable(control_fd, False)
    caps.set_parent_death(signal.SIGKILL)
    compile("", "", "exec", 0x400)  # the tree of a program is set up once, which takes a millisecond
    plan = from_wire(known["plan"])
    try:
        notes = import_all(plan.preload) if plan.preload else []
        cradle = Cradle(plan, part, nested=True, get_ready=get_ready)
        wire.send(control, {"ready": True, "notes": notes})
        snippet = cradle.serve(control)
    except PreloadFailed as error:
        wire.reply(control, {"failed": "preload", "text": str(error)})
        os._exit(1)
    except Exception as error:  # nobody reads this process's standard error: the fork server is told instead
        wire.reply(control, {"failed": "template", "text": f"{type(error).__name__}: {error}"})
        raise
    assert snippet is not None
    control.detach()  # its number is another descriptor's by now
    return snippet


def hide(baseline: Container[str]) -> list[object]:
    """Take our own modules out of sight: whoever imports one of the same name from now on gets one of their own.

    Args:
        baseline: names of the modules that a started interpreter has.

    Returns:
        What was hidden, which must live on.
    """
    ours = {name for name, module in sys.modules.items() if name not in baseline and _is_ours(module)}
    # With a package goes what is below it: `collections.abc` is another name of a frozen module on Python 3.13.
    below = {name for name in sys.modules if name not in baseline and name.rpartition(".")[0] in ours}
    return [sys.modules.pop(name) for name in ours | below]


def become_fresh() -> None:
    """Leave nothing in this process that tells it from an interpreter that has just started, save what it is given."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reseed()
    gc.enable()


def take_environment(env: Mapping[str, str]) -> None:
    """Have the variables ``env`` and no others; most are there since the template was started with them."""
    for name in [name for name in os.environ if name not in env]:
        del os.environ[name]
    for name, value in env.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _is_ours(module: object) -> bool:
    """Whether it is Python code, which imports anew; what is built in or C code stays, for it is set up only once."""
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return isinstance(origin, str) and origin.endswith((".py", ".pyc"))


def start(control: socket.socket, plan: Plan, part: Confinement) -> None:
    """In a fresh child of a stem: become a template, or say why its interpreter cannot be one. Never returns."""
    known = fds.memory_file("kern-terms", _terms(plan, part))
    away = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FREE) for fd in (control.fileno(), known)]
    for target, fd in enumerate(away, 3):
        os.dup2(fd, target, inheritable=True)
    _take_pipes()
    processes.close_except([3, 4])
    try:
        os.execve(plan.python, [plan.python, _PROGRAM], dict(plan.env))
    except OSError as error:
        how = "was not found" if error.errno == errno.ENOENT else f"cannot be executed ({error.strerror})"
        failed = "preload" if plan.preload else "template"
        wire.reply(socket.socket(fileno=3), {"failed": failed, "text": f"{plan.python} {how} in {plan.userland}"})
        os._exit(1)


def _take_pipes() -> None:
    """Standard streams of the kind that a snippet will have: Python looks at them once, when it starts."""
    for target, end in ((0, 0), (1, 1), (2, 1)):
        os.dup2(os.pipe()[end], target, inheritable=True)
