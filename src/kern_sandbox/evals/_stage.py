"""What the host sets up for a case and looks at afterwards: secrets, files, listeners, processes, a meeting place."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import secrets
import select
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._look import Look, Meeting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._cases import Claim

__all__ = ["Scene", "Stage"]

ENVIRONMENT = "KERN_EVALS_CANARY"
_ROUNDS = 3
"""One until all connections are accepted, one until what they carry is ready, one until it is heard."""
_PATIENCE_S = 20.0
_STRANGER = 54321
_IPC_PRIVATE, _IPC_RMID = 0, 0


class Stage:
    """The canaries that one run shares: an environment variable, a process, an open file, shared memory, listeners.

    Use it as a context; it has to be entered ahead of the first box, so that a leaky engine can leak.
    """

    def __init__(self) -> None:
        self.secrets = {name: secrets.token_hex(16) for name in ("environment", "descriptor", "shm", "sysv")}
        self.values: dict[str, Any] = {}
        self._undo = contextlib.ExitStack()
        self._heard = bytearray()
        self._news = threading.Condition()

    def __enter__(self) -> Stage:
        self.folder = tempfile.mkdtemp(prefix="kern-evals-")
        self._undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
        os.chmod(self.folder, 0o755)  # noqa: S103 - boxes may be other users
        self.victims = os.path.join(self.folder, "victims")
        os.mkdir(self.victims, 0o755)
        os.environ[ENVIRONMENT] = self.secrets["environment"]
        self._undo.callback(os.environ.pop, ENVIRONMENT, None)
        self._open_file()
        self._shared_memory()
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def heard(self, token: str) -> bool:
        """Whether any listener was sent ``token`` by now, as far as Linux has delivered it."""
        for _ in range(_ROUNDS):
            self._round_trip()
        with self._news:
            return token.encode() in self._heard

    def _round_trip(self) -> None:
        """Wait until the listeners have heard a word of ours; what was there before it is then ready, or heard."""
        word = secrets.token_bytes(12)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(word, ("127.0.0.1", self.values["udp"]))
        with self._news:
            if not self._news.wait_for(lambda: word in self._heard, _PATIENCE_S):
                raise RuntimeError("the listeners of this run do not answer")

    def _open_file(self) -> None:
        path = os.path.join(self.folder, "descriptor")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.secrets["descriptor"])
        fd = os.open(path, os.O_RDONLY)
        os.set_inheritable(fd, True)
        self._undo.callback(os.close, fd)
        self.values["descriptor"] = fd

    def _shared_memory(self) -> None:
        path = f"/dev/shm/kern-evals-{os.getpid()}-{secrets.token_hex(4)}"
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
            file.write(self.secrets["shm"])
            self._undo.callback(os.unlink, path)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        number = libc.shmget(_IPC_PRIVATE, 4096, 0o1666)
        if number >= 0:
            address = libc.shmat(number, None, 0)
            ctypes.memmove(address, self.secrets["sysv"].encode(), 32)
            libc.shmdt(ctypes.c_void_p(address))
            self._undo.callback(libc.shmctl, number, _IPC_RMID, None)
        self.values.update(shm_path=path, shm_number=number)

    def _listen(self) -> None:
        abstract = f"kern-evals-{secrets.token_hex(6)}"
        path = os.path.join(self.folder, "socket")
        tcp = self._undo.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = self._undo.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        local = self._undo.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(path)
        os.chmod(path, 0o777)  # noqa: S103 - a box could connect if it only saw it
        hidden = self._undo.enter_context(socket.socket(socket.AF_UNIX))
        hidden.bind("\0" + abstract)
        for server in (local, hidden):
            server.listen(64)
        self.values.update(tcp=tcp.getsockname()[1], udp=udp.getsockname()[1], unix_path=path, abstract=abstract)
        left_open, ours = (self._undo.enter_context(one) for one in socket.socketpair())
        left_open.set_inheritable(True)
        stop, say_stop = socket.socketpair()
        listener = threading.Thread(target=self._hear, args=([tcp, local, hidden], [udp, ours], stop), daemon=True)
        listener.start()
        self._undo.callback(stop.close)
        self._undo.callback(listener.join)
        self._undo.callback(say_stop.close)

    def _hear(self, servers: list[socket.socket], lasting: list[socket.socket], stop: socket.socket) -> None:
        """Collect whatever anybody sends, until ``stop`` hangs up."""
        open_ones: list[socket.socket] = []
        while True:
            ready, _, _ = select.select([*servers, *lasting, stop, *open_ones], [], [])
            if stop in ready:
                break
            for one in ready:
                if one in servers:
                    open_ones.append(one.accept()[0])
                    continue
                data = self._received(one)
                with self._news:
                    self._heard += data
                    self._news.notify_all()
                if not data and one in open_ones:
                    open_ones.remove(one)
                    one.close()
        for one in open_ones:
            one.close()

    @staticmethod
    def _received(one: socket.socket) -> bytes:
        try:
            return one.recv(4096)
        except OSError:
            return b""


@dataclass
class Scene:
    """What is set up for one case on one target.

    Attributes:
        stage: what it shares with the run's other cases.
        workspace: the host directory that the case works in.
        token: known to this case alone; where it turns up tells how far the case came.
        values: what the case is told, by name.
        secrets: what must not come out, by name.
        looks: what was seen of the case's process from outside whenever it came to the meeting place.
    """

    stage: Stage
    workspace: str
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    values: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    neighbour: subprocess.Popen[bytes] | None = None
    before: dict[str, str] = field(default_factory=dict)

    @property
    def victim(self) -> str:
        """A directory of the host with files that the box was not given, or was given to read."""
        return str(self.values["victim"])

    @classmethod
    @contextlib.contextmanager
    def open(cls, stage: Stage, claim: Claim, workspace: str) -> Iterator[Scene]:
        """Set a scene for one case; it is taken down at the end, whatever the case has done to it."""
        scene = cls(stage, workspace, secrets=dict(stage.secrets))
        with contextlib.ExitStack() as undo:
            scene._make_victim(undo)
            scene.values.update(stage.values, token=scene.token, environment=ENVIRONMENT)
            if "neighbour" in claim.scene:
                scene._make_neighbour(undo)
            if "once" in claim.scene:
                scene.values["once"] = scene.secrets["left over"] = secrets.token_hex(16)
            if "meeting" in claim.scene:
                meeting = undo.enter_context(Meeting(workspace, scene.looks))
                scene.values["meeting"] = meeting.name
            yield scene

    def _make_victim(self, undo: contextlib.ExitStack) -> None:
        folder = os.path.join(self.stage.victims, self.token)
        os.mkdir(folder)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        os.chmod(folder, 0o777)  # noqa: S103 - it is there to be written, if a box can
        self.secrets["file"] = secrets.token_hex(16)
        self.secrets["private file"] = secrets.token_hex(16)
        for name, text, mode in (
            ("secret", self.secrets["file"], 0o644),
            ("private", self.secrets["private file"], 0o600),
            ("writable", "whole", 0o666),
            ("program", "#!/bin/sh\necho whole\n", 0o777),
        ):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, mode)
        if os.geteuid() == 0:  # a file of yet another user, which only the rights of root open
            os.chown(os.path.join(folder, "private"), _STRANGER, _STRANGER)
        self.values.update(victim=folder, secret=os.path.join(folder, "secret"))
        self.before = fingerprint(folder)

    def _make_neighbour(self, undo: contextlib.ExitStack) -> None:
        self.secrets["command line"] = secrets.token_hex(16)
        words = [
            sys.executable,
            "-S",
            "-c",
            "import sys\nprint(1, flush=True)\nfor _ in sys.stdin: print(1, flush=True)",
        ]
        neighbour = subprocess.Popen(
            [*words, self.secrets["command line"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        undo.callback(_end, neighbour)
        self.neighbour = neighbour
        self.values["neighbour"] = neighbour.pid

    def neighbour_answers(self) -> bool:
        """Whether the host's own process still does what it is asked: one that is about to end does not."""
        assert self.neighbour is not None
        assert self.neighbour.stdin is not None
        assert self.neighbour.stdout is not None
        try:
            self.neighbour.stdin.write(b"\n")
            self.neighbour.stdin.flush()
        except BrokenPipeError:
            return False
        return bool(self.neighbour.stdout.readline())

    def changed(self) -> list[str]:
        """What differs in the victim's directory from before."""
        after = fingerprint(self.victim)
        return sorted(name for name in self.before.keys() | after.keys() if self.before.get(name) != after.get(name))

    def survivors(self) -> list[int]:
        """Pids of the processes on this host that carry this case's token on their command line."""
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and self.token.encode() in _read(f"/proc/{name}/cmdline"):
                    found.append(int(name))
        return found


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def fingerprint(folder: str) -> dict[str, str]:
    """Name to kind, mode, owner and content of everything directly in ``folder``."""
    found = {".": stat.filemode(os.lstat(folder).st_mode)}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        about = os.lstat(path)
        text = f"{stat.filemode(about.st_mode)} {about.st_uid}:{about.st_gid} {about.st_nlink}"
        if stat.S_ISREG(about.st_mode):
            text += _digest(path)
        found[name] = text
    return found


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(_read(path)).hexdigest()
    except PermissionError:
        return "closed to this user"
