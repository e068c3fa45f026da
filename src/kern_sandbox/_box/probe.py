"""What this host can do for a box, found by doing it: every attempt in a child of its own, its outcome as data.

``gather`` asks a fresh interpreter, so the calling process is neither altered nor forked. What the evidence means
stands in ``diagnosis``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["fresh_python", "gather", "main"]

_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from kern_sandbox.{module} import main; sys.exit(main({argument}))"
)
_PASSED_ON = ("LD_LIBRARY_PATH", "PATH", "TMPDIR")
_PATIENCE_S = 120
_FACTS = {
    "userns_clone": "/proc/sys/kernel/unprivileged_userns_clone",
    "max_user_namespaces": "/proc/sys/user/max_user_namespaces",
    "max_net_namespaces": "/proc/sys/user/max_net_namespaces",
    "apparmor_restricts": "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "label": "/proc/self/attr/current",
    "uid_map": "/proc/self/uid_map",
    "cgroup": "/proc/self/cgroup",
    "lsm": "/sys/kernel/security/lsm",
}
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
_BOOT_FILES = ("/boot/firmware/cmdline.txt", "/boot/cmdline.txt", "/etc/default/grub")


def fresh_python(module: str, argument: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``main(argument)`` of a module of this package in a new interpreter, with nothing of this process.

    Args:
        module: below the package, e.g. ``"_box.probe"``.
        argument: a Python expression; ``sys.argv[2:]`` are the words.
        words: strings for it.

    Raises:
        OSError: no interpreter could be started.
        subprocess.TimeoutExpired: no answer within a minute.
    """
    boot = _BOOT.format(module=module, argument=argument)
    return subprocess.run(
        [sys.executable or "python3", "-I", "-S", "-c", boot, _PACKAGE_PARENT, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        cwd="/",
        timeout=_PATIENCE_S,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def gather() -> dict[str, Any]:
    """The evidence: ``facts`` that were read, ``tries`` by name, and ``failed``, words where there is none of it.

    A try has ``ok``; then its ``value``, or ``errno`` and ``text``, or the ``signal`` that ended it.
    """
    try:
        done = fresh_python("_box.probe", "")
        evidence = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"facts": {}, "tries": {}, "failed": str(error)}
    except ValueError:
        words = done.stderr.strip().splitlines()[-1:] or [""]
        return {
            "facts": {},
            "tries": {},
            "failed": f"the probe ended with status {done.returncode}. {words[0]}".strip(),
        }
    assert isinstance(evidence, dict)
    return evidence


def main() -> None:
    """Be the fresh interpreter: try everything and print it as JSON."""
    from .attempts import try_all  # late: the asking process needs none of it

    tries = try_all()
    json.dump({"facts": _facts(), "tries": tries, "failed": ""}, sys.stdout)


def _facts() -> dict[str, str]:
    facts = {name: _read(path) for name, path in _FACTS.items()}
    status = dict(line.partition(":\t")[::2] for line in _read("/proc/self/status").splitlines())
    facts.update(seccomp=status.get("Seccomp", ""), no_new_privs=status.get("NoNewPrivs", ""))
    facts.update(
        uid=str(os.geteuid()),
        executable=os.path.realpath(sys.executable),
        container=next((mark for mark in _CONTAINER_MARKS if os.path.exists(mark)), ""),
        boot=next((path for path in _BOOT_FILES if os.path.exists(path)), ""),
        swap="\n".join(_read("/proc/swaps").splitlines()[1:]),
    )
    return facts


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip("\n\0 ")
    except OSError:
        return ""
