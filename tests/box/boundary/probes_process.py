"""Probes of handles, identities, privileges and processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from .claims import Claim, NotApplicable, breaches, inside, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .targets import Target

_DESCRIPTORS = """
import stat
for number in range(256):
    try: about = os.fstat(number)
    except OSError: continue
    if number > 3 or stat.S_ISDIR(about.st_mode) or stat.S_ISSOCK(about.st_mode):
        try: breach(number, os.readlink(f"/proc/self/fd/{number}"))
        except OSError: pass
"""
_INIT = """
for name in ("environ", "maps", "mem", "auxv", "fd", "cwd/.", "root/."):
    try: os.listdir("/proc/1/" + name) if name[-1] in "d." else open("/proc/1/" + name, "rb").read(0)
    except OSError: continue
    breach("/proc/1/" + name)
"""
_EVERYWHERE = """
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "cgroup", "comm"):
        file = opened(f"/proc/{pid}/{name}")
        if file is None or int(pid) == os.getpid() and name == "cmdline": continue
        try: text = file.read()
        except OSError: continue
        for word in WORDS:
            if word.encode() in text: breach(f"/proc/{pid}/{name} holds {word}")
"""
_STATUS = """
words = dict(line.rstrip("\\n").split(":\\t") for line in open("/proc/self/status") if ":\\t" in line)
"""
_SIGNALS = """
import signal
for number in range(1, 65):
    if number == signal.SIGCHLD: continue
    with __import__("contextlib").suppress(OSError, ValueError): os.kill(1, number)
for _ in range(200):
    with __import__("contextlib").suppress(OSError): os.kill(1, signal.SIGCHLD)
"""


@contextlib.contextmanager
def _canary(mode: int = 0o644) -> Iterator[tuple[str, str]]:
    """A host file with a secret, outside every workspace: its path and its content."""
    with tempfile.TemporaryDirectory(prefix="canary-") as folder:
        path = Path(folder, "secret")
        text = secrets.token_hex(16)
        path.write_text(text)
        Path(folder).chmod(0o755)
        path.chmod(mode)
        yield str(path), text


def _inherited(target: Target) -> str:
    with (
        _canary() as (path, text),
        open(path, encoding="utf-8") as file,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        for fd in (file.fileno(), server.fileno()):
            os.set_inheritable(fd, True)
        with target.room() as room:
            ran = run(
                room,
                f"""
for number in range(3, 256):
    try: text = os.pread(number, 100, 0)
    except OSError: text = b""
    if b"{text}" in text: breach("read through descriptor", number)
    try: name = socket.socket(fileno=os.dup(number)).getsockname()
    except OSError: continue
    if name[1:] == ({server.getsockname()[1]},): breach("the host's socket is descriptor", number)
""",
            )
            return breaches(ran)


def _outside(target: Target) -> str:
    """A host file is not reached by its path, by ``..`` or by a magic link."""
    with _canary() as (path, text), target.room() as room:
        ran = run(
            room,
            f"""
for start in " /.. /../.. /proc/self/root /proc/self/cwd/../.. /proc/1/root /proc/self/root/.. /proc/..".split(" "):
    file = opened(start + {path!r})
    if file is not None and file.read() == b"{text}": breach(start + " leads to the host's file")
""",
        )
        return breaches(ran)


def _environment(target: Target) -> str:
    word = "canary" + secrets.token_hex(8)
    os.environ["KERN_CANARY"] = word
    try:
        with target.room() as room:
            return breaches(run(room, f"WORDS = ['can' + {word[3:]!r}]\n{_EVERYWHERE}"))
    finally:
        del os.environ["KERN_CANARY"]


def _command_lines(target: Target) -> str:
    import kern_sandbox

    folder = str(Path(kern_sandbox.__file__).parents[1])
    with target.room() as room:
        words = [folder, room.workspace]
        return breaches(run(room, f"WORDS = {words!r}\n{_EVERYWHERE}"))


def _mount_paths(target: Target) -> str:
    import kern_sandbox

    with target.room() as room:
        # Its name is unlike any other; what stands before it is told from the file system's root on, e.g. a tmpfs's.
        words = [str(Path(kern_sandbox.__file__).parent), Path(room.workspace).name]
        return breaches(
            run(
                room,
                f"""
