"""Probes of limits, network, and what tells boxes apart."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import secrets
import socket
from typing import TYPE_CHECKING, Any, Callable

from .claims import Claim, NotApplicable, breaches, inside, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .targets import Target

MIB = 1 << 20
_GROWS = {
    "heap": "held = [bytearray(4 << 20) for _ in range(50)]",
    "memfd": "fd = os.memfd_create('m')\nfor _ in range(50): os.write(fd, bytes(4 << 20))",
    "shm": "f = open('/dev/shm/' + NAME, 'wb')\ntry:\n    for _ in range(50): f.write(bytes(4 << 20))\n"
           "except OSError: os._exit(9)\nfinally: os.unlink(f.name)",
    "mmap": "import mmap\nm = mmap.mmap(-1, 200 << 20)\nfor i in range(0, 200 << 20, 4096): m[i] = 1",
}  # fmt: skip


def _grows(code: str) -> Callable[[Target], str]:
    """200 MiB in a box of 64: it ends by ``oom``, or by the file system's own cap."""

    def probe(target: Target) -> str:
        name = "canary" + secrets.token_hex(6)
        with target.room(memory_mb=64) as room:
            ran = room.run(f"import os\nNAME = {name!r}\n{code}\nprint('ALL OF IT')")
        return "200 MiB in a box of 64" if "ALL OF IT" in ran.stdout else ""

    return probe


def _forks(target: Target) -> str:
    with target.room(pids=16) as room:
        return breaches(
            run(
                room,
                """
import signal
children = []
try:
    for _ in range(40):
        child = os.fork()
        if child == 0: signal.pause(); os._exit(0)
        children.append(child)
    breach("40 processes in a box of 16")
except OSError: pass
for child in children: os.kill(child, 9); os.waitpid(child, 0)
""",
            )
        )


def _zombies(target: Target) -> str:
    """Orphans are reaped: a box may make more of them, one after another, than it may have at once."""
    with target.room(pids=16) as room:
        return breaches(
            run(
                room,
                """
import time
def fork():
    for _ in range(300):  # an orphan may not have run yet, on a busy machine
        try: return os.fork()
        except OSError: time.sleep(0.01)
for count in range(60):
    child = fork()
    if child == 0: os._exit(5 if fork() is None else 0)
    if child is None or os.waitpid(child, 0)[1]: breach("after", count, "orphans no process is left"); break
""",
            )
        )


_RLIMITS = """
import resource
if resource.getrlimit(resource.RLIMIT_CORE)[1] != 0: breach("core files")
files = resource.getrlimit(resource.RLIMIT_NOFILE)
if not 0 < files[1] <= 4096: breach("open files", files)
if resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY: breach("file size")
most = {resource.RLIMIT_MEMLOCK: 64 << 10, resource.RLIMIT_MSGQUEUE: 819200, resource.RLIMIT_SIGPENDING: 1024,
        resource.RLIMIT_RTPRIO: 0, resource.RLIMIT_NICE: 0}
for kind, value in most.items():
    if not 0 <= resource.getrlimit(kind)[1] <= value: breach("limit", kind, resource.getrlimit(kind))
if int(open("/proc/self/oom_score_adj").read()) < 500: breach("not the first to go when the host runs out of memory")
"""
_OOM_SCORE = """
try: open("/proc/self/oom_score_adj", "w").write("-1")
except OSError: pass
if int(open("/proc/self/oom_score_adj").read()) < 0: breach("protected from the host's memory killer")
"""
_PRIORITY = """
try: os.nice(-5); breach("a better priority than the host's")
except OSError: pass
try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); breach("a real-time schedule")
except OSError: pass
"""
_TERMINALS = """
import resource
try: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
except (OSError, ValueError): pass
held = []
try:
    while len(held) < 600: held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
    breach(len(held), "terminals, of a number that the whole host shares")
except OSError: pass
"""
_WATCHERS = """
import resource
try: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
except (OSError, ValueError): pass
held = 0
while held < 100 and libc.inotify_init1(0) >= 0: held += 1
if held > 40: breach(held, "inotify instances, of a number that all of the host user's programs share")
"""
_IN_FLIGHT = """
import array, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held, fd = [], os.open("/dev/null", os.O_RDONLY)
try:
    while len(held) < 40:
        held.append(socket.socketpair())
        held[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * 250))])
except OSError: pass
print(1, flush=True)
import time
time.sleep(60)
"""


def _in_flight(target: Target) -> str:
    """Descriptors that a box keeps on their way do not keep the host's user from passing any, with the usual limit."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with target.room() as room, room.start(f"import os, socket\n{_IN_FLIGHT}"):
        mine, theirs = socket.socketpair()
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, limits[0]), limits[1]))
        try:
            socket.send_fds(mine, [b"x"], [0])
        except OSError as error:
            return f"the host's own process cannot pass a descriptor: {error.strerror}"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            mine.close()
            theirs.close()
    return ""


@contextlib.contextmanager
def _listener(family: int, address: Any) -> Iterator[socket.socket]:
    with socket.socket(family) as server:
        server.bind(address)
        server.listen()
        yield server


def _connects(family: str, address: Any, **options: Any) -> Callable[[Target], str]:
    """The host listens; the code connects."""

    def probe(target: Target) -> str:
        name = f"\0canary-{secrets.token_hex(6)}" if address == "abstract" else address
        with _listener(getattr(socket, family), name) as server:
            where = server.getsockname()
            with target.room(**options) as room:
                return breaches(
                    run(
                        room,
                        f"""
