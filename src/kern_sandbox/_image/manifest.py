"""Manifests, indexes and configurations (OCI image specification, and Docker's schema 2), read and vetted."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..checks import printable
from ..errors import ImageError

__all__ = [
    "ACCEPTED",
    "Config",
    "Descriptor",
    "Manifest",
    "choose",
    "digest_of",
    "listed",
    "mapping",
    "objects",
    "read_config",
    "read_manifest",
]

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
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_LAYERS = 500
_MOST_USER = 256
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
        user: name or number, with ``:GROUP`` or without.
        diff_ids: digests of the layers, unpacked.
    """

    architecture: str
    env: tuple[tuple[str, str], ...]
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
    plain = mapping(value)
    digest, size = _digest(plain.get("digest"), what), plain.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ImageError(f"{what}: it gives {digest} the size {size!r:.40}")
    return Descriptor(digest, size)


def _digest(value: object, what: str) -> str:
    """A digest, and nothing else: it becomes the name of a file."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ImageError(f"{what}: it names content by {value!r:.80}, not by a sha256 digest")
    return value


def choose(content: bytes, name: str) -> Descriptor | None:
    """The manifest for this machine, if ``content`` is an index; ``None`` if it is a manifest itself.

    Raises:
        ImageError: it has none for this machine, or is neither.
    """
    what = f"reading the manifest of {name}"
    plain = _plain(content, what)
    if "manifests" not in plain:
        return None
    entries = objects(plain["manifests"])
    own = architecture()
    offered: list[str] = []
    for entry in entries:
        about = mapping(entry.get("platform"))
        system, machine = about.get("os"), about.get("architecture")
        if (system, machine) == ("linux", own) or (len(entries) == 1 and not machine):
            return _descriptor(entry, what)
        if system != "unknown":
            offered.append(printable(f"{system}/{machine}"[:40]))
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
    layers = tuple(_descriptor(layer, what) for layer in listed(plain["layers"]))
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
        raise ImageError(printable(words[:400]), hint="Use an image for this machine")
    inner = mapping(plain.get("config"))
    rootfs = mapping(plain.get("rootfs"))
    pairs = [str(item).partition("=") for item in listed(inner.get("Env")) if _is_text(item)]
    return Config(
        architecture=machine,
        env=tuple((key, value) for key, equals, value in pairs if key and equals and "\0" not in key + value),
        user=str(inner.get("User") or "")[:_MOST_USER],
        diff_ids=tuple(_digest(item, what) for item in listed(rootfs.get("diff_ids"))),
    )


def listed(value: object) -> list[Any]:
    """``value`` if JSON had an array there; else an empty one."""
    return value if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, Any]:
    """``value`` if JSON had an object there; else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """The objects in an array."""
    return [each for each in listed(value) if isinstance(each, dict)]


def _is_text(value: object) -> bool:
    """Whether it can be handed to a program: no half of a character that JSON has let through."""
    return isinstance(value, str) and not _SURROGATE.search(value)
