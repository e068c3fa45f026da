"""The fault table: what is a fault and what is not, each beside its control, and that no code can forge a verdict."""

from __future__ import annotations

import os

import pytest

import kern_sandbox as kern
from support import applies, past_a_deadline

TOUCH_300_MIB = "x = b'x' * (300 << 20); print(len(x))"

# --- what the code does to itself is no fault -------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 2, 3, 124, 125, 126, 127, 128, 137, 139, 143, 159, 255])
def test_an_exit_status_is_reported_and_never_taken_for_a_fault(sandbox, status):
    """Among them are those that the sandbox itself gives for a timeout, a kill and a blocked call."""
    result = sandbox.run_code(f"import sys; print('kept'); sys.exit({status})")
    assert (result.exit_code, result.fault, result.stdout) == (status, None, "kept\n")
    result = sandbox.run(["sh", "-c", f"exit {status}"])
    assert (result.exit_code, result.fault) == (status, None)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGTERM", "SIGINT", "SIGFPE", "SIGPIPE", "SIGSYS"])
def test_a_signal_that_the_code_sends_itself_is_an_exit_code_and_no_fault(sandbox, name):
    import signal

    code = (
        f"import os, signal as s; os.write(1, b'kept'); n = s.{name}; s.signal(n, s.SIG_DFL); os.kill(os.getpid(), n)"
    )
    result = sandbox.run_code(code)
    assert (result.exit_code, result.fault, result.stdout) == (128 + signal.Signals[name], None, "kept")


def test_a_real_segmentation_fault_is_no_fault_and_the_next_call_works(sandbox):
    result = sandbox.run_code("import ctypes; print('kept', flush=True); ctypes.string_at(0)")
    assert (result.exit_code, result.fault, result.stdout) == (139, None, "kept\n")
    assert sandbox.run(["true"]).success


def test_endless_recursion_ends_with_pythons_own_error(sandbox):
    result = sandbox.run_code("def f(): return f()\nf()")
    assert (result.exit_code, result.fault) == (1, None)
    assert "RecursionError" in result.stderr


# --- timeout ----------------------------------------------------------------------------------------------------


IGNORE_SIGNALS = """
import signal, time
for number in set(signal.valid_signals()) - {9, 19}:
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
while True:
    try: time.sleep(60)
    except BaseException: pass
"""


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        "10**10**8",
        "import threading\nfor _ in range(32): threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()",
        IGNORE_SIGNALS,
    ],
    ids=["loop", "sleep", "huge-number", "threads", "ignores-signals"],
)
def test_code_past_its_deadline_is_a_timeout_and_its_output_is_kept(sandbox, code):
    code = "print('kept', flush=True); open('said', 'w').close()\n" + code
    result, limit = past_a_deadline(
        lambda limit: sandbox.run_code(code, timeout_s=limit), lambda _: "said" in sandbox.list_files()
    )
    assert (result.fault.type, result.exit_code, result.stdout) == ("timeout", 124, "kept\n")
    assert f"{limit:g} s" in result.fault.message
    assert sandbox.run_code("print(2)").stdout == "2\n"


def test_code_that_ends_before_its_deadline_is_no_timeout(sandbox):
    assert sandbox.run_code("import time; time.sleep(0.2)", timeout_s=60).fault is None


def test_after_a_timeout_no_process_of_the_call_is_alive(sandbox, sleeper):
    daemon = sleeper()
    line = f"setsid sh -c 'sleep {daemon.marker} & wait' & sleep 1000"
    result = sandbox.run(["sh", "-c", line], timeout_s=1)
    assert result.fault.type == "timeout"
    assert not daemon.running


# --- oom --------------------------------------------------------------------------------------------------------

HOGS = {
    "heap": TOUCH_300_MIB,
    "shared memory": "import mmap; m = mmap.mmap(-1, 300 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1",
    "tmpfs": "for p in ('/tmp', '/dev/shm'):\n f = open(p + '/x', 'wb', 0)\n for _ in range(63): f.write(bytes(2**20))",
}


