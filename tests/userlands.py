"""Userlands for images as tests make them, out of what this host has: a shell, or a Python with or without pip."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from images import Member, folder, layer, member, symlink
from pythons import facts
from support import need

_NOT_NEEDED = frozenset(
    ("__pycache__", "test", "tests", "idlelib", "lib2to3", "ensurepip", "pydoc_data", "tkinter", "turtledemo",
     "unittest", "multiprocessing", "sqlite3", "wsgiref", "site-packages", "dist-packages", "dbm", "curses", "venv",
     "msilib")
)  # fmt: skip
_FOR_PIP = frozenset(("asyncio", "distutils", "xml", "xmlrpc"))
_APPLETS = ("sh", "cat", "env", "id", "ls", "mkdir", "readlink", "rm", "test", "touch")


def busybox() -> bytes:
    """The program."""
    path = shutil.which("busybox")
    need(path is not None, "busybox is not installed")
    assert path is not None
    return Path(path).read_bytes()


def shell_layer(*more: Member) -> bytes:
    """A layer with a shell, and ``more`` after it."""
    names = [symlink(f"bin/{name}", "busybox") for name in _APPLETS]
    return layer(folder("bin"), member("bin/busybox", busybox(), mode=0o755), *names, *more)


def put_python(root: Path, *, pip: bool = False, python: str = sys.executable) -> None:
    """Fill ``root`` with a Python of this host and a part of its library, no bytecode; a shell and pip if asked."""
    need(shutil.which("ldd") is not None, "ldd is not installed")
    binary, library, version, packages = facts(python)
    target = root / "usr/bin" / f"python{version}"
    target.parent.mkdir(parents=True)
    shutil.copy(binary, target)
    (target.parent / "python3").symlink_to(target.name)
    left_out = _NOT_NEEDED if pip else _NOT_NEEDED | _FOR_PIP

    def unwanted(place: str, names: list[str]) -> list[str]:
        return [name for name in names if name in left_out or name.startswith("config-")]

    shutil.copytree(library, root / "usr/lib" / library.name, ignore=unwanted)
    modules = [binary, *(library / "lib-dynload").glob("*.so")]
    said = subprocess.run(["ldd", *modules], capture_output=True, text=True, check=False).stdout
    for needed in sorted(set(re.findall(r"(/\S+) \(0x", said))):
        copy = root / "lib" / os.path.basename(needed) if "ld-linux" not in needed else root / needed[1:]
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(needed, copy)
    if pip:
        need(bool(packages), "this Python has no pip")
        shutil.copytree(packages, root / "usr/lib" / library.name / "pip")  # which every Python has on its path
        (root / "bin").mkdir()
        (root / "bin/sh").write_bytes(busybox())
        (root / "bin/sh").chmod(0o755)
