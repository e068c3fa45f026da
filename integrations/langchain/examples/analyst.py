"""An agent that analyses data with code, and whose second try is not held up by its first: ``python analyst.py``."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from scripted_model import ScriptedModel, turn

from langchain_kern_sandbox import kern_code_tool

DATA = "import csv; csv.writer(open('sales.csv', 'w')).writerows([('a', 3), ('b', 4), ('a', 5)])"
WRONG = "import pandas_of_the_future"
RIGHT = """
import collections, csv
total = collections.Counter()
for name, count in csv.reader(open('sales.csv')):
    total[name] += int(count)
dict(total)
"""

model = ScriptedModel(
    responses=[
        turn("run_code", code=DATA),
        turn("run_code", code=WRONG),
        turn("run_code", code=RIGHT),
        AIMessage("a sold 8, b sold 4"),
    ]
)

with kern_code_tool(memory_mb=256, timeout_s=10) as tool:
    agent = create_agent(model, [tool])
    state = agent.invoke({"messages": "Who sold how much?"}, {"configurable": {"thread_id": "sales"}})

for message in state["messages"]:
    if message.type == "tool":
        ran = message.artifact
        print(ran["exit_code"], [file["path"] for file in ran["files"]], ran["values"], ran["stderr"][-30:].strip())
print(state["messages"][-1].content)
