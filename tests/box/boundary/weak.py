"""Engines with layers taken away. Only tests can do this: the product has no switch for it.

A `Weakening` is a piece of Python that a test's own fork server runs before it serves, an edit of the plan, or another
way to start the fork server. `weakened` swaps the fork server of this process for one with those weakenings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import types
from typing import TYPE_CHECKING, Any, Callable
from unittest import mock

from kern_sandbox._box.plan import Bind, Blob, Device, Text
from kern_sandbox._forkserver import client

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kern_sandbox import Sandbox
    from kern_sandbox._box.plan import Plan


def _same(plan: Plan) -> Plan:
    return plan


@dataclasses.dataclass(frozen=True)
class Weakening:
    """What is taken away.

    Attributes:
        layer: of architecture §2, 0 for the fork server's own start.
        code: run by the fork server before it serves.
        plan: applied to a Sandbox's plan.
        start: arguments of ``subprocess.Popen`` that start the fork server differently.
    """

    layer: int
    code: str = ""
    plan: Callable[[Plan], Plan] = _same
    start: dict[str, Any] = dataclasses.field(default_factory=dict)


def _replaced(**values: Any) -> Callable[[Plan], Plan]:
    return lambda plan: dataclasses.replace(plan, **values)


def _binds_writable(plan: Plan) -> Plan:
    """Every bind that a test adds below ``/shown`` is writable."""
    steps = (
        step._replace(writable=True) if isinstance(step, Bind) and step.target.startswith("/shown") else step
        for step in plan.base
    )
    return dataclasses.replace(plan, base=tuple(steps))


def _large_scratch(plan: Plan) -> Plan:
    fresh = (scratch._replace(size=max(scratch.size, 1 << 30)) for scratch in plan.fresh)
    return dataclasses.replace(plan, fresh=tuple(fresh))


def _keeper_dumpable(plan: Plan) -> Plan:
    """The keeper of a kernel can be looked into, as every process can that says nothing else."""
    sources = (step for step in plan.base if not (isinstance(step, Blob) and "/keeper." in step.path))
    steps = (
        step._replace(content=step.content.replace("prctl(DUMPABLE, 0", "prctl(DUMPABLE, 1"))
        if isinstance(step, Text) and step.path.endswith("/keeper.py")
        else step
        for step in sources
    )
    return dataclasses.replace(plan, base=tuple(steps))


_NO_NAMESPACE = """
from kern_sandbox._forkserver import cradle, stems
from kern_sandbox._linux.abi import Clone
cradle.FRESH &= ~Clone.{0}
stems._NAMESPACES &= ~Clone.{0}
"""
_SHARED_USER_NAMESPACE = """
from kern_sandbox._forkserver import stems
_make = stems.StemMaker.make
stems.StemMaker.make = lambda self, key, plan, part, *, nested: _make(self, key, plan, part, nested=False)
"""

_DUMPABLE = """
from kern_sandbox._linux import caps
set_it = caps.set_dumpable
caps.set_dumpable = lambda dumpable: set_it(True)
"""
"""Init can be looked into, as every process can that says nothing else."""

WEAKENINGS: dict[str, Weakening] = {
    "environment": Weakening(0, _DUMPABLE, start={"env": None}),
    "command line": Weakening(
        0, "from kern_sandbox._linux import processes; processes.hide_command_line = lambda name: None"
    ),
    "host id": Weakening(1, "from kern_sandbox._forkserver import ids; ids.HostIds.take = lambda self: 0"),
    "pivot": Weakening(
        2,
        # Linux makes no nested user namespace for a process whose root is not its mount namespace's own
        _SHARED_USER_NAMESPACE
        + "import os\nfrom kern_sandbox._linux import mounts\nfrom kern_sandbox._linux.libc import syscall\n"
        "def stay(root):\n    os.chdir(root); syscall('pivot_root', b'.', b'.'); os.chdir('/')\n"
        "mounts.pivot_into = stay",
    ),
    "read-only root": Weakening(
        2,
        "from kern_sandbox._linux import mounts\nreal = mounts.remount_read_only\n"
        "mounts.remount_read_only = lambda target, attributes: None if target == '/' else real(target, attributes)",
    ),
    "read-only binds": Weakening(2, plan=_binds_writable),
    "nosuid": Weakening(
        2,
        "from kern_sandbox._box import build\nfrom kern_sandbox._linux import abi\n"
        "build._QUIET, build._SHOWN = abi.MountAttr(0), abi.MountAttr.RDONLY",
    ),
    "propagation": Weakening(
        2,
        "import ctypes\nfrom kern_sandbox._linux import abi, libc, mounts\nmounts.make_private = lambda path: None\n"
        "def shared(tree, attributes):\n"
        "    attrs = abi.MountAttrs(int(attributes), 0, 0, 0)\n"
        "    libc.syscall('mount_setattr', tree, b'', mounts._WHOLE_TREE, ctypes.byref(attrs), ctypes.sizeof(attrs))\n"
        "mounts.set_attributes = shared",
    ),
    "pid namespace": Weakening(
        3,
        _SHARED_USER_NAMESPACE
        + "from kern_sandbox._forkserver import cradle\nfrom kern_sandbox._linux.abi import Clone\n"
        "cradle.FRESH &= ~Clone.NEWPID",
    ),
    "ipc namespace": Weakening(3, _NO_NAMESPACE.format("NEWIPC")),
    "uts namespace": Weakening(
        3,
        _NO_NAMESPACE.format("NEWUTS")
        + "import types\nfrom kern_sandbox._box import build\n"
        + "build.socket = types.SimpleNamespace(sethostname=lambda name: None)",
    ),
    "cgroup namespace": Weakening(
        3,
        "from kern_sandbox._forkserver import init\nreal = init.syscall\n"
        "init.syscall = lambda name, *rest: 0 if name == 'unshare' else real(name, *rest)",
    ),
    "network namespace": Weakening(4, plan=_replaced(network=True)),
    "memory limit": Weakening(5, plan=_replaced(memory_bytes=None)),
    "scratch size": Weakening(5, plan=_large_scratch),
    "pids limit": Weakening(5, plan=_replaced(pids=None)),
    "cpu limit": Weakening(5, plan=_replaced(cpus=None)),
    "resource limits": Weakening(
        6,
        "from kern_sandbox._forkserver import init, stem\n"
        "init.prepare = lambda plan, part: None\nstem.limit = lambda plan: None\ninit.limit_files = lambda: None",
    ),
    "shared counters": Weakening(5, "from kern_sandbox._box import build; build._SHARED_COUNTERS = ()"),
    "capabilities": Weakening(7, "from kern_sandbox._linux import caps; caps.drop_capabilities = lambda last: None"),
    "bounding set": Weakening(
        7,
        "from kern_sandbox._linux import caps\ncaps.prctl_function = lambda: lambda *rest: 0",
    ),
    "securebits": Weakening(
        7,
        "from kern_sandbox._linux import caps\nfrom kern_sandbox._linux.abi import Prctl\nreal = caps.prctl\n"
        "caps.prctl = lambda option, *rest: None if option == Prctl.SET_SECUREBITS else real(option, *rest)",
    ),
    "no_new_privs": Weakening(7, "from kern_sandbox._linux import caps; caps.no_new_privileges = lambda: None"),
    "dumpable": Weakening(7, _DUMPABLE),
    "seccomp": Weakening(
        8, "from kern_sandbox._linux import seccomp; seccomp.install = lambda program, *, listener=False: None"
    ),
    "architecture check": Weakening(
        8,
        "from kern_sandbox._linux.bpf import Arch, Assembler\nreal = Assembler.branch\n"
        "def lax(self, test, value, **to):\n"
        "    if value not in set(Arch): real(self, test, value, **to)\n"
        "Assembler.branch = lax",
    ),
    "landlock": Weakening(9, "from kern_sandbox._linux import landlock; landlock.restrict_writes = lambda *rest: None"),
    "masks": Weakening(10, plan=_replaced(masked=())),
    "read-only /proc": Weakening(10, plan=_replaced(read_only=())),
    "devices": Weakening(10, plan=lambda plan: dataclasses.replace(plan, base=(*plan.base, Device("kmsg")))),
    "descriptors": Weakening(
        11,
        "import os\nfrom kern_sandbox._linux import fds, processes\n"
        "inherited = [int(name) for name in os.listdir('/proc/self/fd')]\n"
        "real_close = processes.close_except\n"
        "processes.close_except = lambda keep: real_close([*keep, *inherited])\n"
        "fds.inherit_only = lambda first: None",
        start={"close_fds": False, "pass_fds": ()},
    ),
    "report": Weakening(
        11,
        "import contextlib, os, stat\nfrom kern_sandbox._linux import fds\n"
        "def hand_on(first):\n"
        "    for name in os.listdir('/proc/self/fd'):\n"
        "        with contextlib.suppress(OSError):\n"
        "            if stat.S_ISSOCK(os.fstat(int(name)).st_mode): os.dup2(int(name), 40)\n"
        "fds.inherit_only = hand_on",
    ),
    "reaping": Weakening(
        3,
        "import os\nfrom kern_sandbox._forkserver import init\n"
        "def only(pid):\n"
        "    ended, how = os.waitpid(pid, os.WNOHANG)\n"
        "    return (how if ended else None), not ended\n"
        "init._reap = only",
    ),
    "signal actions": Weakening(
        11, "from kern_sandbox._linux import processes; processes.reset_signals = lambda: None"
    ),
    "session": Weakening(
        11,
        "import os\nspawn = os.posix_spawn\n"
        "os.posix_spawn = lambda *rest, **how: spawn(*rest, **dict(how, setsid=False))",
        start={"start_new_session": False},
    ),
    "workspace of its own": Weakening(
        2,
        "from kern_sandbox._forkserver.nursery import Nursery\nassign = Nursery._assign\n"
        "def first(self, box, owner):\n"
        "    assign(self, box, next(each for each in self.owners.values() if each.key == owner.key))\n"
        "Nursery._assign = first",
    ),
    "vetted identity": Weakening(
        2,
        "from kern_sandbox._box import build\nvet = build._vet_and_shape\n"
        "build._vet_and_shape = lambda tree, step, known: vet(tree, step._replace(identity=None), known)",
    ),
    "template limits": Weakening(
        5,
        "from kern_sandbox._forkserver.groups import Groups\nfrom kern_sandbox._linux.cgroup import Group\n"
        "Groups.apart = lambda self, limits: Group()",
    ),
    "template namespace": Weakening(
        2,
        "import os, socket\nfrom kern_sandbox._forkserver import stem, template\n"
        "def beside(seed, frame):\n"
        "    if os.fork() == 0: template.start(socket.socket(fileno=frame.fds[0]), seed.plan, seed.part)\n"
        "stem._start_template = beside",
    ),
    "announced boxes": Weakening(
        11,
        "from kern_sandbox._forkserver.nursery import Nursery\nborn = Nursery._on_born\n"
        "def whoever(self, source, frame):\n"
        "    source.waiting.add(frame.body['box']); born(self, source, frame)\n"
        "Nursery._on_born = whoever",
    ),
    "keeper": Weakening(11, plan=_keeper_dumpable),
    "egress policy": Weakening(
        4,
        "from kern_sandbox._forkserver import gate\n"
        "gate._BOOT = gate._BOOT.replace('main(int', 'from kern_sandbox._egress.policy import Policy; '\n"
        "    'Policy.check = Policy.check_address = lambda *rest, **more: None; main(int')",
    ),
    "groups": Weakening(
        11,
        "import os\nfrom kern_sandbox._forkserver import stem\n"
        "stem._become = lambda inside: (os.setresgid(inside, inside, inside), os.setresuid(inside, inside, inside))",
    ),
}
"""By name; each is one layer of the architecture, or one part of it that can be away by itself."""


def _popen(start: dict[str, Any]) -> Callable[..., subprocess.Popen[bytes]]:
    def popen(argv: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
        if start.get("close_fds") is False:  # the control socket, which pass_fds would have made inheritable
            for fd in how["pass_fds"]:
                os.set_inheritable(fd, True)
        return subprocess.Popen(argv, **{**how, **start})

    return popen


@contextlib.contextmanager
def weakened(*names: str) -> Iterator[None]:
    """Within, this process's boxes come from a fork server without the layers ``names``."""
    if not names:
        yield
        return
    chosen = [WEAKENINGS[name] for name in names]
    code = "\n".join(weakening.code for weakening in chosen)
    boot = f"import sys; sys.path.insert(0, sys.argv[1])\n{code}\n{client._BOOT}"
    start = {key: value for weakening in chosen for key, value in weakening.start.items()}
    stand_in = types.SimpleNamespace(**{**vars(subprocess), "Popen": _popen(start)})
    client._registry.at_exit()
    try:
        with mock.patch.object(client, "_BOOT", boot), mock.patch.object(client, "subprocess", stand_in):
            yield
    finally:
        client._registry.at_exit()


def edit_plan(sandbox: Sandbox, edit: Callable[[Plan], Plan]) -> None:
    """Give ``sandbox`` another plan before its first call."""
    session = sandbox._session
    session._bare = session._plan = edit(session.plan)
    session._key = session.plan.key


def weaken_plan(sandbox: Sandbox, *names: str) -> None:
    """Give ``sandbox`` a plan without the layers ``names``."""
    for name in names:
        edit_plan(sandbox, WEAKENINGS[name].plan)
