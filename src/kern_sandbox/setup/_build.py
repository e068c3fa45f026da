"""Running a setup command: what decides its product, its box, and what is kept of that."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .._box.decide import plan
from .._box.mountrules import checked_mounts
from .._box.plan import GUEST, Bind, Plan, Step, Userland
from .._box.rootfs import host_userland
from .._box.verdict import Facts, judge, raise_failure
from .._forkserver.client import Opening, current_server
from .._forkserver.launch import Command, Outcome, Stop, run
from ..checks import short
from ..errors import StartError
from ..spec import BoxSpec
from ..workspace import DEPS, Workspace, remove_directory
from ._inputs import OWN
from ._registries import Registries, registries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SHOWN", "Build"]

SHOWN = f"/workspace/{DEPS}"
SCRATCH = f"/workspace/{OWN}"
_FORM = 1  # of a layer; another one is made anew
_MEMORY_MB = 2048
_TIMEOUT_S = 1800.0
_PIDS = 1024
_TAIL = 4000
_TRY_AGAIN = "Nothing of it is kept: mend the command, or call again"


@dataclass(frozen=True)
class Build:
    """One setup command for one kind of boxes.

    Attributes:
        command: a shell command.
        asked: the options of the Sandbox.
        userland: of a box that shares the host's network.
        guest: our guest code.
    """

    command: str
    asked: BoxSpec
    userland: Userland
    guest: Sequence[Step]

    def key(self, inputs: Mapping[str, bytes]) -> str:
        """A digest of all that decides what the command makes, as far as a host can tell."""
        told = {
            "form": _FORM,
            "command": self.command,
            "userland": [self.userland.name, self.userland.python, self._shown(), *_host_identity()],
            "env": sorted(self.asked.env.items()),
            "mounts": [(bind.source, bind.target) for bind in self._mounts()],
            "inputs": sorted((path, hashlib.sha256(data).hexdigest()) for path, data in inputs.items()),
        }
        if self.asked.setup_egress is not None:  # what a command could not reach, it may have done without
            told["egress"] = self.asked.setup_egress
        return hashlib.sha256(json.dumps(told).encode("ascii")).hexdigest()[:32]

    def run(self, making: str, inputs: Mapping[str, bytes], stop: Stop) -> None:
        """Run the command in a box whose workspace is the empty directory ``making``; leaves the layer in ``.deps``.

        Raises:
            StartError: the command failed.
            SandboxError: its box could not be made.
        """
        with Workspace(making) as room:
            for path, content in inputs.items():
                room.write_file(path, content)
            for name in (SHOWN, SCRATCH):
                os.mkdir(os.path.join(room.path, os.path.basename(name)))
            known = registries(self.userland, os.environ)
            self._judge(self._run(self._plan(room, known), stop), known)
            _keep_only_layer(room)

    def _shown(self) -> list[tuple[str, str]]:
        """Where the userland's files are on this host; an image's are in a directory named by its digest."""
        return [(step.source, step.target) for step in self.userland.steps if isinstance(step, Bind)]

    def _mounts(self) -> list[Bind]:
        """What the setup sees of the Sandbox's mounts: not those that code may write, for its product is shared."""
        binds = checked_mounts(self.asked.mounts, self.userland.places(), ("/tmp",))
        return [bind for bind in binds if not bind.writable]

    def _plan(self, room: Workspace, known: Registries) -> Plan:
        """A box with the network, or with what a Sandbox leaves of it, under limits of its own."""
        spec = BoxSpec.of(
            memory_mb=_MEMORY_MB,
            pids=_PIDS,
            timeout_s=_TIMEOUT_S,
            network=self.asked.setup_egress is None,
            env=self.asked.env,
            apparmor=self.asked.apparmor,
            require_limits=self.asked.require_limits,
        )
        spec = replace(spec, egress_allow=self.asked.setup_egress)
        shared = Bind(room.path, "/workspace", writable=True, owned=True, identity=room.identity)
        further = [*self.guest, *known.steps, *known.mounts, *_lent_pip(self.userland)]
        bare = plan(spec, self.userland, self._mounts(), shared, further)
        env = {**bare.env, **_variables(bare.env["PATH"]), **known.env, **spec.env}
        return replace(bare, env=env, lingers=False)

    def _run(self, box: Plan, stop: Stop) -> Outcome:
        owner = os.urandom(8).hex()
        argv = ["sh", "-e", "-c", self.command]
        if box.python.startswith("/"):  # else it is a name that is not found
            argv = [box.python, f"{GUEST}/make_layer.py", self.command]
        server = current_server()
        server.open(owner, f"{box.key}{owner}", box, Opening([]))
        try:
            return run(server, Command(owner, argv, box.env, "/workspace", _TIMEOUT_S), stop)
        finally:
            server.close_owner(owner)

    def _judge(self, outcome: Outcome, known: Registries) -> None:
        """Raises what went wrong, if anything did."""
        if "refused" in outcome.evidence:
            raise_failure(outcome.evidence["refused"])
        facts = Facts(self.userland.python, self.userland.name, _TIMEOUT_S, _MEMORY_MB, _PIDS)
        judgement = judge(outcome.evidence, facts)
        fault = judgement.fault
        if judgement.exit_code == 0 and fault is None:
            return
        how = f"exit code {judgement.exit_code}" if fault is None else f"{fault.type}: {fault.message}"
        tail = (outcome.stdout + outcome.stderr).decode("utf-8", "replace").strip()[-_TAIL:]
        refused = "".join(f"\n{note}" for note in judgement.notes if note.startswith("egress: "))
        words = f"running setup={short(self.command)}: {how}" + (f"\n{tail}" if tail else "") + refused
        raise StartError("setup", words, hint="; ".join(known.left_out) or _TRY_AGAIN)


