"""Probes of the system-call filter: each call with arguments that do no harm where it is let through.

A pointer to nowhere tells the filter from Linux: ``EFAULT`` means that the call was reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from kern_sandbox._linux.syscalls import BY_MACHINE, MACHINE

from .claims import Claim, NotApplicable, breaches, inside, run

if TYPE_CHECKING:
    from .targets import Target

NOWHERE = 1
NUMBERS = BY_MACHINE.get(MACHINE, {})
DENIED = {"EPERM", "ENOSYS", "EACCES"}

# Name, arguments, row, and the layers without which the call is reached; none where Linux asks for rights of the host.
_CALLS: tuple[tuple[str, tuple[int, ...], str, tuple[str, ...]], ...] = (
    ("io_uring_setup", (1, NOWHERE), "B20", ("seccomp",)),
    ("io_uring_enter", (99, 1, 0, 0, 0, 0), "B20", ("seccomp",)),
    ("io_uring_register", (99, 0, NOWHERE, 1), "B20", ("seccomp",)),
    ("userfaultfd", (1,), "B21", ("seccomp",)),
    ("bpf", (0, NOWHERE, 8), "B21", ("seccomp",)),
    ("perf_event_open", (NOWHERE, 0, -1, -1, 0), "B21", ("seccomp",)),
    ("keyctl", (0, -3, 0), "B22", ("seccomp",)),
    ("add_key", (NOWHERE, NOWHERE, 0, 0, -3), "B22", ("seccomp",)),
    ("request_key", (NOWHERE, NOWHERE, 0, -3), "B22", ("seccomp",)),
    ("unshare", (0x10000000,), "B23", ("seccomp",)),
    ("setns", (-1, 0), "B23", ("seccomp",)),
    ("clone3", (NOWHERE, 8), "B23", ("seccomp",)),
    ("open_tree", (-100, NOWHERE, 0), "B24", ("seccomp",)),
    ("move_mount", (-100, NOWHERE, -100, NOWHERE, 0), "B24", ("seccomp", "capabilities")),
    ("fsopen", (NOWHERE, 0), "B24", ("seccomp", "capabilities")),
    ("fsconfig", (-1, 0, 0, 0, 0), "B24", ("seccomp",)),
    ("fsmount", (-1, 0, 0), "B24", ("seccomp", "capabilities")),
    ("fspick", (-100, NOWHERE, 0), "B24", ("seccomp", "capabilities")),
    ("mount_setattr", (-100, NOWHERE, 0, NOWHERE, 32), "B24", ("seccomp", "capabilities")),
    ("mount", (NOWHERE, NOWHERE, NOWHERE, 0, 0), "B46", ("seccomp",)),
    ("umount2", (NOWHERE, 0), "B46", ("seccomp", "capabilities")),
    ("pivot_root", (NOWHERE, NOWHERE), "B46", ("seccomp", "capabilities")),
    ("chroot", (NOWHERE,), "B46", ("seccomp",)),
    ("name_to_handle_at", (-100, NOWHERE, NOWHERE, NOWHERE, 0), "B32", ("seccomp",)),
    ("open_by_handle_at", (-1, NOWHERE, 0), "B32", ("seccomp", "capabilities")),
    ("personality", (0x0040000,), "B33", ("seccomp",)),
    ("init_module", (NOWHERE, 0, NOWHERE), "B33", ()),
    ("kexec_load", (0, 0, 0, 0xFFFF), "B33", ()),
    ("reboot", (0, 0, 0, 0), "B33", ("seccomp", "capabilities")),
    ("swapon", (NOWHERE, 0), "B33", ()),
    ("acct", (NOWHERE,), "B33", ()),
    ("quotactl", (0x7FFFFF, NOWHERE, 0, 0), "B33", ("seccomp", "capabilities")),
    ("iopl", (99,), "B33", ("seccomp",)),
    ("ioperm", (-1, -1, 1), "B33", ("seccomp",)),
    ("settimeofday", (NOWHERE, 0), "B33", ("seccomp",)),
    ("syslog", (99, 0, 0), "B33", ()),
    ("ptrace", (0x4206, 0x7FFFFFFF, 0, 0), "B05", ("seccomp",)),
    ("process_vm_readv", (0x7FFFFFFF, NOWHERE, 1, NOWHERE, 1, 0), "B05", ("seccomp",)),
    ("process_vm_writev", (0x7FFFFFFF, NOWHERE, 1, NOWHERE, 1, 0), "B05", ("seccomp",)),
    ("pidfd_getfd", (-1, 0, 0), "B05", ("seccomp",)),
    ("kcmp", (0x7FFFFFFF, 0x7FFFFFFF, 0, 0, 0), "B05", ("seccomp",)),
    ("fanotify_init", (0x200, 0), "B32", ("seccomp",)),
    ("sethostname", (NOWHERE, 5), "B33", ("seccomp", "capabilities")),
    ("move_pages", (0, 1, NOWHERE, 0, NOWHERE, 0), "B21", ("seccomp",)),
    ("lookup_dcookie", (0, NOWHERE, 1), "B33", ("seccomp",)),
)
_SOCKETS = (
    ("netlink audit", 16, 3, 9), ("packet", 17, 3, 0), ("vsock", 40, 1, 0), ("alg", 38, 5, 0), ("rds", 21, 5, 0),
    ("bluetooth", 31, 3, 0), ("can", 29, 3, 1), ("key", 15, 3, 2), ("xdp", 44, 3, 0), ("sctp", 2, 1, 132),
)  # fmt: skip


def _reaches(name: str, arguments: tuple[int, ...]) -> Callable[[Target], str]:
    def probe(target: Target) -> str:
        if name not in NUMBERS:
            raise NotApplicable(f"{MACHINE} has no {name}")
        with target.room() as room:
            code = f"got = call({NUMBERS[name]}, *{arguments})\nif got not in {DENIED}: breach('{name} gives', got)"
            ran = run(room, code)
            if ran.fault.startswith("escape_blocked") and not ran.fault.endswith(":" + name):
                return f"the fault names {ran.fault}"
            return breaches(ran)

    return probe


def _socket(family: int, kind: int, protocol: int) -> str:
    return f"""
