"""Agents that run code, whole: sync and async, with checkpoints, interrupts, parallel calls and cancellation."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_kern_sandbox import kern_code_tool
from scripted import HELLO, Scripted, agent_of, calls, code, in_thread, plain, told

if TYPE_CHECKING:
    from langchain_kern_sandbox import KernCodeTool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def run(agent: Any, how: str, given: Any = HELLO, config: Any = None) -> dict[str, Any]:
    return await agent.ainvoke(given, config) if how == "async" else agent.invoke(given, config)


both = pytest.mark.parametrize("how", ["sync", "async"])


@both
async def test_an_agent_reads_what_its_code_printed_and_files_are_kept(tool: KernCodeTool, how: str) -> None:
    agent = agent_of(tool, code("open('n', 'w').write('41')"), code("print(int(open('n').read()) + 1)"))
    first, second = told(await run(agent, how, config=in_thread(f"files-{how}")))
    assert "created: n" in first.content
    assert plain(second) == "42"
    assert second.artifact["stdout"] == "42\n"


@both
async def test_code_that_fails_and_a_sandbox_that_fails_do_not_end_the_run(how: str) -> None:
    tool = kern_code_tool()
    first = await run(agent_of(tool, code("1/0")), how)
    tool.close()
    second = await run(agent_of(tool, code("print(1)")), how)
    assert [told(state)[0].status for state in (first, second)] == ["success", "error"]
    assert [state["messages"][-1].content for state in (first, second)] == ["done", "done"]


async def test_arguments_that_do_not_fit_are_an_answer_too(tool: KernCodeTool) -> None:
    agent = agent_of(tool, calls({"code": "print(1)", "timeout_s": 1e6}), calls({"code": "print(1)", "extra": "x"}))
    refused, taken = told(await run(agent, "sync", config=in_thread("refused")))
    assert (refused.status, taken.status) == ("error", "success")
    assert plain(taken) == "1"


@both
async def test_each_conversation_has_files_of_its_own(tool: KernCodeTool, how: str) -> None:
    saver = InMemorySaver()
    look = code("import os; print(sorted(os.listdir()))")
    writer = agent_of(tool, code("open('secret', 'w').write('x')"), checkpointer=saver)
    await run(writer, how, config=in_thread(f"own-{how}"))
    (other,) = told(await run(agent_of(tool, look, checkpointer=saver), how, config=in_thread(f"other-{how}")))
    same = told(await run(agent_of(tool, look, checkpointer=saver), how, config=in_thread(f"own-{how}")))[-1]
    assert "secret" not in other.content
    assert "secret" in same.content


async def test_a_conversation_whose_files_made_room_is_told_so() -> None:
    with kern_code_tool(max_threads=1) as tool:
        for thread in ("a", "b"):
            await run(agent_of(tool, code("open('f', 'w').write('x')")), "sync", config=in_thread(thread))
        first, second = told(
            await run(agent_of(tool, code("print(1)"), code("print(2)")), "sync", config=in_thread("a"))
        )
        assert first.content.startswith("[sandbox: new workspace]")
        assert plain(second) == "2"


@both
async def test_with_a_kernel_variables_are_kept_from_call_to_call(how: str) -> None:
    with kern_code_tool(kernel=True) as tool:
        state = await run(agent_of(tool, code("x = 20"), code("print(x + 1)")), how, config=in_thread("k"))
        assert plain(told(state)[-1]) == "21"
        other = await run(agent_of(tool, code("print('x' in globals())")), how, config=in_thread("l"))
        assert plain(told(other)[-1]) == "False"


@both
async def test_parallel_calls_run_side_by_side_in_one_workspace(tool: KernCodeTool, how: str) -> None:
    """Each waits until the other's file is there: one after the other, neither would end."""
    wait = "import os\nopen('{mine}', 'w').close()\nwhile not os.path.exists('{other}'): pass\nprint('{mine}')"
    both_at_once = code(wait.format(mine="p", other="q"), wait.format(mine="q", other="p"))
    state = await run(agent_of(tool, both_at_once), how, config=in_thread(f"parallel-{how}"))
    assert sorted(message.artifact["stdout"] for message in told(state)) == ["p\n", "q\n"]


