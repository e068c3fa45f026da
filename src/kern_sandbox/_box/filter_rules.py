"""Rules of the system-call filter that look at arguments."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .filter import FilterPolicy

__all__ = ["ALL", "Case", "Rule", "Test", "rules"]


class Test(NamedTuple):
    """The masked argument is one of ``values``; else the call ends in ``otherwise``, or the next case is tried."""

    argument: int
    mask: int
    values: tuple[int, ...]
    otherwise: str | None = None


class Case(NamedTuple):
    """Tests that must all hold for the call to end in ``then``."""

    tests: tuple[Test, ...]
    then: str = "allow"


class Rule(NamedTuple):
    """Cases tried in turn; ``otherwise`` where none matches."""

    reason: str
    cases: tuple[Case, ...]
    otherwise: str = "allow"


ALL = 0xFFFFFFFF
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_NEW_TIME = 0x80  # CLONE_NEWTIME; in clone(2) these bits are the exit signal
_UNTRACED = 0x00800000  # CLONE_UNTRACED
_LOCAL, _INTERNET, _NETLINK = 1, (2, 10), 16  # AF_UNIX; AF_INET and AF_INET6; AF_NETLINK
_NETLINK_ROUTE = 0
_STREAM, _DGRAM, _RAW = 1, 2, 3
_PROTOCOLS = (0, 1, 6, 17, 58)  # by default, ICMP, TCP, UDP, ICMPv6
_TERMINAL = (0x5412, 0x541C, 0x5423)  # TIOCSTI, TIOCLINUX, TIOCSETD
_TMPFILE = 0o20000000  # the one bit that only O_TMPFILE has; it creates as well
_STEERING = "prlimit64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler"
_LEASES = (1024, 1026)  # F_SETLEASE, F_NOTIFY
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)  # LINUX, LINUX32, both with UNAME26, and the question
_SETID = stat.S_ISUID | stat.S_ISGID
_INIT = 1
_ONE_PROCESS, _ONE_GROUP = 0, 1  # PRIO_PROCESS and PRIO_PGRP; IOPRIO_WHO_PROCESS and _PGRP are one more
_NODES = (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK)


def _node_rule(mode: int) -> Rule:
    tests = (Test(mode, _SETID, (0,)), Test(mode, stat.S_IFMT(0xFFFF), _NODES))
    return Rule("device nodes and set-id bits are refused", (Case(tests),), "EPERM")


def _plain_mode(mode: int) -> Rule:
    """What systemd calls RestrictSUIDSGID: the workspace is a directory of the host, where no mount says nosuid."""
    return Rule("set-id bits are refused: the file may lie on the host", (Case((Test(mode, _SETID, (0,)),)),), "EPERM")


def _creating(flags: int) -> Rule:
    plain = Test(flags + 1, _SETID, (0,))
    reason = "creating a file with set-id bits is refused: it may lie on the host"
    return Rule(reason, (Case((Test(flags, os.O_CREAT | _TMPFILE, (0,)),)), Case((plain,))), "EPERM")


def _not_init(process: int) -> Rule:
    return Rule("init of the box is not the code's to hinder", (Case((Test(process, ALL, (_INIT,)),), "EPERM"),))


def _not_everybody(kinds: tuple[int, ...]) -> Rule:
    """``which`` and ``who``: one process or group, and not init; never all of a user, which are init too."""
    tests = (Test(0, ALL, kinds, "EPERM"), Test(1, ALL, (_INIT,)))
    return Rule("init of the box is not the code's to hinder", (Case(tests, "EPERM"),))


_RULES = {
    "clone": Rule(
        "a new namespace is an escape; CLONE_UNTRACED, which only leak checkers use to trace the rest, is refused",
        (Case((Test(0, _NEW_NAMESPACES, (0,), "escape"), Test(0, _UNTRACED, (0,), "EPERM"))),),
    ),
    "unshare": Rule(
        "a new namespace is an escape",
        (Case((Test(0, _NEW_NAMESPACES | _NEW_TIME, (0,), "escape"),)),),
    ),
    "ioctl": Rule(
        "typing into a terminal (TIOCSTI, TIOCLINUX) and changing its line discipline (TIOCSETD) are refused",
        (Case((Test(1, ALL, _TERMINAL),), "EPERM"),),
    ),
    "fcntl": Rule(
        "leases and notices on files that the host shows would hold up the host's own programs",
        (Case((Test(1, ALL, _LEASES),), "EPERM"),),
    ),
    "personality": Rule(
        "turning off the randomisation or the protection of memory is refused",
        (Case((Test(0, ALL, _PERSONALITIES),)),),
        "EPERM",
    ),
    "mknod": _node_rule(1),
    "mknodat": _node_rule(2),
    **{name: _plain_mode(1) for name in ("chmod", "fchmod", "mkdir", "creat")},
    **{name: _plain_mode(2) for name in ("fchmodat", "fchmodat2", "mkdirat")},
    "open": _creating(1),
    "openat": _creating(2),
    **{name: _not_init(0) for name in _STEERING.split()},
    "setpriority": _not_everybody((_ONE_PROCESS, _ONE_GROUP)),
    "ioprio_set": _not_everybody((_ONE_PROCESS + 1, _ONE_GROUP + 1)),
    "socketpair": Rule("only local sockets come in pairs", (Case((Test(0, ALL, (_LOCAL,)),)),), "EOPNOTSUPP"),
}


def _socket_rule(policy: FilterPolicy) -> Rule:
    """A box without network uses internet sockets too, for the loopback of its own."""
    kinds = (_STREAM, _DGRAM) if policy.untrusted else (_STREAM, _DGRAM, _RAW)
    # Linux loads a protocol's module when a socket asks for it: the seldom-used ones stay out.
    internet = Test(0, ALL, _INTERNET), Test(1, 0xF, kinds, "ESOCKTNOSUPPORT")
    cases = [Case((Test(0, ALL, (_LOCAL,)),)), Case((*internet, Test(2, ALL, _PROTOCOLS, "EPROTONOSUPPORT")))]
    reason = "local and internet sockets (TCP, UDP, ICMP) only"
    if not policy.untrusted:
        cases.append(Case((Test(0, ALL, (_NETLINK,)), Test(2, ALL, (_NETLINK_ROUTE,), "EPROTONOSUPPORT"))))
        reason = "local, internet (TCP, UDP, ICMP) and NETLINK_ROUTE sockets only"
    return Rule(reason, tuple(cases), "EAFNOSUPPORT")


def rules(policy: FilterPolicy) -> dict[str, Rule]:
    """System call to rule, for a policy."""
    return {**_RULES, "socket": _socket_rule(policy)}
