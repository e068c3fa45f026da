"""One call: what goes in, what comes back, and what the next one finds."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

import kern_sandbox as kern
from support import need

# --- languages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "import sys; print('out', 6 * 7); print('err', file=sys.stderr); sys.exit(3)"),
        ("bash", "a=(out 42); echo ${a[*]}; echo err >&2; exit 3"),
        ("sh", "echo out $((6 * 7)); echo err >&2; exit 3"),
        ("node", "console.log('out', 6 * 7); console.error('err'); process.exitCode = 3"),
    ],
)
def test_a_snippet_gives_its_output_its_errors_and_its_exit_code(sandbox, language, code):
    if language == "node":
        need(shutil.which("node", path="/usr/bin:/bin") is not None, "the host userland has no node")
    result = sandbox.run_code(code, language)
    assert (result.stdout, result.code_stderr, result.exit_code, result.fault) == ("out 42\n", "err\n", 3, None)
    assert not result.success
    assert not result


def test_a_snippet_that_ends_well_is_a_success(sandbox):
    result = sandbox.run_code("pass")
    assert (result.stdout, result.code_stderr, result.exit_code, result.fault) == ("", "", 0, None)
    assert result.success
    assert result


def test_the_module_level_call_takes_the_options_of_a_sandbox(tmp_path):
    kern.run_code("open('made', 'w').write('x')", workspace=tmp_path)
    assert (tmp_path / "made").read_text() == "x"
    assert kern.run_code("echo hello", language="sh").stdout == "hello\n"


def test_an_uncaught_exception_is_a_traceback_and_exit_code_1_and_no_fault(sandbox):
    result = sandbox.run_code("def f():\n    raise ValueError('no such row')\nf()")
    assert (result.exit_code, result.fault) == (1, None)
    assert "ValueError: no such row" in result.stderr
    assert "line 2" in result.stderr


def test_a_syntax_error_is_the_codes_own_error(sandbox):
    result = sandbox.run_code("print('unclosed'")
    assert (result.exit_code, result.fault) == (1, None)
    assert "SyntaxError" in result.stderr


def test_asyncio_run_and_multiprocessing_work_in_a_snippet(sandbox):
    code = """
import asyncio, multiprocessing as mp
async def seven(): return 7
print(asyncio.run(seven()))
with mp.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, -2]))
print(mp.Lock() is not None)
"""
    assert sandbox.run_code(code).stdout == "7\n[1, 2]\nTrue\n"


def test_run_takes_an_argument_list_and_no_shell_reads_it(sandbox):
    assert sandbox.run(["echo", "$HOME; *", "a  b"]).stdout == "$HOME; * a  b\n"


def test_the_last_expression_is_a_result_and_a_semicolon_hides_it(sandbox):
    shown = sandbox.run_code("print('said')\n6 * 7")
    assert (shown.stdout, [value.text for value in shown.results]) == ("said\n", ["42"])
    assert sandbox.run_code("6 * 7;").results == []


# --- streaming --------------------------------------------------------------------------------------------------


def test_callbacks_get_output_while_the_code_still_runs(sandbox):
    """The code waits for a file that only the callback makes: were output held back, it would run into its timeout."""
    got = []

    def on_stdout(text):
        got.append(text)
        sandbox.write_file("go", "")

    code = "import os\nprint('first', flush=True)\nwhile not os.path.exists('go'): pass\nprint('second')"
    result = sandbox.run_code(code, on_stdout=on_stdout)
    assert result.fault is None
    assert "".join(got) == result.stdout == "first\nsecond\n"


def test_each_callback_gets_its_own_stream(sandbox):
    out: list[str] = []
    err: list[str] = []
    result = sandbox.run(["sh", "-c", "echo o; echo e >&2"], on_stdout=out.append, on_stderr=err.append)
    assert ("".join(out), "".join(err)) == ("o\n", "e\n") == (result.stdout, result.code_stderr)


def test_a_character_cut_between_two_chunks_reaches_the_callback_whole(sandbox):
    got = []

    def on_stdout(text):
        got.append(text)
        sandbox.write_file("go", "")

    code = """
