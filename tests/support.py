"""What tests share: the repository's files, the host's abilities, and what a call must not leave behind."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

REPO = Path(__file__).resolve().parents[1]
PACKAGE = REPO / "src" / "kern_sandbox"

# --- the host ---------------------------------------------------------------------------------------------------


def must_work() -> bool:
    """Whether a missing ability of this host is a failure, as it is in CI."""
    return os.environ.get("KERN_MUST_WORK") == "1"


def heed_signals() -> None:
    """Undo what ``nohup`` and a shell's ``&`` leave ignored: every process that a test starts would inherit it."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, _nothing)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def _nothing(*_: object) -> None:
    """Whoever said ``nohup`` is not ended by a hang-up, and yet children are born with the default."""


def need(ok: bool, reason: str) -> None:
    """Skip this test unless ``ok``; fail it instead where ``KERN_MUST_WORK=1``.

    Args:
        ok: whether the host has what the test needs.
        reason: what is missing, as a person would say it.
    """
    if ok:
        return
    if must_work():
        pytest.fail(f"KERN_MUST_WORK=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def applies(ok: bool, reason: str) -> None:
    """Skip this test unless ``ok``: it is about another kind of host or user, or was not asked for. Never a failure."""
    if not ok:
        pytest.skip(reason)


def need_limits(ok: bool, reason: str) -> None:
    """As `need` where this user is due cgroups: root, or version 2 with a manager of the user's own; else a skip.

    An ordinary user on cgroup v1, or without a session, has none: the documented degradation.
    """
    session = os.path.exists(f"/run/user/{os.getuid()}/systemd")
    due = os.geteuid() == 0 or (session and any(mount.version == 2 for mount in cgroup_mounts()))
    (need if due else applies)(ok, reason)


@functools.cache
def limits_enforced() -> bool:
    """Whether a box's memory and processes are limited for the box as a whole, as the engine itself says."""
    import kern_sandbox

    return not any("not limited" in note for note in kern_sandbox.run_code("").runtime_notes)


@functools.cache
def why_no_boxes() -> str:
    """Why this host cannot run a box, in the engine's own words, or ``""``."""
    import kern_sandbox

    try:
        result = kern_sandbox.run_code("print(1)")
    except kern_sandbox.HostError as error:
        return str(error)
    return "" if result.stdout == "1\n" else f"a first box gave {result!r}"


def need_boxes() -> None:
    """Skip (or fail, see `need`) this test where no box can run; afterwards the engine is warm."""
    reason = why_no_boxes()
    need(not reason, f"boxes do not run here: {reason}")


class CgroupMount(NamedTuple):
    """One mounted cgroup hierarchy; ``version`` is 1 or 2."""

    version: int
    path: Path


def cgroup_mounts() -> list[CgroupMount]:
    """Every cgroup hierarchy that is mounted where this process can see it."""
    found = []
    for line in _lines("/proc/self/mountinfo"):
        place, _, kind = line.partition(" - ")
        version = {"cgroup": 1, "cgroup2": 2}.get(kind.split()[0])
        if version:
            found.append(CgroupMount(version, Path(_unescaped(place.split()[4]))))
    return found


def cgroup_mode() -> str:
    """``"v2"``, ``"v1"``, ``"v1+v2"`` or ``"none"``."""
    return "+".join(f"v{version}" for version in sorted({mount.version for mount in cgroup_mounts()})) or "none"


@functools.cache
def user_namespaces() -> str:
    """``"allowed"``, or the words with which the host refuses an unprivileged user namespace."""
    try:
        tried = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return f"not tried ({error.strerror})"
    return "allowed" if tried.returncode == 0 else f"refused ({tried.stderr.strip()})"


# --- deadlines --------------------------------------------------------------------------------------------------

T = TypeVar("T")


def past_a_deadline(
    call: Callable[[float], T], came_so_far: Callable[[T], bool], first_s: float = 1.0
) -> tuple[T, float]:
    """What ``call`` gives for a deadline that its code runs into after it has come so far, and that deadline.

    On a busy machine a short deadline may pass while an interpreter boots. Then the case has not arisen, and a longer
    deadline makes it arise; whatever is asserted of the result is asserted of the one in which it had.

    Args:
        call: makes the call, given the deadline in seconds.
        came_so_far: whether the code had done what it does before it is late.
        first_s: the first deadline.
    """
    for limit in (first_s, 5 * first_s, 25 * first_s):
        result = call(limit)
        if came_so_far(result):
            break
    return result, limit


# --- what a call must not leave behind --------------------------------------------------------------------------

Item = tuple[str, str]
"""A kind (``"descriptor"``, ``"process"``, …) and a name without numbers that differ by chance."""


@contextlib.contextmanager
def leaks(patience_s: float = 30.0) -> Iterator[None]:
    """Fail if what runs inside leaves a descriptor, thread, process, mount, cgroup or temporary entry.

    The engine's own server lives as long as the process: run one call (`need_boxes` does) before entering. What waits
    for another Sandbox like a closed one is let go of, as the server does by itself after a minute. Cleaning up may
    take a moment; only what is there at every look until ``patience_s`` has passed was left behind.
    """
    _let_go()
    others = _groups_of_others()
    before = snapshot(others)
    yield
    _let_go()
    left = snapshot(others) - before
    deadline = time.monotonic() + patience_s
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        others |= _groups_of_others()
        left &= snapshot(others) - before
    if left:
        pytest.fail("left behind:\n" + "\n".join(_described(left)), pytrace=False)


def _let_go() -> None:
    from kern_sandbox._forkserver.client import existing_server, let_waiting_go

    let_waiting_go()
    server = existing_server()
    if server is not None:
        server.forget_unused()


def open_descriptors() -> set[tuple[str, str]]:
    """This process's descriptors with what they lead to. What is there and was not before has been left open; what is
    gone may be an earlier test's, whose threads end when they do.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the look itself
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def snapshot(others: Iterable[str] = ()) -> Counter[Item]:
    """How many there are of each thing that a call could leave behind, on this process and its descendants.

    Args:
        others: names of cgroups that a neighbour had: its death does not make them ours.
    """
    items: Counter[Item] = Counter()
    for pid in ["self", *descendants()]:
        owner = "" if pid == "self" else f" in {_command(pid)}"
        items.update(("descriptor", name + owner) for name in _descriptors(pid))
        items.update(("mount", name + owner) for name in _mounts(pid))
    items.update(("process", _command(pid)) for pid in descendants())
    items.update(("thread", _without_numbers(thread.name)) for thread in threading.enumerate())
    # A fork server's own directory carries its number, and its successor's takes its place.
    items.update(
        ("cgroup", re.sub(r"kern-[0-9a-f-]+", "kern-N", path))
        for path, ours in _cgroups()
        if ours and os.path.basename(path) not in others
    )
    items.update(("temporary", path) for path in _temporary())
    return items


def _described(items: Counter[Item]) -> list[str]:
    return [f"  {kind}: {name}" + (f" ({count} times)" if count > 1 else "") for (kind, name), count in items.items()]


def _lines(path: str) -> list[str]:
    """The file's lines; none if it is gone, or not ours to read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "N", name)


class _Stat(NamedTuple):
    pid: str
    command: str
    state: str
    parent: str


def _stat(pid: str) -> _Stat | None:
    lines = _lines(f"/proc/{pid}/stat")
    if not lines:
        return None
    head, _, tail = "\n".join(lines).rpartition(")")
    state, parent = tail.split()[:2]
    return _Stat(pid, head.partition("(")[2], state, parent)


def descendants() -> list[str]:
    """The pids of every process below this one, zombies included."""
    stats = [_stat(name) for name in os.listdir("/proc") if name.isdigit()]
    children: dict[str, list[str]] = {}
    for stat in filter(None, stats):
        children.setdefault(stat.parent, []).append(stat.pid)
    found: list[str] = []
    waiting = [str(os.getpid())]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _command(pid: str) -> str:
    stat = _stat(pid)
    if stat is None:
        return "(gone)"
    return f"{stat.command} (zombie)" if stat.state == "Z" else stat.command


def _descriptors(pid: str) -> Iterator[str]:
    """The targets of the process's descriptors; the one that this look itself opens leads nowhere by then."""
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield _without_numbers(os.readlink(f"/proc/{pid}/fd/{number}"))


def _mounts(pid: str) -> Iterable[str]:
    return (
        f"{_without_numbers(line.split()[4])} {line.partition(' - ')[2]}" for line in _lines(f"/proc/{pid}/mountinfo")
    )


def _cgroups() -> Iterator[tuple[str, bool]]:
    """Those of all fork servers of this machine, and whether each may be ours: a living neighbour's is not."""
    below = _ours()
    for mount in cgroup_mounts():
        for folder, names, _ in os.walk(mount.path):
            yield from (
                (os.path.join(folder, name), _may_be_of(below, name)) for name in names if name.startswith("kern")
            )


def _ours() -> set[str]:
    return {str(os.getpid()), *descendants()}


def _may_be_of(pids: set[str], name: str) -> bool:
    """Whether the process that a thing is named after (``kern-WORD-PID-…``) is one of these, or dead."""
    parts = name.split("-")
    pid = parts[2] if len(parts) > 3 and parts[2].isdigit() else ""
    return not pid or pid in pids or _stat(pid) is None


def _groups_of_others() -> set[str]:
    """The names of those of living neighbours: what becomes of them is no business of ours."""
    return {os.path.basename(path) for path, ours in _cgroups() if not ours}


def _temporary() -> Iterator[str]:
    """Below the temporary directory of this process, and where temporary things may lie besides; in ``/tmp`` only if
    it is that directory: whoever else lives on this machine has theirs there, and comes and goes.
    """
    places = {tempfile.gettempdir(), "/var/tmp", "/dev/shm", f"/run/user/{os.getuid()}"}
    places |= {os.environ[name] for name in ("XDG_RUNTIME_DIR",) if name in os.environ}
    below = _ours()
    for place in sorted(places):
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(place) if name.startswith("kern") and _may_be_of(below, name)]
            yield from (os.path.join(place, name) for name in names)


