"""From a reference to a root file system: out of the store, or fetched, vetted, unpacked and kept there."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ..errors import DigestMismatch, ImageError, LayerRefused, PullError
from .archive import Archive, contents_of, identity_of
from .layers import Allowance, Layer, apply_layer
from .manifest import Config, Descriptor, Manifest, choose, read_config, read_manifest
from .reference import Reference, parse
from .store import Found, Store
from .tree import Tree

if TYPE_CHECKING:
    from .transport import Patience

__all__ = ["Image", "Making", "Progress", "load", "obtain"]

_CONFIG_LIMIT = 8 << 20
_NO_ROOT = "It has to be a directory with an operating system unpacked in it"
_NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class Image(NamedTuple):
    """A root file system, and how its image wants to be used.

    Attributes:
        name: the reference.
        root: the directory.
        digest: of the manifest; ``""`` for a directory of the user's own.
        env: its variables.
        user: its user, a name or number; ``""`` for root.
        hold: a descriptor that keeps it in the store while it is open, or ``None``.
    """

    name: str
    root: str
    digest: str = ""
    env: Mapping[str, str] = {}
    user: str = ""
    hold: int | None = None

    def close(self) -> None:
        """The store may remove it from now on."""
        if self.hold is not None:
            os.close(self.hold)


class Progress:
    """Told what happens; does nothing with it."""

    def begin(self, words: str, total: int) -> None:
        """Something of ``total`` bytes begins."""

    def step(self, count: int) -> None:
        """So many bytes more."""


class Making(NamedTuple):
    """How an image is made ready.

    Attributes:
        progress: told how it goes.
        patience: with a registry.
        finish: called with the new root before anybody else can see it; returns what it could not do, or ``""``.
    """

    progress: Progress = Progress()
    patience: Patience | None = None
    finish: Callable[[str], str] | None = None


def obtain(reference: Reference, store: Store, making: Making | None = None, *, fresh: bool = False) -> Image:
    """The image, made ready if it is not yet. The caller closes it.

    Args:
        reference: what to get.
        store: where it is kept.
        making: how.
        fresh: ask the registry what the tag names now.

    Raises:
        PullError, DigestMismatch, LayerRefused, ImageError: it cannot be had.
    """
    how = making or Making()
    if reference.kind == "dir":
        return _directory(reference)
    try:
        by_file = reference.name.startswith(f"{reference.kind}:")
        identity = identity_of(reference.path) if by_file else ""
        known = None if fresh else store.digest_of(reference.name, identity)
        found = store.find(known) if known else None
        if found is None:
            with _source(reference, how.patience) as source:
                found = _Maker(reference, store, how).run(source)
            store.give_name(reference.name, found.digest, identity)
    except PullError as error:
        if reference.name not in error.attempted:
            error.attempted = f"pulling {reference.name}: {error.attempted}"
        raise
    except OSError as error:
        raise _disk(error, reference, store) from error
    return _image(reference, found)


def load(path: str, name: str | None, store: Store, making: Making) -> list[tuple[str, str]]:
    """Put the images of an archive into the store, under the names that it gives them.

    Args:
        path: a file that docker save wrote, or an OCI layout in a tar.
        name: instead of its own names; the archive then has to hold one image.
        store: where they are kept.
        making: how they are made ready.

    Returns:
        Each name, with the digest that it now names.

    Raises:
        ImageError: it holds no image that can be used.
        SpecError: ``name`` is none.
    """
    given = None if name is None else parse(name)
    kind, tags = contents_of(path)
    done = []
    for tag in tags if given is None else [""]:
        reference = parse(f"{kind}:{path}")._replace(tag=tag)
        own = given or parse(tag or reference.name)
        image = obtain(reference._replace(name=own.name), store, making, fresh=True)
        image.close()
        done.append((own.name, image.digest))
    return done


def _disk(error: OSError, reference: Reference, store: Store) -> ImageError:
    hint = ""
    if error.errno in _NO_SPACE:
        hint = f"Free some space below {store.folder}; `kern-sandbox gc` removes what nothing needs"
    return ImageError(f"keeping the image {reference.name}", errno=error.errno, path=store.folder, hint=hint)


def _directory(reference: Reference) -> Image:
    if not os.path.isdir(reference.path):
        code = errno.ENOTDIR if os.path.lexists(reference.path) else errno.ENOENT
        raise ImageError(f"using {reference.name} as a root file system", errno=code, hint=_NO_ROOT)
    return Image(reference.name, os.path.realpath(reference.path))


def _image(reference: Reference, found: Found) -> Image:
    env = found.about.get("env")
    pairs = env.items() if isinstance(env, dict) else ()
    variables = {str(name): str(value) for name, value in pairs}
    return Image(reference.name, found.root, found.digest, variables, str(found.about.get("user") or ""), found.hold)


class _Source:
    """Where an image comes from: its manifest and configuration, and a way to its layers."""

    def __init__(self, manifest: Manifest, config: bytes, fetch: Callable[..., None]) -> None:
        self.manifest = manifest
        self.config = config
        self.fetch = fetch


@contextlib.contextmanager
def _source(reference: Reference, patience: Patience | None) -> Iterator[_Source]:
    if reference.kind != "registry":
        with Archive(reference) as archive:
            yield _Source(*archive.read(), archive.fetch)
        return
    from .registry import Registry  # late: it loads OpenSSL, and most calls need no registry

    registry = Registry(reference, patience)
    content = registry.manifest(reference.wanted)
    for _ in range(3):
        chosen = choose(content, reference.name)
        if chosen is None:
            break
        content = registry.manifest(chosen.digest)
    manifest = read_manifest(content, reference.name)
    yield _Source(manifest, registry.content(manifest.config, _CONFIG_LIMIT), registry.fetch)


class _Maker:
    """One image on its way into the store."""

    def __init__(self, reference: Reference, store: Store, how: Making) -> None:
        self._reference = reference
        self._store = store
        self._progress = how.progress
        self._finish = how.finish

    def run(self, source: _Source) -> Found:
        """Make it, unless it is there by then; whoever is second waits for the first."""
        digest = source.manifest.digest
        while True:
            found = self._store.find(digest)
            if found is not None:
                return found
            with self._store.making(digest) as stage:
                if stage is not None:
                    self._make(source, stage)

    def _make(self, source: _Source, stage: str) -> None:
        config = read_config(source.config, self._reference.name)
        try:
            packed = Allowance()
            paths = [self._fetch(source, layer, stage, packed) for layer in source.manifest.layers]
            size = self._unpack(source.manifest, config, paths, os.path.join(stage, "new", "root"))
            missing = ""
            if self._finish is not None:
                self._progress.begin("preparing", 0)
                missing = self._finish(os.path.join(stage, "new", "root"))
            self._store.keep(source.manifest.digest, stage, {**_about(config, size), "unprepared": missing})
        except (OSError, DigestMismatch, LayerRefused):
            self._store.discard(stage)  # there is nothing in it that a second attempt could use
            raise

    def _fetch(self, source: _Source, layer: Descriptor, stage: str, packed: Allowance) -> str:
        """The layer's file: what an earlier attempt has fetched whole is not fetched again."""

        def watch(count: int) -> None:
            packed.take(count)  # an archive that is compressed itself grows on the way to its layers
            self._progress.step(count)

        path = os.path.join(stage, layer.digest.partition(":")[2])
        if not os.path.exists(path):
            self._progress.begin(f"{layer.digest[7:19]} fetching", layer.size)
            source.fetch(layer, path, watch)
        return path

    def _unpack(self, manifest: Manifest, config: Config, paths: list[str], root: str) -> int:
        allowance = Allowance()
        before = allowance.size
        diff_ids = config.diff_ids or ("",) * len(paths)
        if len(diff_ids) != len(paths):
            words = f"unpacking {self._reference.name}: it has {len(paths)} layers and digests for {len(diff_ids)}"
            raise ImageError(words)
        tree = Tree(root)
        try:
            for layer, path, diff_id in zip(manifest.layers, paths, diff_ids):
                self._progress.begin(f"{layer.digest[7:19]} unpacking", 0)
                apply_layer(Layer(path, layer.digest, diff_id, self._reference.name), tree, allowance)
        finally:
            tree.close()
        return before - allowance.size


def _about(config: Config, size: int) -> dict[str, Any]:
    return {"env": dict(config.env), "user": config.user, "size": size}
