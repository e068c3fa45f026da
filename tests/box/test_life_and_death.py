"""Whatever dies, and whenever: a clear verdict, output so far kept, the next call works, nothing is left behind."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import weakref

import pytest

import kern_sandbox as kern
from support import leaks

# --- kill -9 in the middle of a call ----------------------------------------------------------------------------


def _caught_sleeping(sandbox, sleeper, background):
    """A call that has said something and now sleeps: its future, and its processes."""
    victim = sleeper()
    call = background(lambda: sandbox.run(["sh", "-c", f"echo kept; exec sleep {victim.marker}"]))
    return call, victim.chain()


def test_killing_a_program_from_outside_is_the_fault_killed(sandbox, sleeper, background):
    call, chain = _caught_sleeping(sandbox, sleeper, background)
    chain.program.kill()
    result = call.result(60)
    assert (result.fault.type, result.exit_code, result.stdout) == ("killed", 137, "kept\n")
    assert sandbox.run(["echo", "next"]).stdout == "next\n"


def test_killing_a_boxs_init_is_the_fault_killed_and_ends_the_program(sandbox, sleeper, background):
    call, chain = _caught_sleeping(sandbox, sleeper, background)
    chain.init.kill()
    result = call.result(60)
    assert (result.fault.type, result.exit_code, result.stdout) == ("killed", 137, "kept\n")
    assert not chain.program.alive
    assert sandbox.run(["echo", "next"]).stdout == "next\n"


def test_killing_the_stem_ends_its_calls_and_the_next_one_gets_a_new_stem(sandbox, sleeper, background, eventually):
    call, chain = _caught_sleeping(sandbox, sleeper, background)
    chain.stem.kill()
    assert call.result(60).fault.type == "killed"
    eventually(lambda: not any(process.alive for process in chain[:3]), "the end of everything below the stem")
    assert sandbox.run(["echo", "next"]).stdout == "next\n"


def test_a_stem_that_dies_as_a_call_comes_in_costs_that_call_at_most(sandbox, sleeper, background):
    """The fork server sees the death and the call in the same breath."""
    call, chain = _caught_sleeping(sandbox, sleeper, background)
    other = background(lambda: kern.run_code("print('other')", pids=200))
    chain.server.kill(signal.SIGSTOP)
    try:
        chain.stem.kill()
        unlucky = [background(lambda: sandbox.run(["echo", "x"])) for _ in range(3)]
    finally:
        chain.server.kill(signal.SIGCONT)
    assert call.result(60).fault.type == "killed"
    for each in unlucky:
        error = each.exception(60)
        assert error is None or "killed" in str(error), error
    assert other.result(60).stdout == "other\n"
    assert sandbox.run(["echo", "next"]).stdout == "next\n"
    assert chain.server.alive


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_fork_server_that_dies_is_said_and_replaced_and_costs_no_file(
    sandbox, sleeper, background, eventually, number
):
    sandbox.write_file("precious", "data")
    call, chain = _caught_sleeping(sandbox, sleeper, background)
    chain.server.kill(number)
    with pytest.raises(kern.InternalError, match="fork server has died"):
        call.result(60)
    eventually(lambda: not any(process.alive for process in chain), "the end of everything below the fork server")
    assert sandbox.run(["cat", "precious"]).stdout == "data"


def test_a_killed_fork_server_leaves_nothing_once_its_successor_has_worked(options, sleeper, background):
    kern.run_code("")
    with leaks():
        with kern.Sandbox(**options) as sandbox:
            call, chain = _caught_sleeping(sandbox, sleeper, background)
            chain.server.kill()
            assert isinstance(call.exception(60), kern.InternalError)
            sandbox.run(["true"])
        kern.run_code("")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV])
def test_everything_of_a_users_process_goes_when_that_process_is_killed(user_process, sleeper, eventually, number):
    victim = sleeper()
    user = user_process(
        "s = kern.Sandbox(timeout_s=600); print(s.workspace, flush=True)\n"
        f"s.run(['sh', '-c', 'touch file; setsid sleep 1{victim.marker} & exec sleep {victim.marker}'])"
    )
    workspace = user.process.stdout.readline().strip()
    chain = victim.chain()
    everything = user.below()
    assert {chain.program, chain.init, chain.stem, chain.server} <= set(everything)
    os.kill(user.pid, number)
    eventually(lambda: not any(process.alive for process in everything), "the end of all below a killed process")
    eventually(lambda: not os.path.exists(workspace), "the removal of its temporary workspace")


def test_a_users_process_that_becomes_another_program_takes_its_boxes_along(user_process, sleeper, eventually):
    victim = sleeper()
    user = user_process(
        f"s = kern.Sandbox(); p = s.spawn({victim.argv}); sys.stdin.readline(); os.execvp('cat', ['cat'])"
    )
    chain = victim.chain()
    user.process.stdin.write("\n")
    user.process.stdin.flush()
    eventually(lambda: not any(process.alive for process in chain), "the end of the boxes of a program that is gone")
    assert user.process.poll() is None


# --- fork, threads, the interpreter's end -----------------------------------------------------------------------


def test_after_a_fork_parent_and_child_both_run_code_and_the_childs_end_costs_the_parent_nothing(user_process):
    user = user_process("""
