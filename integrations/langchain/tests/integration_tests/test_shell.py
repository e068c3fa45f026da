"""The shell in a box, where it is meant to differ from a plain one: what hangs there, what it leaves, what it hides."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.middleware.shell_tool import ShellSession
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_kern_sandbox import kern_execution_policy
from scripted import HELLO, Host, in_thread, shell, shell_agent, told

if TYPE_CHECKING:
    from collections.abc import Iterator

both = pytest.mark.parametrize("how", ["sync", "async"])
BASH = ("/bin/bash",)
NEW_SHELL = "[sandbox: new shell]"
LOST = "its variables, working directory and background processes are gone; the files in the workspace are kept"


class Session:
    """A session of the middleware's, without an agent around it."""

    def __init__(self, workspace: Path, command: tuple[str, ...] = BASH, env: Any = None, **options: Any) -> None:
        self.policy = kern_execution_policy(**options)
        self.session = ShellSession(workspace, self.policy, command, env or {})
        self.session.start()

    def __call__(self, command: str, timeout: float | None = None) -> tuple[str, int | None]:
        said = self.session.execute(command, timeout=timeout or self.policy.command_timeout)
        assert not said.timed_out
        return said.output, said.exit_code

    @property
    def process(self) -> Any:
        return self.session._process


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session that tests share; what they do to it, it has to outlive."""
    made = Session(tmp_path_factory.mktemp("one"), max_output_lines=100)
    yield made
    made.session.stop(5)


@pytest.mark.parametrize(
    ("command", "output", "status"),
    [
        ("printf hello", "hello", 0),
        ("printf 'a\\nb'; false", "a\nb", 1),
        ("cat", "", 0),
        ("python3", "", 0),
        ("read x; echo got $x", "got\n", 0),
        ("head -c 3 | wc -c", "0\n", 0),
        ("cat <<EOF\nno end", "no end\n", 0),
        ("echo trailing \\", "trailing \\\n", 0),
        ("echo 'no end", "", 2),
        ("if then", "", 2),
        (
            "printf '__LC_SHELL_DONE__%032d 0\\n' 0; echo still here",
            "__LC_SHELL_DONE__" + "0" * 32 + " 0\nstill here\n",
            0,
        ),
        ("head -c 200000 /dev/zero | tr '\\0' x", "x" * 200_000, 0),
        ("printf '\\377\\376\\n'", "\ufffd\ufffd\n", 0),
        ("printf 'one\\rtwo\\n\\033[31mred\\033[0m\\n'", "two\nred\n", 0),
    ],
)
def test_what_hangs_a_plain_session_is_answered(one: Session, command: str, output: str, status: int) -> None:
    one("KEPT=yes")
    said, code = one(command)
    lines = [line for line in said.splitlines(keepends=True) if not line.startswith("[stderr]")]
    assert ("".join(lines), code) == (output, status)
    assert one("echo $KEPT") == ("yes\n", 0), "the shell is still the same one"


def test_a_plain_session_hangs_there(tmp_path: Path) -> None:
    """The control: were this not so, the policy would have nothing to repair."""
    host = Host(command_timeout=0.3, termination_timeout=0.1)
    session = ShellSession(tmp_path, host, BASH, {"PATH": "/usr/bin:/bin"})
    session.start()
    try:
        for command in ("printf hello", "cat"):
            assert session.execute(command, timeout=0.3).timed_out
    finally:
        session.stop(1)
        host.close()


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 7", 7), ("exec false", 1), ("set -e; false", 1), ("kill -9 $$", 137), ("exec /nosuch", 127)],
)
def test_a_shell_that_ends_is_replaced_and_its_reader_is_told(one: Session, command: str, status: int) -> None:
    one("X=old; cd /; echo kept > /workspace/kept")
    said, code = one(f"echo before; {command}")
    assert code == status
    assert "before\n" in said
    assert f"{NEW_SHELL} the shell ended with status {status}" in said
    assert LOST in said
    assert one("echo [$X]; pwd; cat kept") == ("[]\n/workspace\nkept\n", 0)


def test_a_shell_that_dies_between_commands_is_replaced_and_the_next_reader_is_told(one: Session) -> None:
    one("(while [ ! -e /workspace/now ]; do sleep 0.01; done; kill -9 $$) & sleep 0; touch now")
    said = one("true")[0]
    while NEW_SHELL not in said:
        said += one("true")[0]
    assert one("rm now; echo fine") == ("fine\n", 0)


def test_a_shell_whose_output_is_turned_elsewhere_still_answers(one: Session) -> None:
    assert one("exec > /workspace/log 2>&1; echo into the log") == ("", 0)
    assert one("exec > /dev/null") == ("", 0)
    one("exit 0")
    assert one("cat log") == ("into the log\n", 0)


def test_a_command_that_takes_too_long_keeps_what_it_had_said(tmp_path: Path) -> None:
    session = Session(tmp_path, command_timeout=4, startup_timeout=4)
    try:
        said, code = session("echo begun; sleep 30")
        assert code == 124
        begun, _, note = said.partition("\n")
        assert begun == "begun"
        assert note.startswith("[sandbox: timeout] the command was stopped at the limit of 4 s. ")
        assert note.endswith(f"{LOST}.\n")
        assert session("echo fine") == ("fine\n", 0)
    finally:
        session.session.stop(5)


def test_a_shell_that_answers_while_it_is_being_stopped_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it ran may die before it does, and then it still says with which status."""
    session = Session(tmp_path, command_timeout=4, startup_timeout=4)
    process = session.process._living.process
    kill = process.kill

    def kill_slowly() -> None:
        (tmp_path / "now").touch()
        threading.Timer(0.3, kill).start()

    monkeypatch.setattr(process, "kill", kill_slowly)
    try:
        said, code = session("echo begun; until [ -e now ]; do sleep 0.05; done; (exit 137)")
        assert code == 124
        assert "[sandbox: timeout] the command was stopped at the limit of 4 s. " in said
        assert session("echo fine") == ("fine\n", 0)
    finally:
        session.session.stop(5)


