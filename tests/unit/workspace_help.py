"""What the tests of the workspace share."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import kern_sandbox
from kern_sandbox.workspace import Workspace, _beneath
from kern_sandbox.workspace._walk import empty_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

KERNELS = ["openat2", "stepwise"]
"""Linux with openat2, and as before 5.6."""

SITE = str(Path(kern_sandbox.__path__[0]).parent)
T = TypeVar("T")


def no_openat2(*_: object) -> int:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def workspace_on(kernel: str, patch: pytest.MonkeyPatch, directory: Path) -> Iterator[Workspace]:
    """A workspace in ``directory/ws`` as one of ``KERNELS`` serves it."""
    if kernel == "stepwise":
        patch.setattr(_beneath, "open_beneath", no_openat2)
    (directory / "ws").mkdir()
    with Workspace(directory / "ws") as workspace:
        yield workspace
        empty_directory(workspace.fd)  # pytest cannot remove the deepest ones


def disk(space: Workspace, name: str) -> Path:
    return Path(space.path, name)


def run_python(code: str, *argv: str, env: dict[str, str] | None = None, before: Any = None) -> str:
    """What ``code`` prints in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {SITE!r})\n{code}", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(env or {})},
        preexec_fn=before,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def quick_directory() -> Iterator[Path]:
    """A temporary directory in memory where there is one: races are closer there, and great trees cheaper."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as path:
        yield Path(path)


def guarded(directory: Path) -> Iterator[Path]:
    """A directory next to the workspace that nothing may touch."""
    tree = directory / "outside"
    (tree / "sub").mkdir(parents=True)
    (tree / "secret").write_text("SECRET")
    (tree / "sub" / "f").write_text("SECRET")
    (tree / "sub" / "only-outside").touch()
    before = fingerprint(tree)
    yield tree
    assert fingerprint(tree) == before


def fingerprint(tree: Path) -> str:
    """Names, modes, owners, times and contents below ``tree``."""
    state = []
    for folder, names, files in os.walk(tree):
        for name in sorted([*names, *files]):
            path = Path(folder, name)
            status = path.lstat()
            key = (status.st_ino, status.st_mode, status.st_uid, status.st_mtime_ns, status.st_ctime_ns)
            state.append((str(path), key, path.read_bytes() if path.is_file() else b""))
    return hashlib.sha256(repr(sorted(state)).encode()).hexdigest()


def in_time(call: Callable[..., T], *args: object, **options: object) -> T:
    """What the call returns or raises, in a thread that must come back."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call(*args, **options))
        except BaseException as error:  # raised again below
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(100)
    assert not thread.is_alive(), "the call hangs"
    if failure:
        raise failure[0]
    return outcome[0]
