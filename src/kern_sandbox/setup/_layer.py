"""One Sandbox's setup: making the layer, or finding it made, and adding it to a plan."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Callable

from .._box.plan import Bind, Plan, Step, Userland
from .._forkserver.client import Temporary
from .._forkserver.launch import Stop
from .._places import cache_directory
from .._shelf import Collected, Held, Shelf
from ..checks import short
from ..errors import SandboxError, SessionClosed, StartError
from ..spec import BoxSpec
from ..workspace import Workspace
from ._build import SHOWN, Build
from ._inputs import named_files
from ._place import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Setup", "collect"]

_SHELF = "layers"
_DAY_S = 24 * 3600.0
_LOOK_AGAIN_S = 0.1
_DEPS = os.path.basename(SHOWN)
Userlands = Callable[[bool], Userland]


def collect(unused_days: float = 30.0) -> Collected:
    """Remove layers that no Sandbox holds and none has used for so long, and what killed builds left.

    Raises:
        HostError: the cache cannot be written.
    """
    return Shelf(_SHELF).collect(unused_days * _DAY_S)


class Setup:
    """The setup of one Sandbox. Usable from many threads.

    Args:
        spec: the options; ``spec.setup`` is the command.
        userland: of the Sandbox's boxes, for whether they share the host's network.
        guest: our guest code.
        workspace: of the Sandbox.
    """

    def __init__(self, spec: BoxSpec, userland: Userlands, guest: Sequence[Step], workspace: Workspace) -> None:
        assert spec.setup is not None
        self._whole: Plan | None = None
        self._spec = spec
        self._command = spec.setup
        self._userland = userland
        self._guest = guest
        self._workspace = workspace
        self._lock = threading.Lock()
        self._failures = 0
        self._failure: SandboxError | None = None
        self._closed = False
        self._stop: Stop | None = None
        self._held: Held | None = None
        self._copy: Workspace | None = None
        self._place: Place | None = None

    def foreseen(self, before: Plan) -> Plan:
        """``before`` with the layer as it will be, for a plan that is only looked at or still waits for its layer."""
        source = os.path.join(cache_directory(), _SHELF, f"(made at the first call by {short(self._command)})")
        return self._added(before, Bind(source, SHOWN, not self._spec.deps_readonly, owned=True))

    def ready(self, before: Plan, stop: Stop | None) -> Plan:
        """``before`` with the layer, which is made now if nobody has made it; always the same plan.

        Raises:
            StartError: the command failed, or ``.deps`` of the workspace is something else than a directory.
            SessionClosed: ``close`` was called meanwhile.
            SandboxError: no box can be made for it, or the cache cannot be written.
        """
        if self._whole is not None:
            return self._whole
        stop = stop or Stop()
        failures = self._failures
        while not self._lock.acquire(timeout=_LOOK_AGAIN_S):
            self._require_wanted(stop)
        try:
            if self._failures > failures:
                assert self._failure is not None
                raise self._failure  # this call has waited for a build that failed
            self._whole = self._added(before, self._bind(self._source(stop)))
            return self._whole
        except SandboxError as error:
            if not stop.wanted:
                self._failures, self._failure = self._failures + 1, error
            raise
        finally:
            self._lock.release()

    def temporary(self) -> list[Temporary]:
        """What is to be removed if this process dies."""
        copy = self._copy
        return [] if copy is None else [(copy.path, *copy.identity)]

    def close(self) -> None:
        """End a build that is under way, and let everything go. Closing twice does nothing."""
        self._closed = True
        stop = self._stop
        if stop is not None:
            stop.now()
        held, place, copy = self._held, self._place, self._copy
        self._whole = self._held = self._place = self._copy = None
        if held is not None:
            held.release()
        if place is not None:
            place.close()
        if copy is not None:
            copy.close()

    def _bind(self, source: str) -> Bind:
        about = os.stat(source)
        return Bind(source, SHOWN, not self._spec.deps_readonly, owned=True, identity=(about.st_dev, about.st_ino))

    def _source(self, stop: Stop) -> str:
        """The directory to show; everything that it needs is held until ``close``."""
        self._require_wanted(stop)
        if self._held is None:
            self._stop = stop
            inputs = named_files(self._command, self._workspace)
            build = Build(self._command, self._spec, self._userland(True), self._guest)
            key = build.key(inputs)
            try:
                made = Shelf(_SHELF).make(
                    key, lambda path: build.run(path, inputs, stop), lambda: self._require_wanted(stop)
                )
            finally:
                self._stop = None
            self._held = made
        if self._place is None:
            self._place = Place(self._workspace)
        layer = os.path.join(self._held.path, _DEPS)
        if not self._spec.deps_readonly and self._copy is None:
            self._copy = _copied(layer)
        shown = layer if self._copy is None else self._copy.path
        if self._closed:
            self.close()
            self._require_wanted(stop)
        return shown

    def _require_wanted(self, stop: Stop) -> None:
        if self._closed:
            raise SessionClosed("preparing a Sandbox: it was closed meanwhile", hint="Make a new one")
        if stop.wanted:
            raise StartError("setup", f"waiting for setup={short(self._command)}: the caller stopped it")

    def _added(self, before: Plan, bind: Bind) -> Plan:
        env = {"NODE_PATH": f"{SHOWN}/lib/node_modules", **before.env}
        if "PATH" not in self._spec.env:
            env["PATH"] = f"{SHOWN}/bin:{before.env['PATH']}"
        python = f"{SHOWN}/bin/python3" if before.python.startswith("/") else before.python
        lingers = before.lingers and not bind.writable  # a copy of its own is gone with its Sandbox
        return replace(before, base=(*before.base, bind), env=env, python=python, lingers=lingers)


def _copied(source: str) -> Workspace:
    """A temporary directory with what a layer consists of: directories, regular files and links.

    Raises:
        StartError: it cannot be copied; nothing is left.
    """

    def copy(one: str, other: str) -> str:
        if stat.S_ISREG(os.lstat(one).st_mode):
            shutil.copy2(one, other)
        return other

    target = Workspace(None)
    try:
        shutil.copytree(source, target.path, symlinks=True, dirs_exist_ok=True, copy_function=copy)
    except (OSError, shutil.Error) as error:
        target.close()
        hint = "deps_readonly=False takes as much room below TMPDIR as the layer"
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error  # the first file that failed
        raise StartError("setup", f"copying the setup's layer: {why}", path=target.path, hint=hint) from error
    return target