text = open("/proc/self/mountinfo").read()
for word in {words!r}:
    if word in text: breach("a path of the host:", word)
""",
            )
        )


def _other_processes(target: Target) -> str:
    word = "canary" + secrets.token_hex(8)
    with target.room() as room, room.start(f"import time; print(1, flush=True); time.sleep(60) # {word}"):
        return breaches(run(room, f"WORDS = ['can' + {word[3:]!r}]\n{_EVERYWHERE}"))


def _processes_with(word: str) -> list[Path]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(entry)
    return found


def _host_uid(target: Target) -> str:
    word = "canary" + secrets.token_hex(8)
    with target.room() as room, room.start(f"import time; print(1, flush=True); time.sleep(60) # {word}"):
        for entry in _processes_with(word):
            status = dict(line.split(":\t", 1) for line in (entry / "status").read_text().splitlines() if ":\t" in line)
            if "0" in status["Uid"].split() and entry.name != str(os.getpid()):
                return "the host sees uid 0"
    return ""


def _private_file(target: Target) -> str:
    """What only the host's root may read stays unread, even where it is shown."""
    with _canary(0o600) as (path, text), target.room(show={path: "/shown"}) as room:
        return breaches(
            run(
                room,
                f"""
file = opened("/shown")
if file is not None and file.read() == b"{text}": breach("read")
""",
            )
        )


def _survivors(target: Target) -> str:
    word = "canary" + secrets.token_hex(8)
    code = f"""
import time
for shape in range(4):
    if os.fork() == 0:
        if shape: os.setsid()
        if shape == 2 and os.fork(): os._exit(0)
        null = os.open("/dev/null", os.O_RDWR)
        for number in range(4): os.dup2(null, number)
        if shape == 3: libc.prctl(36, 1, 0, 0, 0); os.kill(os.getpid(), 19)
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", "{word}"])
"""
    with target.room() as room:
        run(room, code)
    left = _processes_with(word)
    for entry in left:
        os.kill(int(entry.name), 9)
    return f"{len(left)} processes outlived the call" if left else ""


def _forged(target: Target) -> str:
    """The exit code is the program's, and no fault appears, whatever is written to whatever descriptor."""
    with target.room() as room:
        ran = room.run("""
import os, json
frame = b"J" + json.dumps({"status": 0, "failed": "exec", "escape": "forged", "oom_kills": 9}).encode()
for number in range(3, 64):
    for data in (frame, b"\\xff\\xff\\xff\\xff" + frame, b"[" * 100000) if number == 3 else (frame,):
        try: os.write(number, data)
        except OSError: break
os._exit(7)
""")
    return "" if (ran.exit_code, ran.fault) == (7, "") else f"exit {ran.exit_code}, fault {ran.fault}"


def _own_exit(code: str) -> Callable[[Target], str]:
    """A fault is the sandbox's word: no way for the program to end brings one about."""

    def probe(target: Target) -> str:
        with target.room() as room:
            return room.run(code).fault

    return probe


def _signalled(target: Target) -> str:
    """Init takes no signal from the box: the program runs on and its own exit code comes back."""
    with target.room() as room:
        ran = room.run(f"import os, sys\n{_SIGNALS}\nos._exit(7)")
    return "" if (ran.exit_code, ran.fault) == (7, "") else f"exit {ran.exit_code}, fault {ran.fault}"


def _limited_init(target: Target) -> str:
    """Resource limits of init are not the program's to change."""
    with target.room() as room:
        return breaches(
            run(
                room,
                """
import resource
for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
    try: resource.prlimit(1, kind, resource.prlimit(1, kind)); breach("init's limits are set")
    except OSError: pass
""",
            )
        )


_SCHEDULES = """
for attempt in (
    lambda: os.sched_setscheduler(1, os.sched_getscheduler(1), os.sched_param(0)),
    lambda: os.setpriority(os.PRIO_PROCESS, 1, os.getpriority(os.PRIO_PROCESS, 1)),
    lambda: os.sched_setaffinity(1, os.sched_getaffinity(1)),
):
    try: attempt(); breach("init's schedule is set"); break
    except OSError: pass
"""


