"""An agent that analyses a file in boxes and mends its own bug, with a model that is a script: no key, no network.

pip install . ./integrations/llamaindex
python integrations/llamaindex/examples/analyst.py
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.tools.kern_sandbox import KernSandboxToolSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.tools import ToolOutput

SALES = "city,amount_eur\nLima,40\nOslo,17\nLima,2\nOslo,9\nPune,31\n"
SUM_UP = """
import collections, csv
totals = collections.Counter()
for row in csv.DictReader(open("sales.csv")):
    totals[row["city"]] += int(row["{column}"])
print(*totals.most_common(1)[0])
"""
TURNS: list[tuple[str, dict[str, Any]]] = [
    ("write_file", {"path": "sales.csv", "content": SALES}),
    ("run_code", {"code": SUM_UP.format(column="amount")}),
    ("run_code", {"code": SUM_UP.format(column="amount_eur")}),
]


def scripted_model() -> MockFunctionCallingLLM:
    """Stands for a model: asks for the tools in TURNS, and then tells what the last one said."""
    turns = iter(TURNS)

    def answer(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        turn = next(turns, None)
        if turn is None:
            found = re.search(r"^(\w+) (\d+)$", str(messages[-1].content), re.MULTILINE)
            assert found is not None
            return ChatMessage(role="assistant", content=f"{found[1]} sold the most: {found[2]}.")
        block = ToolCallBlock(tool_call_id=turn[0], tool_name=turn[0], tool_kwargs=turn[1])
        return ChatMessage(role="assistant", blocks=[block])

    return MockFunctionCallingLLM(response_generator=answer, is_chat_model=True)


def summary(output: ToolOutput) -> str:
    """The last line of what went wrong, was printed, or was done."""
    data = output.raw_output
    return (data.get("stderr") or data.get("stdout") or output.content).splitlines()[-1]


async def main() -> None:
    with KernSandboxToolSpec(memory_mb=256, timeout_s=10) as spec:
        agent = FunctionAgent(tools=await spec.to_tool_list_async(), llm=scripted_model())
        run = agent.run("Which city sold the most?")
        async for event in run.stream_events():
            if isinstance(event, ToolCallResult):
                print(f"{event.tool_name}: {summary(event.tool_output)}")
        print("answer:", await run)


if __name__ == "__main__":
    asyncio.run(main())
