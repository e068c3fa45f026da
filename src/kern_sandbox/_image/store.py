"""Where unpacked images are kept: one root file system per manifest digest, shared by all processes of a user.

    images/
        names/<sha256 of the name>.json   what a reference names, and for an archive which file that was
        rootfs/<digest>/root, image.json  whole, or not there: it comes by one rename
        staging/<digest>/                 blobs and a tree in the making, under the digest's lock
        locks/<digest>                    shared by who uses an image, exclusive to who makes or removes it
        trash/                            what is on its way out

A lock is flock(2)'s, so it ends with its holder, however that ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .._linux.libc import sync_file_system
from .._places import cache_directory
from ..errors import ImageError
from ..workspace import remove_directory

__all__ = ["Found", "Store", "Stored"]


class Found(NamedTuple):
    """An image in the store, in use until ``hold`` is closed."""

    digest: str
    root: str
    about: Mapping[str, Any]
    hold: int


class Stored(NamedTuple):
    """One line of what the store holds; ``name`` is ``""`` for an image that nothing names."""

    name: str
    digest: str
    size: int
    made: float


class Store:
    """The store below ``folder``; the user's own if ``None``."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or os.path.join(cache_directory(), "images")

    # Names

    def digest_of(self, name: str, identity: str = "") -> str | None:
        """What ``name`` is known to name; ``identity`` is the archive's as it is now."""
        known = _read(self._name_file(name))
        if known.get("identity", "") != identity or not isinstance(known.get("digest"), str):
            return None
        return str(known["digest"])

    def give_name(self, name: str, digest: str, identity: str = "") -> None:
        """From now on ``name`` names that image."""
        self._write(self._name_file(name), {"name": name, "digest": digest, "identity": identity})

    def _name_file(self, name: str) -> str:
        return os.path.join(self.folder, "names", hashlib.sha256(name.encode()).hexdigest() + ".json")

    def _names(self) -> dict[str, str]:
        folder = os.path.join(self.folder, "names")
        known = [_read(os.path.join(folder, entry)) for entry in _listed(folder) if entry.endswith(".json")]
        return {str(each["name"]): str(each["digest"]) for each in known if "name" in each and "digest" in each}

    # Images

    def find(self, digest: str) -> Found | None:
        """The image, if it is there; it stays there until ``hold`` is closed."""
        if not os.path.isdir(self._place(digest)):
            return None
        hold = self._lock(digest, "LOCK_SH")
        about = _read(os.path.join(self._place(digest), "image.json"))
        if not about:
            os.close(hold)
            return None
        return Found(digest, os.path.join(self._place(digest), "root"), about, hold)

    @contextlib.contextmanager
    def making(self, digest: str) -> Iterator[str | None]:
        """Whoever enters is the only one to make this image; ``None`` where another has just made it.

        Yields:
            A directory to work in, which keeps what an earlier attempt left.
        """
        lock = self._lock(digest, "LOCK_EX")
        try:
            if _read(os.path.join(self._place(digest), "image.json")):
                yield None
                return
            if os.path.lexists(self._place(digest)):
                self._throw_away(digest)
            stage = self._folder("staging", _hex(digest))
            self.discard(os.path.join(stage, "new"))
            os.makedirs(os.path.join(stage, "new", "root"), 0o755)
            yield stage
        finally:
            os.close(lock)

    def keep(self, digest: str, stage: str, about: Mapping[str, Any]) -> None:
        """What was made in ``stage`` becomes the image, at once."""
        new = os.path.join(stage, "new")
        self._write(os.path.join(new, "image.json"), {**about, "digest": digest, "made": time.time()})
        self._folder("rootfs")
        sync_file_system(new)  # a machine that loses its power must not come back with half of it under its name
        os.rename(new, self._place(digest))
        self.discard(stage)

    def discard(self, stage: str) -> None:
        """Remove a stage; what cannot be removed now, ``collect`` will."""
        with contextlib.suppress(OSError):
            remove_directory(stage)

    def images(self) -> list[Stored]:
        """All of them, by name."""
        about = {f"sha256:{entry}": entry for entry in _listed(os.path.join(self.folder, "rootfs"))}
        known = {
            digest: _read(os.path.join(self.folder, "rootfs", entry, "image.json")) for digest, entry in about.items()
        }
        names = self._names()
        lines = [(name, digest) for name, digest in names.items() if known.get(digest)]
        lines += [("", digest) for digest in known if known[digest] and digest not in names.values()]
        stored = [_stored(name, digest, known[digest]) for name, digest in lines]
        return sorted(stored)

    def size(self) -> int:
        """Bytes that the images take, each counted once."""
        return sum({each.digest: each.size for each in self.images()}.values())

    def remove(self, word: str) -> Stored:
        """Forget a name, and with its last name the image; ``word`` may be the image's digest, too.

        Raises:
            ImageError: it is not there, or a Sandbox uses it.
        """
        images = self.images()
        whole = word if word.startswith("sha256:") else f"sha256:{word}"
        meant = [each for each in images if each.name == word or (len(whole) >= 19 and each.digest.startswith(whole))]
        if not meant or len({each.digest for each in meant}) > 1:
            hint = "`kern-sandbox images` lists what is there"
            raise ImageError(
                f"removing the image {word}: {'several are' if meant else 'it is not'} in the store", hint=hint
            )
        digest = meant[0].digest
        left = [each for each in images if each.digest == digest and each.name and each not in meant]
        if not left and not self._remove(digest):
            raise ImageError(f"removing the image {word}: a Sandbox uses it", hint="Close the Sandbox first")
        for each in meant:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name_file(each.name))
        return meant[0]

    def collect(self) -> list[str]:
        """Remove what nothing names and nobody uses, and what broken attempts left.

        Returns:
            The digests of what is gone.
        """
        kept = set(self._names().values())
        stored = [f"sha256:{entry}" for entry in _listed(os.path.join(self.folder, "rootfs"))]
        gone = [digest for digest in stored if digest not in kept and self._remove(digest)]
        for entry in _listed(os.path.join(self.folder, "staging")):
            with self._if_free(f"sha256:{entry}") as free:
                if free:
                    self.discard(os.path.join(self.folder, "staging", entry))
        for entry in _listed(os.path.join(self.folder, "trash")):
            self.discard(os.path.join(self.folder, "trash", entry))
        for name, digest in self._names().items():
            if not os.path.isdir(self._place(digest)):
                with contextlib.suppress(FileNotFoundError):  # somebody else does the same
                    os.unlink(self._name_file(name))
        return gone

    def _remove(self, digest: str) -> bool:
        with self._if_free(digest) as free:
            if free:
                self._throw_away(digest)
            return free

    def _throw_away(self, digest: str) -> None:
        """Remove what stands in an image's place, whole or not; whoever calls has its lock."""
        trash = tempfile.mkdtemp(dir=self._folder("trash"))
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._place(digest), os.path.join(trash, "image"))
        self.discard(trash)

    # Files

    def _place(self, digest: str) -> str:
        return os.path.join(self.folder, "rootfs", _hex(digest))

    def _folder(self, *parts: str) -> str:
        """A directory of the store, made if need be; all of it is the user's alone."""
        path = self.folder
        os.makedirs(path, 0o700, exist_ok=True)
        for part in parts:
            path = os.path.join(path, part)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        return path

    def _lock(self, digest: str, kind: str, *, wait: bool = True) -> int:
        import fcntl  # late: it is of Unix only, and so are boxes

        path = os.path.join(self._folder("locks"), _hex(digest))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, getattr(fcntl, kind) | (0 if wait else fcntl.LOCK_NB))
        except BaseException:  # whatever happened, the descriptor must not outlive it
            os.close(fd)
            raise
        return fd

    @contextlib.contextmanager
    def _if_free(self, digest: str) -> Iterator[bool]:
        """Whether nobody uses or makes the image, and nobody does meanwhile."""
        try:
            lock = self._lock(digest, "LOCK_EX", wait=False)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            os.close(lock)

    def _write(self, path: str, content: Mapping[str, Any]) -> None:
        """Whole or not at all."""
        if path.startswith(os.path.join(self.folder, "names")):
            self._folder("names")
        fd, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
        try:
            with open(fd, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.rename(temporary, path)
        except BaseException:  # whatever happened, no half of a file stays
            os.unlink(temporary)
            raise


def _hex(digest: str) -> str:
    return digest.partition(":")[2]


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        hint = "Set XDG_CACHE_HOME to a directory of yours, or make this one yours again"
        raise ImageError("reading the store of images", errno=error.errno, path=folder, hint=hint) from error


def _read(path: str) -> dict[str, Any]:
    """A small JSON object of ours; empty where it is missing or broken."""
    try:
        with open(path, encoding="utf-8") as file:
            plain = json.load(file)
    except (OSError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}


def _stored(name: str, digest: str, about: Mapping[str, Any]) -> Stored:
    return Stored(name, digest, int(about.get("size") or 0), float(about.get("made") or 0.0))
