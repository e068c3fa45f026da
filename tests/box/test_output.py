"""Whatever code does to its streams, its output is kept, its call ends, and the next one works."""

from __future__ import annotations

import pytest


@pytest.fixture
def next_works(sandbox):
    """After the test, a call on the same Sandbox still gives its own output and nothing else."""
    yield
    result = sandbox.run_code("import sys; print('next'); print('error', file=sys.stderr)")
    assert (result.stdout, result.code_stderr, result.exit_code, result.fault) == ("next\n", "error\n", 0, None)


pytestmark = pytest.mark.usefixtures("next_works")

# --- bytes ------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_text_are_kept_raw_and_replaced_in_the_text(sandbox):
    result = sandbox.run_code(r"import os; os.write(1, b'ok \xf0\x28 \xff\xfe\x80 end\n')")
    assert result.stdout_bytes == b"ok \xf0\x28 \xff\xfe\x80 end\n"
    assert result.stdout == "ok \ufffd( \ufffd\ufffd\ufffd end\n"


def test_a_flood_of_random_bytes_ends_like_any_output(sandbox):
    result = sandbox.run(["head", "-c", "3000000", "/dev/urandom"])
    assert (len(result.stdout_bytes), result.exit_code, result.truncated) == (3_000_000, 0, False)
    result.stdout.encode("utf-8")


@pytest.mark.parametrize("said", ["abc", "", "$ ", ">>> ", "[sandbox: timeout]", "\\004"])
def test_output_without_a_final_newline_ends_at_once(sandbox, said):
    result = sandbox.run(["printf", said])
    assert (result.stdout, result.fault) == (said.replace("\\004", "\x04"), None)


def test_nuls_and_controls_come_through(sandbox):
    assert sandbox.run_code(r"print('a\0b\x01\x7f\x1b[31m')").stdout == "a\0b\x01\x7f\x1b[31m\n"


def test_lone_surrogates_lose_no_output_and_the_text_can_be_encoded(sandbox):
    result = sandbox.run_code(r"print('before'); print('a\ud800b'); print('after')")
    assert result.stdout.startswith("before\na")
    assert result.stdout.endswith("b\nafter\n")
    assert result.exit_code == 0
    result.stdout.encode("utf-8")


def test_a_lone_surrogate_in_the_snippet_itself_is_the_codes_own_matter(sandbox):
    result = sandbox.run_code("print('before')\nx = '\ud800'\nprint('after')")
    assert result.fault is None
    assert result.exit_code in {0, 1}


def test_every_character_survives(sandbox):
    code = "print(''.join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000))"
    wanted = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    assert sandbox.run_code(code).stdout == wanted + "\n"


