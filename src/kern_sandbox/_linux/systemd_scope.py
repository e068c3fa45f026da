"""Asking systemd for a delegated scope around one process: the only subtree of a systemd machine that is ours to shape.

The request goes through ``busctl``, which ships with systemd; no environment is needed, the buses are at fixed paths.
See systemd's ``docs/CGROUP_DELEGATION.md`` and org.freedesktop.systemd1(5), ``StartTransientUnit``.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import NamedTuple

from . import cgroup_tree

DIRECTORIES = ("/usr/bin", "/bin", "/run/current-system/sw/bin")
"""Where ``busctl`` is looked for: never in ``PATH``, which the caller does not control."""

_BUSY_WAIT_S = 0.002


class Answer(NamedTuple):
    """What came of a request: the unified cgroup path of the scope, or why there is none."""

    path: str | None
    reason: str


class _Bus(NamedTuple):
    option: str
    socket: str
    env: dict[str, str]


def runs_here() -> bool:
    """Tells whether systemd manages this machine's cgroups (sd_booted(3))."""
    return os.path.isdir("/run/systemd/system")


def adopt(pid: int, unit: str, timeout_s: float) -> Answer:
    """Moves a process of ours into a new delegated scope and waits until it is there. Never raises.

    As root the system's manager is asked, else the user's own.

    Args:
        pid: the process; it must be single and own no children yet, which would stay behind.
        unit: the scope's name, ending in ``.scope``.
        timeout_s: how long all of it may take.
    """
    deadline = time.monotonic() + timeout_s
    bus = _bus_of(os.geteuid())
    if not os.path.exists(bus.socket):
        return Answer(None, f"there is no bus at {bus.socket}; run: {_how_to_get_bus()}")
    tool = _find_tool()
    if tool is None:
        return Answer(None, f"there is no busctl in {', '.join(DIRECTORIES)}")
    refused = _request(tool, bus, (pid, unit, ("OOMPolicy", "s", "continue")), deadline)
    if "OOMPolicy" in refused:
        refused = _request(tool, bus, (pid, unit, ()), deadline)
    if refused:
        return Answer(None, f"systemd refused a scope: {refused}")
    return _await_move(pid, unit, deadline)


def _bus_of(uid: int) -> _Bus:
    if uid == 0:
        return _Bus("--system", "/run/dbus/system_bus_socket", {})
    runtime = f"/run/user/{uid}"
    socket = f"{runtime}/bus"
    return _Bus("--user", socket, {"XDG_RUNTIME_DIR": runtime, "DBUS_SESSION_BUS_ADDRESS": f"unix:path={socket}"})


def _how_to_get_bus() -> str:
    if os.geteuid() == 0:
        return "apt-get install dbus (or the like)"
    return f"sudo loginctl enable-linger {os.geteuid()} (and install dbus-user-session where it is missing)"


def _find_tool() -> str | None:
    for directory in DIRECTORIES:
        if os.access(f"{directory}/busctl", os.X_OK):
            return f"{directory}/busctl"
    return None


def request_arguments(pid: int, unit: str, more: tuple[str, ...], timeout_s: float) -> list[str]:
    """Returns busctl's arguments for ``StartTransientUnit``, signature ``ssa(sv)a(sa(sv))``."""
    properties = [
        ("PIDs", "au", "1", str(pid)),
        ("Delegate", "b", "true"),
        ("CollectMode", "s", "inactive-or-failed"),
        ("Description", "s", "kern_sandbox boxes"),
    ]
    if more:
        properties.append(more)
    manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"]
    call = [f"--timeout={timeout_s:.3f}", "call", *manager, "StartTransientUnit", "ssa(sv)a(sa(sv))"]
    flat = [word for each in properties for word in each]
    return [*call, unit, "fail", str(len(properties)), *flat, "0"]


def _request(tool: str, bus: _Bus, unit: tuple[int, str, tuple[str, ...]], deadline: float) -> str:
    """Returns ``""`` where systemd accepted, else its words."""
    left = max(0.1, deadline - time.monotonic())
    argv = [tool, bus.option, "--quiet", *request_arguments(*unit, left)]
    try:
        code, said = _run(argv, bus.env, deadline)
    except OSError as error:
        return f"{tool}: {os.strerror(error.errno or 0)}"
    return "" if code == 0 else said or f"{tool} ended with {code}"


def _run(argv: list[str], env: dict[str, str], deadline: float) -> tuple[int, str]:
    """Runs a tool to its end or the deadline; returns its exit code and what it said on stderr.

    ``posix_spawn`` and not ``subprocess``: what the server imports stays in the memory of every box forked from it.
    """
    out, into = os.pipe2(os.O_CLOEXEC)
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, into, 2),
        ]
        pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsigmask=())
        os.close(into)
        into = -1
        said, in_time = _drain(out, deadline)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(out)
        if into >= 0:
            os.close(into)
    return os.waitstatus_to_exitcode(status), said if in_time else "no answer in time"


def _drain(fd: int, deadline: float) -> tuple[str, bool]:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    said = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return "", False
        chunk = os.read(fd, 4096)
        if not chunk:
            return said.decode(errors="replace").strip(), True
        said += chunk


def _await_move(pid: int, unit: str, deadline: float) -> Answer:
    """Waits for systemd's job; its end is seen in the process's own cgroup path."""
    while True:
        path = cgroup_tree.parse_own_paths(cgroup_tree.read(f"/proc/{pid}/cgroup")).get("", "")
        if path.endswith(f"/{unit}"):
            return Answer(path, "")
        if time.monotonic() >= deadline:
            return Answer(None, f"systemd accepted the scope {unit} but did not move us in time")
        time.sleep(_BUSY_WAIT_S)