s = kern.Sandbox(); s.write_file('precious', 'data'); s.run(['true'])
pid = os.fork()
if pid == 0:
    print('child', s.run(['cat', 'precious']).stdout, kern.run_code('print(1)').stdout, end='', flush=True)
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
print('parent', s.run(['cat', 'precious']).stdout)
""")
    assert user.ends() == "child data 1\nparent data\n"


def test_the_files_of_a_parent_outlive_the_fork_server_of_its_child(user_process, eventually):
    """The child ends at once; its fork server cleans up a moment later."""
    user = user_process("""
s = kern.Sandbox(); s.write_file('precious', 'data')
pid = os.fork()
if pid == 0:
    s.run(['true'])
    print(open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
sys.stdin.readline()
print(s.run(['cat', 'precious']).stdout)
""")
    servers = user.process.stdout.readline().split()
    assert servers
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in servers), "the end of the child's server")
    user.process.stdin.write("\n")
    assert user.ends() == "data\n"


def test_a_child_forked_from_a_thread_during_calls_of_others_runs_code(user_process):
    user = user_process("""
import threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # what Python 3.12 says of such a fork
s = kern.Sandbox()
stop = threading.Event()
def busy():
    while not stop.is_set(): s.run(['true'])
others = [threading.Thread(target=busy) for _ in range(3)]
[t.start() for t in others]
codes = []
def forker():
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            ok = False
            try: ok = kern.run_code('print(1)').stdout == '1\\n'
            finally: os._exit(0 if ok else 1)
        codes.append(os.waitpid(pid, 0)[1])
t = threading.Thread(target=forker); t.start(); t.join(); stop.set()
[t.join() for t in others]
print(codes, s.run(['echo', 'on']).stdout)
""")
    assert user.ends() == "[0, 0, 0] on\n\n"


def test_a_sandbox_outlives_the_thread_that_made_it_and_the_first_call(user_process):
    user = user_process("""
import threading
made = []
def first():
    made.append(kern.Sandbox()); print(made[0].run(['echo', 'first']).stdout, end='')
t = threading.Thread(target=first); t.start(); t.join()
process = made[0].spawn(['cat'])
t = threading.Thread(target=lambda: made[0].run(['true'])); t.start(); t.join()
process.stdin.write(b'alive\\n'); print(process.stdout.readline(), made[0].run(['echo', 'second']).stdout, end='')
""")
    assert user.ends() == "first\nb'alive\\n' second\n"


@pytest.mark.parametrize(
    "end", ["", "sys.exit()", "os._exit(0)", "del s, p", "import gc; s.me = s; del s; gc.collect()"]
)
def test_an_interpreter_ends_silently_with_boxes_alive_and_they_end_with_it(user_process, sleeper, eventually, end):
    victim = sleeper()
    user = user_process(
        f"s = kern.Sandbox(); p = s.spawn({victim.argv}); s.run(['true']); print(s.workspace, flush=True)\n"
        f"sys.stdin.readline()\n{end}"
    )
    workspace = user.process.stdout.readline().strip()
    chain = victim.chain()
    user.process.stdin.write("\n")
    assert user.ends() == ""
    eventually(lambda: not any(process.alive for process in chain), "the end of the boxes of an ended interpreter")
    eventually(lambda: not os.path.exists(workspace), "the removal of its temporary workspace")


def test_an_interpreter_ends_while_a_daemon_thread_is_in_a_call(user_process, sleeper, eventually):
    victim = sleeper()
    user = user_process(f"""
import threading
s = kern.Sandbox(timeout_s=600)
threading.Thread(target=lambda: s.run({victim.argv}), daemon=True).start()
sys.stdin.readline()
""")
    chain = victim.chain()
    user.process.stdin.write("\n")
    user.process.stdin.close()
    assert user.process.wait(60) == 0
    eventually(lambda: not any(process.alive for process in chain), "the end of the boxes of an ended interpreter")


# --- close ------------------------------------------------------------------------------------------------------


def test_closing_a_sandbox_ends_its_calls_and_says_so_to_each(make, sleeper, background):
    sandbox, neighbour = make(), make()
    calls, chains = zip(*(_caught_sleeping(sandbox, sleeper, background) for _ in range(3)))
    other, kept = _caught_sleeping(neighbour, sleeper, background)
    sandbox.close()
    for call in calls:
        with pytest.raises(kern.SessionClosed):
            call.result(60)
    assert not any(process.alive for chain in chains for process in (chain.program, chain.init))
    assert kept.program.alive
    kept.program.kill()
    assert other.result(60).fault.type == "killed"


def test_a_close_that_meets_calls_at_their_start_hurts_only_them(user_process):
    """Each call either ends or says that the Sandbox was closed; other Sandboxes of the process notice nothing."""
    user = user_process("""
import threading, time
neighbour = kern.Sandbox(); neighbour.run(['true'])
seen, hung = set(), 0
for turn in range(40):
    s = kern.Sandbox()
    if turn % 2: s.run(['true'])
    def call():
        try: s.run(['true']); seen.add('ended')
        except kern.SessionClosed: seen.add('closed')
        except BaseException as error: seen.add(f'{type(error).__name__}: {str(error)[-300:]}')
    threads = [threading.Thread(target=call, daemon=True) for _ in range(4)]
    for t in threads: t.start()
    end = time.monotonic() + 0.0005 * (turn % 16)
    while time.monotonic() < end: pass
    s.close()
    for t in threads: t.join(30)
    hung = sum(t.is_alive() for t in threads)
    if hung: break
print('hung', hung, 'odd', sorted(seen - {'ended', 'closed'}), neighbour.run(['echo', 'on']).stdout, end='', flush=True)
os._exit(0)
""")
    assert user.ends() == "hung 0 odd [] on\n"


def test_closing_twice_does_nothing_and_using_a_closed_sandbox_says_so(make):
    sandbox = make()
    sandbox.run(["true"])
    sandbox.close()
    sandbox.close()
    for use in (
        lambda: sandbox.run(["true"]),
        lambda: sandbox.run_code("1"),
        lambda: sandbox.spawn(["true"]),
        lambda: sandbox.write_file("a", ""),
        lambda: sandbox.read_file("a"),
        sandbox.list_files,
    ):
        with pytest.raises(kern.SessionClosed, match="closed"):
            use()


def test_closing_a_sandbox_that_was_never_used_is_fine(make):
    make().close()


def test_a_sandbox_that_nobody_holds_any_more_is_closed(make, options):
    sandbox = kern.Sandbox(**options)
    process = sandbox.spawn(["cat"])
    process.stdin.write(b"alive\n")
    assert process.stdout.readline() == b"alive\n"
    workspace, gone = sandbox.workspace, weakref.ref(sandbox)
    del sandbox
    gc.collect()
    assert gone() is None
    assert not os.path.exists(workspace)
    assert process.wait(60).exit_code != 0
    process.close()


def test_garbage_collection_at_any_moment_of_a_call_blocks_nothing(user_process):
    """A Sandbox in a cycle may be collected, and so closed, while its thread is inside another call."""
    user = user_process("""
import gc
keep = kern.Sandbox(); keep.run(['true'])
gc.set_threshold(1, 1, 1)
for _ in range(30):
    old = kern.Sandbox(); old.run(['true']); old.me = old; new = kern.Sandbox(); del old
    new.run(['true']); keep.run(['true']); new.close()
print('on')
""")
    assert user.ends() == "on\n"


def test_a_process_killed_at_its_birth_is_the_fault_killed(sandbox):
    with sandbox.spawn(["sleep", "1000"]) as process:
        process.kill()
        assert process.wait(60).fault.type == "killed"


def test_a_signal_to_a_process_at_its_birth_is_not_lost(sandbox):
    with sandbox.spawn(["sleep", "1000"]) as process:
        process.send_signal(signal.SIGTERM)
        result = process.wait(60)
        assert (result.exit_code, result.fault) == (143, None)


def test_signals_to_a_process_at_its_death_are_harmless(sandbox, sleeper, background):
    other, kept = _caught_sleeping(sandbox, sleeper, background)
    for _ in range(40):
        with sandbox.spawn(["true"]) as process:
            while process.poll() is None:
                process.send_signal(signal.SIGCONT)
    assert kept.server.alive
    kept.program.kill()
    assert other.result(60).fault.type == "killed"


def test_a_process_closed_while_another_thread_waits_for_it_says_so(sandbox, background, sleeper):
    victim = sleeper()
    process = sandbox.spawn(victim.argv)
    victim.chain()
    waiting = background(process.wait)
    process.close()
    with pytest.raises(kern.SessionClosed):
        waiting.result(60)
    with pytest.raises(kern.SessionClosed):
        process.wait()


# --- what the host lacks ----------------------------------------------------------------------------------------


def test_a_workspace_that_has_vanished_is_named_and_the_others_work(make, tmp_path):
    (tmp_path / "w").mkdir()
    gone, other = make(workspace=tmp_path / "w"), make()
    gone.run(["true"])
    (tmp_path / "w").rmdir()
    with pytest.raises(kern.WorkspaceError, match=str(tmp_path / "w")):
        gone.run(["true"])
    assert other.run(["true"]).success


def test_a_workspace_that_vanishes_during_a_call_costs_its_files_and_not_its_output(
    make, tmp_path, sleeper, background
):
    (tmp_path / "w").mkdir()
    call, chain = _caught_sleeping(make(workspace=tmp_path / "w"), sleeper, background)
    shutil.rmtree(tmp_path / "w")
    chain.program.kill(signal.SIGTERM)
    result = call.result(60)
    assert (result.stdout, result.exit_code, list(result.files)) == ("kept\n", 143, [])


def test_code_that_removes_everything_in_its_workspace_gets_a_next_call(sandbox):
    sandbox.write_file("d/e", "")
    sandbox.run(["sh", "-c", "rm -rf /workspace/* /workspace/.* /workspace 2>/dev/null; true"])
    assert sandbox.run(["sh", "-c", "echo x > a; cat a"]).stdout == "x\n"
