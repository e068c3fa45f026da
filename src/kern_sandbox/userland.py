"""Which operating system a Sandbox's boxes show: this machine's own, or that of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

from ._box.imageroot import Root, image_userland, uid_of
from ._box.mountrules import check_root
from ._image.images import Image, Making, Progress, obtain
from ._image.reference import Reference, parse
from ._image.store import Store
from .results import ExecutionResult, SandboxFault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._box.plan import Userland
    from .errors import ImageError

__all__ = ["Chosen", "Userlands", "choose_image", "image_failed", "userland_of"]

EXIT_NOT_STARTED = 1


Userlands = Callable[[bool], "Userland"]
"""Gives a userland for boxes that share the host's network, or do not."""


class Chosen(NamedTuple):
    """A userland, the uid that its image wants, and the image itself, which the caller closes."""

    userland: Userlands
    user: int
    image: Image


def choose_image(text: str) -> Reference:
    """The reference in ``image=``.

    Raises:
        SpecError: it is none.
        MountRefused: a directory that is never shown.
    """
    reference = parse(text)
    if reference.kind == "dir":
        check_root(reference.path)
    return reference


def userland_of(reference: Reference, needed: Iterable[str], progress: Progress | None = None) -> Chosen:
    """The userland of an image, which is fetched if it is not in the store.

    Args:
        reference: from ``choose_image``.
        needed: paths at which boxes have something of their own.
        progress: told how the image is fetched.

    Raises:
        ImageError: it cannot be had.
    """
    from .bytecode import add_bytecode  # late: it makes a box, for which it needs this module

    image = obtain(reference, Store(), Making(progress or Progress(), finish=add_bytecode))
    try:
        root = Root(image.name, image.root, image.env)
        user = uid_of(image.user, image_userland(root, needed, network=False).people[0])
        return Chosen(lambda network: image_userland(root, needed, network=network), user, image)
    except BaseException:  # whatever happened, the store must not wait for us
        image.close()
        raise


def image_failed(error: ImageError) -> ExecutionResult:
    """The result of a call whose image cannot be had."""
    message = str(error)
    fault = SandboxFault("startup_failed", message, type(error).__name__)
    return ExecutionResult(stderr=f"kern: {message}\n", exit_code=EXIT_NOT_STARTED, fault=fault)
