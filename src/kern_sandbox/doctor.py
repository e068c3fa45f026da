"""What this machine can do for a box, layer by layer, and the command that would change what it cannot."""

from __future__ import annotations

import json
import os
import platform
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from ._box.diagnosis import LayerReport, box_layer, diagnose
from ._places import cache_directory
from .checks import printable
from .errors import ImageError

__all__ = ["HostReport", "LayerReport", "doctor"]

_WIDTH = 80
_LINUX_ONLY = {"win32": "wsl --install"}


@dataclass(frozen=True)
class HostReport:
    """What ``doctor()`` found. ``print`` it for a table at 80 columns.

    Attributes:
        ok: boxes run here: no layer is missing, and one box really ran.
        layers: one per layer of a box, from the outside in; the last is a true run.
        linux: release of the running Linux, or the name of the other system.
        machine: as ``uname -m`` prints it.
        uid: user id of the process; -1 where there is none.
        python: version of the interpreter that boxes use.
        images: how many images are stored.
        images_bytes: what they take.
        images_path: where; ``""`` where there is no store.
    """

    ok: bool
    layers: Sequence[LayerReport]
    linux: str
    machine: str
    uid: int
    python: str
    images: int = 0
    images_bytes: int = 0
    images_path: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data that any strict JSON encoder accepts."""
        return asdict(self)

    def __str__(self) -> str:
        """A table: name, state and detail of each layer, and below it the command that would change it."""
        names = max(len(layer.name) for layer in self.layers)
        lines = [f"{self.linux}, {self.machine}, user id {self.uid}, Python {self.python}", ""]
        said: set[str] = set()
        for layer in self.layers:
            lines += [*_rows(layer, names), *_fix_rows(layer.fix, said)]
            said.add(layer.fix)
        return "\n".join([*lines, "", *self._store_rows(), self._conclusion()])

    def _store_rows(self) -> list[str]:
        if not self.images:
            return []
        size = f"{self.images_bytes / 1e6:.0f} MB"
        return textwrap.wrap(f"Images stored: {self.images}, {size}, in {printable(self.images_path)}", _WIDTH)

    def _conclusion(self) -> str:
        degraded = sum(layer.state == "degraded" for layer in self.layers)
        missing = sum(layer.state == "missing" for layer in self.layers)
        if not self.ok:
            return f"Boxes do not run here. Layers missing: {missing} of {len(self.layers)}."
        if degraded:
            return f"Boxes run here. Layers degraded: {degraded} of {len(self.layers)}."
        return f"Boxes run here, with all of {len(self.layers)} layers."


def _rows(layer: LayerReport, names: int) -> list[str]:
    text = f"{layer.name:<{names}}  {layer.state:<8}  {printable(layer.detail)}"
    return textwrap.wrap(text, _WIDTH, subsequent_indent=" " * (names + 12), break_on_hyphens=False)


def _fix_rows(fix: str, said: set[str]) -> list[str]:
    """The command below its layer; once only, where it helps several."""
    if not fix:
        return []
    rows = ["# fix: as above"] if fix in said else ["# fix:", *_command_lines(fix)]
    return [f"    {row}" for row in rows]


def _command_lines(fix: str) -> list[str]:
    """A command on several lines where it is long; pasted as it stands, it is still the same command."""
    lines: list[str] = []
    for line in fix.splitlines():
        if len(line) <= _WIDTH - 4:
            lines.append(line)
            continue
        lines += line.replace(" && ", " &&\n").replace(" | ", " |\n").splitlines()
    return lines


def doctor() -> HostReport:
    """Try out every layer of a box on this machine, in processes of its own; takes about a second.

    Never raises for what the machine lacks: that is what the report says. On other systems it says: Linux only.
    """
    system = platform.system() or sys.platform
    release = platform.release()
    here = sys.platform.startswith("linux")
    layers = _examine() if here else [_elsewhere(system)]
    return HostReport(
        ok=all(layer.state != "missing" for layer in layers),
        layers=layers,
        linux=f"{system} {release}",
        machine=platform.machine(),
        uid=getattr(os, "geteuid", lambda: -1)(),
        python=platform.python_version(),
        **(_stored() if here else {}),
    )


def _stored() -> dict[str, Any]:
    from ._image.store import Store  # late: `kern-sandbox --help` needs none of it

    store = Store()
    try:
        digests = {each.digest for each in store.images()}
    except ImageError:  # the layer of the cache says it
        return {"images_path": store.folder}
    return {"images": len(digests), "images_bytes": store.size(), "images_path": store.folder}


def _elsewhere(system: str) -> LayerReport:
    detail = f"boxes need Linux, and this is {system}: use a Linux virtual machine, or WSL2 on Windows"
    return LayerReport("Linux", "missing", detail, _LINUX_ONLY.get(sys.platform, ""))


def _examine() -> list[LayerReport]:
    import subprocess  # late, both: `kern-sandbox --help` needs none of it

    from ._box import probe

    layers = [*diagnose(probe.gather()), _cache()]
    try:
        done = probe.fresh_python("cli", "sys.argv[2:]", "exec", "--json", "--", "true")
    except (OSError, subprocess.TimeoutExpired) as error:
        return [*layers, box_layer(None, str(error))]
    try:
        said = json.loads(done.stdout)
    except ValueError:
        said = None
    return [*layers, box_layer(said, done.stderr.strip())]


def _cache() -> LayerReport:
    """Whether the cache is, or can be made, where this user may write."""
    place = near = cache_directory()
    while not os.path.lexists(near):
        near = os.path.dirname(near)
    if os.path.isdir(near) and os.access(near, os.W_OK | os.X_OK):
        return LayerReport("cache", "works", f"{place} can be written")
    detail = f"{near} is no directory that this user may write; setup= and images of registries and archives need one"
    return LayerReport("cache", "degraded", detail, 'export XDG_CACHE_HOME="$(mktemp -d)"')


class _Callable(ModuleType):
    """This module: ``kern_sandbox.doctor`` names both it and its function, whichever was imported first."""

    def __call__(self) -> HostReport:
        """As ``doctor.doctor``."""
        return doctor()


sys.modules[__name__].__class__ = _Callable
