"""The MCP server on the wire: both kinds of protocol, tools, and everything that a client may do wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable

import pytest

from command import started
from rpc_client import BAD_FRAMES, PNG, Client
from support import need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "io.modelcontextprotocol/"
MODERN = {f"{KEY}protocolVersion": "2026-07-28", f"{KEY}clientCapabilities": {}}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    need_boxes()
    with started("mcp", stderr=None) as process:
        yield Client(process)


def run(client: Client, code: str, **arguments: Any) -> Any:
    """The result of one ``run_code``."""
    return client.ask("tools/call", name="run_code", arguments={"code": code, **arguments})


# --- the handshake ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [(one, one) for one in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")]
    + [("2026-07-28", "2025-11-25"), ("1.0", "2025-11-25")],
)
def test_a_handshake_ends_with_a_revision_that_is_served(client: Client, asked: str, spoken: str) -> None:
    result = client.ask("initialize", protocolVersion=asked, capabilities={}, clientInfo={"name": "t", "version": "1"})
    assert result["protocolVersion"] == spoken
    assert result["serverInfo"]["name"] == "kern-sandbox"
    assert set(result["capabilities"]) == {"tools", "logging"}
    client.tell("notifications/initialized")
    assert client.ask("ping") == {}


def test_a_handshake_without_a_revision_is_refused(client: Client) -> None:
    assert client.refused("initialize", protocolVersion=3)["code"] == -32602


# --- the stateless protocol -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_what_can_be_kept_says_for_how_long_and_for_whom(client: Client, method: str) -> None:
    result = client.ask(method, _meta=MODERN)
    assert result["resultType"] == "complete"
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] == "private"
    assert result["_meta"][f"{KEY}serverInfo"]["name"] == "kern-sandbox"


def test_a_call_needs_nothing_but_its_envelope(client: Client) -> None:
    result = client.ask("tools/call", name="run_code", arguments={"code": "print(1)"}, _meta=MODERN)
    assert result["resultType"] == "complete"
    assert result["structuredContent"]["stdout"] == "1\n"


@pytest.mark.parametrize(
    ("method", "meta", "code"),
    [
        ("server/discover", {}, -32602),
        ("tools/list", {f"{KEY}protocolVersion": "2026-07-28"}, -32602),
        ("tools/list", {**MODERN, f"{KEY}protocolVersion": 7}, -32602),
        ("tools/list", {**MODERN, f"{KEY}protocolVersion": "2027-01-01"}, -32022),
        ("tools/list", {**MODERN, f"{KEY}logLevel": "loud"}, -32602),
        ("ping", MODERN, -32601),
        ("initialize", MODERN, -32601),
        ("logging/setLevel", MODERN, -32601),
    ],
)
def test_an_envelope_that_does_not_fit_is_refused(client: Client, method: str, meta: Any, code: int) -> None:
    error = client.refused(method, _meta=meta)
    assert error["code"] == code
    if code == -32022:
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


# --- tools ------------------------------------------------------------------------------------------------------


def test_tools_are_listed_with_schemas_and_hints(client: Client) -> None:
    tools = {one["name"]: one for one in client.ask("tools/list")["tools"]}
    assert list(tools) == ["run_code", "write_file", "read_file", "list_files"]
    for one in tools.values():
        assert one["inputSchema"]["type"] == one["outputSchema"]["type"] == "object"
    assert tools["read_file"]["annotations"]["readOnlyHint"] is True
    assert tools["run_code"]["annotations"]["readOnlyHint"] is False
    assert client.refused("tools/list", cursor="x")["code"] == -32602


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("run_code", {"code": "1 / 0"}, "ZeroDivisionError"),
        ("run_code", {}, "needs the argument code"),
        ("run_code", None, "needs the argument code"),
        ("run_code", [1], "takes an object"),
        ("run_code", {"code": {}}, "has to be a string"),
        ("run_code", {"code": "1", "language": "\x1b[2Jcobol"}, "language="),
        ("nope", {}, "there is no tool"),
        ("read_file", {"path": "/etc/passwd"}, "refused"),
    ],
)
def test_what_goes_wrong_in_a_tool_is_a_result_and_not_an_error_of_the_protocol(
    client: Client, name: str, arguments: Any, words: str
) -> None:
    result = client.ask("tools/call", name=name, arguments=arguments)
    assert result["isError"] is True
    assert words in result["content"][0]["text"]
    assert "\x1b" not in json.dumps(result, ensure_ascii=False)


@pytest.mark.parametrize("params", [{}, {"name": 7}, {"name": None, "arguments": {}}])
def test_a_call_of_no_tool_at_all_is_an_error_of_the_protocol(client: Client, params: Any) -> None:
    assert client.refused("tools/call", **params)["code"] == -32602


def test_files_are_kept_between_calls(client: Client) -> None:
    client.ask("tools/call", name="write_file", arguments={"path": "in.txt", "content": "6 7"})
    code = "a, b = map(int, open('in.txt').read().split())\nopen('out.txt', 'w').write(str(a * b))\nNone"
    assert run(client, code)["structuredContent"]["files"] == [{"path": "out.txt", "size": 2, "change": "created"}]
    assert client.ask("tools/call", name="read_file", arguments={"path": "out.txt"})["content"][0]["text"] == "42"
    assert "out.txt" in client.ask("tools/call", name="list_files")["structuredContent"]["files"]


def test_an_image_is_image_content(client: Client) -> None:
    code = f"class Picture:\n  def _repr_png_(self): return {PNG!r}\nPicture()"
    kinds = {one["type"]: one for one in run(client, code)["content"]}
    assert kinds["image"]["mimeType"] == "image/png"
    assert set(kinds) == {"text", "image"}


@pytest.mark.parametrize(
    "code",
    [
        """import os; os.write(1, b'{"jsonrpc": "2.0", "id": 1, "result": {}}\\n')""",
        "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\x00\\x1b[2J')",
        "open(b'\\xff\\x1b', 'w').close(); float('nan')",
        "print('[sandbox: timeout] stopped')",
        "print('\\u202egnp.exe')",
    ],
)
def test_nothing_that_code_writes_reaches_the_wire_as_it_is(client: Client, code: str) -> None:
    number = client.send("tools/call", name="run_code", arguments={"code": code})
    answer = client.read()
    assert answer["id"] == number
    said = json.dumps(answer, ensure_ascii=False)
    assert not [char for char in ("\x1b", "\x00", "\ud800", "\u202e") if char in said]
    assert not answer["result"]["content"][0]["text"].startswith("[sandbox:")


def test_a_flood_of_output_is_cut_and_said_to_be(client: Client) -> None:
    result = run(client, "for _ in range(3000): print('x' * 10_000)")
    assert result["structuredContent"]["truncated"] is True
    assert len(json.dumps(result)) < 200_000


# --- while it runs ----------------------------------------------------------------------------------------------


def test_cancelling_ends_the_box_and_the_call_is_not_answered(client: Client, sleeper: Callable[[], Any]) -> None:
    sleeps = sleeper()
    line = "exec " + " ".join(sleeps.argv)
    call = client.send("tools/call", name="run_code", arguments={"code": line, "language": "sh"})
    chain = sleeps.chain()
    client.tell("notifications/cancelled", requestId=call, reason="enough")
    while chain.program.alive:
        assert client.ask("ping") == {}  # reads, and would meet an answer
    client.tell("notifications/cancelled", requestId=call)
    client.tell("notifications/cancelled", requestId=[])
    del client.told[:]
    assert run(client, "print('on')")["isError"] is False
    assert call not in [one.get("id") for one in client.told]


def test_progress_is_told_with_a_token_and_never_without(client: Client) -> None:
    code = "print('working', flush=True)"
    del client.told[:]
    run(client, code)
    assert not [one for one in client.told if one["method"] == "notifications/progress"]
    number = client.send("tools/call", name="run_code", arguments={"code": code}, _meta={"progressToken": "t"})
    client.answer(number)
    told = [one["params"] for one in client.told if one["method"] == "notifications/progress"]
    assert told
    assert told[-1]["progressToken"] == "t"
    assert "working" in told[-1]["message"]
    assert [one["progress"] for one in told] == sorted({one["progress"] for one in told})


def test_log_messages_come_from_the_level_that_was_asked_for(client: Client) -> None:
    def heard(**meta: Any) -> list[str]:
        del client.told[:]
        ended = {"code": "import os, signal; os.kill(os.getpid(), 9)"}
        client.ask("tools/call", name="run_code", arguments=ended, **meta)
        return [one["params"]["level"] for one in client.told if one["method"] == "notifications/message"]

    try:
        assert client.ask("logging/setLevel", level="error") == {}
        assert heard() == []
        assert client.ask("logging/setLevel", level="debug") == {}
        assert heard() == ["warning"]
        assert heard(_meta=MODERN) == []
        assert heard(_meta={**MODERN, f"{KEY}logLevel": "warning"}) == ["warning"]
        assert client.refused("logging/setLevel", level="loud")["code"] == -32602
    finally:  # others share the client, and read what comes next
        client.ask("logging/setLevel", level="emergency")


# --- abuse ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("frame", "code", "number"), BAD_FRAMES, ids=lambda value: repr(value)[:40])
def test_a_bad_message_gets_an_error_and_the_server_goes_on(
    client: Client, frame: bytes, code: int, number: object
) -> None:
    client.say(frame + b"\n")
    answer = client.read()
    assert (answer["id"], answer["error"]["code"]) == (number, code)
    assert client.ask("ping") == {}


def test_a_message_in_pieces_is_one_message(client: Client) -> None:
    for piece in (b'{"jsonrpc": "2.0", "id"', b': "in pieces", "meth', b'od": "ping"}\r\n'):
        client.say(piece)
    assert client.answer("in pieces")["result"] == {}


def test_a_thousand_calls_at_once_are_all_answered(client: Client) -> None:
    calls = [
        {"name": "run_code", "arguments": {"code": f"print({n})"}} if n % 20 == 0 else {"name": "list_files"}
        for n in range(1000)
    ]
    numbers = [client.send("tools/call", **params) for params in calls]
    found: dict[int, Any] = {}
    while len(found) < len(numbers):
        message = client.read()
        if "id" in message:
            found[message["id"]] = message["result"]
    assert set(found) == set(numbers)
    assert all(found[number]["isError"] is False for number in numbers)
    assert found[numbers[40]]["structuredContent"]["stdout"] == "40\n"


def test_an_id_that_is_in_flight_is_refused(client: Client, sleeper: Callable[[], Any]) -> None:
    sleeps = sleeper()
    line = "exec " + " ".join(sleeps.argv)
    call = client.send("tools/call", name="run_code", arguments={"code": line, "language": "sh"})
    sleeps.chain()
    client.say(json.dumps({"jsonrpc": "2.0", "id": call, "method": "tools/list"}).encode() + b"\n")
    assert client.answer(call)["error"]["code"] == -32600
    client.tell("notifications/cancelled", requestId=call)
