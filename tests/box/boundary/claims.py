"""A claim of the boundary: its row in the catalogue, its sentence, its probe, and what a control takes away."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Literal

from kern_sandbox import SandboxError
from kern_sandbox._linux import landlock
from support import limits_enforced

from .targets import Bubblewrap, Engine, Subprocess, bubblewrap_works

if TYPE_CHECKING:
    from .targets import Ran, Room, Target

Word = Literal["held", "breached", "control dead", "not applicable", "refused", "unclear"]

PRELUDE = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def breach(*words): print("BREACH", *words, flush=True)
def call(number, *rest):
    libc.syscall.restype = ctypes.c_long
    raw = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(x) if isinstance(x, int) else x for x in rest))
    return "ok" if raw >= 0 else errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))
def opened(path, mode="rb"):
    try: return open(path, mode)
    except OSError: return None
"""
DONE = '\nprint("DONE", flush=True)\n'


class Unclear(Exception):
    """A probe did not run through: it says nothing."""


class NotApplicable(Exception):
    """This host has not what the claim is about."""


@dataclass(frozen=True)
class Claim:
    """One row of the table.

    Attributes:
        id: the catalogue's row, and a word that tells several claims of a row apart.
        sentence: what holds.
        probe: attacks a target; returns how it was breached, or ``""``.
        without: layers whose absence must let the attack through; empty where only other targets can be controls.
        known: why it is breached for now; ``""`` where it must hold. Whoever mends it deletes the words.
        root_only: the attack needs a host user that is root.
        cgroup: the attack needs a host with cgroups that enforce limits.
        engine_only: nothing of another target can be asked this, or it would harm the host there.
        more: further sets of layers, each a control of its own.
        landlock: the ABI of Landlock that it stands on.
    """

    id: str
    sentence: str
    probe: Callable[[Target], str]
    without: tuple[str, ...] = ()
    known: str = ""
    root_only: bool = False
    cgroup: bool = False
    engine_only: bool = False
    more: tuple[tuple[str, ...], ...] = ()
    landlock: int = 0

    @property
    def why_not(self) -> str:
        """Why this host cannot be asked; ``""`` where it can."""
        if self.root_only and os.geteuid():
            return "not root"
        if self.cgroup and not limits_enforced():
            return "no cgroups that this user may divide"
        if landlock.abi_version() < self.landlock:
            return f"Landlock's ABI {self.landlock} is not in this Linux"
        return ""


def run(room: Room, code: str) -> Ran:
    """Run a probe's code in a room.

    Raises:
        Unclear: it neither ran through nor was stopped for a forbidden call.
    """
    ran = room.run(PRELUDE + code + DONE)
    if "BREACH" in ran.stdout or "DONE" in ran.stdout or ran.fault.startswith("escape_blocked"):
        return ran
    raise Unclear(f"exit {ran.exit_code} {ran.fault}: {(ran.stdout + ran.stderr)[-400:]}")


def breaches(ran: Ran) -> str:
    """What a probe's code reported."""
    return "; ".join(line[7:] for line in ran.stdout.splitlines() if line.startswith("BREACH "))


def inside(code: str, **options: Any) -> Callable[[Target], str]:
    """A probe that is one snippet."""

    def probe(target: Target) -> str:
        with target.room(**options) as room:
            return breaches(run(room, code))

    return probe


@dataclass(frozen=True)
class Verdict:
    """What a claim's probe gave on one target."""

    word: Word
    detail: str = ""


def judge(claim: Claim, target: Target) -> Verdict:
    """Attack one target."""
    if claim.why_not:
        return Verdict("not applicable", claim.why_not)
    try:
        breach = claim.probe(target)
    except NotApplicable as reason:
        return Verdict("not applicable", str(reason))
    except Unclear as reason:
        return Verdict("unclear", str(reason))
    except SandboxError as error:
        return Verdict("refused", str(error))
    return Verdict("breached", breach) if breach else Verdict("held")


def controls(claim: Claim) -> list[Target]:
    """Targets on which the attack should work, the weakened engine first."""
    weak: list[Target] = [Engine(*names) for names in (claim.without, *claim.more) if names]
    if claim.engine_only:
        return weak
    return [*weak, *([Bubblewrap()] if bubblewrap_works() else []), Subprocess()]
