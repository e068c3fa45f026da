"""Tools over an interpreter that keeps its state."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

import kern_sandbox
from kern_sandbox.tool import Cancel, Toolbox
from support import need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator

SPIN = "print('spinning', flush=True)\nwhile True: pass"
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + SPIN


@pytest.fixture
def tools() -> Iterator[Toolbox]:
    need_boxes()
    with kern_sandbox.Sandbox(timeout_s=60) as sandbox:
        made = Toolbox(sandbox, kernel=True)
        yield made
        made.close()


def run(tools: Toolbox, code: str, **more: object) -> str:
    """What a model reads of one cell."""
    return tools.call("run_code", {"code": code, **more}).text


def test_variables_stay_until_they_are_reset_and_files_for_good(tools: Toolbox) -> None:
    assert [one.name for one in tools.definitions()] == ["run_code", "write_file", "read_file", "list_files", "reset"]
    assert "keeps its variables" in tools.definitions()[0].description
    run(tools, "x = 6; open('kept', 'w').close()")
    assert "42" in run(tools, "x * 7")
    answer = tools.call("reset", {})
    assert (answer.is_error, answer.data) == (False, {"reset": True})
    assert "NameError" in run(tools, "x")
    assert "kept" in tools.call("list_files", {}).text


def test_other_languages_start_anew(tools: Toolbox) -> None:
    run(tools, "y=1", language="sh")
    assert "[]" in run(tools, "echo [$y]", language="sh")


def test_after_a_death_the_next_answer_says_that_the_state_is_gone(tools: Toolbox) -> None:
    run(tools, "x = 1")
    assert "state is lost" in run(tools, "import os; os._exit(3)")
    said = run(tools, "'x' in globals()")
    assert "variables are gone" in said
    assert "False" in said
    assert "variables are gone" not in run(tools, "1")


@pytest.mark.parametrize(("code", "kept"), [(SPIN, True), (DEAF, False)])
def test_a_cell_that_is_cancelled_ends_and_takes_the_state_with_it_only_if_it_must(
    tools: Toolbox, code: str, kept: bool, request: pytest.FixtureRequest
) -> None:
    if kept:
        request.getfixturevalue("patient")
    run(tools, "x = 1")
    spinning = threading.Event()

    async def scene() -> None:
        call = asyncio.ensure_future(
            tools.acall("run_code", {"code": code}, on_output=lambda text: spinning.set() if text else None)
        )
        await asyncio.to_thread(spinning.wait)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(scene())
    said = run(tools, "'x' in globals()")
    assert ("True" in said) is kept
    assert ("variables are gone" in said) is not kept


def test_a_cell_that_is_cancelled_before_its_turn_does_not_run(tools: Toolbox) -> None:
    cancel = Cancel()
    cancel.now()
    answer = tools.call("run_code", {"code": "open('ran', 'w')"}, cancel=cancel)
    assert isinstance(answer.error, kern_sandbox.SessionClosed)
    assert "ran" not in tools.call("list_files", {}).text


def test_without_a_kernel_there_is_nothing_to_reset() -> None:
    need_boxes()
    with kern_sandbox.Sandbox() as sandbox:
        assert "there is no tool 'reset'" in Toolbox(sandbox).call("reset", {}).text
