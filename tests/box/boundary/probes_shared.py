"""Probes of what boxes have in common: templates and what they preload, workspaces, a kernel's keeper, the proxy."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import kern_sandbox
from kern_sandbox.workspace import Workspace

from .claims import DONE, PRELUDE, Claim, breaches, run
from .targets import Ran

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .targets import Room, Target

_BOX_MIB, _BIRTH_MIB = 16, 256
_READ = """
try: text = open("/workspace/secret").read()
except OSError: text = ""
if "WORD" in text: breach("read what it must not see")
"""
_CONNECT = """
import socket
found = ""
try:
    with socket.create_connection(("127.0.0.1", PORT), 5): found = "the host's loopback was reached"
except OSError: pass
"""
_HOLD = """
held = b"1" * (SIZE << 20)
found = f"{len(held) >> 20} MiB were held"
"""
_ANNOUNCE = """
import os, socket
found = ""
with socket.socket(fileno=os.dup(3)) as control:
    for number in range(1, 100): control.send(b'J{"box":%d,"errno":1,"text":"forged"}' % number)
"""
_PEEK = """
import os
found = ""
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid(): continue
    for name in ("mem", "environ", "maps", "root/etc"):
        try: os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
        except OSError: continue
        found = f"/proc/{pid}/{name} can be opened, and there is what the fork server knows of all Sandboxes"
"""
_COUNT = """
import glob
limits = {path: int(open(path).read()) for path in glob.glob("/proc/sys/user/max_[cimnpu]*_namespaces")}
found = ", ".join(f"{path}: {limit}" for path, limit in limits.items() if limit > 5000) or ("" if limits else "none")
"""
_TELL = """
import own
if own.found: breach(own.found)
"""
_LOOK = """
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid(): continue
    for name in ("fd/0", "mem", "environ", "maps"):
        try: open(f"/proc/{pid}/{name}", "rb").close()
        except OSError: continue
        breach(f"/proc/{pid}/{name} can be opened")
"""
_TUNNEL = """
with socket.create_connection(("127.1.0.1", 3128), 20) as client:
    client.sendall(b"CONNECT 127.0.0.1:PORT HTTP/1.1\\r\\n\\r\\n")
    if b" 200 " in client.recv(100): breach("the proxy led to a host that is not on the list")
"""


def _engine(room: Room) -> kern_sandbox.Sandbox:
    sandbox: kern_sandbox.Sandbox = room.sandbox  # type: ignore[attr-defined]  # these claims are the engine's only
    return sandbox


def _said(result: kern_sandbox.ExecutionResult) -> str:
    """What a probe reported that ran elsewhere than in its room."""
    assert "DONE" in result.stdout, result
    return breaches(Ran(result.stdout, result.stderr, result.exit_code, ""))


@contextlib.contextmanager
def _module(source: str) -> Iterator[dict[str, Any]]:
    """Options of a Sandbox that preloads a module with this source."""
    with tempfile.TemporaryDirectory(prefix="preload-") as folder:
        Path(folder).chmod(0o755)
        Path(folder, "own.py").write_text(source)
        yield {"preload": ["own"], "mounts": {folder: "/opt/own"}, "env": {"PYTHONPATH": "/opt/own"}}


def _preloaded(target: Target, source: str, **more: Any) -> str:
    """What a module found out while it was imported."""
    with _module(source) as options, target.room(**options, **more) as room:
        return breaches(run(room, _TELL))


def _network_of_a_module(target: Target) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return _preloaded(target, _CONNECT.replace("PORT", str(server.getsockname()[1])))


def _memory_of_a_module(target: Target) -> str:
    """A template has the limit of a box, and room for those that it makes."""
    try:
        return _preloaded(target, _HOLD.replace("SIZE", str(_BOX_MIB + _BIRTH_MIB + 64)), memory_mb=_BOX_MIB)
    except kern_sandbox.StartError as error:
        return "" if "more memory" in str(error) else str(error)


def _eyes_of_a_module(target: Target) -> str:
    return _preloaded(target, _PEEK)


def _namespaces_of_a_module(target: Target) -> str:
    return _preloaded(target, _COUNT)


def _word_of_a_module(target: Target) -> str:
    """A box of another Sandbox runs while a module speaks to the fork server in its template's name."""
    with target.room() as room, _engine(room).spawn(["cat"]) as calm:
        with (
            _module(_ANNOUNCE) as options,
            kern_sandbox.Sandbox(**options) as hostile,
            contextlib.suppress(kern_sandbox.SandboxError),
        ):
            hostile.run_code("")
        calm.stdin.close()
        try:
            result = calm.wait()
        except kern_sandbox.SandboxError as error:
            return f"a module has ended a box that is not its own: {error}"
    return "" if result.exit_code == 0 else f"a module has ended a box that is not its own: {result}"