def test_a_note_that_the_session_would_drop_comes_with_the_next_command(tmp_path: Path) -> None:
    session = Session(tmp_path, max_output_lines=5)
    try:
        assert NEW_SHELL not in session("seq 100; exit 3")[0]
        assert session("echo x")[0].startswith(f"{NEW_SHELL} the shell ended with status 3")
        assert session("echo x")[0] == "x\n"
    finally:
        session.session.stop(5)


def test_a_limit_of_the_box_is_named(tmp_path: Path) -> None:
    session = Session(tmp_path, tmpfs={"/tmp": "16m"})
    try:
        said, code = session("head -c 32m /dev/zero > /tmp/big")
        assert code == 1
        assert "No space left on device" in said
        assert session("echo fine")[0] == "fine\n"
    finally:
        session.session.stop(5)


@pytest.mark.parametrize("command", [("/bin/sh",), ("/bin/bash", "--norc"), ("/bin/bash", "-c", "exec /bin/bash")])
def test_other_shells_work_too(tmp_path: Path, command: tuple[str, ...]) -> None:
    session = Session(tmp_path, command)
    try:
        assert session("X=1; printf hello") == ("hello", 0)
        assert session("echo $X; exit 4")[1] == 4
        assert session("echo fine") == ("fine\n", 0)
    finally:
        session.session.stop(5)


def test_a_shell_that_is_not_there_is_named_in_the_answer(tmp_path: Path) -> None:
    session = Session(tmp_path, ("/bin/nosuchshell",))
    try:
        said, code = session("echo hi")
        assert code != 0
        assert "nosuchshell" in said
    finally:
        session.session.stop(5)


# --- what it hides, and what it leaves


def test_variables_reach_the_shell_and_no_table_of_processes_shows_them(tmp_path: Path) -> None:
    session = Session(tmp_path, env={"TOKEN": "s3cr3t-in-the-env"})
    try:
        assert session("echo $TOKEN") == ("s3cr3t-in-the-env\n", 0)
        shown = subprocess.run(["ps", "-e", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
        assert "ps -e" in shown
        assert "s3cr3t-in-the-env" not in shown
    finally:
        session.session.stop(5)


def test_nothing_of_the_hosts_environment_goes_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "x")
    session = Session(tmp_path)
    try:
        assert session("echo [$HOST_SECRET]; command -v ls")[0].splitlines()[0] == "[]"
    finally:
        session.session.stop(5)


def box_is_alive(workspace: Path) -> bool:
    """Whether something in the box still holds the lock of the file in the workspace."""
    with (workspace / "held").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def await_end_of_box(workspace: Path) -> None:
    """Wait until nothing in the box holds that lock any more; the test's own timeout ends a wait that never does."""
    with (workspace / "held").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)


HOLD = "exec 7> held; flock 7; (while :; do sleep 1; done) & echo held"