def _variables(path: str) -> dict[str, str]:
    """What makes pip and npm, however they are called, put things into the layer, and their scratch on the disk."""
    return {
        "PATH": f"{SHOWN}/bin:{path}",
        "VIRTUAL_ENV": SHOWN,
        "TMPDIR": SCRATCH,
        "XDG_CACHE_HOME": f"{SCRATCH}/cache",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_NO_COMPILE": "0",  # false for yes: so pip reads a --no- option of its environment
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_USE_PEP517": "1",
        "NODE_PATH": f"{SHOWN}/lib/node_modules",
        "NPM_CONFIG_AUDIT": "false",
        "NPM_CONFIG_CACHE": f"{SCRATCH}/npm",
        "NPM_CONFIG_FUND": "false",
        "NPM_CONFIG_LOCATION": "global",
        "NPM_CONFIG_PREFIX": SHOWN,
        "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    }


def _host_identity() -> list[str]:
    """What tells one host userland from another, where packages are concerned."""
    try:
        with open("/etc/os-release", encoding="utf-8", errors="replace") as file:
            system = file.read()
    except OSError:
        system = ""
    return [sys.version, sys.implementation.cache_tag or "", platform.machine(), system]


def _lent_pip(userland: Userland) -> list[Step]:
    """This process's own pip, where it runs in an environment that has one: the interpreter below may have none."""
    if userland.name != host_userland(network=True).name:
        return []
    spec = importlib.util.find_spec("pip")
    folder = os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
    return [Bind(os.path.realpath(folder), "/.box/pip")] if os.path.isdir(folder) else []


def _keep_only_layer(room: Workspace) -> None:
    """Leave nothing in a build's directory but the layer.

    Raises:
        StartError: the command has put something else in its place.
    """
    if not os.path.isdir(os.path.join(room.path, DEPS)) or os.path.islink(os.path.join(room.path, DEPS)):
        raise StartError("setup", f"keeping what the command made: {SHOWN} is no longer a directory")
    for name in os.listdir(room.path):
        if name == DEPS:
            continue
        try:
            os.unlink(name, dir_fd=room.fd)
        except IsADirectoryError:
            remove_directory(name, dir_fd=room.fd)
