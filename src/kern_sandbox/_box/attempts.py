"""One attempt for each layer of a box: made in a forked child, which may do to itself whatever it likes.

Only for an interpreter that is asked nothing else (see ``probe``): a fork needs a process with one thread.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from .._linux import caps, fds, landlock, mounts, netns, processes, seccomp
from .._linux.abi import Clone, MountAttr, Prctl
from .._linux.libc import syscall
from .filter import FilterPolicy, compile_filter, describe
from .probe_limits import try_limits
from .rootfs import host_userland

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["try_all"]

_ATTEMPT_S = 40  # systemd alone may take half of it on a busy machine
_HOST_ID = 0x70000000
_STAGE = "/proc"
_FRESH = Clone.NEWNS | Clone.NEWPID | Clone.NEWIPC | Clone.NEWUTS

Body = Callable[[], Any]


def try_all() -> dict[str, dict[str, Any]]:
    """The outcome of every attempt by its name; ``probe.gather`` says what is in it."""
    return {name: _attempt(body) for name, body in _bodies().items()}


def _bodies() -> dict[str, Body]:
    private = Clone.NEWNS | Clone.NEWPID
    return {
        "limits": try_limits,  # first: it may move its process, which must have no children yet
        "user": lambda: _inside(Clone(0), os.getuid),
        "nested": lambda: _inside(_FRESH, _nest),
        "mount": lambda: _inside(Clone.NEWNS, lambda: mounts.make_private("/")),
        "pid": lambda: _inside(Clone.NEWPID, os.getpid),
        "ipc": lambda: _inside(Clone.NEWIPC, bool),
        "uts": lambda: _inside(Clone.NEWUTS, lambda: socket.sethostname("sandbox")),
        "cgroup": lambda: _inside(Clone(0), lambda: syscall("unshare", Clone.NEWCGROUP)),
        "network": lambda: _inside(Clone.NEWNET, _talk_to_itself),
        "proc": lambda: _inside(private, _fresh_proc),
        "root": lambda: _inside(private, _read_only_root),
        "idmap": _map_mount_ids,
        "capabilities": lambda: _inside(Clone(0), functools.partial(_drop_all, caps.last_capability())),
        "seccomp": _filter_calls,
        "listener": _name_blocked_call,
        "landlock": _restrict_writes,
        "pidfd": _hold_process,
        "temporary": _use_temporary,
        "interpreters": _find_interpreters,
    }


# One attempt


def _attempt(body: Body) -> dict[str, Any]:
    """What ``body`` gives in a forked child, which may do to itself whatever it likes."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(reader)
        _answer(body, writer)
    os.close(writer)
    outcome = _outcome(reader, pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # whom a failed attempt left waiting
    return outcome


def _outcome(reader: int, pid: int) -> dict[str, Any]:
    """What a child has said by its end; others of its kin may hold the pipe for longer."""
    _, status = os.waitpid(pid, 0)
    os.set_blocking(reader, False)
    with open(reader, "rb", buffering=0) as file:
        said = file.read(1 << 16)
    if said:
        outcome = json.loads(said)
        assert isinstance(outcome, dict)
        return outcome
    number = os.WTERMSIG(status)
    words = "gave no answer in time" if number == signal.SIGALRM else f"was ended by signal {number}"
    return {"ok": False, "signal": number, "text": f"the attempt {words}"}


def _answer(body: Body, writer: int) -> NoReturn:
    signal.alarm(_ATTEMPT_S)
    said: dict[str, Any]
    try:
        said = {"ok": True, "value": body()}
    except OSError as error:
        words = error.strerror or str(error)
        said = {"ok": False, "errno": error.errno, "text": f"{words} ({error.filename})" if error.filename else words}
    except BaseException as error:  # whatever went wrong is the outcome of the attempt
        said = {"ok": False, "text": f"{type(error).__name__}: {error}"}
    os.write(writer, json.dumps(said).encode())
    os._exit(0)


def _inside(namespaces: Clone, body: Body) -> Any:
    """What ``body`` gives as uid 0 of a new user namespace, and of others beside it.

    Root's interpreter may stand where that unprivileged process cannot read: ``body`` imports nothing, codecs included.

    Raises:
        OSError: as Linux refused it.
    """
    privileged = os.geteuid() == 0
    outside = (_HOST_ID, _HOST_ID) if privileged else (os.geteuid(), os.getegid())
    reader, writer = os.pipe2(os.O_CLOEXEC)
    mapped, go = os.pipe2(os.O_CLOEXEC)
    child = processes.clone(Clone.NEWUSER | namespaces)
    if child.pid == 0:
        for fd in (reader, go):
            os.close(fd)
        _answer(lambda: _mapped(mapped, privileged, body), writer)
    os.close(writer)
    try:
        processes.map_ids(str(child.pid), 0, outside, deny_setgroups=not privileged)
    except OSError:
        fds.send_signal(child.pidfd, signal.SIGKILL)
        raise
    finally:
        os.close(go)
    outcome = _outcome(reader, child.pid)
    if not outcome["ok"]:
        raise OSError(outcome.get("errno"), outcome["text"])
    return outcome["value"]


def _mapped(mapped: int, privileged: bool, body: Body) -> Any:
    """``body``, once the ids of this process are mapped; as root started it, with root's ids given up first."""
    os.read(mapped, 1)
    if privileged:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        caps.set_dumpable(True)  # giving ids up took /proc/self away
    return body()


def _insist(true: object, words: str) -> None:
    if not true:
        raise OSError(None, words)


# What is attempted


def _nest() -> None:
    """A user namespace within, whose mounts work: what a box is to the process that boxes are forked from."""
    child = processes.clone(Clone.NEWUSER | Clone.NEWNS | Clone.NEWPID)
    if child.pid == 0:
        try:
            processes.map_ids("self", 0, (0, 0), deny_setgroups=True)
            mounts.mount_tmpfs("/dev", size=4096)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    if code:
        raise OSError(code, f"{os.strerror(code) if code > 0 else f'signal {-code}'} in a nested user namespace")


def _talk_to_itself() -> None:
    """Bring the loopback up and connect over it."""
    netns.raise_loopback()
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.connect(server.getsockname())
        there, _ = server.accept()
        client.sendall(b"x")
        _insist(there.recv(1) == b"x", "nothing came through the loopback")
        there.close()


def _fresh_proc() -> None:
    mounts.mount_proc("/proc")
    _insist(os.readlink("/proc/self") == str(os.getpid()) == "1", "the new /proc shows other processes")


def _read_only_root() -> None:
    """A root of its own that shows one host directory read-only, and nothing else of the host."""
    tree = mounts.clone_tree("/usr")
    mounts.set_attributes(tree, MountAttr.RDONLY | MountAttr.NOSUID | MountAttr.NODEV)
    mounts.make_private("/")
    mounts.mount_tmpfs(_STAGE, size=1 << 20)
    os.mkdir(f"{_STAGE}/usr")
    mounts.attach_tree(tree, f"{_STAGE}/usr")
    mounts.pivot_into(_STAGE)
    mounts.remount_read_only("/", MountAttr.NOSUID | MountAttr.NODEV)
    _insist(os.listdir("/") == ["usr"], "the old root is still there")
    read_only = all(os.statvfs(path).f_flag & os.ST_RDONLY for path in ("/", "/usr"))
    _insist(read_only and os.statvfs("/usr").f_flag & os.ST_NOSUID, "the mount's attributes were not set")


def _map_mount_ids() -> str:
    """Started as root: show a directory's owner as another id."""
    if os.geteuid() != 0:
        return ""
    with _temporary_directory() as directory:
        child = processes.clone(Clone.NEWUSER)
        if child.pid == 0:
            signal.pause()
            os._exit(0)
        try:
            processes.map_ids(str(child.pid), 0, (_HOST_ID, _HOST_ID), deny_setgroups=False)
            with open(f"/proc/{child.pid}/ns/user", "rb") as namespace:
                tree = mounts.clone_tree(directory)
                mounts.translate_ids(tree, namespace.fileno())
            owner = os.fstat(tree).st_uid
        finally:
            fds.send_signal(child.pidfd, signal.SIGKILL)
    _insist(owner == _HOST_ID, f"the owner shows as {owner}")
    return directory


def _drop_all(last: int) -> None:
    caps.drop_capabilities(last)
    caps.no_new_privileges()
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    kept = [line for line in status.splitlines() if line.startswith("Cap") and int(line.split()[1], 16)]
    _insist(not kept, f"capabilities were kept: {' '.join(kept)}")
    _insist("NoNewPrivs:\t1" in status, "no_new_privs was not set")


def _forbidden_call() -> None:
    """An escape call that would do nothing where it is allowed: its argument is no address."""
    with contextlib.suppress(OSError):
        syscall("swapoff", 1)


def _filter_calls() -> None:
    """The box's own filter ends a process that makes a forbidden call."""
    pid = os.fork()
    if pid == 0:
        caps.prctl(Prctl.SET_DUMPABLE, 0)  # no core file
        caps.no_new_privileges()
        try:
            seccomp.install(compile_filter(FilterPolicy(), listener=False))
        except OSError as error:
            os._exit(error.errno or 1)
        _forbidden_call()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code > 0:
        raise OSError(code, f"{os.strerror(code)} in seccomp(SET_MODE_FILTER)")
    _insist(code == -signal.SIGSYS, f"a forbidden call was not stopped (status {code})")


def _name_blocked_call() -> str:
    """The call that the filter reports while its maker waits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _report_and_call(theirs)
    theirs.close()
    with ours:
        said, came, _, _ = socket.recv_fds(ours, 16, 1)
        try:
            if not came:
                code = struct.unpack("=i", said)[0]
                raise OSError(code, f"{os.strerror(code)} in seccomp(SET_MODE_FILTER, NEW_LISTENER)")
            fds.has_ended(came[0], 5000)  # any descriptor: it waits until one is readable
            notification = seccomp.receive(came[0])
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    _insist(notification, "no call was reported")
    assert notification is not None
    return describe(notification.nr, notification.arch)


def _report_and_call(to: socket.socket) -> NoReturn:
    caps.no_new_privileges()
    try:
        listener = seccomp.install(compile_filter(FilterPolicy(), listener=True), listener=True)
    except OSError as error:
        to.send(struct.pack("=i", error.errno or 0))
        os._exit(1)
    assert listener is not None
    socket.send_fds(to, [b"fd"], [listener])
    _forbidden_call()
    os._exit(0)


def _restrict_writes() -> int:
    """The Landlock ABI; where a box uses it, a write outside the named directory is refused."""
    abi = landlock.abi_version()
    if abi < 2:
        return abi
    with _temporary_directory() as inside, _temporary_directory() as outside:
        pid = os.fork()
        if pid == 0:
            _write_both(inside, outside, abi)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _insist(code == 0, f"a write outside the allowed directory was not refused (status {code})")
    return abi


def _write_both(inside: str, outside: str, abi: int) -> NoReturn:
    caps.no_new_privileges()
    landlock.restrict_writes([inside], abi)
    Path(inside, "file").write_bytes(b"")
    try:
        Path(outside, "file").write_bytes(b"")
    except PermissionError:
        os._exit(0)
    os._exit(1)


def _hold_process() -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    pidfd = fds.open_pid(pid)
    _insist(not fds.has_ended(pidfd), "a living process shows as ended")
    fds.send_signal(pidfd, signal.SIGKILL)
    _insist(fds.has_ended(pidfd, 5000), "the end of a process was not reported")


def _use_temporary() -> str:
    with _temporary_directory() as directory:
        Path(directory, "file").write_bytes(b"x" * 4096)
    return os.path.dirname(directory)


@contextlib.contextmanager
def _temporary_directory() -> Iterator[str]:
    import tempfile  # late: it loads compression modules that nothing else here needs

    directory = os.path.realpath(tempfile.mkdtemp(prefix="kern-doctor-"))
    os.chmod(directory, 0o700)  # whatever the umask has taken from it
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _find_interpreters() -> Mapping[str, str | None]:
    userland = host_userland(network=False)
    places: Sequence[str] = [place for place in userland.path.split(":") if not place.startswith("/workspace")]
    found = {name: shutil.which(name, path=":".join(places)) for name in ("bash", "sh", "node")}
    return {"python": userland.python, **found}