# --- the repository ---------------------------------------------------------------------------------------------

_NOT_OURS = {
    ".git",
    ".venv",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "__pycache__",
    "dist",
    "build",
}


def repo_files() -> list[Path]:
    """Every file that is, or would be, committed."""
    asked = subprocess.run(
        ["git", "-C", str(REPO), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True,
        check=False,
    )
    if asked.returncode == 0:
        paths = [REPO / os.fsdecode(name) for name in asked.stdout.split(b"\0") if name]
    else:  # not a clone (CI copies the tree), or another user's
        paths = [path for path in REPO.rglob("*") if not _NOT_OURS & set(path.relative_to(REPO).parts)]
    return sorted(path for path in paths if path.is_file())


SNIPPETS = PACKAGE / "evals" / "cases"
"""Cases of the evals, as agents and attackers write them: run in boxes, and held to no rule of the house."""


def python_files(*roots: str) -> list[Path]:
    """The Python files among `repo_files` below any of ``roots`` (relative to the repository), without `SNIPPETS`."""
    tops = [REPO / root for root in roots]
    files = [path for path in repo_files() if path.suffix == ".py" and SNIPPETS not in path.parents]
    return [path for path in files if any(top in path.parents for top in tops)]


def pages() -> list[Path]:
    """The README and every page below docs/."""
    markdown = [path for path in repo_files() if path.suffix == ".md"]
    return [path for path in markdown if path == REPO / "README.md" or REPO / "docs" in path.parents]


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
