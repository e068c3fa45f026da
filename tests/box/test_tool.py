"""The one tool definition: what a model is told, what it may say, and what it gets back."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from typing import TYPE_CHECKING, Any, Callable

import pytest

import kern_sandbox
from kern_sandbox.tool import Answer, Toolbox, describe_error
from rpc_client import PNG
from support import need, need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def tools() -> Iterator[Toolbox]:
    need_boxes()
    with kern_sandbox.Sandbox(memory_mb=300, pids=99, timeout_s=20) as sandbox:
        sandbox.write_file("data/a.txt", "na\u00efve")  # for tests that read: whichever of them this worker runs
        yield Toolbox(sandbox, limit=2000)


def fits(value: object, schema: dict[str, Any]) -> bool:
    """Whether ``value`` is what the schema says, for the few words that our schemas use."""
    if "anyOf" in schema:
        return any(fits(value, each) for each in schema["anyOf"])
    kinds = {"string": str, "integer": int, "boolean": bool, "null": type(None), "array": list, "object": dict}
    kind = kinds[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return False
    if isinstance(value, list):
        return all(fits(each, schema["items"]) for each in value)
    if isinstance(value, dict):
        return set(value) == set(schema["required"]) and all(fits(value[k], schema["properties"][k]) for k in value)
    return True


# --- what a model is told ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sandbox", [None, "sandbox", kern_sandbox.Sandbox])
def test_what_is_no_sandbox_has_no_tools(sandbox: Any) -> None:
    with pytest.raises(kern_sandbox.SpecError, match=r"sandbox=.*a Sandbox or an AsyncSandbox"):
        Toolbox(sandbox)


def test_the_definition_names_the_limits_and_the_interpreters_of_this_sandbox(tools: Toolbox) -> None:
    run, *files = tools.definitions()
    for words in ("300 MiB", "99 processes", "20 s", "No network", "python 3.", "host's own operating system"):
        assert words in run.description
    assert len(run.description) <= 1000
    assert [one.name for one in files] == ["write_file", "read_file", "list_files"]
    assert run.input_schema["properties"]["language"]["enum"] == list(tools.languages())
    assert run.input_schema["properties"]["timeout_s"]["maximum"] == 20


def test_a_language_that_a_box_does_not_have_is_not_offered() -> None:
    need_boxes()
    with kern_sandbox.Sandbox(env={"PATH": "/nowhere"}) as sandbox:
        offered = Toolbox(sandbox).definitions()[0]
    assert offered.input_schema["properties"]["language"]["enum"] == ["python"]
    assert "bash" not in offered.description


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"network": True}, "shares this machine's network"),
        ({"cpus": 1.5}, "1.5 processors"),
        (
            {"egress_allow": ["example.org", "*.example.com:8443"]},
            "Network: only example.org, *.example.com (port 8443).",
        ),
    ],
)
def test_an_option_that_changes_what_code_can_do_is_in_the_description(options: dict[str, Any], words: str) -> None:
    need_boxes()
    with kern_sandbox.Sandbox(**options) as sandbox:
        assert words in Toolbox(sandbox).definitions()[0].description


def test_of_an_image_only_its_own_interpreters_are_offered(tmp_path: Path) -> None:
    need_boxes()
    busybox = shutil.which("busybox")
    need(busybox is not None, "busybox is not installed")
    (tmp_path / "bin").mkdir()
    shutil.copy(str(busybox), tmp_path / "bin" / "busybox")
    (tmp_path / "bin" / "sh").symlink_to("busybox")
    with kern_sandbox.Sandbox(image=f"dir:{tmp_path}") as sandbox:
        tools = Toolbox(sandbox)
        run = tools.definitions()[0]
        assert run.input_schema["properties"]["language"]["enum"] == ["sh"]
        assert f"the image dir:{tmp_path}"[:60] in run.description
        assert "hello" in tools.call("run_code", {"code": "echo hello"}).text  # the one that there is, is the default


def test_an_image_that_cannot_be_had_is_an_error_when_asked_and_a_fault_when_used(tmp_path: Path) -> None:
    need_boxes()
    with kern_sandbox.Sandbox(image=f"oci-archive:{tmp_path}/missing.tar") as sandbox:
        tools = Toolbox(sandbox)
        with pytest.raises(kern_sandbox.ImageError):
            tools.definitions()
        assert tools.call("run_code", {"code": "1"}).text.startswith("[sandbox: startup_failed]")


# --- what it gets back ------------------------------------------------------------------------------------------

CALLS: list[tuple[str, dict[str, Any], bool, str]] = [
    ("run_code", {"code": "print('out')\n6 * 7"}, False, "42"),
    ("run_code", {"code": "echo $0", "language": "sh"}, False, "main.sh"),
    ("run_code", {"code": "1 / 0", "timeout_s": None}, True, "ZeroDivisionError"),
    ("run_code", {"code": "while True: pass", "timeout_s": 0.3}, True, "[sandbox: timeout]"),
    ("run_code", {"code": "print('x' * 10**6)"}, False, "xxx"),
    ("run_code", {"code": "print('\\x1b[31mred', '\\ud800' * 0, '\\0')"}, False, "red"),
    ("write_file", {"path": "data/a.txt", "content": "naïve"}, False, "data/a.txt, 6 bytes"),
    ("read_file", {"path": "data/a.txt"}, False, "naïve"),
    ("list_files", {"subdir": "data"}, False, "data/a.txt"),
]


@pytest.mark.parametrize(("name", "arguments", "is_error", "words"), CALLS)
def test_an_answer_is_text_parts_and_strict_data_that_fit_the_schema(
    tools: Toolbox, name: str, arguments: dict[str, Any], is_error: bool, words: str
) -> None:
    answer = tools.call(name, arguments)
    schema = next(one.output_schema for one in tools.definitions() if one.name == name)
    assert words in answer.text
    assert answer.is_error is is_error
    assert answer.data is not None
    assert fits(answer.data, dict(schema)), answer.data
    assert len(json.dumps(answer.data, allow_nan=False).encode()) < 8000
    assert "\x1b" not in answer.text + json.dumps(answer.data, ensure_ascii=False)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("run_code", {}, "needs the argument code"),
    ("run_code", {"code": 3}, "has to be a string"),
    ("run_code", {"code": None}, "has to be a string"),
    ("run_code", {"code": "1", "language": "cobol"}, "python, bash, sh, node"),
    ("run_code", {"code": "1", "timeout_s": 21}, "more than the limit of 20 s"),
    ("run_code", {"code": "1", "timeout_s": True}, "has to be a number"),
    ("run_code", {"code": "1", "timeout_s": float("nan")}, "finite"),
    ("run_code", {"code": "1", "image": "x"}, "no argument 'image'"),
    ("read_file", {"path": "../secret"}, "'..'"),
    ("read_file", {"path": "missing"}, "missing"),
    ("write_file", {"path": "\x1b[2J/..", "content": ""}, "refused"),
    ("unknown" * 99, {}, "...: the tools are run_code, write_file, read_file, list_files"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), REFUSED)
def test_what_is_refused_is_an_answer_that_says_what_is_accepted(
    tools: Toolbox, name: str, arguments: dict[str, Any], words: str
) -> None:
    answer = tools.call(name, arguments)
    assert answer.is_error
    assert answer.data is None
    assert answer.text.startswith("[sandbox: refused] ")
    assert words in answer.text
    assert "\x1b" not in answer.text
    assert isinstance(answer.error, (kern_sandbox.SpecError, kern_sandbox.WorkspaceError))


def test_an_image_comes_back_as_an_image(tools: Toolbox) -> None:
    tools.call("run_code", {"code": f"open('plot.png', 'wb').write({PNG!r}) and None"})
    answer = tools.call("read_file", {"path": "plot.png"})
    assert [getattr(part, "data", None) for part in answer.parts] == [None, PNG]
    assert answer.data is not None
    assert answer.data["text"] is None


def test_bytes_that_are_no_text_are_refused_and_not_guessed_at(tools: Toolbox) -> None:
    tools.call("run_code", {"code": "open('raw', 'wb').write(b'\\xff\\xfe\\0') and None"})
    assert "not UTF-8" in tools.call("read_file", {"path": "raw"}).text


def test_names_and_values_beyond_a_models_limit_are_counted_and_not_shown(tools: Toolbox) -> None:
    code = "import os\nos.makedirs(d := 'many/' + 'x' * 200)\nfor n in range(99): open(f'{d}/{n}', 'w').close()"
    ran = tools.call("run_code", {"code": f"{code}\nfor n in range(99): display('y' * 200)"})
    listed = tools.call("list_files", {"subdir": "many"})
    assert ran.data is not None
    assert listed.data is not None
    assert listed.data["total"] == 99
    assert listed.text.endswith(f"[… {99 - len(listed.data['files'])} more …]")
    for shown in (listed.data["files"], ran.data["values"], [file["path"] for file in ran.data["files"]]):
        assert 1000 < len("\n".join(shown)) < 2000


def test_a_files_name_is_one_line_of_a_list(tools: Toolbox) -> None:
    tools.call("run_code", {"code": "import os\nos.mkdir('odd')\nopen('odd/a\\nodd.py', 'w').close()"})
    assert tools.call("list_files", {"subdir": "odd"}).text == "odd/a\N{SYMBOL FOR NEWLINE}odd.py"


def test_the_result_of_a_call_is_there_as_the_box_left_it(tools: Toolbox) -> None:
    answer = tools.call("run_code", {"code": "print('\\x1b[31mred')"})
    assert answer.result is not None
    assert answer.result.stdout == "\x1b[31mred\n"


def test_an_error_of_the_machine_says_that_other_code_fails_as_well() -> None:
    host = describe_error(kern_sandbox.HostError("making a \x1b[1mbox", hint="Do this"))
    assert host.startswith("[sandbox: error] making a box. Do this")
    assert "not the code" in host
    assert "not the code" not in describe_error(kern_sandbox.SpecError("code=1"))


def test_a_closed_sandbox_is_an_answer_too() -> None:
    need_boxes()
    sandbox = kern_sandbox.Sandbox()
    tools = Toolbox(sandbox)
    assert tools.call("run_code", {"code": "1"}).error is None
    sandbox.close()
    assert isinstance(tools.call("run_code", {"code": "1"}).error, kern_sandbox.SessionClosed)


# --- while it runs ----------------------------------------------------------------------------------------------


def test_output_is_heard_as_it_comes(tools: Toolbox) -> None:
    heard: list[str] = []
    first = threading.Event()

    def hear(text: str) -> None:
        heard.append(text)
        first.set()
        tools.call("write_file", {"path": "go", "content": ""})

    code = "import os, time\nprint('one', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('two')"
    assert not tools.call("run_code", {"code": code}, on_output=hear).is_error
    assert first.is_set()
    assert "".join(heard) == "one\ntwo\n"


@pytest.mark.parametrize("kind", [kern_sandbox.Sandbox, kern_sandbox.AsyncSandbox])
def test_cancelling_an_awaited_call_ends_its_box(kind: Any, sleeper: Callable[[], Any]) -> None:
    need_boxes()
    sleeps = sleeper()

    async def scene() -> Answer:
        sandbox = kind(timeout_s=60)
        tools = Toolbox(sandbox)
        line = {"code": "exec " + " ".join(sleeps.argv), "language": "sh"}
        call = asyncio.ensure_future(tools.acall("run_code", line))
        await asyncio.to_thread(sleeps.chain)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not sleeps.running
        after = await tools.acall("run_code", {"code": "'alive'"})
        closing = sandbox.close()
        if closing is not None:
            await closing
        return after

    assert "alive" in asyncio.run(scene()).text
