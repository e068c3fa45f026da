"""Deaths at moments that no signal from outside hits reliably: the fork server's own code is edited to die there."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

import kern_sandbox as kern
from kern_sandbox._forkserver import client
from kern_sandbox._forkserver.client import Opening, existing_server
from support import need_boxes


@pytest.fixture(autouse=True)
def _boxes() -> None:
    need_boxes()


DIES_AFTER_PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from kern_sandbox._forkserver import init
spawn = init._spawn
def spawn_and_die(order):
    os.waitid(os.P_PID, spawn(order), os.WEXITED | os.WNOWAIT)
    os._exit(9)
init._spawn = spawn_and_die
"""
DIES_OF_AN_ORDER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from kern_sandbox._forkserver import init
init._take_order = lambda stage, plan: os._exit(9) if init.wire.receive(stage.report) else os._exit(0)
"""

TOLD_LATE_OF_A_BIRTH = """
import sys, time
sys.path.insert(0, sys.argv[1])
from kern_sandbox._forkserver import cradle
clone = cradle.processes.clone
def slow(namespaces):
    child = clone(namespaces)
    time.sleep(0.3 if child.pid else 0)
    return child
cradle.processes.clone = slow
"""


def test_a_box_that_is_ready_before_its_birth_is_told_has_its_deadline(monkeypatch):
    """Nobody can end it before, and that is no reason to take it for one that hangs, and its stem with it."""
    client._registry.at_exit()
    monkeypatch.setattr(client, "_BOOT", TOLD_LATE_OF_A_BIRTH + client._BOOT)
    try:
        with kern.Sandbox() as sandbox:
            for _ in range(4):
                result = sandbox.run(["sleep", "1000"], timeout_s=1e-9)
                assert result.fault is not None
                assert result.fault.type == "timeout"
            assert sandbox.run(["echo", "next"]).stdout == "next\n"
    finally:
        client._registry.at_exit()


def test_an_order_of_which_every_box_dies_is_given_up(monkeypatch):
    client._registry.at_exit()
    monkeypatch.setattr(client, "_BOOT", DIES_OF_AN_ORDER + client._BOOT)
    try:
        with kern.Sandbox(timeout_s=20) as sandbox:
            result = sandbox.run(["true"])
            assert result.fault is not None
            assert result.fault.type == "killed"
    finally:
        client._registry.at_exit()


def test_a_program_that_has_begun_is_not_run_again_in_another_box(monkeypatch):
    client._registry.at_exit()
    monkeypatch.setattr(client, "_BOOT", DIES_AFTER_PROGRAM + client._BOOT)
    try:
        with kern.Sandbox(timeout_s=20) as sandbox:
            result = sandbox.run(["sh", "-c", "echo once >> marks; echo once"])
            assert result.fault is not None
            assert (result.stdout, result.fault.type) == ("once\n", "killed")
            assert sandbox.read_file("marks") == b"once\n"
    finally:
        client._registry.at_exit()


def test_a_fork_server_that_dies_as_a_sandbox_is_opened_is_said(sandbox, background):
    sandbox.run_code("")
    session, server = sandbox._session, existing_server()
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    server._process.wait()

    def open_until_it_is_said():
        """What the server was just making has its socket too, until it dies as well: that is a moment."""
        for number in itertools.count():
            server.open(f"another {number}", session._key, session.plan, Opening([], 0))

    opened = background(open_until_it_is_said)
    with pytest.raises(kern.InternalError, match="died"):
        opened.result(60)
    assert sandbox.run_code("print(1)").stdout == "1\n"