def _groups(target: Target) -> str:
    if 4242 not in os.getgroups():
        raise NotApplicable("this process has no supplementary group to lose")
    with _canary(0o040) as (path, text):
        os.chown(path, 0, 4242)
        with target.room(show={path: "/shown"}) as room:
            return breaches(
                run(
                    room,
                    f"""
file = opened("/shown")
if file is not None and file.read() == b"{text}": breach("read with a group of the host's")
if os.getgroups(): breach("groups", os.getgroups())
""",
                )
            )


CLAIMS = [
    Claim(
        "B01",
        "no descriptor but 0 to 3 is open, and none leads to a directory or a socket",
        inside(_DESCRIPTORS),
        ("descriptors",),
    ),
    Claim("B01-outside", "no path leads out of the box's root", _outside, ("pivot",)),
    Claim("B02", "files and sockets of the host process are not inherited", _inherited, ("descriptors",)),
    Claim("B04-init", "init's environment, memory and descriptors stay closed", inside(_INIT), ("dumpable",)),
    Claim("B04-environment", "the host's environment is nowhere below /proc", _environment, ("environment",)),
    Claim(
        "B04-command-line",
        "no command line or cgroup below /proc tells a path of the host",
        _command_lines,
        ("command line",),
    ),
    Claim(
        "B04-cgroup",
        "the box sees itself at the root of its cgroup",
        inside(
            "text = open('/proc/self/cgroup').read()\n"
            "for line in text.split():\n    if not line.endswith(':/'): breach(line)"
        ),
        ("cgroup namespace",),
        cgroup=True,
    ),
    Claim(
        "B89-mounts",
        "the list of mounts tells no path of the host",
        _mount_paths,
        known="a bind mount shows its source in mountinfo, and the workspace is one; SECURITY.md says so",
    ),
    Claim("B06", "processes of another box are not there", _other_processes, ("pid namespace",)),
    Claim(
        "B29",
        "no new privileges, no capabilities",
        inside(
            _STATUS
            + """
if words["NoNewPrivs"] != "1": breach("NoNewPrivs", words["NoNewPrivs"])
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    if int(words[name], 16): breach(name, words[name])
"""
        ),
        ("capabilities",),
        more=(("no_new_privs", "seccomp", "landlock"), ("bounding set",)),
    ),
    Claim(
        "B29-securebits",
        "uid 0 regains nothing by exec: the secure bits are locked",
        inside("if libc.prctl(27, 0, 0, 0, 0) != 0b11101111: breach(libc.prctl(27, 0, 0, 0, 0))"),
        ("securebits",),
    ),
    Claim(
        "B29-exec",
        "exec as uid 0 gives no capability back",
        inside(_STATUS + "if int(words['CapEff'], 16): breach(words['CapEff'])"),
        ("securebits", "bounding set", "no_new_privs", "seccomp", "landlock"),
    ),
    Claim("B29-uid", "the host sees no uid 0", _host_uid, ("host id",), root_only=True),
    Claim(
        "B36-private", "a file of root's that is shown stays unreadable", _private_file, ("host id",), root_only=True
    ),
    Claim("B36", "supplementary groups are gone", _groups, ("groups",), root_only=True),
    Claim("B85", "nothing outlives the call: setsid, double fork, subreaper, stopped", _survivors),
    Claim("B07", "nothing written to a descriptor forges or hides the verdict", _forged, ("report",), engine_only=True),
    Claim(
        "B07-exit",
        "a program that exits with 159 forges no fault",
        _own_exit("import os; os._exit(159)"),
        engine_only=True,
    ),
    Claim("B87-init", "no signal from the box ends init", _signalled, ("signal actions",), engine_only=True),
    Claim(
        "B87-prlimit",
        "the program cannot take init's resources away",
        _limited_init,
        engine_only=True,
    ),
    Claim(
        "B87-schedule",
        "the program cannot starve init of processor time, and so outlive its deadline",
        inside(_SCHEDULES),
        engine_only=True,
    ),
]
