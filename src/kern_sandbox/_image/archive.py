"""Images in one file: ``oci-archive:`` (an OCI layout in a tar) and ``docker-archive:`` (what docker save writes)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Mapping
from typing import IO, Any

from .._places import absolute
from ..checks import printable
from ..errors import DigestMismatch, ImageError
from .manifest import (
    Descriptor,
    Manifest,
    choose,
    digest_of,
    listed,
    mapping,
    objects,
    read_config,
    read_manifest,
)
from .reference import Reference
from .tape import DAMAGE, Header

__all__ = ["Archive", "contents_of", "identity_of"]

_SMALL = 8 << 20
_CHUNK = 1 << 18
_MOST_MEMBERS = 100_000
_REF_NAME = "org.opencontainers.image.ref.name"
_FULL_NAME = "io.containerd.image.name"
_BY_DIGEST = re.compile(r"(?:\A|/)([0-9a-f]{64})(?:\.json)?\Z")


def identity_of(path: str) -> str:
    """What tells this file from one that takes its place.

    Raises:
        ImageError: there is none.
    """
    try:
        about = os.stat(path)
    except OSError as error:
        hint = "Name a file that `docker save`, skopeo or buildah has written"
        raise ImageError("opening the image archive", errno=error.errno, path=path, hint=hint) from error
    return f"{about.st_dev}:{about.st_ino}:{about.st_size}:{about.st_mtime_ns}"


def contents_of(path: str) -> tuple[str, list[str]]:
    """Which kind of archive it is, and the names of its images; ``""`` for one without a name.

    Raises:
        ImageError: it is none.
    """
    path = absolute(path)
    with Archive(Reference("docker-archive", path, path=path)) as archive:
        return archive.contents()


class Archive(contextlib.AbstractContextManager["Archive"]):
    """An open archive. Every method raises ``ImageError`` where it is not what it should be."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._members: dict[str, tarfile.TarInfo] = {}
        self._names: dict[str, str] = {}
        try:
            self._open_tar()
        except DAMAGE as error:
            words = printable(str(error).partition("\n")[0].rstrip(":")[:200])
            hint = "Write it anew with `docker save`, skopeo or buildah"
            message = f"opening {reference.name}: it is no whole tar archive ({words})"
            raise ImageError(message, hint=hint) from error
        except OSError as error:
            why = "" if error.errno else f": {printable(str(error)[:200])}"
            hint = "Name a file that `docker save`, skopeo or buildah has written"
            raise ImageError(
                f"opening the image archive{why}", errno=error.errno, path=reference.path, hint=hint
            ) from error

    def _open_tar(self) -> None:
        with contextlib.ExitStack() as undo:
            self._tar = undo.enter_context(
                tarfile.open(self._reference.path, "r:*", tarinfo=Header, encoding="utf-8", errors="surrogateescape")
            )
            for member in self._tar:
                self._members[posixpath.normpath(member.name)] = member
                if len(self._members) > _MOST_MEMBERS:
                    raise ImageError(f"opening {self._reference.name}: it has more than {_MOST_MEMBERS} members")
            undo.pop_all()

    def __exit__(self, *_: object) -> None:
        self._tar.close()

    def read(self) -> tuple[Manifest, bytes]:
        """The image that the reference means: its manifest, and its configuration."""
        return self._read_oci() if self._reference.kind == "oci-archive" else self._read_docker()

    def contents(self) -> tuple[str, list[str]]:
        """See ``contents_of``."""
        if "manifest.json" in self._members:
            plain = _json(self._small("manifest.json"), self._reference.name)
            return "docker-archive", [tag for image in objects(plain) for tag in _tags(image)] or [""]
        names = [str(note.get(_FULL_NAME) or "") for _, note in self._entries(self._small("index.json"))]
        return "oci-archive", [name for name in names if name] or [""]

    def fetch(self, descriptor: Descriptor, path: str, watch: Callable[[int], object]) -> None:
        """Copy a layer out to ``path``, verified where its name is a digest; see ``Registry.fetch``."""
        name = self._names.get(descriptor.digest, f"blobs/sha256/{descriptor.digest[7:]}")
        hashed = hashlib.sha256()
        with self._open(name) as source, open(f"{path}.part", "wb") as target:
            try:
                while piece := source.read(_CHUNK):
                    target.write(piece)
                    hashed.update(piece)
                    watch(len(piece))
            except DAMAGE as error:
                raise self._damaged(name) from error
        self._verify(name, hashed.hexdigest())
        os.rename(f"{path}.part", path)

    def _open(self, name: str) -> IO[bytes]:
        member = self._members.get(name)
        for _ in range(8):
            if member is None or not member.issym():
                break
            name = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
            member = self._members.get(name)
        if member is None or not member.isreg():
            raise ImageError(f"reading {self._reference.name}: it has no {name!r}")
        file = self._tar.extractfile(member)
        assert file is not None
        return file

    def _small(self, name: str) -> bytes:
        with self._open(name) as file:
            try:
                content = file.read(_SMALL + 1)
            except DAMAGE as error:
                raise self._damaged(name) from error
        if len(content) > _SMALL:
            raise ImageError(f"reading {name} in {self._reference.name}: it is longer than {_SMALL} bytes")
        self._verify(name, hashlib.sha256(content).hexdigest())
        return content

    def _damaged(self, name: str) -> ImageError:
        return ImageError(f"reading {name!r:.200} in {self._reference.name}: it is damaged or cut short")

    def _verify(self, name: str, found: str) -> None:
        named = _BY_DIGEST.search(name)
        if named and named[1] != found:
            words = f"reading {self._reference.name}: {name} has the digest sha256:{found}"
            raise DigestMismatch(words, hint="The archive is damaged: save the image anew")

    def _blob(self, descriptor: Descriptor) -> bytes:
        return self._small(f"blobs/sha256/{descriptor.digest[7:]}")

    def _read_oci(self) -> tuple[Manifest, bytes]:
        content = self._small("index.json")
        if self._reference.tag:
            content = self._tagged(content)
        for _ in range(4):
            found = choose(content, self._reference.name)
            if found is None:
                break
            content = self._blob(found)
        manifest = read_manifest(content, self._reference.name)
        return manifest, self._blob(manifest.config)

    def _tagged(self, index: bytes) -> bytes:
        """The index with nothing but the image of that tag."""
        known = self._entries(index)
        wanted = self._reference.tag
        chosen = [entry for entry, note in known if wanted in (note.get(_REF_NAME), note.get(_FULL_NAME))]
        if not chosen:
            raise self._no_such_image([str(note.get(_REF_NAME, "")) for _, note in known])
        return json.dumps({"manifests": chosen}).encode()

    def _entries(self, index: bytes) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """What an index lists, each with its notes."""
        entries = objects(mapping(_json(index, self._reference.name)).get("manifests"))
        return [(entry, mapping(entry.get("annotations"))) for entry in entries]

    def _no_such_image(self, tags: list[str]) -> ImageError:
        hint = printable(f"It has {', '.join(filter(None, tags)) or 'no tags'}"[:300])
        return ImageError(f"opening {self._reference.name}: it has no such image", hint=hint)

    def _read_docker(self) -> tuple[Manifest, bytes]:
        name = self._reference.name
        images = objects(_json(self._small("manifest.json"), name))
        if self._reference.tag:
            tags = [tag for image in images for tag in _tags(image)]
            images = [image for image in images if _has_tag(image, self._reference.tag)]
            if not images:
                raise self._no_such_image(tags)
        if len(images) != 1:
            words = f"opening {name}: it holds {len(images)} images"
            raise ImageError(words, hint=f"Say which: {self._reference.kind}:FILE:NAME:TAG")
        config = self._small(posixpath.normpath(str(images[0].get("Config"))))
        paths = [posixpath.normpath(str(path)) for path in listed(images[0].get("Layers"))]
        diff_ids = read_config(config, name).diff_ids
        if len(diff_ids) != len(paths):
            raise ImageError(f"opening {name}: it lists {len(paths)} layers and {len(diff_ids)} digests of them")
        self._names = dict(zip(diff_ids, paths))
        sizes = [self._members[path].size if path in self._members else 0 for path in paths]
        layers = tuple(Descriptor(digest, size) for digest, size in zip(diff_ids, sizes))
        return Manifest(digest_of(config), Descriptor(digest_of(config), len(config)), layers), config


def _tags(image: Mapping[str, Any]) -> list[str]:
    return [str(tag) for tag in listed(image.get("RepoTags"))]


def _has_tag(image: Mapping[str, Any], tag: str) -> bool:
    return any(known == tag or known.endswith(f"/{tag}") for known in _tags(image))


def _json(content: bytes, name: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ImageError(f"opening {name}: its table of contents is not JSON") from None
