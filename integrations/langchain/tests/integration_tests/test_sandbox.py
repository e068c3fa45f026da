"""What the standard suite does not ask of the backend: faults, lifetimes, conversations, and whole deep agents."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from deepagents import create_deep_agent
from kern_sandbox import SpecError
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_kern_sandbox import KernSandbox
from langchain_kern_sandbox.provider import KernProvider
from scripted import HELLO, Scripted, calls, in_thread, told

if TYPE_CHECKING:
    from collections.abc import Iterator

both = pytest.mark.parametrize("how", ["sync", "async"])


@pytest.fixture(scope="module")
def backend() -> Iterator[KernSandbox]:
    with KernSandbox(timeout_s=20) as made:
        yield made


async def execute(backend: KernSandbox, how: str, command: str, **more: Any) -> Any:
    return await backend.aexecute(command, **more) if how == "async" else backend.execute(command, **more)


@both
async def test_both_streams_and_the_status_come_back(backend: KernSandbox, how: str) -> None:
    said = await execute(backend, how, "echo out; echo err >&2; exit 3")
    assert (said.output, said.exit_code, said.truncated) == ("out\nerr\n", 3, False)


@both
async def test_a_command_that_takes_too_long_is_124_and_what_it_had_printed_is_kept(
    backend: KernSandbox, how: str
) -> None:
    said = await execute(backend, how, "echo begun; sleep 30", timeout=1)
    assert (said.output, said.exit_code) == ("begun\nCommand timed out after 1 seconds", 124)


@both
async def test_a_timeout_of_zero_is_none(backend: KernSandbox, how: str) -> None:
    assert (await execute(backend, how, "echo ok", timeout=0)).output == "ok\n"


@both
async def test_what_cannot_be_run_is_an_answer(backend: KernSandbox, how: str) -> None:
    assert (await execute(backend, how, "echo \0")).exit_code == 1
    assert (await execute(backend, how, "echo ok", timeout=-1)).exit_code == 1
    closed = KernSandbox()
    closed.close()
    said = await execute(closed, how, "echo ok")
    assert said.exit_code == 1
    assert said.output.startswith("[sandbox: error]")


async def test_python_has_both_its_names(backend: KernSandbox) -> None:
    assert (
        backend.execute("python -c 'print(1)'; python3 -c 'print(2)'; echo 'print(3)' | xargs -0 python -c").output
        == "1\n2\n3\n"
    )


async def test_files_outlive_a_command_and_processes_do_not(backend: KernSandbox) -> None:
    backend.execute("echo w > /workspace/f; echo t > /tmp/f; (sleep 60; echo late > /workspace/late) &")
    assert backend.execute("cat /workspace/f /tmp/f; pgrep sleep").output == "w\nt\n"


async def test_a_link_in_the_box_leads_an_upload_nowhere_on_the_host(backend: KernSandbox, tmp_path: Any) -> None:
    target = tmp_path / "host"
    target.write_text("mine")
    backend.execute(f"ln -s {target} /workspace/link; ln -s /etc/hostname /workspace/read")
    (answer,) = backend.upload_files([("/workspace/link", b"theirs")])
    assert answer.error is not None or target.read_text() == "mine"
    assert target.read_text() == "mine"
    assert backend.upload_files([("/workspace/plain", b"ok")])[0].error is None


async def test_cancelling_ends_the_box(backend: KernSandbox) -> None:
    backend.execute("mkfifo /workspace/begun")
    task = asyncio.create_task(backend.aexecute("echo yes > /workspace/begun; sleep 25; touch /workspace/survived"))
    assert (await backend.aexecute("cat /workspace/begun")).output == "yes\n"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert backend.execute("ls /workspace/survived").exit_code != 0


async def test_closing_leaves_no_file() -> None:
    with KernSandbox() as made:
        made.execute("chmod 0 /tmp; mkdir -p a/b; chmod 0 a")
        with made._place() as place:
            folders = [place.sandbox.workspace, place._kept.workspace]
        assert all(map(os.path.isdir, folders))
    assert not any(map(os.path.exists, folders))


@pytest.mark.parametrize("option", [{"tmpfs": {}}, {"track_files": True}, {"memory_mb": "x"}])
def test_a_bad_option_is_refused_at_once(option: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(iter(option))):
        KernSandbox(**option)


def deep_agent(backend: KernSandbox, *turns: AIMessage, **how: Any) -> Any:
    return create_deep_agent(model=Scripted(responses=[*turns, AIMessage("done")]), backend=backend, **how)


def shell(*commands: str) -> AIMessage:
    return calls(*({"command": command} for command in commands), name="execute")


@both
async def test_a_deep_agent_writes_runs_reads_and_searches(backend: KernSandbox, how: str) -> None:
    turns = [
        calls({"file_path": "/workspace/hi.py", "content": "print(6 * 7)\n"}, name="write_file"),
        shell("python3 hi.py"),
        calls({"file_path": "/workspace/hi.py", "old_string": "7", "new_string": "8"}, name="edit_file"),
        shell("python3 hi.py; exit 3"),
        calls({"pattern": "print", "path": "/workspace"}, name="grep"),
        calls({"file_path": "/workspace/hi.py"}, name="read_file"),
    ]
    agent = deep_agent(backend, *turns, checkpointer=InMemorySaver())
    config = in_thread(how)
    state = await agent.ainvoke(HELLO, config) if how == "async" else agent.invoke(HELLO, config)
    answers = told(state)
    assert answers[1].content.startswith("42\n")
    assert "exit code 0" in answers[1].content
    assert answers[3].content.startswith("48\n")
    assert answers[3].artifact["exit_code"] == 3
    assert "/workspace/hi.py" in answers[4].content
    assert "print(6 * 8)" in answers[5].content
    assert state["messages"][-1].content == "done"


async def test_what_is_too_long_for_the_model_is_put_where_it_can_read_it(backend: KernSandbox) -> None:
    state = deep_agent(backend, shell("seq 60000")).invoke(HELLO)
    assert "/large_tool_results/" in told(state)[0].content
    assert backend.execute("tail -n 3 /large_tool_results/call-0 | grep -c 60000").output == "1\n"


async def test_per_thread_each_conversation_has_files_of_its_own() -> None:
    with KernSandbox(per_thread=True) as backend:
        for thread in ("a", "b"):
            agent = deep_agent(backend, shell(f"touch {thread}; ls"))
            assert told(agent.invoke(HELLO, in_thread(thread)))[0].content.startswith(f"{thread}\n\n")
            state = await deep_agent(backend, shell("ls")).ainvoke(HELLO, in_thread(thread))
            assert told(state)[0].content.startswith(f"{thread}\n\n")
        backend.forget("a")
        assert backend.execute("ls").output == ""


async def test_parallel_commands_run_side_by_side(backend: KernSandbox) -> None:
    wait = "touch {mine}; until [ -e {other} ]; do sleep 0.01; done; echo {mine}"
    both_at_once = shell(wait.format(mine="p", other="q"), wait.format(mine="q", other="p"))
    state = await deep_agent(backend, both_at_once).ainvoke(HELLO)
    assert sorted(message.content[0] for message in told(state)) == ["p", "q"]


def test_the_provider_of_deep_agents_code_makes_finds_and_deletes() -> None:
    from deepagents_code.integrations.sandbox_provider import SandboxNotFoundError

    provider = KernProvider()
    made = provider.get_or_create(memory_mb=128)
    assert provider.get_or_create(sandbox_id=made.id) is made
    assert made.execute("pwd").output.strip() == provider.metadata.working_dir
    provider.delete(sandbox_id=made.id)
    provider.delete(sandbox_id=made.id)
    assert made.execute("pwd").exit_code == 1
    with pytest.raises(SandboxNotFoundError):
        provider.get_or_create(sandbox_id=made.id)


def test_many_threads_may_use_one_backend(backend: KernSandbox) -> None:
    said: list[str] = []
    running = [threading.Thread(target=lambda n=n: said.append(backend.execute(f"echo {n}").output)) for n in range(8)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert sorted(said) == [f"{n}\n" for n in range(8)]
