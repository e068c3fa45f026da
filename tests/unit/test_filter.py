"""The system call policy: what its table says, and what its program returns."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern_sandbox._box import filter as policy_module
from kern_sandbox._box.filter import EXPLANATION, FilterPolicy, compile_filter, describe, table
from kern_sandbox._linux import bpf
from kern_sandbox._linux.bpf import Action, Arch
from kern_sandbox._linux.syscalls import BY_MACHINE

NATIVE = {"x86_64": Arch.X86_64, "aarch64": Arch.AARCH64}
MACHINES = sorted(NATIVE)
POLICIES = [
    FilterPolicy(),
    FilterPolicy(untrusted=True),
    FilterPolicy(capabilities=True),
]
# What a rule says to arguments that are all zero.
ZERO = dict.fromkeys(("clone", "unshare", "ioctl", "personality", "mknod", "mknodat"), "allow")
ZERO.update(socket="EAFNOSUPPORT", socketpair="EOPNOTSUPP", ioprio_set="EPERM")
MODES = {"chmod": 1, "fchmod": 1, "mkdir": 1, "creat": 1, "fchmodat": 2, "fchmodat2": 2, "mkdirat": 2}
STEERING = ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
ZERO.update(dict.fromkeys((*MODES, *STEERING, "fcntl", "open", "openat", "setpriority"), "allow"))
UPPER = 0xDEADBEEF << 32
NAMES = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP"}


def word(value: int) -> str:
    """A program's return value in the words of the table."""
    if value in (Action.USER_NOTIF, Action.KILL_PROCESS):
        return "escape"
    return "allow" if value == Action.ALLOW else NAMES[value ^ Action.ERRNO]


def verdict(program: bytes, name: str, *args: int, machine: str = "x86_64") -> str:
    """What becomes of a native call, in the words of the table."""
    padded = (*args, *(0,) * (6 - len(args)))
    return word(bpf.simulate(program, nr=BY_MACHINE[machine][name], arch=NATIVE[machine], args=padded))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("listener", [True, False])
def test_every_number_ends_as_the_table_says(policy: FilterPolicy, machine: str, listener: bool) -> None:
    """Also the numbers that no call has, which are absent calls."""
    rows = {BY_MACHINE[machine][row.name]: row for row in table(policy, machine)}
    program = compile_filter(policy, listener=listener, machine=machine)
    for nr in range(601):
        row = rows.get(nr)
        expected = "ENOSYS" if row is None else ZERO[row.name] if row.action == "rule" else row.action
        assert word(bpf.simulate(program, nr=nr, arch=NATIVE[machine])) == expected, (nr, row)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_table_has_a_row_with_a_reason_for_every_call_of_the_machine(machine: str) -> None:
    rows = table(FilterPolicy(), machine)
    assert [row.name for row in rows] == sorted(BY_MACHINE[machine])
    assert all(row.reason for row in rows)


@pytest.mark.parametrize("machine", MACHINES)
def test_an_escape_goes_to_the_listener_or_kills_the_process(machine: str) -> None:
    call: dict[str, Any] = {"nr": BY_MACHINE[machine]["mount"], "arch": NATIVE[machine]}
    with_listener = compile_filter(FilterPolicy(), listener=True, machine=machine)
    without = compile_filter(FilterPolicy(), listener=False, machine=machine)
    assert bpf.simulate(with_listener, **call) == Action.USER_NOTIF
    assert bpf.simulate(without, **call) == Action.KILL_PROCESS


@pytest.mark.parametrize("machine", MACHINES)
def test_the_other_architectures_entry_is_an_escape_for_every_number(machine: str) -> None:
    program = compile_filter(FilterPolicy(), machine=machine)
    for arch in set(Arch) - {NATIVE[machine]}:
        assert {word(bpf.simulate(program, nr=nr, arch=arch)) for nr in range(601)} == {"escape"}


@given(st.integers(0x40000000, 0xFFFFFFFF) | st.integers(0x40000000, 0x40000258))
def test_numbers_of_the_x32_convention_are_absent_calls(nr: int) -> None:
    for machine in MACHINES:
        assert word(bpf.simulate(compile_filter(FilterPolicy(), machine=machine), nr=nr, arch=NATIVE[machine])) == (
            "ENOSYS"
        )