import os
os.write(1, b'a\\xf0\\x9f')
while not os.path.exists('go'): pass
os.write(1, b'\\x98\\x80b')
"""
    assert sandbox.run_code(code, on_stdout=on_stdout).stdout == "a\U0001f600b"
    assert "".join(got) == "a\U0001f600b"


def test_a_callback_that_blocks_does_not_stall_the_box(sandbox, background, eventually):
    """The code writes far more than any pipe holds and then leaves a file, while its callback has not returned once."""
    release = threading.Event()
    code = "import os\nfor _ in range(400): os.write(1, b'x' * 50_000)\nopen('done', 'w').close()"
    call = background(lambda: sandbox.run_code(code, on_stdout=lambda _: release.wait()))
    try:
        eventually(lambda: "done" in sandbox.list_files(), "the end of code whose callback blocks")
    finally:
        release.set()
    result = call.result(60)
    assert (len(result.stdout), result.fault) == (20_000_000, None)


def test_what_a_callback_raises_reaches_the_caller_and_the_next_call_works(sandbox):
    def refuse(text):
        raise LookupError("not today")

    with pytest.raises(LookupError, match="not today"):
        sandbox.run_code("print('x')", on_stdout=refuse)
    assert sandbox.run_code("print('y')", on_stdout=len).stdout == "y\n"


def test_a_callback_may_call_the_sandbox_itself(sandbox):
    inner = []
    sandbox.run(["echo", "x"], on_stdout=lambda text: inner.append(sandbox.run(["echo", text]).stdout))
    assert inner == ["x\n\n"]


# --- standard input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stdin", "read"),
    [("gr\u00fc\u00dfe\n", "gr\u00fc\u00dfe\n"), (b"\0\xffraw", "\0\ufffdraw"), ("", ""), (None, "")],
)
def test_standard_input_is_what_was_given_and_else_empty(sandbox, stdin, read):
    assert sandbox.run(["cat"], stdin=stdin).stdout == read


def test_input_without_input_raises_at_once_and_does_not_hang(sandbox):
    result = sandbox.run_code("input()")
    assert (result.exit_code, result.fault) == (1, None)
    assert "EOFError" in result.stderr


def test_standard_input_larger_than_any_pipe_arrives_whole(sandbox):
    assert sandbox.run(["wc", "-c"], stdin=b"x" * 20_000_000).stdout.strip() == "20000000"
    data = b"line\n" * 600_000
    assert sandbox.run(["cat"], stdin=data).stdout_bytes == data


def test_standard_input_that_nobody_reads_stalls_nothing(sandbox):
    assert sandbox.run(["true"], stdin=b"x" * 5_000_000).success
    assert sandbox.run(["sh", "-c", "exec 0<&-; echo on"], stdin=b"x" * 5_000_000).stdout == "on\n"


# --- environment, directory, time -------------------------------------------------------------------------------


def test_variables_of_the_call_beat_those_of_the_sandbox(make):
    sandbox = make(env={"A": "sandbox", "B": "sandbox"})
    assert sandbox.run(["sh", "-c", "echo $A $B"], env={"B": "call"}).stdout == "sandbox call\n"
    assert sandbox.run(["sh", "-c", "echo $A $B"]).stdout == "sandbox sandbox\n"


def test_nothing_of_the_hosts_environment_goes_in(sandbox, monkeypatch):
    monkeypatch.setenv("KERN_TEST_SECRET", "s3cret-value")
    assert "s3cret-value" not in sandbox.run(["env"]).stdout
    assert "s3cret-value" in sandbox.run(["env"], env={"GIVEN": "s3cret-value"}).stdout


def test_the_working_directory_is_the_workspace_unless_given(sandbox):
    assert sandbox.run(["pwd"]).stdout == "/workspace\n"
    assert sandbox.run_code("import os; print(os.getcwd())").stdout == "/workspace\n"
    assert sandbox.run(["pwd"], cwd="/tmp").stdout == "/tmp\n"


def test_the_timeout_of_a_call_replaces_that_of_the_sandbox(make):
    short = make(timeout_s=0.3)
    assert short.run(["sleep", "1000"]).fault.type == "timeout"
    assert short.run(["sleep", "0.5"], timeout_s=60).fault is None
    assert make().run_code("while True: pass", timeout_s=0.3).fault.type == "timeout"


# --- state ------------------------------------------------------------------------------------------------------


def test_workspace_files_persist_from_call_to_call_and_to_the_host(sandbox):
    sandbox.write_file("in/data.csv", "1,2\n")
    sandbox.run_code("text = open('in/data.csv').read(); open('out.txt', 'w').write(text * 2)")
    assert sandbox.run(["cat", "out.txt"]).stdout == "1,2\n1,2\n"
    assert sandbox.read_file("out.txt") == b"1,2\n1,2\n"
    assert sandbox.list_files() == ["in/data.csv", "out.txt"]


def test_a_given_workspace_is_kept_and_a_temporary_one_is_removed(make, tmp_path):
    kept, temporary = make(workspace=tmp_path), make()
    kept.run(["touch", "a"])
    assert Path(temporary.workspace).is_dir()
    kept.close()
    temporary.close()
    assert (tmp_path / "a").exists()
    assert not Path(temporary.workspace).exists()


def test_nothing_appears_in_a_workspace_but_what_the_code_wrote(make, tmp_path):
    make(workspace=tmp_path).run_code("print(1)")
    assert list(tmp_path.iterdir()) == []


def test_a_workspace_behind_a_symbolic_link_works(make, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make(workspace=tmp_path / "link").run(["touch", "a"])
    assert (tmp_path / "real" / "a").exists()


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "$HOME", "$TMPDIR", "$MPLCONFIGDIR", "$XDG_CACHE_HOME"])
def test_scratch_places_are_writable_and_empty_again_in_the_next_call(sandbox, place):
    write = f'mkdir -p "{place}" && echo kept > "{place}/left" && cat "{place}/left"'
    assert sandbox.run(["sh", "-c", write]).stdout == "kept\n"
    assert sandbox.run(["sh", "-c", f'test ! -e "{place}/left"']).success


def test_processes_of_one_call_are_not_seen_by_the_next(sandbox, sleeper):
    left = sleeper()
    sandbox.run(["sh", "-c", f"sleep {left.marker} & echo started"])
    assert left.marker not in sandbox.run(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).stdout
    assert not left.running


# --- the result -------------------------------------------------------------------------------------------------


def test_files_tell_what_the_call_created_modified_and_deleted(sandbox):
    for name in ("kept", "changed", "removed"):
        sandbox.write_file(name, name)
    result = sandbox.run(["sh", "-c", "mkdir d; echo new > d/new; echo more >> changed; rm removed"])
    changes = {(file.path, file.size, file.change) for file in result.files}
    assert changes == {("d/new", 4, "created"), ("changed", 12, "modified"), ("removed", 0, "deleted")}
    assert sandbox.run(["cat", "kept"]).files == []


def test_files_are_not_tracked_where_the_sandbox_says_so(make):
    assert make(track_files=False).run(["touch", "a"]).files == []


def test_files_made_by_a_box_belong_to_the_workspaces_owner(make, tmp_path):
    make(workspace=tmp_path).run(["sh", "-c", "echo x > a; chmod 750 a"])
    made = (tmp_path / "a").stat()
    assert (made.st_uid, made.st_gid, oct(made.st_mode & 0o777)) == (
        tmp_path.stat().st_uid,
        tmp_path.stat().st_gid,
        "0o750",
    )


def test_output_at_the_cap_is_whole_and_beyond_it_is_cut_and_said(make):
    sandbox = make(max_output_bytes=1000)
    whole = sandbox.run_code("print('x' * 999)")
    assert (len(whole.stdout), whole.truncated) == (1000, False)
    cut = sandbox.run_code("import sys; print('x' * 1000); sys.stderr.write('short')")
    assert (len(cut.stdout), cut.truncated, cut.code_stderr) == (1000, True, "short")
    assert sandbox.run_code("import sys; sys.stderr.write('x' * 1001)").truncated


def test_usage_and_duration_are_measured(sandbox):
    result = sandbox.run_code("sum(range(3_000_000))")
    assert result.usage.cpu_ms > 0
    assert result.duration_ms > 0


def test_a_result_is_strict_json(sandbox):
    import json

    plain = sandbox.run_code("import os; os.write(1, b'\\xff'); {'a': float('nan')}").to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False))["stdout"] == "\ufffd"


# --- spawn ------------------------------------------------------------------------------------------------------


def test_a_spawned_program_is_talked_to_while_it_runs(sandbox):
    with sandbox.spawn(["cat"]) as process:
        for line in (b"one\n", b"two\n"):
            process.stdin.write(line)
            assert process.stdout.readline() == line
        assert process.poll() is None
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait().success


def test_a_spawned_program_gets_environment_directory_and_timeout(sandbox):
    with sandbox.spawn(["sh", "-c", "echo $A; pwd; exit 4"], env={"A": "b"}, cwd="/tmp") as process:
        assert process.stdout.read() == b"b\n/tmp\n"
        assert process.wait().exit_code == 4
    with sandbox.spawn(["sleep", "1000"], timeout_s=0.3) as process:
        assert process.wait().fault.type == "timeout"


def test_a_spawned_program_is_signalled_killed_and_waited_for(sandbox, sleeper):
    trap = "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    with sandbox.spawn(["sh", "-c", trap]) as process:
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(TimeoutError):
            process.wait(0)
        process.send_signal(15)
        assert process.wait().exit_code == 7
    victim = sleeper()
    with sandbox.spawn(victim.argv) as process:
        victim.chain()
        process.kill()
        assert process.wait().fault.type == "killed"
    assert not victim.running


# --- asyncio ----------------------------------------------------------------------------------------------------


def test_the_async_verbs_do_what_the_others_do(options):
    async def main():
        async with kern.AsyncSandbox(**options) as sandbox:
            await sandbox.write_file("a", "data")
            code = await sandbox.run_code("print(open('a').read())")
            program = await sandbox.run(["cat"], stdin="in")
            with await sandbox.spawn(["echo", "spawned"]) as process:
                spawned = process.stdout.read()
            files = await sandbox.list_files(), await sandbox.read_file("a")
        return code.stdout, program.stdout, spawned, *files

    assert asyncio.run(main()) == ("data\n", "in", b"spawned\n", ["a"], b"data")


def test_cancelling_a_task_ends_its_box_before_the_cancellation_is_seen(options, sleeper):
    victim, other = sleeper(), []

    async def main():
        async with kern.AsyncSandbox(**options) as sandbox:
            task = asyncio.create_task(sandbox.run(victim.argv))
            await asyncio.to_thread(victim.chain)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            other.append(victim.running)
            return (await sandbox.run(["echo", "next"])).stdout

    assert (asyncio.run(main()), other) == ("next\n", [False])


def test_a_deadline_of_asyncio_ends_the_box(options, sleeper):
    victim = sleeper()

    async def main():
        async with kern.AsyncSandbox(**options) as sandbox:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sandbox.run(victim.argv), 0.3)
            return victim.running

    assert asyncio.run(main()) is False


def test_fifty_calls_at_once_each_get_their_own_output(options):
    async def main():
        async with kern.AsyncSandbox(**options) as sandbox:
            return await asyncio.gather(*(sandbox.run(["echo", str(i)]) for i in range(50)))

    assert [result.stdout for result in asyncio.run(main())] == [f"{i}\n" for i in range(50)]
