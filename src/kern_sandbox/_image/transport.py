"""HTTP for a registry: deadlines, retries and redirects; what it asks for and where it may go is decided here.

Plain HTTP goes to this machine only, and a registry elsewhere cannot send us to it.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ..checks import printable
from ..errors import PullError
from .reference import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Patience", "Response", "Transport", "said"]

_REDIRECTS = 5
_AGAIN = frozenset((429, 500, 502, 503, 504))
_MOVED = frozenset((301, 302, 303, 307, 308))
_SLOWEST = 1024
"""Bytes a second below which a registry counts as hanging."""
_TIMEOUTS = (TimeoutError, socket.timeout)
"""They are one and the same from Python 3.10 on."""
_AGENT = "kern-sandbox"
_NETWORK = "Is the name right, and the registry reachable from here?"


class Patience(NamedTuple):
    """How long to wait for a registry.

    Attributes:
        silence_s: until it answers, or says more.
        attempts: how often one thing is asked for.
        longest_s: the longest that it may ask us to wait.
        first_s: the pause before the second attempt; it doubles.
    """

    silence_s: float = 30.0
    attempts: int = 5
    longest_s: float = 60.0
    first_s: float = 0.5


class Response:
    """An answer: ``status``, ``headers``, and a body that is read within the deadlines."""

    def __init__(self, url: str, raw: Any, patience: Patience) -> None:
        self.url = url
        self.status: int = raw.status
        self.headers: Mapping[str, str] = raw.headers
        self._raw = raw
        self._patience = patience
        self._began = time.monotonic()
        self._seen = 0

    def read(self, size: int) -> bytes:
        """Some bytes, at most ``size``; empty at the end, which may have come too early.

        Raises:
            PullError: it has fallen silent, or sends next to nothing.
            OSError: the connection broke.
        """
        try:
            piece: bytes = self._raw.read1(size)
        except _TIMEOUTS:
            raise _silent(self.url, self._patience) from None
        except (http.client.HTTPException, ValueError) as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        self._seen += len(piece)
        elapsed = time.monotonic() - self._began
        if piece and elapsed > self._patience.silence_s and self._seen < elapsed * _SLOWEST:
            raise _silent(self.url, self._patience)
        return piece

    def whole(self, limit: int) -> bytes:
        """The body.

        Raises:
            PullError: it is longer than ``limit``.
            OSError: the connection broke.
        """
        parts: list[bytes] = []
        left = limit
        while piece := self.read(left + 1):
            parts.append(piece)
            left -= len(piece)
            if left < 0:
                raise PullError(f"reading {self.url}: the answer is longer than {limit} bytes")
        content = b"".join(parts)
        expected = _count(self.headers.get("Content-Length", ""))
        if expected not in (None, len(content)):
            raise ConnectionError(f"the answer ended after {len(content)} of {expected} bytes")
        return content

    def close(self) -> None:
        """Let the connection go."""
        self._raw.close()

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _count(text: str) -> int | None:
    """A number in a header; ``None`` for anything else that a registry may have written there."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _silent(url: str, patience: Patience) -> PullError:
    words = f"asking {_place(url)}: it said nothing, or next to nothing, for {patience.silence_s:g} s"
    return PullError(words, hint="Try again later, or use another registry")