RULES = [
    ("clone", (0x01200011,), "allow"),  # fork, as glibc makes it
    ("clone", (0x003D0F00,), "allow"),  # pthread_create
    ("clone", (0x00800F00,), "EPERM"),  # CLONE_UNTRACED, as LeakSanitizer makes its tracer
    *[("clone", (1 << bit | 17,), "escape") for bit in (17, 25, 26, 27, 28, 29, 30)],
    ("clone", (0x00800000 | 0x10000000,), "escape"),
    *[("unshare", (1 << bit,), "escape") for bit in (7, 17, 25, 26, 27, 28, 29, 30)],
    ("unshare", (0x200 | 0x400 | 0x40000,), "allow"),  # FS, FILES, SYSVSEM
    ("ioctl", (0, 0x5401), "allow"),  # TCGETS
    *[("ioctl", (0, request), "EPERM") for request in (0x5412, 0x541C, 0x5423)],
    *[("personality", (persona,), "allow") for persona in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)],
    *[("personality", (persona,), "EPERM") for persona in (0x40000, 0x400000, 0x440000, 1)],
    *[("mknod", (0, kind | 0o644), "allow") for kind in (0, 0o100000, 0o010000, 0o140000)],
    *[("mknod", (0, kind | 0o644), "EPERM") for kind in (0o020000, 0o060000, 0o040000, 0o120000, 0o170000)],
    ("mknodat", (0o020000, 0, 0o010000), "allow"),
    ("mknodat", (0, 0, 0o020000), "EPERM"),
    ("mknod", (0, 0o104644), "EPERM"),
    ("mknodat", (0, 0, 0o102644), "EPERM"),
    *[(name, (0,) * at + (0o1777,), "allow") for name, at in MODES.items()],
    *[(name, (0,) * at + (bit | 0o755,), "EPERM") for name, at in MODES.items() for bit in (0o4000, 0o2000)],
    ("open", (0, os.O_RDONLY, 0o7777), "allow"),  # without O_CREAT the third argument means nothing
    ("open", (0, os.O_CREAT | os.O_RDWR, 0o666), "allow"),
    ("open", (0, os.O_CREAT | os.O_RDWR, 0o4755), "EPERM"),
    ("openat", (0, 0, os.O_DIRECTORY, 0o7777), "allow"),
    ("openat", (0, 0, os.O_CREAT | os.O_EXCL, 0o2755), "EPERM"),
    ("openat", (0, 0, os.O_TMPFILE | os.O_RDWR, 0o600), "allow"),
    ("openat", (0, 0, os.O_TMPFILE | os.O_RDWR, 0o4755), "EPERM"),
    *[(name, (pid,), "allow") for name in STEERING for pid in (0, 2, 77)],
    *[(name, (1,), "EPERM") for name in STEERING],
    *[("setpriority", (which, who), "allow") for which in (0, 1) for who in (0, 9)],
    *[("setpriority", arguments, "EPERM") for arguments in ((0, 1), (1, 1), (2, 0), (2, 9))],
    *[("ioprio_set", (which, who), "allow") for which in (1, 2) for who in (0, 9)],
    *[("ioprio_set", arguments, "EPERM") for arguments in ((1, 1), (2, 1), (3, 0))],
    *[("fcntl", (3, command), "allow") for command in (0, 1, 2, 3, 4, 5, 6, 7, 1025, 1030, 1031, 1033)],
    *[("fcntl", (3, command), "EPERM") for command in (1024, 1026)],
    ("socketpair", (1, 1), "allow"),
    ("socketpair", (2, 1), "EOPNOTSUPP"),
    ("socket", (1, 1), "allow"),
    *[("socket", (family, kind | 0o2004000, 0), "allow") for family in (2, 10) for kind in (1, 2, 3)],
    *[("socket", (2, 2, protocol), "allow") for protocol in (0, 1, 6, 17, 58)],
    *[("socket", (2, 1, protocol), "EPROTONOSUPPORT") for protocol in (33, 115, 132, 136, 256, 262)],
    *[("socket", (2, kind), "ESOCKTNOSUPPORT") for kind in (0, 4, 5, 6, 10)],
    ("socket", (16, 3, 0), "allow"),
    *[("socket", (16, 3, protocol), "EPROTONOSUPPORT") for protocol in (4, 9, 12, 15, 16)],
    *[("socket", (family, 1), "EAFNOSUPPORT") for family in range(64) if family not in (1, 2, 10, 16)],
]


@pytest.mark.parametrize(("name", "args", "expected"), RULES)
def test_a_rule_decides_by_the_arguments_as_linux_reads_them(name: str, args: tuple[int, ...], expected: str) -> None:
    """Linux ignores the upper half of each of these registers, and so does the rule."""
    for machine in MACHINES:
        if name in BY_MACHINE[machine]:
            program = compile_filter(FilterPolicy(), machine=machine)
            assert verdict(program, name, *args, machine=machine) == expected
            assert verdict(program, name, *(arg | UPPER for arg in args), machine=machine) == expected


NARROWER = [
    (FilterPolicy(untrusted=True), "socket", (16, 3, 0), "EAFNOSUPPORT"),
    (FilterPolicy(untrusted=True), "socket", (2, 1, 0), "allow"),
    (FilterPolicy(untrusted=True), "socket", (2, 3, 1), "ESOCKTNOSUPPORT"),
    (FilterPolicy(untrusted=True), "vmsplice", (), "EPERM"),
    (FilterPolicy(untrusted=True), "memfd_create", (), "allow"),
    (FilterPolicy(capabilities=True), "chroot", (), "allow"),
    (FilterPolicy(capabilities=True), "mount", (), "escape"),
]


@pytest.mark.parametrize(("policy", "name", "args", "expected"), NARROWER)
def test_each_option_of_the_policy_changes_what_it_says(
    policy: FilterPolicy, name: str, args: tuple[int, ...], expected: str
) -> None:
    assert verdict(compile_filter(policy, machine="x86_64"), name, *args) == expected