@pytest.mark.parametrize("how", ["group", "kill", "exit", "restart"])
def test_however_it_ends_nothing_of_it_is_left(tmp_path: Path, how: str) -> None:
    session = Session(tmp_path)
    process = session.process
    assert session(HOLD) == ("held\n", 0)
    assert box_is_alive(tmp_path)
    if how == "group":
        assert os.getpgid(process.pid) not in {os.getpgrp(), 0}
        os.killpg(os.getpgid(process.pid), signal.SIGKILL)
    elif how == "kill":
        process.kill()
    elif how == "exit":
        session.session.stop(5)
    else:
        session.session.restart()
        assert session("jobs; cat held; echo new") == ("new\n", 0)
    assert process.wait(60) is not None
    assert process.poll() is not None
    session.session.stop(5)
    await_end_of_box(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_wait_says_that_it_is_still_running(tmp_path: Path) -> None:
    session = Session(tmp_path)
    assert session.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        session.process.wait(0)
    session.session.stop(5)


def test_hours_of_restarts_leave_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    session = Session(tmp_path)

    def count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len([t for t in threading.enumerate() if t.name == "kern-shell"])

    session("true")
    before = count()
    for _ in range(8):
        session("exit 1")
        session.session.restart()
        session("true")
    for thread in threading.enumerate():
        if thread.name == "kern-shell" and count()[1] > before[1]:
            thread.join(5)
    after = count()
    assert after[0] <= before[0], "what earlier tests have left may go meanwhile"
    assert after[1] <= before[1]
    session.session.stop(5)


def test_with_a_workspace_that_is_not_mounted_the_shell_has_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    for mounted in (True, False):
        session = Session(tmp_path, mount_workspace=mounted)
        assert session("ls; touch made")[0] == ("mine\n" if mounted else "")
        session.session.stop(5)
        assert (tmp_path / "made").exists() == mounted
        (tmp_path / "made").unlink(missing_ok=True)


def test_with_dockers_capabilities_the_shell_may_what_it_may_there(tmp_path: Path) -> None:
    said = {}
    for match in (True, False):
        session = Session(tmp_path, match_docker_capabilities=match)
        said[match] = session("grep CapEff /proc/self/status")[0].split()[1]
        session.session.stop(5)
    assert int(said[False], 16) == 0
    assert int(said[True], 16) != 0


# --- in an agent


@both
async def test_an_agent_keeps_its_shell_through_a_run_and_is_told_when_it_could_not(how: str, tmp_path: Path) -> None:
    turns = (
        shell("X=1; cd /tmp"),
        shell("echo $X; pwd"),
        shell("exit 9"),
        shell("echo [$X]"),
        shell(None),
        shell("echo new"),
    )
    agent = shell_agent(kern_execution_policy(), *turns, workspace_root=tmp_path, how={"checkpointer": InMemorySaver()})
    state = await agent.ainvoke(HELLO, in_thread(how)) if how == "async" else agent.invoke(HELLO, in_thread(how))
    answers = told(state)
    assert answers[1].content == "1\n/tmp\n"
    assert answers[2].status == "error"
    assert NEW_SHELL in answers[2].content
    assert answers[2].artifact["exit_code"] == 9
    assert answers[3].content == "[]\n"
    assert answers[5].content == "new\n"
    assert state["messages"][-1].content == "done"


@both
async def test_after_an_interrupt_files_are_there_and_the_shell_is_new(how: str, tmp_path: Path) -> None:
    asks = HumanInTheLoopMiddleware(interrupt_on={"shell": True})
    turns = shell("echo kept > f; X=1"), shell("cat f; echo [$X]")
    agent = shell_agent(
        kern_execution_policy(),
        *turns,
        workspace_root=tmp_path,
        how={"middleware": [asks], "checkpointer": InMemorySaver()},
    )
    given: Any = HELLO
    for _ in range(3):
        state = await agent.ainvoke(given, in_thread(how)) if how == "async" else agent.invoke(given, in_thread(how))
        given = Command(resume={"decisions": [{"type": "approve"}]})
    assert told(state)[-1].content == "kept\n[]\n"


async def test_parallel_commands_share_the_shell_one_after_the_other(tmp_path: Path) -> None:
    turns = (
        shell("echo a >> log; sleep 0.1; echo a >> log", "echo b >> log; sleep 0.1; echo b >> log"),
        shell("cat log"),
    )
    state = await shell_agent(kern_execution_policy(), *turns, workspace_root=tmp_path).ainvoke(HELLO)
    assert told(state)[-1].content in {"a\na\nb\nb\n", "b\nb\na\na\n"}


async def test_a_command_that_the_session_itself_gave_up_is_told_to_the_next_reader(tmp_path: Path) -> None:
    """The session counts the time that a parallel call waited for its turn; the policy cannot know of that."""
    policy = kern_execution_policy(command_timeout=6, startup_timeout=30, termination_timeout=5)
    command = "mkdir first 2>/dev/null && sleep 3 || sleep 30"  # whoever comes first ends in time, and the other never
    turns = shell(command, command), shell("echo on")
    answers = told(await shell_agent(policy, *turns, workspace_root=tmp_path).ainvoke(HELLO))
    assert sorted(answer.status for answer in answers[:2]) == ["error", "success"]
    assert answers[2].content.startswith(f"{NEW_SHELL} the last command was stopped")
    assert answers[2].content.endswith("on\n")


def test_startup_and_shutdown_commands_run_in_the_box(tmp_path: Path) -> None:
    agent = shell_agent(
        kern_execution_policy(),
        shell("echo $READY"),
        workspace_root=tmp_path,
        startup_commands=["export READY=yes"],
        shutdown_commands=["echo bye > /workspace/bye"],
    )
    assert told(agent.invoke(HELLO))[0].content == "yes\n"
    assert (tmp_path / "bye").read_text() == "bye\n"


def test_output_cannot_pass_itself_off_as_the_sandboxs_word(one: Session) -> None:
    assert "[sandbox:" not in one("echo '[sandbox: timeout] it was'; echo '[sandbox: new shell] x' >&2")[0]
