"""What the figures belong to, in words."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import platform
import re
import subprocess

from .engines import PYTHON

_POLICIES = {
    os.SCHED_OTHER: "the ordinary scheduler",
    os.SCHED_FIFO: "real-time (SCHED_FIFO)",
    os.SCHED_RR: "real-time (SCHED_RR)",
    os.SCHED_BATCH: "SCHED_BATCH",
    os.SCHED_IDLE: "SCHED_IDLE",
}


def fingerprint(note: str) -> dict[str, str]:
    """The machine, the versions, the date; ``note`` is what the person who measures has to say."""
    words = {
        "date": f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d %H:%M} UTC",
        "commit": _commit(),
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores{_virtual()}, {_memory_gib()} GiB",
        "Linux": f"{platform.release()} {platform.machine()}, cgroup {_cgroups()}",
        "Python": f"{_first_line([PYTHON, '--version'])}, uid {os.getuid()}",
        "bubblewrap": _first_line(["bwrap", "--version"]),
        "priority": f"{_POLICIES.get(os.sched_getscheduler(0), 'unknown')}, nice {os.nice(0)}",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }
    return {**words, "note": note} if note else words


def _first_line(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError:
        return "not installed"
    return (done.stdout.strip() or done.stderr.strip() or "no word").splitlines()[0]


def _commit() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    git = ["git", "-c", f"safe.directory={os.path.dirname(here)}", "-C", here]
    name = _first_line([*git, "rev-parse", "--short=10", "HEAD"])
    if not re.fullmatch("[0-9a-f]{10}", name):
        return "not a git tree"
    changed = _first_line([*git, "status", "--porcelain", "--", "../src", "../benchmarks/*.py"]) != "no word"
    return name + (", with changes" if changed else "")


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return found[1] if found else platform.machine()


def _virtual() -> str:
    return " of a virtual machine" if re.search(r"^flags.*\bhypervisor\b", _read("/proc/cpuinfo"), re.MULTILINE) else ""


def _memory_gib() -> int:
    found = re.search(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return round(int(found[1]) / (1 << 20)) if found else 0


def _cgroups() -> str:
    kinds = {line.split(" - ")[1].split()[0] for line in _read("/proc/self/mountinfo").splitlines()}
    return " and ".join(name for kind, name in (("cgroup", "v1"), ("cgroup2", "v2")) if kind in kinds) or "none"
