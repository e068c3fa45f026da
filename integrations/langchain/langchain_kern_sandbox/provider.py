"""``dcode --sandbox kern``: the provider that Deep Agents Code finds by its entry point."""

from __future__ import annotations

import threading
from typing import Any

from deepagents_code.integrations.sandbox_provider import (
    SandboxInstallHint,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)

from .sandbox import KernSandbox

__all__ = ["KernProvider"]


class KernProvider(SandboxProvider):
    """Makes boxes on this machine; they live as long as this object and are not found by another process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, KernSandbox] = {}

    @property
    def metadata(self) -> SandboxProviderMetadata:
        """What the command says of it."""
        return SandboxProviderMetadata(
            name="kern",
            working_dir="/workspace",
            install=SandboxInstallHint(kind="package", name="langchain-kern-sandbox[deepagents]"),
            supports_sandbox_id=True,
            supports_snapshot_name=False,
            backend_module="langchain_kern_sandbox.sandbox",
        )

    def get_or_create(self, *, sandbox_id: str | None = None, **kwargs: Any) -> KernSandbox:
        """The one with this id, or a new one.

        Args:
            sandbox_id: of one that this object made.
            kwargs: as ``KernSandbox`` takes them.

        Raises:
            SandboxNotFoundError: there is none with this id.
            SandboxError: of kern_sandbox: it could not be made.
        """
        if sandbox_id is None:
            made = KernSandbox(**kwargs)
            with self._lock:
                self._made[made.id] = made
            return made
        with self._lock:
            if sandbox_id not in self._made:
                raise SandboxNotFoundError(f"there is no sandbox {sandbox_id!r} in this process")
            return self._made[sandbox_id]

    def delete(self, *, sandbox_id: str, **_: Any) -> None:
        """Close it; nothing happens where there is none.

        Args:
            sandbox_id: of one that this object made.
        """
        with self._lock:
            made = self._made.pop(sandbox_id, None)
        if made is not None:
            made.close()