@pytest.mark.usefixtures("memory_cgroup")
@pytest.mark.parametrize("where", HOGS)
def test_memory_beyond_the_limit_is_an_oom_and_within_it_is_none(make, where):
    sandbox = make(memory_mb=64, tmpfs={"/tmp": "64m"})
    result = sandbox.run_code("print('kept', flush=True)\n" + HOGS[where])
    assert (result.fault and result.fault.type, result.stdout) == ("oom", "kept\n")
    assert result.exit_code != 0
    assert "64 MiB" in result.fault.message
    assert sandbox.run_code("x = b'x' * (8 << 20); print(len(x))").stdout == "8388608\n"
    assert make(memory_mb=512, tmpfs={"/tmp": "64m"}).run_code(HOGS[where]).fault is None


@pytest.mark.usefixtures("memory_cgroup")
def test_an_oom_that_a_shell_absorbed_is_still_an_oom(make):
    sandbox = make(memory_mb=64)
    sandbox.write_file("hog.py", TOUCH_300_MIB)
    result = sandbox.run(["sh", "-c", "python3 hog.py || true; echo went on"])
    assert (result.exit_code, result.stdout) == (0, "went on\n")
    assert result.fault.type == "oom"
    assert not result.success
    assert sandbox.run(["sh", "-c", "false || true; echo went on"]).fault is None


def test_a_full_dev_shm_is_an_error_of_the_write_and_no_fault(make):
    code = "f = open('/dev/shm/x', 'wb', 0)\nfor i in range(10**6): f.write(b'x' * 65536)"
    result = make(memory_mb=256).run_code(code)
    assert (result.exit_code, result.fault) == (1, None)
    assert "No space left on device" in result.stderr


def test_a_memory_hog_never_gets_more_than_its_limit(make):
    """With a cgroup it is killed, with resource limits alone its allocation fails; it never succeeds."""
    result = make(memory_mb=64).run_code(TOUCH_300_MIB)
    assert (result.success, result.stdout) == (False, "")
    assert make(memory_mb=512).run_code(TOUCH_300_MIB).stdout == f"{300 << 20}\n"


# --- pids -------------------------------------------------------------------------------------------------------

FORK_UNTIL_REFUSED = """
import os, signal
children = []
try:
    while len(children) < COUNT:
        pid = os.fork()
        if pid == 0: signal.pause()
        children.append(pid)
    print('all')
except OSError as error:
    print('refused', len(children) < COUNT)
"""


@pytest.mark.usefixtures("pids_cgroup")
def test_a_refused_fork_is_a_note_and_no_fault(make):
    sandbox = make(pids=32)
    result = sandbox.run_code(FORK_UNTIL_REFUSED.replace("COUNT", "100"))
    assert (result.stdout, result.exit_code, result.fault) == ("refused True\n", 0, None)
    assert any("limit of 32 processes" in note for note in result.runtime_notes)
    assert "limit of 32 processes" in result.stderr
    assert "limit" not in result.code_stderr
    within = sandbox.run_code(FORK_UNTIL_REFUSED.replace("COUNT", "10"))
    assert (within.stdout, [note for note in within.runtime_notes if "processes" in note]) == ("all\n", [])


def test_a_fork_bomb_ends_with_its_call_and_the_next_one_works(make):
    sandbox = make(pids=64)
    result = sandbox.run(["bash", "-c", "b() { b | b & }; b; sleep 1000"], timeout_s=2)
    assert result.fault is None or result.fault.type == "timeout"
    assert sandbox.run(["echo", "next"]).stdout == "next\n"


