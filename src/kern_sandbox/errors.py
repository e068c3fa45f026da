"""What kern_sandbox raises.

An error means that the sandbox could not do what was asked. What the *code in the box* did is never raised: it is
``ExecutionResult.exit_code`` and ``ExecutionResult.fault``.

    SandboxError
    ├── SpecError (also ValueError)      an option or argument is of the wrong type or value
    │   └── MountRefused                 a mount source or target that is never allowed
    ├── HostError                        this machine cannot run boxes as asked
    │   ├── NamespacesUnavailable        user namespaces are forbidden or exhausted
    │   └── CgroupUnavailable            limits were required and cannot be enforced
    ├── ImageError                       an image cannot be used
    │   ├── PullError                    a registry did not deliver it
    │   ├── DigestMismatch               what it delivered is not what was named
    │   └── LayerRefused                 a layer holds entries that are never unpacked
    ├── StartError                       a box could not be built; ``stage`` names the step
    ├── WorkspaceError (also OSError)    a workspace path cannot be read, written or listed
    ├── SessionClosed                    the Sandbox or session was closed or has died
    └── InternalError                    a fault of the engine itself
"""

from __future__ import annotations

import os

__all__ = [
    "CgroupUnavailable",
    "DigestMismatch",
    "HostError",
    "ImageError",
    "InternalError",
    "LayerRefused",
    "MountRefused",
    "NamespacesUnavailable",
    "PullError",
    "SandboxError",
    "SessionClosed",
    "SpecError",
    "StartError",
    "WorkspaceError",
]


class SandboxError(Exception):
    """Base of every error that the sandbox raises about itself.

    Attributes:
        attempted: what was being done, in words, with what it was done to.
        errno: the operating system's error number, or ``None``.
        path: the path concerned, or ``None``.
        hint: what a person can do about it, or ``""``.
    """

    def __init__(self, attempted: str, *, errno: int | None = None, path: str | None = None, hint: str = "") -> None:
        super().__init__(attempted)
        self.attempted = attempted
        self.errno = errno
        self.path = path
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.attempted]
        if self.errno is not None:
            parts.append(f": {os.strerror(self.errno)}")
        if self.path is not None and self.path not in self.attempted:
            parts.append(f" ({self.path!r})")
        if self.hint:
            parts.append(f"\n{self.hint}" if "\n" in self.attempted else f". {self.hint}")
        return "".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), {**self.__dict__, "errno": self.errno}))


def _rebuild(kind: type[SandboxError], state: dict[str, object]) -> SandboxError:
    error = kind.__new__(kind)
    Exception.__init__(error, state["attempted"])
    for name, value in state.items():
        setattr(error, name, value)
    return error


class SpecError(SandboxError, ValueError):
    """An option or argument has a type or value that is not accepted."""


class MountRefused(SpecError):
    """A mount that the sandbox never makes, whoever asks; the message names the rule."""


class HostError(SandboxError):
    """This machine cannot run boxes as asked."""


class NamespacesUnavailable(HostError):
    """The kernel or its policy does not let this user create namespaces."""


class CgroupUnavailable(HostError):
    """``require_limits=True`` was asked, and this host cannot enforce the limits."""


class ImageError(SandboxError):
    """An image cannot be used."""


class PullError(ImageError):
    """A registry did not deliver the image."""


class DigestMismatch(ImageError):
    """Delivered content does not have the digest that names it."""


class LayerRefused(ImageError):
    """A layer holds an entry that is never unpacked."""


class StartError(SandboxError):
    """A box could not be built because of its own configuration.

    Attributes:
        stage: the step of the build that failed, e.g. ``"mounts"`` or ``"seccomp"``.
    """

    def __init__(
        self, stage: str, attempted: str, *, errno: int | None = None, path: str | None = None, hint: str = ""
    ) -> None:
        super().__init__(attempted, errno=errno, path=path, hint=hint)
        self.stage = stage

    def __str__(self) -> str:
        return f"box not started, at {self.stage}: {super().__str__()}"


class WorkspaceError(SandboxError, OSError):
    """A path in the workspace cannot be read, written or listed; the message names the rule or the cause."""


class SessionClosed(SandboxError):
    """The Sandbox (or a session in it) was closed or has died; the message says which and why."""


class InternalError(SandboxError):
    """The engine itself failed; not the code in the box and not the caller."""