def _workspace_of_a_neighbour(target: Target) -> str:
    """Two Sandboxes with equal plans: their boxes are forked from the same stem or template."""
    word = secrets.token_hex(16)
    with target.room() as room, kern_sandbox.Sandbox(timeout_s=30) as other:
        Path(room.workspace, "secret").write_text(word)
        room.run("")  # so that the fork server knows this one first
        return _said(other.run_code(f"{PRELUDE}{_READ.replace('WORD', word)}{DONE}"))


def _workspace_replaced(target: Target) -> str:
    """After the client has looked at it for the last time, another directory stands where the workspace was."""
    word = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="replaced-") as folder:
        Path(folder).chmod(0o755)
        place, secret = Path(folder, "workspace"), Path(folder, "elsewhere")
        for each in (place, secret):
            each.mkdir()
            each.chmod(0o777)
        (secret / "secret").write_text(word)
        with target.room(workspace=place, track_files=False) as room, mock.patch.object(Workspace, "check"):
            place.rename(Path(folder, "away"))
            shutil.copytree(secret, place)
            try:
                return breaches(run(room, _READ.replace("WORD", word)))
            except kern_sandbox.StartError:
                return ""


def _keeper(target: Target) -> str:
    with target.room() as room, _engine(room).kernel() as kernel:
        return _said(kernel.run_code(PRELUDE + _LOOK + DONE))


def _off_the_list(target: Target) -> str:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        target.room(egress_allow=["allowed.example"]) as room,
    ):
        return breaches(run(room, _TUNNEL.replace("PORT", str(server.getsockname()[1]))))


CLAIMS = [
    Claim("B61-template", "boxes from one stem or template show the workspace of their own Sandbox only",
          _workspace_of_a_neighbour, ("workspace of its own",), engine_only=True),
    Claim("B43-workspace", "a workspace that was replaced on the host since it was vetted is not shown",
          _workspace_replaced, ("vetted identity",), engine_only=True),
    Claim("B70-preload", "a preloaded module reaches no network of the host", _network_of_a_module,
          ("network namespace",), engine_only=True),
    Claim("B80-preload", "the memory of a preloaded module is limited", _memory_of_a_module,
          ("template limits",), engine_only=True, cgroup=True),
    Claim("B05-preload", "a preloaded module cannot look into the process that it was forked from, or into its boxes",
          _eyes_of_a_module, ("template namespace",), engine_only=True),
    Claim("B84-preload", "a preloaded module cannot use up the namespaces of the host's user", _namespaces_of_a_module,
          ("template namespace",), engine_only=True),
    Claim("B07-preload", "a preloaded module cannot end, or speak for, a box of another Sandbox", _word_of_a_module,
          ("announced boxes",), engine_only=True),
    Claim("B07-keeper", "a cell cannot look into the keeper of its kernel, or into init", _keeper,
          ("keeper",), engine_only=True),
    Claim("B67-list", "the proxy leads to no host that is not in egress_allow", _off_the_list,
          ("egress policy",), engine_only=True),
]  # fmt: skip
