"""A registry as the OCI distribution specification describes it: who we are, manifests and blobs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import urllib.parse
from typing import TYPE_CHECKING, Callable

from ..errors import DigestMismatch, PullError
from .credentials import Credentials, find_credentials
from .manifest import ACCEPTED, Descriptor, digest_of
from .reference import HUB, Reference, is_loopback
from .transport import Patience, Response, Transport, said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Registry"]

_HUB_HOST = f"registry-1.{HUB}"
_MANIFEST_LIMIT = 4 << 20
_CHUNK = 1 << 18
_CHALLENGE = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


class Registry:
    """One repository of one registry. Every method raises ``PullError`` with the registry's own words."""

    def __init__(self, reference: Reference, patience: Patience | None = None) -> None:
        self._reference = reference
        host = _HUB_HOST if reference.host == HUB else reference.host
        self._transport = Transport(host, patience)
        self._authorization = ""
        self._base = f"{self._scheme(host)}://{host}/v2/"

    def _scheme(self, host: str) -> str:
        """A registry on this machine may speak either: it is asked in plain HTTP first, without any credential."""
        if not is_loopback(host):
            return "https"
        once = Transport(host, self._transport.patience._replace(attempts=1))
        try:
            with once.get(f"http://{host}/v2/", {}) as response:
                return "https" if response.status == 400 else "http"
        except PullError as error:
            if not isinstance(error.__cause__, ConnectionError):
                raise
            return "https"

    def manifest(self, wanted: str) -> bytes:
        """The manifest or index with that tag or digest.

        Raises:
            DigestMismatch: asked for by digest, it has another.
        """
        url = f"{self._base}{self._reference.repository}/manifests/{wanted}"
        with self._ask(url, {"Accept": ", ".join(ACCEPTED)}) as response:
            try:
                content = response.whole(_MANIFEST_LIMIT)
            except OSError as error:
                raise PullError(f"pulling {self._reference.name}: its manifest broke off ({error})") from error
        if wanted.startswith("sha256:") and digest_of(content) != wanted:
            words = f"pulling {self._reference.name}: the manifest has the digest {digest_of(content)}"
            hint = "The registry, or something on the way to it, changed the content"
            raise DigestMismatch(f"{words} and was asked for as {wanted}", hint=hint)
        return content

    def content(self, descriptor: Descriptor, limit: int) -> bytes:
        """A small blob, verified."""
        if descriptor.size > limit:
            raise PullError(f"pulling {self._reference.name}: {descriptor.digest} is {descriptor.size} bytes long")
        content = b"".join(self._pieces(descriptor))
        self._verify(descriptor, digest_of(content))
        return content

    def fetch(self, descriptor: Descriptor, path: str, watch: Callable[[int], object]) -> None:
        """Write a blob to ``path``, verified, whole or not at all.

        Args:
            descriptor: what it must be.
            path: a file to make; a ``.part`` beside it grows meanwhile.
            watch: called with the number of bytes of each piece.

        Raises:
            DigestMismatch: it is something else.
            OSError: the file cannot be written.
        """
        hashed = hashlib.sha256()
        with open(f"{path}.part", "wb") as file:
            for piece in self._pieces(descriptor):
                file.write(piece)
                hashed.update(piece)
                watch(len(piece))
        self._verify(descriptor, f"sha256:{hashed.hexdigest()}")
        os.rename(f"{path}.part", path)

    def _verify(self, descriptor: Descriptor, digest: str) -> None:
        if digest != descriptor.digest:
            words = f"pulling {self._reference.name}: a blob has the digest {digest} and was named {descriptor.digest}"
            raise DigestMismatch(words, hint="The registry, or something on the way to it, changed the content")

    def _pieces(self, descriptor: Descriptor) -> Iterator[bytes]:
        """A blob from its first byte to its last; where the connection breaks, the rest is asked for."""
        seen, tries, broken = 0, self._transport.patience.attempts, ""
        while seen < descriptor.size and tries > 0:
            tries -= 1
            try:
                for piece in self._rest(descriptor, seen):
                    seen, tries = seen + len(piece), self._transport.patience.attempts
                    yield piece
            except OSError as error:
                broken = f" ({error})"
        if seen < descriptor.size:
            words = f"pulling {self._reference.name}: blob {descriptor.digest} broke off{broken}"
            raise PullError(f"{words} after {seen} of {descriptor.size} bytes", hint="Try again")

    def _rest(self, descriptor: Descriptor, start: int) -> Iterator[bytes]:
        """A blob from the byte ``start`` on, to where the connection ends; some registries send all of it again."""
        with self._blob(descriptor, start) as response:
            at = start if response.status == 206 else 0
            while at < descriptor.size and (piece := response.read(_CHUNK)):
                fresh = piece[max(0, start - at) :][: descriptor.size - max(at, start)]
                at += len(piece)
                if fresh:
                    yield fresh

    def _blob(self, descriptor: Descriptor, start: int) -> Response:
        url = f"{self._base}{self._reference.repository}/blobs/{descriptor.digest}"
        return self._ask(url, {"Range": f"bytes={start}-"} if start else {})

    # Who we are

    def _ask(self, url: str, headers: Mapping[str, str]) -> Response:
        """A successful answer; who we are is said only once it is asked for."""
        response = self._get(url, headers)
        if response.status == 401:
            response.close()
            self._authorize(response.headers.get("WWW-Authenticate", ""))
            response = self._get(url, headers)
        if response.status in (200, 206):
            return response
        with response:
            raise PullError(
                f"pulling {self._reference.name}: the registry answers {said(response)}", hint=_hint(response)
            )

    def _get(self, url: str, headers: Mapping[str, str]) -> Response:
        known = {"Authorization": self._authorization} if self._authorization else {}
        return self._transport.get(url, {**headers, **known})

    def _authorize(self, challenge: str) -> None:
        scheme, _, rest = challenge.strip().partition(" ")
        fields = {name.lower(): quoted or plain for name, quoted, plain in _CHALLENGE.findall(rest)}
        credentials = find_credentials(self._reference.host)
        if scheme.lower() == "basic":
            if credentials is None or not credentials.user:
                words = f"pulling {self._reference.name}: {self._reference.host} wants a user and a password"
                raise PullError(words, hint=f"`docker login {self._reference.host}` stores them")
            self._authorization = _basic(credentials)
        elif scheme.lower() == "bearer" and fields.get("realm"):
            self._authorization = f"Bearer {self._token(fields, credentials)}"
        else:
            words = (
                f"pulling {self._reference.name}: the registry wants to know who we are, by {scheme or 'no scheme'!r}"
            )
            raise PullError(words, hint="Known are Basic and Bearer")

    def _token(self, fields: Mapping[str, str], credentials: Credentials | None) -> str:
        """Ask the token service that the registry names (distribution's token authentication)."""
        scope = fields.get("scope") or f"repository:{self._reference.repository}:pull"
        query = {"service": fields.get("service", ""), "scope": scope}
        realm, headers, data = fields["realm"], {}, None
        if credentials is not None and credentials.identity_token:
            form = {**query, "grant_type": "refresh_token", "refresh_token": credentials.identity_token}
            data = urllib.parse.urlencode({**form, "client_id": "kern-sandbox"}).encode()
        else:
            realm += ("&" if "?" in realm else "?") + urllib.parse.urlencode(query)
            if credentials is not None:
                headers = {"Authorization": _basic(credentials)}
        with self._transport.get(realm, headers, data) as response:
            if response.status != 200:
                words = f"pulling {self._reference.name}: the token service answers {said(response)}"
                raise PullError(words, hint=_hint(response))
            try:
                plain = json.loads(response.whole(1 << 20))
                return str(plain.get("token") or plain["access_token"])
            except (ValueError, KeyError, AttributeError, OSError, RecursionError):
                words = f"pulling {self._reference.name}: the token service sends no token"
                raise PullError(words) from None


def _basic(credentials: Credentials) -> str:
    pair = f"{credentials.user}:{credentials.password}".encode()
    return f"Basic {base64.b64encode(pair).decode('ascii')}"


def _hint(response: Response) -> str:
    if response.status in (401, 403):
        return "Is the name right? A repository that does not exist is often refused like one that needs a login"
    return "Is the name right, and the tag?" if response.status == 404 else ""
