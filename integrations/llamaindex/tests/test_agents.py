"""Agents of LlamaIndex with these tools, from the question to the answer, on a model that says what is written here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kern_sandbox import SessionClosed
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.llms import ChatMessage, ImageBlock, MessageRole
from llama_index.core.workflow import Context
from llama_index.core.workflow.errors import WorkflowCancelledByUser
from llama_index.tools.kern_sandbox import KernSandboxToolSpec

from scripted import CHART, HOLDS_THE_LINE, PNG, Script, calls, code, line_from_box, said

if TYPE_CHECKING:
    from llama_index.core.tools import FunctionTool, ToolOutput

TWO_CELLS = "<execute>\nprint('hello')\nx = 6\n</execute>", "Now:\n<execute>\nx * 7\n</execute>"


def function_agent(tools: dict[str, FunctionTool], script: Script) -> FunctionAgent:
    return FunctionAgent(tools=list(tools.values()), llm=script.llm)


async def run(agent: Any, **how: Any) -> tuple[str, list[ToolOutput]]:
    """The agent's answer, and what its tools gave on the way."""
    handler = agent.run("go", **how)
    outputs = [event.tool_output async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    return str(await handler), outputs


async def test_a_function_agent_sees_text_and_charts_and_mends_its_code(tools: dict[str, FunctionTool]) -> None:
    script = Script(code("1/0"), code(CHART), "done")
    answer, outputs = await run(function_agent(tools, script))
    assert answer == "done"
    assert [output.is_error for output in outputs] == [True, False]
    failed, chart = script.heard(MessageRole.TOOL)
    assert "ZeroDivisionError" in str(failed.content)
    assert "image/png" in str(chart.content)
    assert [block.resolve_image().read() for block in chart.blocks if isinstance(block, ImageBlock)] == [PNG]


async def test_a_function_agent_uses_every_tool(tools: dict[str, FunctionTool]) -> None:
    script = Script(
        calls(("write_file", {"path": "agent/n.txt", "content": "41"})),
        code("print(int(open('agent/n.txt').read()) + 1, file=open('agent/m.txt', 'w'))"),
        calls(("list_files", {"subdir": "agent"}), ("read_file", {"path": "agent/m.txt"})),
        "done",
    )
    _, outputs = await run(function_agent(tools, script))
    assert not any(output.is_error for output in outputs)
    listed, read = script.heard(MessageRole.TOOL)[-2:]
    assert str(listed.content).split() == ["agent/m.txt", "agent/n.txt"]
    assert str(read.content).strip() == "42"


async def test_tools_that_are_called_at_once_answer_each_its_own_call(tools: dict[str, FunctionTool]) -> None:
    script = Script(code("print('one')", "print('two')", "raise SystemExit(3)"), "done")
    await run(function_agent(tools, script))
    heard = {each.additional_kwargs["tool_call_id"]: said(each.content) for each in script.heard(MessageRole.TOOL)}
    assert heard["call-0"] == "one"
    assert heard["call-1"] == "two"
    assert heard["call-2"].startswith("exit code: 3")


async def test_arguments_that_no_tool_has_are_an_error_and_not_the_end(tools: dict[str, FunctionTool]) -> None:
    script = Script(calls(("run_code", {"programme": "1"}), ("run_code", {}), ("shell", {"code": "ls"})), "done")
    answer, outputs = await run(function_agent(tools, script))
    assert answer == "done"
    assert [output.is_error for output in outputs] == [True] * 3


async def test_a_sandbox_that_fails_is_an_error_and_not_the_end() -> None:
    spec = KernSandboxToolSpec()
    script = Script(code("1"), "done")
    agent = FunctionAgent(tools=spec.to_tool_list(), llm=script.llm)
    spec.close()
    answer, (output,) = await run(agent)
    assert answer == "done"
    assert isinstance(output.exception, SessionClosed)
    assert "The sandbox failed, not the code" in str(script.heard(MessageRole.TOOL)[0].content)


async def test_a_conversation_with_a_chart_goes_on_after_it_was_stored(tools: dict[str, FunctionTool]) -> None:
    script = Script(code(CHART), "a chart", "the same chart")
    agent = function_agent(tools, script)
    context = Context(agent)
    await run(agent, ctx=context)
    with pytest.warns(Warning, match="memory"):  # LlamaIndex leaves messages to their own store
        stored = json.loads(json.dumps(context.to_dict()))
    messages = [ChatMessage.model_validate_json(each.model_dump_json()) for each in script.told[-1]]
    answer, _ = await run(agent, ctx=Context.from_dict(agent, stored), chat_history=messages)
    assert answer == "the same chart"
    (chart,) = script.heard(MessageRole.TOOL)
    assert [block.resolve_image().read() for block in chart.blocks if isinstance(block, ImageBlock)] == [PNG]


async def test_cancelling_a_run_ends_the_code(spec: KernSandboxToolSpec, tools: dict[str, FunctionTool]) -> None:
    with line_from_box(spec.sandbox.workspace) as line:
        handler = function_agent(tools, Script(code(HOLDS_THE_LINE), "never said")).run("go")
        assert await line.said() == b"here"
        assert line.held()
        await handler.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await handler
        assert await line.said() == b""


async def test_agents_of_one_workflow_share_the_tools(tools: dict[str, FunctionTool]) -> None:
    script = Script(code("print('hello')"), "done")
    workflow = AgentWorkflow(agents=[function_agent(tools, script)])
    answer, (output,) = await run(workflow)
    assert answer == "done"
    assert said(output) == "hello"


async def test_a_react_agent_reads_every_observation(tools: dict[str, FunctionTool]) -> None:
    steps = [
        f"Thought: I run it.\nAction: run_code\nAction Input: {json.dumps({'code': each})}" for each in ("1/0", CHART)
    ]
    script = Script(*steps, "Thought: I can answer without using any more tools.\nAnswer: done")
    answer, outputs = await run(ReActAgent(tools=list(tools.values()), llm=script.llm))
    assert answer == "done"
    assert [output.is_error for output in outputs] == [True, False]
    assert all(words in str(script.told[0][0].content) for words in ("Languages: python", '"enum": ["python"'))
    failed, chart = [str(each.content) for each in script.heard(MessageRole.USER) if "Observation" in str(each.content)]
    assert "ZeroDivisionError" in failed
    assert "image/png, 1 × 1" in chart


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_codeact_agent_has_the_variables_of_its_earlier_code(
    spec: KernSandboxToolSpec, *, streaming: bool
) -> None:
    script = Script(*TWO_CELLS, "<execute>\nx / 0\n</execute>", "<execute>\nx\n</execute>", "done")
    answer, _ = await run(CodeActAgent(code_execute_fn=spec.code_execute_fn, llm=script.llm, streaming=streaming))
    assert answer == "done"
    results = [said(str(each.content).partition("\n\n")[2]) for each in script.heard(MessageRole.USER)[1:]]
    assert results[0] == "hello"
    assert results[1] == "value:\n42"
    assert "ZeroDivisionError" in results[2]
    assert results[3] == "value:\n6"


async def test_a_codeact_agent_hears_of_a_sandbox_that_fails() -> None:
    spec = KernSandboxToolSpec()
    spec.close()
    script = Script(TWO_CELLS[0], "done")
    answer, (output,) = await run(CodeActAgent(code_execute_fn=spec.code_execute_fn, llm=script.llm))
    assert answer == "done"
    assert output.is_error
    assert isinstance(output.exception, RuntimeError)
    assert isinstance(output.exception.__cause__, SessionClosed)
    assert "The sandbox failed, not the code" in str(script.heard(MessageRole.USER)[-1].content)


async def test_code_for_codeact_gives_plain_data_too(spec: KernSandboxToolSpec) -> None:
    result = await spec.code_execute_fn("print('hello')")
    assert result["stdout"] == "hello\n"
    assert result["success"] is True
    assert json.loads(json.dumps(result)) == result