@given(st.integers(0, 480), st.lists(st.integers(0, 20) | st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_untrusted_allows_nothing_that_the_default_does_not(nr: int, args: list[int]) -> None:
    call: dict[str, Any] = {"nr": nr, "arch": Arch.X86_64, "args": args}
    loose = word(bpf.simulate(compile_filter(FilterPolicy(), machine="x86_64"), **call))
    tight = word(bpf.simulate(compile_filter(FilterPolicy(untrusted=True), machine="x86_64"), **call))
    assert tight != "allow" or loose == "allow"
    assert (tight == "escape") == (loose == "escape")


PROBED = """
    clone3 io_uring_setup get_mempolicy set_mempolicy mbind move_pages personality process_vm_readv process_vm_writev
    kcmp pidfd_getfd name_to_handle_at statmount listmount rseq membarrier openat2 close_range faccessat2 pidfd_open
    landlock_create_ruleset memfd_create memfd_secret seccomp adjtimex clock_adjtime clock_settime settimeofday syslog
    fanotify_init mseal map_shadow_stack futex_waitv futex_wait cachestat fchmodat2 lsm_list_modules sethostname vhangup
    file_getattr setxattrat set_mempolicy_home_node epoll_pwait2 process_madvise execveat copy_file_range ioprio_set
"""


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("name", PROBED.split())
def test_a_call_that_honest_programs_try_is_never_an_escape(policy: FilterPolicy, name: str) -> None:
    assert verdict(compile_filter(policy, machine="x86_64"), name) != "escape"


def test_the_tables_name_each_call_once_and_only_real_ones() -> None:
    names = [row.name for row in policy_module._rows(FilterPolicy())]
    assert sorted(names) == sorted(set(names))
    assert not set(names) - {name for numbers in BY_MACHINE.values() for name in numbers}
    again = {name for names in policy_module._REFUSED_UNTRUSTED.values() for name in names.split()}
    assert {row.action for row in policy_module._rows(FilterPolicy()) if row.name in again} == {"allow"}


@pytest.mark.parametrize("machine", MACHINES)
def test_only_calls_newer_than_2019_are_left_unlisted_and_they_are_absent(machine: str) -> None:
    """At 424 the machines began to share numbers; whatever is older has a place in a table."""
    listed = {row.name for row in policy_module._rows(FilterPolicy())}
    unlisted = [row for row in table(FilterPolicy(), machine) if row.name not in listed]
    assert "file_getattr" in {row.name for row in unlisted}
    assert all(BY_MACHINE[machine][row.name] >= 424 and row.action == "ENOSYS" for row in unlisted)


def test_every_escape_has_an_explanation_and_there_are_about_35() -> None:
    escapes = {row.name for row in table(FilterPolicy(), "x86_64") if row.action == "escape"}
    assert set(EXPLANATION) == escapes | {"clone", "unshare"}
    assert 30 <= len(EXPLANATION) <= 40


@pytest.mark.parametrize(
    ("nr", "arch", "name"),
    [
        (165, Arch.X86_64, "mount"),
        (40, Arch.AARCH64, "mount"),
        (217, Arch.I386, "int 0x80 (i386 system call 217)"),
        (218, Arch.ARM, "svc 0 (aarch32 system call 218)"),
        (9999, Arch.X86_64, "syscall_9999"),
        (5, 0x1234, "system call 5 of architecture 0x1234"),
    ],
)
def test_a_notification_is_described_by_the_name_of_the_call(nr: int, arch: int, name: str) -> None:
    assert describe(nr, arch) == name


@pytest.mark.parametrize("attempt", [compile_filter, table])
def test_a_machine_that_no_box_runs_on_is_refused_by_name(attempt: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="'riscv64'; known machines: aarch64, x86_64"):
        attempt(FilterPolicy(), machine="riscv64")


def path_of(program: bytes, nr: int, arch: int) -> list[bpf.Instruction]:
    """The instructions that run for a call, which must not depend on more than its number and architecture."""
    instructions, path, at, loaded = bpf.decode(program), [], 0, 0
    while True:
        one = instructions[at]
        path.append(one)
        if one.code == 0x06:
            return path
        if one.code == 0x20:
            loaded = {bpf.NR: nr, bpf.ARCH: arch}[one.k]
        elif one.code == 0x05:
            at += one.k
        else:
            holds = {0x15: loaded == one.k, 0x35: loaded >= one.k}[one.code]
            at += one.jt if holds else one.jf
        at += 1


@pytest.mark.parametrize("machine", MACHINES)
def test_a_plainly_allowed_call_is_decided_by_its_number_in_a_few_steps(machine: str) -> None:
    """So that Linux remembers it as always allowed, and runs little where it does not remember."""
    program = compile_filter(FilterPolicy(), machine=machine)
    for row in table(FilterPolicy(), machine):
        if row.action == "allow":
            assert len(path_of(program, BY_MACHINE[machine][row.name], NATIVE[machine])) <= 12