@both
async def test_a_checkpointer_gives_the_artifact_back_as_it_was(tool: KernCodeTool, how: str) -> None:
    agent = agent_of(tool, code("print(1)"), checkpointer=InMemorySaver())
    state = await run(agent, how, config=in_thread(f"saved-{how}"))
    kept = agent.get_state(in_thread(f"saved-{how}")).values
    assert told(kept)[0].artifact == told(state)[0].artifact
    assert type(told(kept)[0].artifact) is dict


@both
async def test_an_interrupt_before_code_runs_is_resumed_in_the_same_workspace(tool: KernCodeTool, how: str) -> None:
    asks = HumanInTheLoopMiddleware(interrupt_on={"run_code": True})
    turns = code("open('before', 'w').close()"), code("import os; print(os.path.exists('before'))")
    agent = agent_of(tool, *turns, middleware=[asks], checkpointer=InMemorySaver())
    config, yes = in_thread(f"asked-{how}"), Command(resume={"decisions": [{"type": "approve"}]})
    state = await run(agent, how, config=config)
    assert "__interrupt__" in state
    assert not told(state)
    await run(agent, how, yes, config)
    state = await run(agent, how, yes, config)
    assert plain(told(state)[-1]) == "True"


@both
async def test_progress_arrives_while_the_code_runs(tool: KernCodeTool, how: str) -> None:
    """The code ends only after its first line has been seen on the stream."""
    thread = f"stream-{how}"
    program = (
        "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('seen'): time.sleep(0.01)\nprint('last')"
    )
    agent, seen = agent_of(tool, code(program)), []
    release = agent_of(tool, code("open('seen', 'w').close()"))

    def note(chunk: Any) -> bool:
        seen.append(chunk)
        return len(seen) == 1

    if how == "async":
        async for chunk in agent.astream(HELLO, in_thread(thread), stream_mode="custom"):
            if note(chunk):
                await release.ainvoke(HELLO, in_thread(thread))
    else:
        for chunk in agent.stream(HELLO, in_thread(thread), stream_mode="custom"):
            if note(chunk):
                release.invoke(HELLO, in_thread(thread))
    assert seen[0] == {"type": "output", "tool": "run_code", "tool_call_id": "call-0", "text": seen[0]["text"]}
    assert "".join(chunk["text"] for chunk in seen).split() == ["first", "last"]


async def test_cancelling_the_run_ends_the_box(tool: KernCodeTool) -> None:
    begun = asyncio.Event()
    agent = agent_of(
        tool, code("print('begun', flush=True)\nimport time\ntime.sleep(25)\nopen('survived', 'w').close()")
    )

    async def consume() -> None:
        async for _ in agent.astream(HELLO, in_thread("cancelled"), stream_mode="custom"):
            begun.set()

    task = asyncio.create_task(consume())
    await asyncio.wait_for(begun.wait(), 100)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    waiting = [each for each in threading.enumerate() if each.name.startswith("kern-tool")]
    for each in waiting:  # on the code, which by itself would take longer than this waits
        each.join(15)
    assert not [each for each in waiting if each.is_alive()]
    look = agent_of(tool, code("import os; print(os.listdir())"))
    assert "survived" not in told(await run(look, "async", config=in_thread("cancelled")))[0].content


async def test_images_reach_the_model_where_they_are_asked_for_and_always_the_artifact() -> None:
    shown = f"import sys\nclass P:\n    def _repr_png_(self): return {PNG!r}\nP()"
    for images in (True, False):
        with kern_code_tool(images=images) as tool:
            (message,) = told(await run(agent_of(tool, code(shown)), "sync"))
        kinds = [block["type"] for block in message.content_blocks]
        assert kinds == (["text", "image"] if images else ["text"])
        assert base64.b64decode(message.artifact["images"][0]["base64"]) == PNG


def test_the_model_is_sent_the_rendered_text(tool: KernCodeTool) -> None:
    model = Scripted(responses=[code(r"print('\033[31mred\033[0m')"), AIMessage("done")])
    create_agent(model, [tool]).invoke(HELLO, in_thread("rendered"))
    assert plain(model.told[-1][-1]) == "red"
