"""Run code that nobody has read in a fresh, rootless, kernel-enforced box on your own Linux machine.

    import kern_sandbox as kern

    result = kern.run_code("print(6 * 7)")
    result.stdout, result.fault

Names load on first use, so importing the package is cheap and works on every operating system.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .aio import AsyncKernel, AsyncSandbox
    from .doctor import HostReport, doctor
    from .errors import (
        CgroupUnavailable,
        DigestMismatch,
        HostError,
        ImageError,
        InternalError,
        LayerRefused,
        MountRefused,
        NamespacesUnavailable,
        PullError,
        SandboxError,
        SessionClosed,
        SpecError,
        StartError,
        WorkspaceError,
    )
    from .kernel import Checkpoint, Kernel
    from .process import Process
    from .render import neutralise
    from .render import render as render
    from .results import EgressEvent, ExecutionResult, FileInfo, Result, SandboxFault, Usage
    from .sandbox import Sandbox, run_code

__version__ = "0.1.0"

__all__ = [
    "AsyncKernel",
    "AsyncSandbox",
    "CgroupUnavailable",
    "Checkpoint",
    "DigestMismatch",
    "EgressEvent",
    "ExecutionResult",
    "FileInfo",
    "HostError",
    "HostReport",
    "ImageError",
    "InternalError",
    "Kernel",
    "LayerRefused",
    "MountRefused",
    "NamespacesUnavailable",
    "Process",
    "PullError",
    "Result",
    "Sandbox",
    "SandboxError",
    "SandboxFault",
    "SessionClosed",
    "SpecError",
    "StartError",
    "Usage",
    "WorkspaceError",
    "__version__",
    "doctor",
    "neutralise",
    "render",
    "run_code",
]

_HOMES = (
    ("aio", ("AsyncKernel", "AsyncSandbox")),
    ("doctor", ("HostReport", "doctor")),
    ("kernel", ("Checkpoint", "Kernel")),
    ("process", ("Process",)),
    ("render", ("neutralise", "render")),
    ("results", ("EgressEvent", "ExecutionResult", "FileInfo", "Result", "SandboxFault", "Usage")),
    ("sandbox", ("Sandbox", "run_code")),
)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, names = next((row for row in _HOMES if name in row[1]), ("errors", (name,)))
    module = importlib.import_module(f".{home}", __name__)
    # All at once: the import has just bound ``doctor`` to the module of that name. A module that can be called stays.
    globals().update({each: getattr(module, each) for each in names if each != home or not callable(module)})
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
