"""A meeting place in the workspace: whoever comes there is looked at, by what Linux says of its process."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import tempfile
import threading
from dataclasses import dataclass

__all__ = ["Look", "Meeting"]

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Look:
    """One process as the host sees it.

    Attributes:
        said: what it said on coming.
        uid: the host's id of its user.
        status: its ``/proc/PID/status``, by name.
        filters: of its threads, ``Seccomp`` of each status.
        namespaces: kind to identity.
        descriptors: number to what it leads to.
        personality: as a number.
        root: what its ``/`` is, as the host names it.
        mounts: its list of mounts, without the numbers that the host gives them.
        limits: its ``/proc/PID/limits``.
        oom_score_adj: how willingly it is killed when memory runs out.
        interfaces: the names of its network's interfaces.
        routes: how many routes its network has.
        nice: its niceness.
        policy: its schedule, as a number.
    """

    said: str
    uid: int
    status: dict[str, str]
    filters: frozenset[str]
    namespaces: dict[str, str]
    descriptors: dict[str, str]
    personality: int
    root: str
    mounts: tuple[str, ...]
    limits: str
    oom_score_adj: int
    interfaces: tuple[str, ...]
    routes: int
    nice: int
    policy: int


class Meeting:
    """Listens below ``workspace``; adds a `Look` to ``looks`` for each coming, then lets the comer go on."""

    def __init__(self, workspace: str, looks: list[Look]) -> None:
        self._looks = looks
        self._folder = tempfile.mkdtemp(prefix=".meeting-", dir=workspace)
        os.chmod(self._folder, 0o755)  # noqa: S103 - the box may be another user
        self.name = os.path.basename(self._folder) + "/s"
        self._server = socket.socket(socket.AF_UNIX)
        folder = os.open(self._folder, os.O_PATH)
        try:  # by way of /proc: a name of a local socket has at most 107 bytes
            path = f"/proc/self/fd/{folder}/s"
            self._server.bind(path)
            os.chmod(path, 0o777)  # noqa: S103 - the box may be another user
        finally:
            os.close(folder)
        self._server.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Meeting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        while True:
            try:
                comer, _ = self._server.accept()
            except OSError:  # it was shut down
                return
            with comer, contextlib.suppress(OSError):
                comer.settimeout(_PATIENCE_S)
                pid, uid, _gid = struct.unpack("3i", comer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                said = comer.recv(4096).decode("utf-8", "replace")
                self._looks.append(look(pid, uid, said))
                comer.send(b"go")


def look(pid: int, uid: int, said: str) -> Look:
    """Look at a process; what this user may not see of it stays empty."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["0"] * 50
    return Look(
        said=said,
        uid=uid,
        status=_status(f"/proc/{pid}/status"),
        filters=frozenset(
            _status(f"/proc/{pid}/task/{task}/status").get("Seccomp", "?") for task in _names(f"/proc/{pid}/task")
        ),
        namespaces={name: _link(f"/proc/{pid}/ns/{name}") for name in _NAMESPACES},
        descriptors={name: _link(f"/proc/{pid}/fd/{name}") for name in _names(f"/proc/{pid}/fd")},
        personality=int(_text(f"/proc/{pid}/personality") or "0", 16),
        root=_link(f"/proc/{pid}/root"),
        mounts=tuple(" ".join(line.split()[3:6]) for line in _text(f"/proc/{pid}/mountinfo").splitlines()),
        limits=_text(f"/proc/{pid}/limits"),
        oom_score_adj=int(_text(f"/proc/{pid}/oom_score_adj") or "0"),
        interfaces=tuple(line.partition(":")[0].strip() for line in _text(f"/proc/{pid}/net/dev").splitlines()[2:]),
        routes=len(_text(f"/proc/{pid}/net/route").splitlines()[1:]),
        nice=int(fields[16]),
        policy=int(fields[38]),
    )


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _status(path: str) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in _text(path).splitlines())}


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
