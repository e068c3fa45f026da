"""What ``image=`` names: a tag or digest in a registry, an archive, or a directory."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Literal, NamedTuple

from .._places import absolute
from ..checks import bad

__all__ = ["Reference", "is_loopback", "parse"]

HUB = "docker.io"
_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = re.compile(rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PATH_PART}(?:/{_PATH_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ACCEPTED = (
    "None, a reference such as 'python:3.12-slim' or 'registry.example:5000/team/app@sha256:…', 'oci-archive:FILE', "
    "'docker-archive:FILE' or 'dir:DIRECTORY'"
)
Kind = Literal["registry", "oci-archive", "docker-archive", "dir"]
_LOCAL: tuple[Kind, ...] = ("oci-archive", "docker-archive", "dir")


class Reference(NamedTuple):
    """A validated image reference.

    Attributes:
        kind: where the image is.
        name: the reference in full, which names the image in messages and in the store.
        host: of the registry.
        repository: in the registry.
        tag: in the repository, or of an archive's image; ``""`` where the digest or the only image is meant.
        digest: ``sha256:…``, or ``""``.
        path: of an archive or directory, absolute.
    """

    kind: Kind
    name: str
    host: str = ""
    repository: str = ""
    tag: str = ""
    digest: str = ""
    path: str = ""

    @property
    def wanted(self) -> str:
        """What a registry is asked for: the digest where there is one."""
        return self.digest or self.tag


def parse(text: object) -> Reference:
    """Take a reference apart as Docker does: no host is Docker Hub, no tag is ``latest``.

    Raises:
        SpecError: it is none; the message says what is accepted.
    """
    if not isinstance(text, str) or not text or any(not char.isprintable() for char in text):
        raise bad("image", text, _ACCEPTED)
    for kind in _LOCAL:
        if text.startswith(f"{kind}:"):
            return _local(kind, text)
    return _remote(text)


def _local(kind: Kind, text: str) -> Reference:
    """A file or directory of this host; an archive of several images takes ``:TAG`` behind its path, as skopeo does."""
    path = text[len(kind) + 1 :]
    tag = ""
    if kind != "dir" and not os.path.exists(path):
        before, colon, after = path.partition(":")
        if colon and before and after:
            path, tag = before, after
    if not path:
        raise bad("image", text, f"a path after {kind}:")
    path = absolute(path)
    return Reference(kind, f"{kind}:{path}" + (f":{tag}" if tag else ""), tag=tag, path=path)


def _remote(text: str) -> Reference:
    rest, _, digest = text.partition("@")
    if "@" in text and not _DIGEST.fullmatch(digest):
        raise bad("image", text, "a digest is sha256: and 64 hexadecimal digits in lower case")
    slash = rest.rfind("/")
    colon = rest.rfind(":")
    tag = rest[colon + 1 :] if colon > slash else ""
    named = rest[:colon] if colon > slash else rest
    if colon > slash and not _TAG.fullmatch(tag):
        raise bad("image", text, "a tag has up to 128 letters, digits, '_', '.' and '-'")
    host, repository = _split_host(named)
    if not _HOST.fullmatch(host) or not _REPOSITORY.fullmatch(repository) or len(repository) > 255:
        raise bad("image", text, _ACCEPTED)
    if host == HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not digest and not tag:
        tag = "latest"
    name = f"{host}/{repository}" + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
    return Reference("registry", name, host, repository, tag, digest)


def _split_host(named: str) -> tuple[str, str]:
    """The first part is a host where it could not be part of a repository: a dot, a port, ``localhost``, a capital."""
    first, slash, rest = named.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        return (HUB if first == f"index.{HUB}" else first), rest
    return HUB, named


def is_loopback(host: str) -> bool:
    """Whether a registry's host, with or without a port, is this machine itself."""
    if host.startswith("["):
        bare = host[1:].partition("]")[0]
    else:
        bare = host.partition(":")[0] if host.count(":") == 1 else host
    if bare == "localhost":
        return True
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
