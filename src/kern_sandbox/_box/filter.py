"""Which system calls the code in a box may make: the policy as data, and its compilation to a seccomp program.

Everything is denied unless a table here allows it. A call has one of four outcomes:

- *allow*: Linux decides, as for any unprivileged process.
- *errno*: it fails at once. Calls that honest programs try and do without belong here.
- *escape*: no honest program needs it in a box. It waits while the supervisor on the host names it and ends the box;
  where the host cannot give a listener, Linux kills the process.
- *rule*: the arguments decide between the other three.

Linux reads every checked argument as a value of at most 32 bits, so the lower half of the register is compared and
the upper half, which Linux ignores, has no say. ``docs/decisions/0003-seccomp.md`` tells why it is all as it is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .._linux.bpf import ARCH, NR, Action, Arch, Assembler, argument, errno_return
from .._linux.syscalls import BY_MACHINE, MACHINE, name_of
from .filter_rules import ALL, Rule, rules

__all__ = ["EXPLANATION", "FilterPolicy", "Row", "compile_filter", "describe", "table"]


@dataclass(frozen=True)
class FilterPolicy:
    """What shapes a box's filter.

    Attributes:
        untrusted: Also refuse what only few programs use, for code that is taken to be hostile.
        capabilities: The box keeps capabilities over its own namespaces, and may use ``chroot``.
    """

    untrusted: bool = False
    capabilities: bool = False


class Row(NamedTuple):
    """One line of the policy: a system call, what becomes of it, and why.

    ``action`` is ``"allow"``, ``"escape"``, ``"rule"`` or the name of an errno.
    """

    name: str
    action: str
    reason: str


# Allowed: as in moby's default profile for an unprivileged container, as far as the two machines have the calls.
_ALLOWED = {
    "open, read and write files": """
        access close close_range copy_file_range dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate
        fdatasync flock fsync ftruncate getdents getdents64 lseek pread64 preadv preadv2 pwrite64
        pwritev pwritev2 read readahead readv sendfile sync sync_file_range syncfs truncate write writev""",
    "names, ownership and attributes of files": """
        chdir chown fchdir fchown fchownat fgetxattr flistxattr fremovexattr fsetxattr
        fstat fstatfs futimesat getcwd getxattr getxattrat lchown lgetxattr link linkat listxattr listxattrat llistxattr
        lremovexattr lsetxattr lstat newfstatat readlink readlinkat removexattr removexattrat rename
        renameat renameat2 rmdir setxattr setxattrat stat statfs statx symlink symlinkat umask unlink unlinkat utime
        utimensat utimes""",
    "pipes, events and waiting": """
        epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 inotify_add_watch
        inotify_init inotify_init1 inotify_rm_watch pipe pipe2 poll ppoll pselect6 select signalfd signalfd4 splice
        tee vmsplice fanotify_mark""",
    "memory": """
        brk cachestat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap
        mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise
        process_mrelease remap_file_pages""",
    "processes and threads": """
        arch_prctl execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake getpgid
        getpgrp getpid getppid getrusage getsid gettid get_robust_list get_thread_area modify_ldt pidfd_open
        pidfd_send_signal prctl restart_syscall rseq seccomp setpgid setsid set_robust_list set_thread_area
        set_tid_address times vfork wait4 waitid""",
    "signals": """
        kill pause rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
        rt_tgsigqueueinfo sigaltstack tgkill tkill""",
    "scheduling and limits; Linux asks for a capability to raise them": """
        getcpu getpriority getrlimit ioprio_get sched_getaffinity sched_getattr sched_getparam
        sched_get_priority_max sched_get_priority_min sched_getscheduler sched_rr_get_interval
        sched_yield setrlimit sysinfo uname""",
    "time; Linux asks for a capability of the host to change it": """
        adjtimex alarm clock_adjtime clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep
        setitimer time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
        timerfd_gettime timerfd_settime""",
    "identity; the box's user namespace maps no other host user": """
        capget capset getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid setfsuid setgid setgroups
        setregid setresgid setresuid setreuid setuid""",
    "sockets, once made": """
        accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg
        sendmsg sendto setsockopt shutdown""",
    "message queues, semaphores and shared memory; the box has an IPC namespace of its own": """
        mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget
        semop semtimedop shmat shmctl shmdt shmget""",
    "random numbers": "getrandom",
    "narrowing one's own rights": "landlock_add_rule landlock_create_ruleset landlock_restrict_self",
    "placed in a process by the host's own tracing, which would otherwise crash it": "uretprobe uprobe",
}

# Refused with an errno: honest programs ask for these and do without.
_REFUSED = {
    ("ENOSYS", "its arguments lie in memory, where no filter sees them; C libraries fall back to clone"): "clone3",
    ("ENOSYS", "makes files with a mode that lies in memory; libraries fall back to openat"): "openat2",
    ("ENOSYS", "does file and socket work past the filter; libraries fall back to epoll"): """
        io_uring_setup io_uring_enter io_uring_register""",
    ("ENOSYS", "one call can take all that the whole machine has (fs.aio-max-nr); databases go on without"): """
        io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit""",
    ("ENOSYS", "lists mounts; tools fall back to /proc/self/mountinfo"): "statmount listmount",
    ("ENOSYS", "security modules are the host's matter"): "lsm_get_self_attr lsm_set_self_attr lsm_list_modules",
    ("ENOSYS", "gone from Linux, or never in it"): """
        _sysctl afs_syscall create_module epoll_ctl_old epoll_wait_old get_kernel_syms getpmsg putpmsg query_module
        security tuxcall uselib vserver""",
    ("EPERM", "placement on memory nodes is the host's matter; numeric libraries go on without"): """
        get_mempolicy mbind migrate_pages move_pages set_mempolicy""",
    ("EPERM", "reads or writes another process; message passing and crash handlers fall back"): """
        process_vm_readv process_vm_writev kcmp pidfd_getfd""",
    ("EPERM", "the host's clock"): "clock_settime settimeofday",
    ("EPERM", "the host's log, terminal and names"): "syslog vhangup sethostname setdomainname",
    ("EPERM", "file handles and watches that reach past the box's own mounts"): "name_to_handle_at fanotify_init",
    ("EPERM", "old ways to list file systems"): "sysfs ustat",
}

# Refused besides under `untrusted`: moby allows these, few programs need them.
_REFUSED_UNTRUSTED = {
    ("EPERM", "segments for 16-bit code"): "modify_ldt",
    ("ENOSYS", "seldom-used memory calls"): """
        remap_file_pages memfd_secret process_madvise process_mrelease cachestat""",
    ("ENOSYS", "POSIX message queues, which no language's standard library uses"): """
        mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink""",
    ("EPERM", "lends pages of a process to a pipe"): "vmsplice",
    ("EPERM", "of use only to the privileged"): "fanotify_mark adjtimex clock_adjtime",
}

# The escape class. Its members come as a fault `escape_blocked` that names them.
_ESCAPE = {
    "changes what is mounted": """
        mount umount2 pivot_root open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr""",
    "moves the root directory": "chroot",
    "enters another namespace": "setns",
    "takes control of another process": "ptrace",
    "loads programs into Linux": "bpf",
    "samples the processor and Linux": "perf_event_open",
    "halts Linux in the middle of a copy, a tool of exploits": "userfaultfd",
    "reaches the keyrings, which no namespace separates": "add_key request_key keyctl",
    "opens files by handle, past every mount": "open_by_handle_at",
    "loads code into Linux": "init_module finit_module delete_module",
    "replaces the running Linux": "kexec_load kexec_file_load reboot",
    "changes the host's swap": "swapon swapoff",
    "writes the host's process accounting": "acct",
    "reaches hardware ports": "iopl ioperm",
    "changes the host's disk quotas": "quotactl quotactl_fd",
    "reaches old parts of Linux that only the privileged use": "nfsservctl lookup_dcookie",
}

EXPLANATION: dict[str, str] = {
    **{name: reason for reason, names in _ESCAPE.items() for name in names.split()},
    "clone": "makes a namespace",
    "unshare": "makes a namespace",
}
"""Every call that can be an escape, with what it does."""

_NATIVE = {"x86_64": Arch.X86_64, "aarch64": Arch.AARCH64}
_FOREIGN: dict[int, str] = {Arch.I386: "int 0x80 (i386 system call {})", Arch.ARM: "svc 0 (aarch32 system call {})"}
_UNLISTED = "ENOSYS"
_X32 = 0x40000000


def describe(notification_nr: int, arch: int) -> str:
    """Return the name of an escape call for a fault, from what the listener reports."""
    for machine, native in _NATIVE.items():
        if arch == native:
            return name_of(notification_nr, machine)
    return _FOREIGN.get(arch, f"system call {{}} of architecture {arch:#x}").format(notification_nr)


def _rows(policy: FilterPolicy) -> Iterator[Row]:
    """The tables in order; of several rows for a name, the last one holds."""
    for reason, names in _ALLOWED.items():
        yield from (Row(name, "allow", reason) for name in names.split())
    refused = {**_REFUSED, **_REFUSED_UNTRUSTED} if policy.untrusted else _REFUSED
    for (code, reason), names in refused.items():
        yield from (Row(name, code, reason) for name in names.split())
    for reason, names in _ESCAPE.items():
        yield from (Row(name, "escape", reason) for name in names.split())
    for name, rule in rules(policy).items():
        yield Row(name, "rule", rule.reason)
    if policy.capabilities:
        yield Row("chroot", "allow", "the box keeps capabilities over its own namespaces")


def table(policy: FilterPolicy, machine: str = MACHINE) -> list[Row]:
    """Return the whole policy for a machine, one row for each system call that the machine has, by name.

    Raises:
        ValueError: no box runs on ``machine``.
    """
    numbers = _numbers(machine)
    listed = {row.name: row for row in _rows(policy)}
    return [
        listed.get(name) or Row(name, _UNLISTED, "new and not listed: libraries take it for absent and fall back")
        for name in sorted(numbers)
    ]


def _numbers(machine: str) -> dict[str, int]:
    if machine not in BY_MACHINE:
        raise ValueError(f"no box runs on {machine!r}; known machines: {', '.join(sorted(BY_MACHINE))}")
    return BY_MACHINE[machine]


def compile_filter(policy: FilterPolicy, *, listener: bool = True, machine: str = MACHINE) -> bytes:
    """Return the seccomp program for a policy.

    Args:
        policy: What shapes the filter.
        listener: Whether escape calls go to a listener; otherwise they kill the process.
        machine: The machine, as ``uname -m`` prints it.

    Raises:
        ValueError: no box runs on ``machine``.
    """
    numbers = _numbers(machine)
    actions = {numbers[row.name]: f"rule {row.name}" if row.action == "rule" else row.action
               for row in table(policy, machine)}  # fmt: skip
    code = Assembler()
    code.load(ARCH)
    code.branch("jeq", _NATIVE[machine], no="escape")
    code.load(NR)
    code.search(_ranges(actions))
    for name, rule in rules(policy).items():
        if name in numbers:
            _compile_rule(code, name, rule)
    outcomes = {"allow": int(Action.ALLOW), "escape": int(Action.USER_NOTIF if listener else Action.KILL_PROCESS)}
    for outcome in sorted(_outcomes(actions.values(), policy)):
        code.label(outcome)
        code.ret(outcomes[outcome] if outcome in outcomes else errno_return(getattr(errno, outcome)))
    return code.assemble()


def _ranges(actions: dict[int, str]) -> list[tuple[int, str]]:
    """Where the outcome changes, going up the numbers; numbers without a call (and all of x32's) are absent calls."""
    starts: list[tuple[int, str]] = []
    for number in range(max(actions) + 2):
        action = actions.get(number, _UNLISTED)
        if not starts or starts[-1][1] != action:
            starts.append((number, action))
    assert starts[-1][1] == _UNLISTED
    assert starts[-1][0] < _X32
    return starts


def _outcomes(actions: Iterable[str], policy: FilterPolicy) -> set[str]:
    """Every outcome that the program must be able to return."""
    found = {"allow", "escape"} | {action for action in actions if not action.startswith("rule ")}
    for rule in rules(policy).values():
        found.add(rule.otherwise)
        for case in rule.cases:
            found.add(case.then)
            found |= {test.otherwise for test in case.tests if test.otherwise}
    return found


def _compile_rule(code: Assembler, name: str, rule: Rule) -> None:
    code.label(f"rule {name}")
    for number, case in enumerate(rule.cases, 1):
        following = f"rule {name} {number}" if number < len(rule.cases) else rule.otherwise
        for step, test in enumerate(case.tests, 1):
            matched = f"rule {name} {number} {step}" if step < len(case.tests) else case.then
            code.load(argument(test.argument))
            if test.mask != ALL:
                code.mask(test.mask)
            for value in test.values[:-1]:
                code.branch("jeq", value, yes=matched)
            code.branch("jeq", test.values[-1], yes=matched, no=test.otherwise or following)
            if matched != case.then:
                code.label(matched)
        if following != rule.otherwise:
            code.label(following)