def test_a_full_box_does_not_keep_its_neighbour_from_forking(make, background):
    """A limit counted per host user, as RLIMIT_NPROC is, would."""
    full, other = make(pids=24), make(pids=24)
    code = FORK_UNTIL_REFUSED.replace("COUNT", "100") + "\nopen('full', 'w')\nwhile not os.path.exists('go'): pass"
    call = background(lambda: full.run_code(code))
    while "full" not in full.list_files():
        assert not call.done(), call.result()
    try:
        assert other.run(["sh", "-c", "for i in 1 2 3; do (true) & done; wait; echo forked"]).stdout == "forked\n"
    finally:
        full.write_file("go", "")
    assert call.result(60).stdout == "refused True\n"


# --- killed and escape ------------------------------------------------------------------------------------------


def test_a_sigkill_that_no_limit_sent_is_the_fault_killed(sandbox):
    result = sandbox.run_code("import os; os.write(1, b'kept'); os.kill(os.getpid(), 9)")
    assert (result.fault.type, result.exit_code, result.stdout) == ("killed", 137, "kept")
    assert sandbox.run(["sh", "-c", "kill -9 $$"]).fault.type == "killed"
    absorbed = sandbox.run(["sh", "-c", "sleep 1000 & kill -9 $!; wait; echo on"])
    assert (absorbed.stdout, absorbed.fault) == ("on\n", None)


@pytest.mark.parametrize(
    ("name", "call"),
    [("mount", "mount(b'none', b'/tmp', b'tmpfs', 0, None)"), ("ptrace", "ptrace(0, 0, None, None)")],
)
def test_a_forbidden_system_call_stops_the_code_and_is_named(sandbox, name, call):
    code = f"import ctypes; print('kept', flush=True); ctypes.CDLL(None).{call}; print('went on')"
    result = sandbox.run_code(code)
    assert (result.fault.type, result.exit_code, result.stdout) == ("escape_blocked", 159, "kept\n")
    assert name in result.fault.detail
    assert sandbox.run_code("import ctypes; print(ctypes.CDLL(None).getpid() > 0)").stdout == "True\n"


def test_a_forbidden_call_of_a_child_is_the_boxs_fault_even_if_the_parent_carries_on(sandbox):
    sandbox.write_file("bad.py", "import ctypes; ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None)")
    assert sandbox.run(["sh", "-c", "python3 bad.py || true; echo on"]).fault.type == "escape_blocked"


# --- exec_failed ------------------------------------------------------------------------------------------------


def test_a_missing_program_is_named_with_the_userland(sandbox):
    result = sandbox.run(["nope", "--version"])
    assert (result.fault.type, result.exit_code, result.stdout, result.code_stderr) == ("exec_failed", 127, "", "")
    assert result.fault.detail == "nope"
    assert "nope" in result.fault.message
    assert "host userland" in result.fault.message
    assert sandbox.run(["/workspace/nope"]).fault.type == "exec_failed"


@pytest.mark.parametrize("kind", ["not executable", "a directory", "no format"])
def test_a_program_that_cannot_be_executed_is_exec_failed_and_one_that_can_is_not(sandbox, kind):
    program = os.path.join(sandbox.workspace, "program")
    if kind == "a directory":
        os.mkdir(program)
    else:
        sandbox.write_file("program", "#!/bin/sh\necho ran\n" if kind == "not executable" else "echo ran\n")
        os.chmod(program, 0o755 if kind == "no format" else 0o644)
    result = sandbox.run(["/workspace/program"])
    assert (result.fault.type, result.exit_code) == ("exec_failed", 126)
    assert "/workspace/program" in result.fault.message
    sandbox.write_file("good", "#!/bin/sh\necho ran\n")
    os.chmod(os.path.join(sandbox.workspace, "good"), 0o755)
    assert sandbox.run(["/workspace/good"]).stdout == "ran\n"


def test_a_missing_interpreter_of_a_script_is_exec_failed(sandbox):
    sandbox.write_file("script", "#!/no/such/interpreter\n")
    os.chmod(os.path.join(sandbox.workspace, "script"), 0o755)
    assert sandbox.run(["/workspace/script"]).fault.type == "exec_failed"


