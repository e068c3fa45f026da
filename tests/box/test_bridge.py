"""The bridge for other languages, on the wire: what it serves, and what it does with what it does not serve."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Callable

import pytest

from command import started
from rpc_client import BAD_FRAMES, Client
from support import need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    need_boxes()
    with started("serve", stderr=None) as process:
        yield Client(process)


@pytest.fixture(scope="module")
def sandbox(client: Client) -> str:
    return str(client.ask("sandbox.open", options={"timeout_s": 60})["sandbox"])


# --- the protocol -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("frame", "code", "number"), BAD_FRAMES, ids=lambda value: repr(value)[:40])
def test_a_bad_message_gets_an_error_and_the_bridge_goes_on(
    client: Client, frame: bytes, code: int, number: object
) -> None:
    client.say(frame + b"\n")
    answer = client.read()
    assert (answer["id"], answer["error"]["code"]) == (number, code)
    assert client.ask("hello", protocol=1)["protocol"] == 1


def test_a_message_in_pieces_is_one_message_and_answers_are_ignored(client: Client) -> None:
    client.say(b'{"jsonrpc": "2.0", "id": 77, "result": {}}\n{"jsonrpc": "2.0", "id": "pie')
    client.say(b'ces", "method": "hel')
    client.say(b'lo"}\n\n')
    assert client.answer("pieces")["result"]["protocol"] == 1


def test_another_protocol_is_refused_with_those_that_are_served(client: Client) -> None:
    error = client.refused("hello", protocol=99)
    assert (error["code"], error["data"]) == (-32002, {"supported": [1]})


@pytest.mark.parametrize(
    ("method", "params", "code", "words"),
    [
        ("run_code", {}, -32602, "'sandbox' is missing"),
        ("run_code", {"sandbox": "sandbox-0", "code": "1"}, -32001, "no sandbox"),
        ("run_code", {"sandbox": 7, "code": "1"}, -32602, "'sandbox' has to be a string"),
        ("process.write", {"process": "process-0", "data": "x"}, -32001, "no process"),
        ("sandbox.open", {"options": {"mounts": {"/etc": "/x"}}}, -32000, "/etc"),
        ("sandbox.open", {"options": {"memory_mb": "1"}}, -32000, "memory_mb='1'"),
        ("sandbox.open", {"option": {}}, -32602, "no parameter 'option' here: known are options"),
    ],
)
def test_what_is_refused_says_why(client: Client, method: str, params: Any, code: int, words: str) -> None:
    error = client.refused(method, **params)
    assert error["code"] == code
    assert words in error["message"]


def test_an_error_of_the_library_comes_with_its_type_and_what_to_do(client: Client, sandbox: str) -> None:
    error = client.refused("run", sandbox=sandbox, argv="ls -l")
    assert error["data"]["type"] == "SpecError"
    assert "sh" in error["message"]


def test_input_that_is_no_base64_is_refused(client: Client, sandbox: str) -> None:
    assert client.refused("run", sandbox=sandbox, argv=["cat"], stdin_base64="*")["code"] == -32602
    told = base64.b64encode(b"in").decode()
    assert client.ask("run", sandbox=sandbox, argv=["cat"], stdin_base64=told)["stdout"] == "in"


def test_cancelling_a_call_ends_its_box_and_answers_it(
    client: Client, sandbox: str, sleeper: Callable[[], Any]
) -> None:
    sleeps = sleeper()
    call = client.send("run", sandbox=sandbox, argv=sleeps.argv)
    sleeps.chain()
    client.tell("cancel", id=call)
    assert client.answer(call)["error"]["code"] == -32800
    assert not sleeps.running
    client.tell("cancel", id=call)  # of what is over
    client.tell("cancel", id={})


def test_a_name_that_is_not_utf8_does_not_break_the_wire(client: Client, sandbox: str) -> None:
    client.ask("run_code", sandbox=sandbox, code="open(b'\\xff', 'w').close()")
    assert "�" in client.ask("list_files", sandbox=sandbox)["files"]
