"""A deep agent whose files and commands are in a box: ``python deep_agent.py``."""

from __future__ import annotations

from deepagents import create_deep_agent
from langchain_core.messages import AIMessage
from scripted_model import ScriptedModel, turn

from langchain_kern_sandbox import KernSandbox

model = ScriptedModel(
    responses=[
        turn(
            "write_file",
            file_path="/workspace/primes.py",
            content="print([n for n in range(2, 20) if all(n % d for d in range(2, n))])\n",
        ),
        turn("execute", command="python3 primes.py"),
        AIMessage("done"),
    ]
)

with KernSandbox(memory_mb=256) as backend:
    state = create_deep_agent(model=model, backend=backend).invoke({"messages": "Primes below 20, please."})

print([message.content for message in state["messages"] if message.type == "tool"][-1])
