"""The tool as a value: its schema, copies of it, and what it refuses."""

from __future__ import annotations

import copy
import json
import pickle
from typing import TYPE_CHECKING

import pytest
from kern_sandbox import SpecError
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_kern_sandbox import kern_code_tool
from scripted import plain

if TYPE_CHECKING:
    from langchain_kern_sandbox import KernCodeTool

CALL = {"name": "run_code", "id": "1", "type": "tool_call"}


def test_the_description_names_the_limits_that_a_box_has() -> None:
    with kern_code_tool(memory_mb=123, pids=45, timeout_s=6) as tool:
        assert "123 MiB of memory, 45 processes, 6 s a call" in tool.description
        assert tool.tool_call_schema.model_json_schema()["properties"]["timeout_s"]["anyOf"][0]["maximum"] == 6


def test_a_model_is_told_of_code_language_and_time_and_of_nothing_else(tool: KernCodeTool) -> None:
    told = convert_to_openai_tool(tool)["function"]
    assert sorted(told["parameters"]["properties"]) == ["code", "language", "timeout_s"]
    assert told["parameters"]["required"] == ["code"]
    assert all(each["description"] for each in told["parameters"]["properties"].values())
    assert told["description"] == tool.description
    json.dumps(told)


def test_a_copy_works_on_the_same_files(tool: KernCodeTool) -> None:
    copied = copy.deepcopy(tool)
    copied.invoke({"code": "open('from_copy', 'w').write('x')"})
    assert "from_copy" in tool.invoke({"code": "import os; print(os.listdir())"})


def test_a_pickled_tool_is_a_new_one_with_the_same_options() -> None:
    with kern_code_tool(memory_mb=99, images=True) as tool:
        tool.invoke({"code": "open('mine', 'w').write('x')"})
        with pickle.loads(pickle.dumps(tool)) as again:
            assert again.images
            assert "99 MiB" in again.description
            assert "mine" not in again.invoke({"code": "import os; print(os.listdir())"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory_mb": "lots"}, "memory_mb"),
        ({"max_threads": 0}, "max_threads"),
        ({"limit": 1}, "limit"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_a_bad_option_is_refused_when_the_tool_is_made(options: dict, words: str) -> None:
    with pytest.raises((SpecError, TypeError), match=words):
        kern_code_tool(**options)


@pytest.mark.parametrize(
    "code", ["```python\nprint(1)\n```", "\ufeffprint(1)\r\n", "print(1)\n\f\n", 'print(len("""```\n""") - 3)']
)
def test_what_models_put_around_code_does_not_matter(tool: KernCodeTool, code: str) -> None:
    assert plain(tool.invoke({"code": code})) == "1"


@pytest.mark.parametrize("code", ["1/0", "import os; os.kill(os.getpid(), 9)", "def"])
def test_code_that_fails_is_an_ordinary_answer(tool: KernCodeTool, code: str) -> None:
    message = tool.invoke({**CALL, "args": {"code": code}})
    assert message.status == "success"
    assert message.artifact["exit_code"] != 0
    assert json.loads(json.dumps(message.artifact)) == message.artifact


def test_a_tool_that_was_closed_says_so_and_raises_nothing() -> None:
    tool = kern_code_tool()
    tool.close()
    tool.close()
    message = tool.invoke({**CALL, "args": {"code": "print(1)"}})
    assert message.status == "error"
    assert message.content.startswith("[sandbox: error]")
    assert "closed" in message.content


def test_output_that_looks_like_the_sandboxs_own_word_is_not_taken_for_it(tool: KernCodeTool) -> None:
    said = tool.invoke({"code": "print('[sandbox: oom] done')"})
    assert "[sandbox:" not in said
    assert "oom] done" in said