def test_a_program_that_says_not_found_itself_is_no_fault(sandbox):
    result = sandbox.run(["sh", "-c", "nope"])
    assert (result.exit_code, result.fault) == (127, None)


# --- the box could not be made ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cwd", ["/nowhere", "/etc/passwd"])
def test_a_directory_that_is_not_there_is_a_start_error_and_not_the_programs(sandbox, cwd):
    with pytest.raises(kern.StartError, match=cwd) as raised:
        sandbox.run(["pwd"], cwd=cwd)
    assert raised.value.stage == "working directory"
    assert "cwd" in str(raised.value)
    assert sandbox.run(["pwd"], cwd="/workspace").stdout == "/workspace\n"


def test_required_limits_are_enforced_or_refused(make):
    sandbox = make(require_limits=True, memory_mb=64, used=False)
    notes = make().run(["true"]).runtime_notes
    if any("not limited for the box" in note for note in notes):
        with pytest.raises(kern.CgroupUnavailable):
            sandbox.run(["true"])
    else:
        result = sandbox.run(["true"])
        assert (result.success, result.runtime_notes) == (True, [])


def test_a_limit_that_this_host_cannot_enforce_is_said_in_every_result(make):
    notes = make().run(["true"]).runtime_notes
    applies(any("not limited for the box" in note for note in notes), "this host enforces every limit")
    result = make(cpus=1.0).run(["true"])
    assert "not limited for the box" in result.stderr
    assert result.code_stderr == ""


# --- forged verdicts --------------------------------------------------------------------------------------------

FORGE = """
import os, sys, time
frames = [b'J{"status":0,"cpu_ms":0}', b'J{"escape":"mount","ending":"escape"}', b'J{"failed":"exec","errno":2}',
          b'J{"started":true,"status":0,"ending":"exit","oom_kills":7}', b'[sandbox: oom]\\n', b'kern: note: forged\\n']
for fd in range(3, 4096):
    for frame in frames:
        try: os.write(fd, frame)
        except OSError: pass
for target in ('/proc/1/fd', '/proc/self/fd'):
    try: print(target, sorted(os.listdir(target)))
    except OSError as error: print(target, type(error).__name__)
sys.stdout.flush()
"""


def test_frames_written_to_every_descriptor_change_nothing_about_the_verdict(sandbox):
    own = sandbox.run_code(FORGE + "print('kern: note: forged', file=sys.stderr); sys.exit(3)")
    assert own.code_stderr == "kern: note: forged\n"
    assert (own.exit_code, own.fault, own.runtime_notes) == (3, None, sandbox.run(["true"]).runtime_notes)
    late = sandbox.run_code(FORGE + "time.sleep(1000)", timeout_s=2)
    assert late.fault.type == "timeout"


def test_code_holds_no_descriptor_but_its_own_streams_and_cannot_open_those_of_init(sandbox):
    result = sandbox.run_code(FORGE)
    first, own = result.stdout.splitlines()
    assert first == "/proc/1/fd PermissionError"
    assert own.startswith("/proc/self/fd ['0', '1', '2', '3'")
    listed = sandbox.run(["sh", "-c", "ls /proc/self/fd"]).stdout.split()
    assert set(listed) <= {"0", "1", "2", "3"}, "3 is the directory that ls has open"


@pytest.mark.parametrize("number", [1, 2, 3, 6, 10, 12, 15, 17])
def test_code_cannot_end_or_disturb_the_init_of_its_box(sandbox, number):
    code = f"import os, time\ntry: os.kill(1, {number})\nexcept OSError: pass\ntime.sleep(0.2); print('on')"
    result = sandbox.run_code(code)
    assert (result.stdout, result.exit_code, result.fault) == ("on\n", 0, None)
