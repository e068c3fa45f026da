"""Agents against an OpenAI-compatible endpoint, replayed: what the model is sent is what the cassette has.

Recorded from ``openai_server.py``: ``pytest tests/integration_tests/test_recorded.py --record-mode=rewrite``.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ShellToolMiddleware
from langchain_openai import ChatOpenAI

from langchain_kern_sandbox import kern_execution_policy
from openai_server import asks, serving
from scripted import HELLO, in_thread, plain, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_kern_sandbox import KernCodeTool

NOWHERE = "http://127.0.0.1:9/v1"
CODE = [
    asks("run_code", {"code": "print(6 * 7)"}),
    asks("run_code", {"code": "raise SystemExit(3)"}, {"code": "echo err >&2", "language": "bash"}),
    {"content": "It is 42."},
]
SHELL = [
    asks("shell", {"command": "X=1; printf hello"}),
    asks("shell", {"command": "exit 7"}),
    asks("shell", {"command": "echo [$X]"}),
    {"content": "The variable is gone."},
]

pytestmark = [pytest.mark.vcr, pytest.mark.block_network(allowed_hosts=["/", r"127\.0\.0\.1"])]


def without_this_machine(request: Any) -> Any:
    """The request without what depends on the machine: interpreters, what cannot be limited, headers."""
    body = json.loads(request.body)
    for tool in body.get("tools", []):
        function = tool["function"]
        function["description"] = re.sub(r"Languages: .*?\. (?=[A-Z])", "Languages: some. ", function["description"])
        language = function["parameters"]["properties"].get("language")
        if language:
            language["enum"] = ["some"]
    for message in body["messages"]:
        if message["role"] == "tool":
            message["content"] = plain(message["content"])
    request.body = json.dumps(body).encode()
    request.headers = {"content-type": "application/json"}
    return request


@pytest.fixture(scope="module")
def vcr_config() -> dict[str, Any]:
    kept = {"content-type"}
    return {
        "before_record_request": without_this_machine,
        "before_record_response": lambda response: {
            **response,
            "headers": {name: value for name, value in response["headers"].items() if name.lower() in kept},
        },
        "match_on": ["method", "path", "body"],
    }


@contextlib.contextmanager
def model(record_mode: str, turns: list[dict[str, Any]]) -> Iterator[ChatOpenAI]:
    """The model behind the endpoint; when replaying there is none."""
    place = contextlib.nullcontext(NOWHERE) if record_mode == "none" else serving(turns)
    with place as url:
        yield ChatOpenAI(model="scripted", base_url=url, api_key="not-a-key", max_retries=0, temperature=0)


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_what_a_model_is_sent_of_code(tool: KernCodeTool, how: str, record_mode: str, vcr: Any) -> None:
    with model(record_mode, CODE) as chat:
        agent, config = create_agent(chat, [tool]), in_thread(f"recorded-{how}")
        state = await agent.ainvoke(HELLO, config) if how == "async" else agent.invoke(HELLO, config)
    assert [plain(message) for message in told(state)] == ["42", "exit code: 3\n(no output)", "stderr:\nerr"]
    assert state["messages"][-1].content == "It is 42."
    assert record_mode != "none" or vcr.all_played


def test_what_a_model_is_sent_of_a_shell(tmp_path: Path, record_mode: str, vcr: Any) -> None:
    with model(record_mode, SHELL) as chat:
        shell = ShellToolMiddleware(tmp_path, execution_policy=kern_execution_policy())
        state = create_agent(chat, middleware=[shell]).invoke(HELLO)
    assert [message.content for message in told(state)][::2] == ["hello", "[]\n"]
    assert state["messages"][-1].content == "The variable is gone."
    assert record_mode != "none" or vcr.all_played


def test_an_answer_that_is_not_in_the_cassette_is_noticed(tool: KernCodeTool, record_mode: str) -> None:
    """The control: with the cassette of the test before, and code that prints something else."""
    import vcr as recorder
    from vcr.errors import CannotOverwriteExistingCassetteException

    cassette = Path(__file__).parent / "cassettes" / "test_recorded" / "test_what_a_model_is_sent_of_a_shell.yaml"
    plain = recorder.VCR(before_record_request=without_this_machine, match_on=["method", "path", "body"])
    with plain.use_cassette(str(cassette), record_mode="none"):
        chat = ChatOpenAI(model="scripted", base_url=NOWHERE, api_key="not-a-key", max_retries=0, temperature=0)
        with pytest.raises(CannotOverwriteExistingCassetteException):
            create_agent(chat, [tool]).invoke(HELLO, in_thread("control"))


def test_no_cassette_holds_a_key_or_a_machine() -> None:
    cassettes = list(Path(__file__).parent.glob("cassettes/**/*.yaml"))
    assert cassettes
    for cassette in cassettes:
        found = re.findall(
            r"(?i)sk-\w+|not-a-key|bearer|cookie|python 3\.\d|/work/|/home/\w+|/root", cassette.read_text()
        )
        assert not found, cassette
