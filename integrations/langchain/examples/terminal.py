"""An agent with a shell in a box, which it breaks, and gets back: ``python terminal.py``."""

from __future__ import annotations

import tempfile

from langchain.agents import create_agent
from langchain.agents.middleware import ShellToolMiddleware
from langchain_core.messages import AIMessage
from scripted_model import ScriptedModel, turn

from langchain_kern_sandbox import kern_execution_policy

COMMANDS = [
    "mkdir build && cd build && export STAGE=one && pwd",
    "echo $STAGE > stage.txt; printf 'no newline'",
    "cat",
    "exit 3",
    "echo [$STAGE]; cat build/stage.txt",
]

model = ScriptedModel(responses=[*(turn("shell", command=command) for command in COMMANDS), AIMessage("done")])

with tempfile.TemporaryDirectory() as workspace:
    shell = ShellToolMiddleware(workspace, execution_policy=kern_execution_policy(memory_mb=256))
    state = create_agent(model, middleware=[shell]).invoke({"messages": "Build it."})

for message in state["messages"]:
    if message.type == "tool":
        print(message.content.strip())