def test_a_host_without_a_locale_changes_nothing(sandbox, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    assert sandbox.run_code("print('\u0131\u0130\u00e9', 'I'.lower())").stdout == "\u0131\u0130\u00e9 i\n"


# --- volume -----------------------------------------------------------------------------------------------------


def test_a_line_of_five_megabytes_is_kept_whole(sandbox):
    assert sandbox.run_code("print('x' * 5_000_000)").stdout == "x" * 5_000_000 + "\n"


def test_a_flood_beyond_the_cap_is_read_dropped_and_said(make):
    sandbox = make(max_output_bytes=1 << 20)
    result = sandbox.run(["sh", "-c", "head -c 200000000 /dev/zero; echo $? >&2"])
    assert (len(result.stdout_bytes), result.truncated) == (1 << 20, True)
    assert (result.code_stderr, result.exit_code, result.fault) == ("0\n", 0, None)


def test_an_error_after_much_output_is_not_lost_with_it(make):
    result = make(max_output_bytes=10_000).run_code("print('noise\\n' * 300_000); raise RuntimeError('THE-REAL-ERROR')")
    assert (result.truncated, result.exit_code) == (True, 1)
    assert "THE-REAL-ERROR" in result.stderr


def test_both_streams_full_at_once_block_nothing(sandbox):
    code = "import os\nfor _ in range(64):\n os.write(1, b'o' * 65536)\n os.write(2, b'e' * 65536)"
    result = sandbox.run_code(code)
    assert (len(result.stdout), len(result.code_stderr), result.fault) == (1 << 22, 1 << 22, None)


def test_small_writes_arrive_in_order(sandbox):
    result = sandbox.run_code("import os\nfor i in range(20_000): os.write(1, b'%d\\n' % i)")
    assert result.stdout == "".join(f"{i}\n" for i in range(20_000))


# --- who writes -------------------------------------------------------------------------------------------------


def test_what_c_code_and_children_write_is_captured_in_order(sandbox):
    code = """
import ctypes, os, subprocess, sys
os.write(1, b'A\\n')
os.system('echo B')
subprocess.run(['echo', 'C'])
c = ctypes.CDLL(None); c.puts(b'D'); c.fflush(None)
print('E', flush=True)
assert sys.stdout.fileno() == 1
os.write(2, b'error\\n')
"""
    result = sandbox.run_code(code)
    assert (result.stdout, result.code_stderr, result.exit_code) == ("A\nB\nC\nD\nE\n", "error\n", 0)


def test_a_fork_in_the_code_is_part_of_the_code(sandbox):
    code = """
import os
print('before', flush=True)
pid = os.fork()
os.write(1, b'parent\\n' if pid else b'child\\n')
if pid: os.waitpid(pid, 0)
"""
    assert sorted(sandbox.run_code(code).stdout.split()) == ["before", "child", "parent"]


def test_a_forked_child_that_returns_first_does_not_end_the_call(sandbox):
    code = "import os, time\nif os.fork(): time.sleep(0.3); print('parent')"
    result = sandbox.run_code(code)
    assert (result.stdout, result.exit_code, result.fault) == ("parent\n", 0, None)


@pytest.mark.parametrize("status", [0, 5])
def test_os_exit_ends_the_code_with_its_status_and_what_was_written_stays(sandbox, status):
    result = sandbox.run_code(f"import os; os.write(1, b'kept'); os._exit({status})")
    assert (result.stdout, result.exit_code, result.fault) == ("kept", status, None)


def test_what_a_child_writes_right_after_the_program_ended_is_kept(sandbox):
    assert sandbox.run(["sh", "-c", "(echo late) & echo early"]).stdout.split().count("late") == 1


# --- what keeps the pipe ----------------------------------------------------------------------------------------

DAEMON = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
        os.execvp('sleep', ['sleep', MARKER])
    os._exit(0)
print('done')
"""


def test_a_daemon_that_keeps_the_pipe_neither_holds_the_call_nor_outlives_it(sandbox, sleeper):
    """The deadline is far away: were the end of the call the end of the pipe, this would be a timeout."""
    daemon = sleeper()
    result = sandbox.run_code(DAEMON.replace("MARKER", repr(daemon.marker)))
    assert (result.stdout, result.exit_code, result.fault) == ("done\n", 0, None)
    assert not daemon.running


def test_a_background_job_of_a_shell_does_not_hold_the_call(sandbox, sleeper):
    job = sleeper()
    result = sandbox.run(["sh", "-c", f"sleep {job.marker} & echo started"])
    assert (result.stdout, result.exit_code, result.fault) == ("started\n", 0, None)
    assert not job.running


def test_a_daemon_that_writes_without_end_does_not_hold_the_call(sandbox):
    result = sandbox.run(["sh", "-c", "(setsid yes &) ; echo started >&2"])
    assert (result.code_stderr, result.exit_code, result.fault) == ("started\n", 0, None)


# --- what code does to its streams ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "print('kept', flush=True); sys.stdout.close(); sys.stderr.close(); os.close(0)",
        "print('kept', flush=True); os.close(1); os.close(2); os.closerange(3, 100)",
        "print('kept'); sys.stdout = None",
        "print('kept'); sys.stdout = open('/dev/null', 'w'); print('gone')",
        "print('kept', flush=True); os.dup2(os.open('/dev/null', 1), 1); print('gone')",
        "print('kept'); sys.stdout = sys.stderr = io.StringIO(); print('gone')",
        "print('kept', flush=True); sys.stdout.detach(); sys.stderr.detach()",
        "print('kept'); del sys.stdout, sys.stderr, sys.stdin, sys.displayhook",
        "print('kept'); sys.modules.clear()",
        "print('kept'); del __builtins__.print, __builtins__.open",
    ],
)
def test_closed_and_replaced_streams_lose_nothing_that_was_written_before(sandbox, code):
    result = sandbox.run_code(f"import io, os, sys\n{code}")
    assert (result.stdout, result.fault) == ("kept\n", None)


def test_a_nonblocking_standard_output_is_still_read(sandbox):
    code = "import os; os.set_blocking(1, False); print('kept')"
    assert sandbox.run_code(code).stdout == "kept\n"


def test_the_read_end_of_the_output_is_nowhere_in_the_box(sandbox):
    code = "import os\ntry: print(os.read(1, 10))\nexcept OSError as error: os.write(2, b'no')"
    assert sandbox.run_code(code).code_stderr == "no"
    code = "import os\ntry: os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)\nfinally: print('on', flush=True)"
    assert sandbox.run_code(code).stdout == "on\n"


# --- exceptions -------------------------------------------------------------------------------------------------


def test_a_base_exception_whose_str_raises_still_ends_the_call_with_its_name(sandbox):
    code = "print('kept')\nclass Odd(BaseException):\n def __str__(self): raise Odd\n __repr__ = __str__\nraise Odd"
    result = sandbox.run_code(code)
    assert (result.stdout, result.exit_code, result.fault) == ("kept\n", 1, None)
    assert "Odd" in result.stderr


@pytest.mark.parametrize(
    ("code", "status"),
    [("sys.exit('words')", 1), ("sys.exit(None)", 0), ("raise KeyboardInterrupt", 130), ("raise GeneratorExit", 1)],
)
def test_the_other_ways_to_leave_end_the_call_as_they_end_python(sandbox, code, status):
    result = sandbox.run_code(f"import sys; print('kept')\n{code}")
    assert (result.stdout, result.exit_code, result.fault) == ("kept\n", status, None)


def test_an_exit_handler_and_a_thread_still_get_to_write(sandbox):
    code = """
import atexit, threading, time
atexit.register(lambda: print('handler'))
threading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()
"""
    assert sandbox.run_code(code).stdout == "thread\nhandler\n"