got = call({NUMBERS.get("socket", 0)}, {family}, {kind}, {protocol})
if got == "ok": breach("made")
"""


_CLONE_NEW_USER = """
import signal
got = call({clone}, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
if os.getpid() != ME: os._exit(0)
if got == "ok": breach("a new user namespace")
"""
_INT80 = """
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # mov eax, 20 (i386 getpid); int 0x80; ret
stub = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
got = stub()
if got not in (-38, -1): breach("int 0x80 answers", got)
"""
_PTY = """
import fcntl, pty, termios
master, slave = pty.openpty()
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    got = call({ioctl}, slave, {request}, ctypes.c_char_p(b"\\x06"))
    if got not in ("EPERM", "EIO"): breach("ioctl gives", got)
    os._exit(0)
os.waitpid(child, 0)
"""
_TASKS = """
import threading
wait = threading.Event()
threads = [threading.Thread(target=wait.wait) for _ in range(4)]
for thread in threads: thread.start()
for task in os.listdir("/proc/self/task"):
    words = dict(line.split(":\\t") for line in open(f"/proc/self/task/{task}/status") if ":\\t" in line)
    if words["Seccomp"].strip() != "2": breach("thread without a filter:", words["Seccomp"].strip())
wait.set()
"""
_LISTENER = """
import struct
code = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
class Prog(ctypes.Structure): _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
prog = Prog(1, ctypes.addressof(code))
libc.prctl(38, 1, 0, 0, 0)
got = call({seccomp}, 1, 8, ctypes.byref(prog))
if got == "ok": breach("a listener of its own")
"""
_FLOOD = """
import threading
go, ended = threading.Barrier(17), threading.Semaphore(0)
def escape():
    go.wait(); call({keyctl}, 0, -3, 0); breach("a forbidden call came back"); ended.release()
for _ in range(16): threading.Thread(target=escape, daemon=True).start()
go.wait()
for _ in range(16): ended.acquire()
"""
_ABSORBED = """
import subprocess
child = os.fork()
if child == 0:
    call({keyctl}, 0, -3, 0); os._exit(0)
os.waitpid(child, 0)
breach("the death of a child was absorbed")
"""


def _flooded(code: str) -> Callable[[Target], str]:
    """The fault must name the call, however many threads or children make it."""

    def probe(target: Target) -> str:
        with target.room() as room:
            ran = run(room, code)
            found = breaches(ran)
            if not found and ran.fault != "escape_blocked:keyctl":
                return f"the fault is {ran.fault!r}"
            return found

    return probe


def _tables() -> list[Claim]:
    calls = [
        Claim(f"{row}-{name}", f"the call {name} does not reach Linux", _reaches(name, arguments), without)
        for name, arguments, row, without in _CALLS
    ]
    sockets = [
        Claim(
            f"B30-{name.replace(' ', '-')}",
            f"no {name} socket is made",
            inside(_socket(*numbers)),
            ("seccomp", "capabilities"),
        )
        for name, *numbers in _SOCKETS
    ]
    return [*calls, *sockets]


def _others() -> list[Claim]:
    number = NUMBERS.get
    return [
        Claim(
            "B23-clone",
            "clone makes no namespace",
            inside("ME = os.getpid()" + _CLONE_NEW_USER.format(clone=number("clone"))),
            ("seccomp",),
        ),
        Claim(
            "B10-TIOCSTI",
            "nothing is typed into a terminal",
            inside(_PTY.format(ioctl=number("ioctl"), request=0x5412)),
            ("seccomp",),
        ),
        Claim(
            "B11",
            "bits above 32 of a request change nothing",
            inside(_PTY.format(ioctl=number("ioctl"), request=0x5412 | 1 << 32)),
            ("seccomp",),
        ),
        Claim("B12", "TIOCLINUX is refused", inside(_PTY.format(ioctl=number("ioctl"), request=0x541C)), ("seccomp",)),
        Claim("B25", "x32 calls are absent", inside(f"got = call({0x40000000 + 39})\nif got != 'ENOSYS': breach(got)")),
        Claim(
            "B26",
            "int 0x80 does not get round the filter",
            inside(_INT80),
            ("architecture check",),
            more=(("seccomp",),),
        ),
    ]


def _supervision() -> list[Claim]:
    number = NUMBERS.get
    return [
        Claim("B28", "every thread runs under the filter", inside(_TASKS), ("seccomp",)),
        Claim(
            "B28-listener",
            "no second listener can be had",
            inside(_LISTENER.format(seccomp=number("seccomp"))),
            ("seccomp",),
        ),
        Claim(
            "B07-flood",
            "many threads that make forbidden calls at once end as one fault that names the call",
            _flooded(_FLOOD.format(keyctl=number("keyctl"))),
            ("seccomp",),
            engine_only=True,
        ),
        Claim(
            "B07-absorbed",
            "a forbidden call in a child is a fault, though its parent waits for it",
            _flooded(_ABSORBED.format(keyctl=number("keyctl"))),
            ("seccomp",),
            engine_only=True,
        ),
        Claim(
            "B45-mknod",
            "no device node is made",
            inside(
                f"got = call({number('mknodat')}, -100, ctypes.c_char_p(b'node'), 0o20666, 259)\n"
                "if got == 'ok': breach('a device')\nif got == 'EFAULT': breach(got)"
            ),
        ),
    ]


CLAIMS = [
    claim
    for claim in (*_tables(), *_others(), *_supervision())
    if MACHINE == "x86_64" or claim.id not in ("B25", "B26")
]
