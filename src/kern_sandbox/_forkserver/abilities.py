"""What this host can do for a box, found out once, when the fork server starts."""

from __future__ import annotations

import os
from dataclasses import replace

from .._box.confine import Confinement
from .._box.filter import FilterPolicy, compile_filter
from .._box.plan import Plan
from .._linux import caps, cgroup, landlock, seccomp
from ..errors import CgroupUnavailable

__all__ = ["Abilities", "limits_of", "template_limits"]

_BIRTH_PIDS = 1024
_BIRTH_MEMORY = 256 << 20


def limits_of(plan: Plan) -> cgroup.Limits:
    """The cgroup limits that a plan asks for; one process more, for init is inside."""
    pids = None if plan.pids is None else plan.pids + 1
    return cgroup.Limits(memory_bytes=plan.memory_bytes, pids=pids, cpus=plan.cpus)


def template_limits(plan: Plan) -> cgroup.Limits:
    """What a template may use: as much as a box, and room for the boxes that it makes, until they enter their own."""
    limits = limits_of(plan)
    memory = None if limits.memory_bytes is None else limits.memory_bytes + _BIRTH_MEMORY
    pids = None if limits.pids is None else limits.pids + _BIRTH_PIDS
    return replace(limits, memory_bytes=memory, pids=pids)


class Abilities:
    """The host's cgroups, its Landlock, and whether a filter can report.

    Attributes:
        host: makes cgroups, or says why not.
        listener: whether a forbidden call can be named.
        nested: whether boxes can have a user namespace below their stem's; set to ``False`` when that fails.
    """

    def __init__(self) -> None:
        self.host = cgroup.probe()
        self.listener = _can_listen()
        self.nested = True

    def part(self, plan: Plan) -> Confinement:
        """What boxes of ``plan`` need computed ahead."""
        policy = FilterPolicy(untrusted=plan.untrusted, capabilities=plan.capabilities)
        return Confinement(
            last_capability=caps.last_capability(),
            landlock_abi=landlock.abi_version(),
            program=compile_filter(policy, listener=self.listener),
            listener=self.listener,
            limit_memory="memory" not in self.host.enforces,
            limit_pids="pids" not in self.host.enforces,
        )

    def require_limits(self) -> None:
        """Insist on what ``require_limits=True`` and ``security_profile="untrusted"`` insist on.

        Raises:
            CgroupUnavailable: a limit cannot be enforced for a box as a whole here.
        """
        for name in ("memory", "pids"):
            if name not in self.host.enforces:
                raise CgroupUnavailable(
                    f"making a box with required limits: this host does not limit {name} for a box as a whole "
                    f"({self.host.reasons.get(name, 'no cgroup')})",
                    hint='Without require_limits=True and security_profile="untrusted" the call would run, with a note',
                )

    def notes(self, plan: Plan) -> list[str]:
        """What a box of ``plan`` goes without on this host."""
        asked = {"memory": plan.memory_bytes, "pids": plan.pids, "cpu": plan.cpus}
        notes = []
        missing = [name for name, value in asked.items() if value is not None and name not in self.host.enforces]
        if missing:
            what = " and ".join(missing)
            notes.append(f"{what} not limited for the box as a whole on this host; kern-sandbox doctor says why")
        if plan.preload and not self.nested:
            notes.append("preload has no effect on this host: it allows no nested user namespaces")
        if not self.listener:
            notes.append("a forbidden system call is stopped but not named, for this host has a filter of its own")
        return notes


def _can_listen() -> bool:
    """Whether a filter of ours can report to us: not where an outer one (a container's) has a listener already."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        if "\nSeccomp:\t0\n" in file.read():
            return True
    pid = os.fork()
    if pid == 0:
        try:
            caps.no_new_privileges()
            seccomp.install(compile_filter(FilterPolicy()), listener=True)
            os._exit(0)
        finally:  # whatever it was: a child never goes on with its parent's work
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0
