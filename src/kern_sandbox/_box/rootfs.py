"""The facts of a userland: which files of an operating system a box shows, and where its interpreter is."""

from __future__ import annotations

import functools
import os
import sys

from ..errors import HostError
from .plan import Bind, Folder, Link, Step, Text, Userland

__all__ = ["etc_texts", "host_userland"]

_OS_DIRECTORIES = ("bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr", "nix/store", "gnu/store")
# What programs need of /etc and that holds no secret; everything else of it stays outside.
_ETC = (
    "alternatives", "ca-certificates", "crypto-policies", "debian_version", "fonts", "ImageMagick-6", "ImageMagick-7",
    "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "magic", "magic.mime", "mime.types", "os-release", "perl", "pki/ca-trust/extracted", "pki/tls/certs", "protocols",
    "R", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
_BIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n"


def _entry(path: str) -> Step:
    """``path`` of the host at the same place in the box: a link stays a link."""
    return Link(path, os.readlink(path)) if os.path.islink(path) else Bind(os.path.realpath(path), path)


def _interpreter() -> tuple[str, str]:
    """The running interpreter outside any virtual environment, and the prefix that it needs."""
    executable = getattr(sys, "_base_executable", None) or sys.executable
    path = os.path.realpath(executable) if executable else ""
    prefix = os.path.realpath(sys.base_prefix)
    if not path or not os.path.exists(path) or prefix == "/":
        raise HostError(
            f"finding the running Python's own files (executable {executable!r}, base_prefix {sys.base_prefix!r})",
            hint="Start the program with an ordinary python3 executable.",
        )
    return path, prefix


def etc_texts(*, network: bool) -> list[Step]:
    """The files of ``/etc`` that tell a box where it is, the same for every userland."""
    steps: list[Step] = [
        Text("/etc/hosts", _read("/etc/hosts", _HOSTS) if network else _HOSTS),
        Text("/etc/hostname", "sandbox\n"),
        Text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ]
    if network:
        steps.append(Text("/etc/resolv.conf", _read("/etc/resolv.conf", "")))
    return steps


@functools.lru_cache(maxsize=2)
def host_userland(network: bool) -> Userland:
    """The host's own operating system, read-only, without anything that is the user's.

    Args:
        network: whether boxes share the host's network, and so need its name resolution.

    Raises:
        HostError: the running interpreter cannot be located.
    """
    steps: list[Step] = [_entry(f"/{name}") for name in _OS_DIRECTORIES if os.path.lexists(f"/{name}")]
    python, prefix = _interpreter()
    shown = ("/usr/", "/nix/store/", "/gnu/store/", f"{prefix}/")
    own = dict.fromkeys((prefix, os.path.dirname(python)))
    steps.extend(Bind(path, path) for path in own if path not in ("/bin", "/usr") and not path.startswith(shown))
    steps.append(Folder("/etc"))
    steps.extend(_entry(f"/etc/{name}") for name in _ETC if os.path.exists(f"/etc/{name}"))
    steps += etc_texts(network=network)
    own_bin = f"{prefix}/bin"
    path = _BIN if own_bin == "/usr/bin" else f"{own_bin}:{_BIN}"
    return Userland(name="the host userland", steps=tuple(steps), python=python, path=path)


def _read(path: str, default: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return default
