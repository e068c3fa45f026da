"""Copies of a session: forks that wait, and the branches that are forked from them.

The copy is forked twice, so that the keeper becomes its parent, and so is each branch of it. Both say their number to
the host, and leave the session of processes that they were born into only when the host has told the keeper of them.
Stdlib only, Python 3.8 or later; loaded by `repl`.
"""

import os
import sys
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional


def freeze(session: "Any", fd: int) -> None:
    """Fork a copy that waits on ``fd``; returns in the session, and again in every branch of the copy."""
    session.streams.flush()
    session.flush_c(None)
    state = random_state()
    failed = forked_twice()
    if failed is None:
        try:
            wait(session, fd, state)
        except BaseException:  # nobody reads what a copy could say; the host sees its end
            os._exit(70)
        return
    os.close(fd)
    session.line.send(failed=failed)


def forked_twice() -> "Optional[int]":
    """``None`` in a grandchild, whose parent is gone; here 0, or the number of the error that there was."""
    try:
        pid = fork()
    except OSError as error:
        return error.errno or 1
    if pid == 0:
        try:
            grandchild = fork()
        except OSError as error:
            os._exit(error.errno or 1)
        if grandchild == 0:
            return None
        os._exit(0)
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:  # a handler of the code's own was faster
        return 0
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1


def fork() -> int:
    """Fork without a warning about threads: what becomes of them is documented."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def wait(session: "Any", fd: int, state: "Any") -> None:
    """Be a copy, which never returns; what returns is a branch of it."""
    line = session.frames.Line(session.high(fd))
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    session.streams.replace([os.dup(null), null])
    line.send(pid=os.getpid())
    while True:
        try:
            word = line.receive()
        except BaseException:  # a signal's handler of the code's own
            word = {}, []
        if word is None:
            os._exit(0)
        body, fds = word
        if "begin" in body:
            os.setsid()
        if "reseed" not in body:
            continue
        failed = forked_twice()
        if failed is None:
            line.close()
            become_branch(session, fds)
            renew_chance(state, body["reseed"])
            session.line.send(pid=session.pid)
            return
        for each in fds:
            os.close(each)
        line.send(failed=failed)


def become_branch(session: "Any", fds: "List[int]") -> None:
    """Take the host's descriptors in place of those of the branch that was copied."""
    control, out, err, values = fds
    session.pid = os.getpid()
    session.armed = False
    session.line = session.frames.Line(session.high(control))
    session.streams.replace([out, err])
    session.values.reopen(session.high(values))
    loop = session.loop
    if loop is not None and not loop.is_closed():
        try:
            for step in ("_close_self_pipe", "_make_self_pipe"):  # it is shared with the branch that was copied
                getattr(loop, step)()
        except Exception:  # not asyncio's own any more
            session.loop = None


def random_state() -> "Any":
    """The state of `random`, which every fork seeds anew."""
    try:
        return sys.modules["random"].getstate()
    except Exception:  # absent, or a module of the code's own
        return None


def renew_chance(state: "Any", reseed: bool) -> None:
    """Let `random` and `numpy.random` go on as in the copied branch, or, if ``reseed``, differ from it."""
    try:
        if not reseed and state is not None:
            sys.modules["random"].setstate(state)
        if reseed and "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
    except Exception:  # modules of the code's own
        return


async def quietly(task: "Any") -> None:
    """Wait for a cancelled task, whatever it raises."""
    try:
        await task
    except BaseException:  # its outcome is told already
        return