client = socket.socket(socket.{family})
client.settimeout(5)
if client.connect_ex({where!r}) == 0: breach("connected to the host")
if client.family == socket.AF_UNIX and not {options.get("network", False)}:
    if {str(where)[3:20]!r} in open("/proc/net/unix").read(): breach("the host's socket is listed")
""",
                    )
                )

    return probe


def _shared_memory(target: Target) -> str:
    """A System V segment of the host's that anybody may use is not there."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = secrets.randbelow(1 << 30) | 1
    segment = libc.shmget(key, 4096, 0o1666)
    if segment < 0:
        raise NotApplicable("no System V shared memory")
    try:
        with target.room() as room:
            return breaches(run(room, f"if libc.shmget({key}, 0, 0) >= 0: breach('the segment of the host')"))
    finally:
        libc.shmctl(segment, 0, None)


def _host_name(target: Target) -> str:
    with target.room() as room:
        return breaches(run(room, f"if os.uname().nodename == {platform.node()!r}: breach(os.uname().nodename)"))


def _same_random(target: Target) -> str:
    code = (
        "import random, uuid, tempfile, secrets\n"
        "print(random.random(), uuid.uuid4(), secrets.token_hex(4), next(tempfile._get_candidate_names()))"
    )
    with target.room() as room:
        columns = zip(*(room.run(code).stdout.split() for _ in range(4)))
        return ", ".join(column[0] for column in columns if len(set(column)) < 4)


_NO_WAY_OUT = """
for address in (("192.0.2.1", 80), ("169.254.169.254", 80), ("1.1.1.1", 53)):
    client = socket.socket(); client.settimeout(0.2)
    code = client.connect_ex(address)
    if code not in (errno.ENETUNREACH, errno.EHOSTUNREACH): breach(address, errno.errorcode.get(code))
    datagram = socket.socket(type=socket.SOCK_DGRAM)
    try: datagram.sendto(b"?", address); breach("a datagram to", address)
    except OSError: pass
names = [name for _, name in socket.if_nameindex() if name != "lo" and open("/proc/net/dev").read().count(name + ":")]
"""

CLAIMS = [
    *(
        Claim(
            f"B81-{name}",
            f"{name} stops at the box's memory limit",
            _grows(code),
            ("memory limit", "scratch size"),
            cgroup=True,
        )
        for name, code in _GROWS.items()
    ),
    Claim("B80", "forks stop at the box's limit", _forks, ("pids limit",)),
    Claim("B84", "orphans are reaped", _zombies, ("reaping",), engine_only=True),
    Claim(
        "B42-limits",
        "no core files, few descriptors, locked pages, timers and queues, bounded files, first to go in need",
        inside(_RLIMITS),
        ("resource limits",),
    ),
    Claim("B83", "neither priority nor schedule rises", inside(_PRIORITY)),
    Claim("B81-oom-score", "the box is never safer from the memory killer than the host", inside(_OOM_SCORE)),
    Claim(
        "B80-terminals",
        "a box takes few of the host's terminals",
        inside(_TERMINALS),
        engine_only=True,
    ),
    Claim(
        "B80-inotify",
        "a box takes few of its host user's inotify instances",
        inside(_WATCHERS),
        ("shared counters",),
        engine_only=True,
    ),
    Claim(
        "B80-in-flight",
        "a box does not stop its user's other processes from passing descriptors",
        _in_flight,
        engine_only=True,
        known="descriptors in flight count for the host user, whose other programs may have fewer; SECURITY.md says so"
        if os.geteuid()
        else "",
    ),
    Claim(
        "B60",
        "an abstract socket of the host is not reached",
        _connects("AF_UNIX", "abstract"),
        ("network namespace", "landlock"),
    ),
    Claim(
        "B60-landlock",
        "with the host's network, an abstract socket is not reached",
        _connects("AF_UNIX", "abstract", network=True),
        ("landlock",),
        landlock=6,
    ),
    Claim("B70", "the host's loopback is not reached", _connects("AF_INET", ("127.0.0.1", 0)), ("network namespace",)),
    Claim(
        "B62",
        "nothing leads out: no route, no datagram, no metadata service (also B63)",
        inside(_NO_WAY_OUT),
        ("network namespace",),
    ),
    Claim("B57-ipc", "shared memory of the host is not there", _shared_memory, ("ipc namespace",)),
    Claim("B89-name", "the host's name is not told", _host_name, ("uts namespace",)),
    Claim("B88", "random numbers never repeat between boxes", _same_random),
]
