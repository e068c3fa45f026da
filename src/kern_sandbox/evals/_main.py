"""``kern-sandbox eval``: from its arguments to rows, a table, files and an exit status."""

from __future__ import annotations

import fnmatch
import json
import os
import platform
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import kern_sandbox
from kern_sandbox import SpecError

from ._cases import FAMILIES, Case, load
from ._page import page
from ._report import Progress, summary, table
from ._run import Row, described, run_all
from ._targets import Target, all_targets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["evaluate", "fingerprint"]


def evaluate(arguments: argparse.Namespace) -> int:
    """Run the cases that the arguments ask for, print the table, write the files.

    Args:
        arguments: those of ``kern-sandbox eval --help``.

    Returns:
        0 if kern_sandbox kept every claim and broke no honest snippet; 1 if not, if nothing could be asked of it, or if
        a target that was named cannot run.

    Raises:
        SpecError: nothing fits what was asked for, or a file cannot be written.
    """
    cases = _chosen(load(), arguments.family, arguments.case)
    if arguments.list:
        sys.stdout.write("".join(f"{case.id:40} {case.title}\n" for case in cases))
        return 0
    for path in filter(None, (arguments.jsonl, arguments.html)):
        _require_writable(path)
    targets, absent = _targets(arguments.target)
    about = fingerprint(absent)
    progress = Progress(sys.stderr, len(cases) * len(targets) * arguments.repeat)
    rows = []
    began = time.monotonic()
    how = {"repeat": arguments.repeat, "jobs": arguments.jobs, "controls": arguments.controls}
    for row in run_all(cases, targets, **how):
        rows.append(row)
        progress.step(row)
    progress.end()
    about["seconds"] = round(time.monotonic() - began, 1)
    order = [target.name for target in targets]
    rows.sort(key=lambda row: (order.index(row.target), FAMILIES.index(row.case.claim.family), row.case.id, row.number))
    sys.stdout.write(table(rows, absent) + summary(rows, about))
    if arguments.jsonl:
        _write(arguments.jsonl, "".join(json.dumps({**described(row), "host": about}) + "\n" for row in rows))
    if arguments.html:
        _write(arguments.html, page(rows, about))
    unheard = bool(arguments.target) and bool(absent)
    return int(any(row.bad for row in rows) or unheard or not _asked(rows, targets))


def _asked(rows: Sequence[Row], targets: Sequence[Target]) -> bool:
    """Whether kern_sandbox was asked anything, or was not meant to be."""
    others_only = bool(targets) and not any(target.ours for target in targets)
    return others_only or any(row.ours and row.word != "skipped" for row in rows)


def _chosen(cases: list[Case], families: Sequence[str] | None, patterns: Sequence[str] | None) -> list[Case]:
    unknown = set(families or ()) - set(FAMILIES)
    if unknown:
        words = f"choosing --family {', '.join(sorted(unknown))}: there is no such family"
        raise SpecError(words, hint=f"There are {', '.join(FAMILIES)}")
    if families:
        cases = [case for case in cases if case.claim.family in families]
    if patterns:
        cases = [case for case in cases if any(_fits(case, pattern) for pattern in patterns)]
        if not cases:
            words = f"choosing --case {', '.join(patterns)}: no case is called so, nor a claim or a source"
            raise SpecError(words, hint="`kern-sandbox eval --list` has the names of the cases")
    return cases


def _fits(case: Case, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in (case.id, case.claim.id, *case.claim.sources))


def _targets(names: Sequence[str] | None) -> tuple[list[Target], dict[str, str]]:
    """The targets that can run, and why each of the others cannot."""
    known = {target.name: target for target in all_targets()}
    unknown = set(names or ()) - set(known)
    if unknown:
        words = f"choosing --target {', '.join(sorted(unknown))}: there is no such target"
        raise SpecError(words, hint=f"There are {', '.join(known)}")
    wanted = [known[name] for name in names or known]
    reasons = {target.name: target.why_not() for target in wanted}
    return [t for t in wanted if not reasons[t.name]], {name: reason for name, reason in reasons.items() if reason}


def fingerprint(absent: dict[str, str]) -> dict[str, Any]:
    """What tells this run from one elsewhere: the host, the versions, the commit where there is one."""
    return {
        "kern_sandbox": kern_sandbox.__version__,
        "commit": _commit(),
        "linux": platform.release(),
        "machine": platform.machine(),
        "distribution": _distribution(),
        "python": platform.python_version(),
        "uid": os.geteuid(),
        "cgroups": _cgroups(),
        "processors": os.cpu_count(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "absent": absent,
    }


def _commit() -> str:
    folder = os.path.dirname(os.path.abspath(kern_sandbox.__file__))
    words = ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _distribution() -> str:
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            words = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
    except OSError:
        return ""
    return words.get("PRETTY_NAME", "").strip('"')


def _cgroups() -> str:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        kinds = {line.partition(" - ")[2].split()[0] for line in file}
    return "+".join(name for kind, name in (("cgroup", "v1"), ("cgroup2", "v2")) if kind in kinds) or "none"


def _require_writable(path: str) -> None:
    """Say so now, and not after all has run."""
    try:
        with open(path, "a", encoding="utf-8"):
            return
    except OSError as error:
        raise SpecError(
            "writing the results", errno=error.errno, path=path, hint="Name a file in a directory"
        ) from error


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
