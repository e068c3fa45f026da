"""The command ``kern-sandbox`` with real boxes: what goes in, what comes out, and with which status."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, NoReturn

import pytest

import kern_sandbox
from command import COMMAND, environment, kern, pipe_of, started
from support import need, need_boxes, past_a_deadline

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _boxes() -> None:
    need_boxes()


# --- output and status ------------------------------------------------------------------------------------------


def test_a_snippet_prints_and_the_status_is_its_own() -> None:
    done = kern("run", "-c", "import sys; print(6 * 7); print('oops', file=sys.stderr); sys.exit(7)")
    assert (done.returncode, done.stdout) == (7, b"42\n")
    assert b"oops\n" in done.stderr


def test_a_program_runs_with_its_arguments_as_they_stand() -> None:
    done = kern("exec", "--", "sh", "-c", 'printf "%s|" "$@"', "sh", "--json", "--", "-x", "a b")
    assert (done.returncode, done.stdout) == (0, b"--json|--|-x|a b|")


@pytest.mark.parametrize(
    ("name", "code", "needs"),
    [
        ("a.py", "import sys; print('python', sys.argv)", None),
        ("a.bash", "echo bash $BASH_VERSION", "bash"),
        ("a.sh", "echo sh", "sh"),
        ("a.js", "console.log('node')", "node"),
    ],
)
def test_a_file_runs_in_the_language_of_its_name(tmp_path: Path, name: str, code: str, needs: str | None) -> None:
    need(needs is None or shutil.which(needs) is not None, f"this host has no {needs}")
    file = tmp_path / name
    file.write_text(code)
    done = kern("run", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0].decode() == (needs or "python")


def test_bytes_come_out_as_they_were_written() -> None:
    done = kern("run", "-c", "import os; os.write(1, bytes(range(256))); os.write(2, b'\\x1b[31m\\xff')")
    assert done.stdout == bytes(range(256))
    assert done.stderr.startswith(b"\x1b[31m\xff")


def test_five_megabytes_arrive_whole_and_once() -> None:
    done = kern("run", "--timeout-s", "90", "-c", "for i in range(500_000): print(f'{i:09}')")
    assert done.stdout == b"".join(b"%09d\n" % number for number in range(500_000))


def test_output_beyond_the_cap_is_dropped_and_that_is_said() -> None:
    done = kern("run", "--max-output-bytes", "10", "-c", "print('x' * 5_000_000)")
    assert (done.returncode, done.stdout) == (0, b"x" * 10)
    assert b"kern-sandbox: note: standard output went beyond --max-output-bytes" in done.stderr


def test_output_is_live() -> None:
    """The code waits for an answer to what it printed: without live output neither would come."""
    with started("run", "-c", "print('ready', flush=True); print('got ' + input())") as process:
        assert pipe_of(process.stdout).readline() == b"ready\n"
        out, _ = process.communicate(b"an answer\n", timeout=60)
    assert (process.returncode, out) == (0, b"got an answer\n")


def test_options_reach_the_box(tmp_path: Path) -> None:
    options = ["--workspace", str(tmp_path), "--env", "A=b=c", "--tmpfs", "/scratch=1m", "--cpus", "1"]
    code = "import os; print(os.environ['A'], os.listdir('/scratch'), len(os.sched_getaffinity(0))); open('new', 'w')"
    done = kern("run", *options, "-c", code)
    assert done.stdout == b"b=c [] 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_the_working_directory_is_one_of_the_box() -> None:
    assert kern("exec", "--cwd", "/usr", "--", "pwd").stdout == b"/usr\n"
    done = kern("exec", "--cwd", "/no/such", "--", "pwd")
    assert done.returncode == 125
    assert b"cwd" in done.stderr


# --- input ------------------------------------------------------------------------------------------------------


def test_what_is_piped_in_is_what_the_code_reads() -> None:
    data = os.urandom(3_000_000)
    assert kern("exec", "--", "cat", stdin=data).stdout == data


def test_code_from_standard_input_reads_nothing_itself() -> None:
    assert kern("run", "-", stdin=b"import sys; print(repr(sys.stdin.read()))").stdout == b"''\n"
    assert kern("run", "--language", "sh", "-", stdin=b"cat; echo end").stdout == b"end\n"


def test_input_can_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"from a file")
    done = kern("run", "--stdin", str(tmp_path / "data"), "-c", "print(input())", stdin=b"from the pipe")
    assert done.stdout == b"from a file\n"


def test_input_that_never_ends_does_not_hold_the_command() -> None:
    with started("exec", "--", "true") as process:
        assert process.wait(60) == 0


def test_a_command_without_standard_streams_works(tmp_path: Path) -> None:
    shell = f'exec <&- >&- 2>&-; exec "$@" --workspace {tmp_path} -c "open(chr(97), chr(119))"'
    done = subprocess.run(["sh", "-c", shell, "sh", *COMMAND, "run"], env=environment(), check=False)
    assert done.returncode == 0
    assert (tmp_path / "a").exists()


# --- faults -----------------------------------------------------------------------------------------------------

KILL_SELF = "import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.{})"
FORBIDDEN = "print('before', flush=True); import ctypes; ctypes.CDLL(None).swapoff(1)"
HANG = "print('before', flush=True); import threading; threading.Event().wait()"


@pytest.mark.parametrize(
    ("words", "status", "fault"),
    [
        (["run", "--timeout-s", "DEADLINE", "-c", HANG], 124, "timeout"),
        (["run", "-c", KILL_SELF.format("SIGKILL")], 137, "killed"),
        (["run", "-c", FORBIDDEN], 159, "escape_blocked"),
        (["exec", "--", "no-such-program"], 127, "exec_failed"),
        (["exec", "--", "/etc/passwd"], 126, "exec_failed"),
    ],
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_a_fault_has_its_status_and_a_line_on_standard_error(words: list[str], status: int, fault: str) -> None:
    done, _ = past_a_deadline(
        lambda limit: kern(*(word.replace("DEADLINE", str(limit)) for word in words)),
        lambda got: "DEADLINE" not in words or got.stdout != b"",
    )
    assert done.returncode == status
    assert f"kern-sandbox: {fault}: ".encode() in done.stderr
    assert done.stdout == (b"before\n" if words[0] == "run" else b"")


def test_code_that_runs_out_of_memory_is_an_oom() -> None:
    report = kern_sandbox.doctor()
    if not any(one.name == "memory limit" and one.state == "works" for one in report.layers):
        pytest.skip("no cgroup limits memory for this user")
    done = kern("run", "--memory-mb", "32", "-c", "x = bytearray(200 << 20)")
    assert done.returncode == 137
    assert b"kern-sandbox: oom: " in done.stderr


def test_an_end_that_is_no_fault_has_no_line() -> None:
    done = kern("run", "-c", KILL_SELF.format("SIGTERM"))
    assert done.returncode == 128 + signal.SIGTERM
    assert not [line for line in done.stderr.splitlines() if line.startswith(b"kern-sandbox:") and b"note:" not in line]


def test_what_the_code_writes_cannot_pass_for_the_sandboxs_line_of_status() -> None:
    done = kern("run", "-c", "import sys; print('kern-sandbox: timeout: forged', file=sys.stderr)")
    assert done.returncode == 0


def test_a_workspace_that_is_no_directory_is_status_125_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = kern("run", "--workspace", str(tmp_path / "file"), "-c", "1")
    assert done.returncode == 125
    assert done.stderr.startswith(b"kern-sandbox: error: ")
    assert b"Traceback" not in done.stderr
    assert b"Traceback" in kern("run", "--debug", "--workspace", str(tmp_path / "file"), "-c", "1").stderr


# --- JSON and plan ----------------------------------------------------------------------------------------------


def refuse(word: str) -> NoReturn:
    raise AssertionError(f"{word} is not JSON")


def strict(text: bytes) -> dict[str, object]:
    loaded = json.loads(text.decode("ascii"), parse_constant=refuse)
    assert isinstance(loaded, dict)
    return loaded


def test_json_is_strict_complete_and_alone() -> None:
    code = "import os, sys; os.write(1, b'\\xff\\x1b\\0'); print('e', file=sys.stderr); open('f', 'w'); float('nan')"
    done = kern("run", "--json", "-c", code)
    said = strict(done.stdout)
    fields = {field for field in kern_sandbox.ExecutionResult.__dataclass_fields__ if not field.endswith("_bytes")}
    assert set(said) == fields | {"success", "code_stderr"}
    assert (said["exit_code"], said["stdout"], said["code_stderr"]) == (0, "\ufffd\x1b\0", "e\n")
    assert said["files"] == [{"path": "f", "size": 0, "change": "created"}]
    assert said["results"] == [{"data": {"text/plain": "nan"}}]
    assert done.stderr == b""


def test_json_of_a_fault_has_the_faults_status() -> None:
    done = kern("exec", "--json", "--", "no-such-program")
    said = strict(done.stdout)
    assert done.returncode == said["exit_code"] == 127
    assert isinstance(said["fault"], dict)
    assert said["fault"]["type"] == "exec_failed"


def test_render_is_the_page_alone_and_the_status_is_the_codes_own() -> None:
    done = kern("run", "--render", "-c", "import sys; print('\x1b[31m[sandbox: oom]'); sys.exit(7)")
    assert (done.returncode, done.stderr) == (7, b"")
    page, plain = done.stdout, kern("exec", "--render", "--", "cat", stdin=b"piped").stdout
    # What this host goes without is on the page too, after the rest.
    assert page.partition(b"\n\nnotes")[0].rstrip(b"\n") == b"exit code: 7\n\nstdout:\n(quoted) sandbox: oom]"
    assert plain.startswith((b"piped\n", b"stdout:\npiped\n"))


def test_render_begins_with_the_verdict() -> None:
    done = kern("exec", "--render", "--", "no-such-program")
    assert done.returncode == 127
    assert done.stdout.startswith(b"[sandbox: exec_failed] no-such-program was not found")


def test_json_takes_the_same_input() -> None:
    assert strict(kern("exec", "--json", "--", "cat", stdin=b"piped").stdout)["stdout"] == "piped"


def test_json_with_input_that_never_ends_says_so_instead_of_hanging() -> None:
    with started("exec", "--json", "--timeout-s", "0.5", "--", "true") as process:
        assert process.wait(60) == 2
        assert b"--stdin /dev/null" in pipe_of(process.stderr).read()


def test_json_of_an_error_is_json_too(tmp_path: Path) -> None:
    done = kern("run", "--json", "--workspace", str(tmp_path / "none"), "-c", "1")
    assert done.returncode == 125
    error = strict(done.stdout)["error"]
    assert isinstance(error, dict)
    assert error["type"] == "WorkspaceError"
    assert error["message"]


@pytest.mark.parametrize("command", ["run", "exec"])
def test_a_plan_is_printed_and_nothing_runs(command: str, tmp_path: Path) -> None:
    words = ["-c", "open('made', 'w')"] if command == "run" else ["--", "touch", "made"]
    options = ["--workspace", str(tmp_path), "--memory-mb", "77"]
    done = kern(command, "--plan", *options, *words)
    assert done.returncode == 0
    assert "namespaces: user" in done.stdout.decode()
    assert "77 MiB" in done.stdout.decode()
    assert not list(tmp_path.iterdir())
    assert kern(command, *options, *words).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
