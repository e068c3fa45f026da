"""``python -m benchmarks.shell_session [--rounds N] [--json FILE]``: an agent's shell session, phase by phase.

Each round takes every policy once, so that a busy moment hits all alike. Needs langchain-kern-sandbox; a container is
measured where podman is installed and runs a shell on this machine's own files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain.agents.middleware import DockerExecutionPolicy, HostExecutionPolicy
from langchain.agents.middleware.shell_tool import ShellSession
from langchain_kern_sandbox import kern_execution_policy

from .machine import fingerprint
from .measure import Stats, stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHELL = ("/bin/bash",)
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}
HOST = "HostExecutionPolicy"
PODMAN = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--rootfs"]
IMAGE = "/:O"
"""This machine's own files, with what is written to them on top and thrown away."""
RUNTIMES = ("", '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\n')
"""Settings of podman's, in the order in which they are tried: its own, and those for version 1 of cgroups."""
WAIT_S = 30.0


class Phase(NamedTuple):
    """One thing that a session does, which is timed; ``do`` may raise, which ends the measurement."""

    name: str
    do: Callable[[ShellSession], object]


def said(session: ShellSession, command: str, expected: str) -> None:
    """One command; a wrong answer does not count as a fast one."""
    found = session.execute(command, timeout=WAIT_S)
    if found.output != expected:
        raise SystemExit(f"{command!r} gave {found}")


PHASES = (
    Phase("1 start", ShellSession.start),
    Phase("2 first command", lambda session: said(session, "echo ready", "ready\n")),
    Phase("3 a command", lambda session: said(session, "echo again", "again\n")),
    Phase("4 a program", lambda session: said(session, "/bin/echo program", "program\n")),
    Phase("5 100 lines", lambda session: said(session, "seq 100", "".join(f"{n}\n" for n in range(1, 101)))),
    Phase("6 restart", ShellSession.restart),
    Phase("7 first after it", lambda session: said(session, "echo back", "back\n")),
    Phase("8 stop", lambda session: session.stop(WAIT_S)),
)


def policies(folder: Path) -> dict[str, Any]:
    """Every policy that works on this machine; podman is set up in ``folder``."""
    found: dict[str, Any] = {HOST: HostExecutionPolicy(), "kern_execution_policy": kern_execution_policy()}
    container = DockerExecutionPolicy(binary="podman", image=IMAGE, extra_run_args=PODMAN)
    why = _why_no_container(folder)
    if why:
        print(f"no container policy: {why}")
    else:
        found["DockerExecutionPolicy, podman"] = container
    return found


def _why_no_container(folder: Path) -> str:
    if shutil.which("podman") is None:
        return "podman is not installed"
    why = ""
    for settings in RUNTIMES:
        if settings:
            (folder / "containers.conf").write_text(settings, encoding="utf-8")
            os.environ["CONTAINERS_CONF"] = str(folder / "containers.conf")
        command = ["podman", "run", "-i", "--rm", "--network", "none", *PODMAN, IMAGE, "/bin/true"]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        if tried.returncode == 0:
            return ""
        why = tried.stderr.strip()[-200:]
    return f"podman cannot run one here: {why}"


@contextlib.contextmanager
def session_of(policy: Any) -> Iterator[ShellSession]:
    """A session that has not begun, and is ended whatever happens."""
    with tempfile.TemporaryDirectory(prefix="kern-bench-") as workspace:
        session = ShellSession(Path(workspace), policy, SHELL, ENV)
        try:
            yield session
        finally:
            session.stop(WAIT_S)


def measure(taken: dict[str, Any], rounds: int) -> dict[str, dict[str, Stats]]:
    """Phase to the figures of every policy, after one round that does not count."""
    times: dict[str, dict[str, list[float]]] = {phase.name: {name: [] for name in taken} for phase in PHASES}
    for turn in range(rounds + 1):
        for name, policy in taken.items():
            spent = _one_session(policy)
            if turn:
                for phase, milliseconds in spent.items():
                    times[phase][name].append(milliseconds)
    return {phase: {name: stats(values) for name, values in found.items()} for phase, found in times.items()}


def _one_session(policy: Any) -> dict[str, float]:
    spent = {}
    with session_of(policy) as session:
        for phase in PHASES:
            start = time.perf_counter()
            phase.do(session)
            spent[phase.name] = (time.perf_counter() - start) * 1000
    return spent


def table(parts: dict[str, dict[str, Stats]]) -> str:
    """Markdown: a line for each phase; medians in milliseconds, with the 5th and 95th percentile."""
    names = list(next(iter(parts.values())))
    lines = ["| ms, median (5 % - 95 %) | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for phase, found in parts.items():
        cells = [f"{each.median:.1f} ({each.low:.1f} - {each.high:.1f})" for each in found.values()]
        lines.append(f"| {phase} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print a table of phases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shell_session", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    machine = fingerprint("")
    print("\n".join(f"{name}: {words}" for name, words in machine.items()))
    with tempfile.TemporaryDirectory(prefix="kern-bench-") as folder:
        parts = measure(policies(Path(folder)), options.rounds)
    print(table(parts))
    if options.json:
        plain = {phase: {name: each._asdict() for name, each in found.items()} for phase, found in parts.items()}
        Path(options.json).write_text(json.dumps({"machine": machine, "phases": plain}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
