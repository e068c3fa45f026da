"""Manifests, indexes and configurations (OCI image specification, and Docker's schema 2), read and vetted."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import ImageError

__all__ = ["ACCEPTED", "Config", "Descriptor", "Manifest", "choose", "digest_of", "read_config", "read_manifest"]

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ACCEPTED = (*_INDEXES, *_MANIFESTS)
"""Media types that we ask a registry for."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_LAYERS = 500
_MACHINES = {
    "x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "i386": "386", "i686": "386",
    "armv7l": "arm",
}  # fmt: skip


class Descriptor(NamedTuple):
    """Content by its digest."""

    digest: str
    size: int


class Manifest(NamedTuple):
    """One image for one platform."""

    digest: str
    config: Descriptor
    layers: tuple[Descriptor, ...]


class Config(NamedTuple):
    """What an image says about how it is used.

    Attributes:
        architecture: as Go names it, e.g. ``amd64``.
        env: its variables.
        workdir: where its program starts.
        user: name or number, with ``:GROUP`` or without.
        diff_ids: digests of the layers, unpacked.
    """

    architecture: str
    env: tuple[tuple[str, str], ...]
    workdir: str
    user: str
    diff_ids: tuple[str, ...]


def digest_of(content: bytes) -> str:
    """The name of content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _plain(content: bytes, what: str) -> dict[str, Any]:
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        raise ImageError(f"{what}: it is not a JSON object")
    return plain


def _descriptor(value: object, what: str) -> Descriptor:
    plain = value if isinstance(value, Mapping) else {}
    digest, size = plain.get("digest"), plain.get("size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ImageError(f"{what}: it names content by {digest!r:.80}, not by a sha256 digest")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ImageError(f"{what}: it gives {digest} the size {size!r:.40}")
    return Descriptor(digest, size)


def choose(content: bytes, name: str) -> Descriptor | None:
    """The manifest for this machine, if ``content`` is an index; ``None`` if it is a manifest itself.

    Raises:
        ImageError: it has none for this machine, or is neither.
    """
    what = f"reading the manifest of {name}"
    plain = _plain(content, what)
    if "manifests" not in plain:
        return None
    entries = [entry for entry in _list(plain["manifests"]) if isinstance(entry, Mapping)]
    own = architecture()
    offered: list[str] = []
    for entry in entries:
        about = entry.get("platform")
        about = about if isinstance(about, Mapping) else {}
        system, machine = about.get("os"), about.get("architecture")
        if (system, machine) == ("linux", own) or (len(entries) == 1 and not machine):
            return _descriptor(entry, what)
        if system != "unknown":
            offered.append(f"{system}/{machine}"[:40])
    words = f"choosing the platform of {name}: it has no linux/{own}, which this machine runs"
    raise ImageError(words, hint=f"It has {', '.join(sorted(set(offered))) or 'none'}"[:400])


def architecture() -> str:
    """This machine, as Go names it."""
    machine = platform.machine().lower()
    return _MACHINES.get(machine, machine)


def read_manifest(content: bytes, name: str) -> Manifest:
    """The parts of an image.

    Raises:
        ImageError: it is no image manifest.
    """
    what = f"reading the manifest of {name}"
    plain = _plain(content, what)
    if plain.get("schemaVersion") == 1:
        raise ImageError(f"{what}: it is of schema 1, which Docker gave up in 2017", hint="Push the image anew")
    if "config" not in plain or "layers" not in plain:
        raise ImageError(f"{what}: it is of type {plain.get('mediaType')!r:.80}, which is no image")
    layers = tuple(_descriptor(layer, what) for layer in _list(plain["layers"]))
    if len(layers) > _MOST_LAYERS:
        raise ImageError(f"{what}: it has {len(layers)} layers, more than {_MOST_LAYERS}")
    return Manifest(digest_of(content), _descriptor(plain["config"], what), layers)


def read_config(content: bytes, name: str) -> Config:
    """How an image is used, as far as that concerns a box.

    Raises:
        ImageError: it is for another machine, or no configuration.
    """
    what = f"reading the configuration of {name}"
    plain = _plain(content, what)
    machine, system = str(plain.get("architecture") or ""), str(plain.get("os") or "linux")
    if (system, machine or architecture()) != ("linux", architecture()):
        words = f"{what}: it is for {system}/{machine}, and this machine runs linux/{architecture()}"
        raise ImageError(words[:400], hint="Use an image for this machine")
    inner = plain.get("config")
    inner = inner if isinstance(inner, Mapping) else {}
    rootfs = plain.get("rootfs")
    rootfs = rootfs if isinstance(rootfs, Mapping) else {}
    pairs = [str(item).partition("=") for item in _list(inner.get("Env")) if isinstance(item, str)]
    return Config(
        architecture=machine,
        env=tuple((key, value) for key, equals, value in pairs if key and equals and "\0" not in key + value),
        workdir=str(inner.get("WorkingDir") or ""),
        user=str(inner.get("User") or ""),
        diff_ids=tuple(str(item) for item in _list(rootfs.get("diff_ids"))),
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