def _place(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc.rpartition("@")[2]


class _Stay(urllib.request.HTTPRedirectHandler):
    """Redirects are followed by ``Transport``, which sees where they lead."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Transport:
    """Asks one registry; ``home`` is its host."""

    def __init__(self, home: str, patience: Patience | None = None) -> None:
        self.home = home
        self.patience = patience or Patience()
        self._pause: Callable[[float], None] = time.sleep
        secure = urllib.request.HTTPSHandler(context=ssl.create_default_context())
        self._direct = urllib.request.build_opener(_Stay, secure, urllib.request.ProxyHandler({}))
        self._proxied = urllib.request.build_opener(_Stay, secure)

    def get(self, url: str, headers: Mapping[str, str], data: bytes | None = None) -> Response:
        """Ask for ``url`` until there is an answer worth having; redirects are followed. The caller closes it.

        Args:
            url: where to ask.
            headers: what to send; ``Authorization`` does not go along to another host.
            data: the body of a POST, which does not go along at all.

        Raises:
            PullError: no answer, silence, or a redirect to where none may lead.
        """
        wait = self.patience.first_s
        for left in reversed(range(self.patience.attempts)):
            try:
                response = self._follow(url, headers, data)
            except ValueError as error:
                words = f"asking {self.home}: it leads to an address that cannot be read ({printable(str(error))})"
                raise PullError(words) from error
            except ConnectionError as error:
                if not left:
                    raise PullError(f"asking {_place(url)}: {error}", hint=_NETWORK) from error
                self._pause(wait)
            else:
                if response.status not in _AGAIN or not left:
                    return response
                response.close()
                self._pause(self._asked_to_wait(response, wait))
            wait *= 2
        raise AssertionError("attempts is 1 or more")

    def _asked_to_wait(self, response: Response, otherwise: float) -> float:
        """Seconds until the next attempt, by ``Retry-After`` (RFC 9110, 10.2.3) where it is sent."""
        text = response.headers.get("Retry-After", "").strip()
        if not text:
            return min(otherwise, self.patience.longest_s)
        count = _count(text)
        try:
            wait = email.utils.parsedate_to_datetime(text).timestamp() - time.time() if count is None else float(count)
        except (TypeError, ValueError, IndexError, OverflowError):
            wait = otherwise
        if wait > self.patience.longest_s:
            words = f"asking {_place(response.url)}: it answers {response.status} and wants us to wait {wait:.0f} s"
            raise PullError(words, hint="Try again later, or log in: registries limit those whom they do not know")
        return max(0.0, wait)

    def _follow(self, url: str, headers: Mapping[str, str], data: bytes | None) -> Response:
        first = urllib.parse.urlsplit(url)
        for _ in range(_REDIRECTS + 1):
            self.check(url)
            own = urllib.parse.urlsplit(url)[:2] == first[:2]
            sent = {name: value for name, value in headers.items() if own or name != "Authorization"}
            response = self._once(url, sent, data if own else None)
            target = response.headers.get("Location")
            if response.status not in _MOVED or not target:
                return response
            response.close()
            url = urllib.parse.urljoin(url, target)
        raise PullError(f"asking {self.home}: more than {_REDIRECTS} redirects, the last to {_place(url)}")

    def check(self, url: str) -> None:
        """Whether we go there at all.

        Raises:
            PullError: plain HTTP to another machine, another scheme, or this machine on another's word.
        """
        parts = urllib.parse.urlsplit(url)
        local = is_loopback(parts.hostname or "")
        if parts.scheme != "https" and not (parts.scheme == "http" and local):
            raise PullError(f"asking {self.home}: it leads to {url[:200]!r}; only https is followed")
        if local and not is_loopback(self.home):
            raise PullError(f"asking {self.home}: it leads to this machine itself ({_place(url)}), which is refused")

    def _once(self, url: str, headers: Mapping[str, str], data: bytes | None) -> Response:
        request = urllib.request.Request(url, data, {"User-Agent": _AGENT, **headers})  # noqa: S310 - see `check`
        opener = self._direct if is_loopback(_place(url)) else self._proxied
        try:
            raw = opener.open(request, timeout=self.patience.silence_s)
        except urllib.error.HTTPError as error:
            raw = error
        except _TIMEOUTS:
            raise _silent(url, self.patience) from None
        except urllib.error.URLError as error:
            raise self._unreached(url, error.reason) from error
        except (http.client.HTTPException, ValueError) as error:
            raise ConnectionError(f"no HTTP answer: {type(error).__name__}: {error}") from error
        if not hasattr(raw, "read1"):
            raw.read1 = raw.read
        return Response(url, raw, self.patience)

    def _unreached(self, url: str, reason: object) -> Exception:
        if isinstance(reason, _TIMEOUTS):
            return _silent(url, self.patience)
        if isinstance(reason, ssl.SSLCertVerificationError):
            hint = "SSL_CERT_FILE names a file with the certificates to trust"
            return PullError(
                f"asking {_place(url)}: its certificate is not trusted ({reason.verify_message})", hint=hint
            )
        if isinstance(reason, (ConnectionRefusedError, socket.gaierror)):
            return PullError(f"asking {_place(url)}: {reason.strerror}", hint=_NETWORK)
        if isinstance(reason, ConnectionError):
            return reason
        return ConnectionError(str(reason))


def said(response: Response) -> str:
    """The status and the registry's own words for it, printable and short."""
    try:
        content = response.whole(64 << 10)
    except (PullError, OSError):
        content = b""
    text = _words(content) or http.client.responses.get(response.status, "")
    return f"{response.status}: {printable(text)[:400]}".strip(": ")


def _words(content: bytes) -> str:
    """The messages of an error as the distribution specification writes it, else the text itself."""
    text = content.decode("utf-8", "replace").strip()
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return text
    errors = plain.get("errors") if isinstance(plain, dict) else None
    if not isinstance(errors, list):
        return str(plain.get("message") or plain.get("details") or text) if isinstance(plain, dict) else text
    told = [error for error in errors if isinstance(error, dict)]
    return "; ".join(f"{error.get('message', '')} ({error.get('code', '')})" for error in told) or text
