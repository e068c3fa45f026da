"""How the user's own configuration of pip and npm reaches the box of a setup, and only that one.

It is taken by an allow-list: where packages are, and what is needed to get there. What holds a password or a token
stays outside; the Sandbox's ``env`` is the way to hand one over knowingly.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from .._box.mountrules import checked_mounts
from .._box.plan import Bind, Step, Text, Userland
from ..errors import SpecError

__all__ = ["Registries", "registries"]

PLACE = "/.box/setup"
_PIP = frozenset(
    (
        "cert", "constraint", "default-timeout", "extra-index-url", "find-links", "index-url", "no-binary", "no-index",
        "only-binary", "pre", "prefer-binary", "proxy", "retries", "timeout", "trusted-host",
    )
)  # fmt: skip
_PIP_FILES = ("cert", "constraint")
_PIP_PLACES = ("index-url", "extra-index-url", "find-links")
_NPM = re.compile(r"(@[^:=\s]+:)?registry|cafile|proxy|https-proxy|noproxy|strict-ssl")
_VARIABLES = (
    "http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL",
)  # fmt: skip
_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")
_MAX_FILE = 1 << 20
_ANYWHERE = "/mnt/index"
_PRIVATE_KEY = "PRIVATE KEY-----"


class Registries(NamedTuple):
    """What a setup box gets of the host's configuration.

    Attributes:
        env: variables.
        steps: configuration and certificate files of the box's root.
        mounts: directories that hold a local index.
        left_out: what was configured and does not go in, with the reason, for a person whose setup fails.
    """

    env: Mapping[str, str]
    steps: tuple[Step, ...]
    mounts: tuple[Bind, ...]
    left_out: tuple[str, ...]


def registries(userland: Userland, env: Mapping[str, str]) -> Registries:
    """Read the configuration of this user and this machine.

    Args:
        userland: of the box; what it shows anyway is not mounted again.
        env: the environment to read, such as ``os.environ``.
    """
    gathering = _Gathering(userland)
    pip = "".join(f"{key} = {_indented(value)}\n" for key, value in gathering.pip(env).items())
    npm = "".join(f"{key}={value}\n" for key, value in gathering.npm(env).items())
    variables = gathering.variables(env)
    texts = (Text(f"{PLACE}/pip.conf", f"[global]\n{pip}"), Text(f"{PLACE}/npmrc", npm))
    return Registries(
        env={"PIP_CONFIG_FILE": f"{PLACE}/pip.conf", "NPM_CONFIG_USERCONFIG": f"{PLACE}/npmrc", **variables},
        steps=(*texts, *gathering.files.values()),
        mounts=tuple(gathering.mounts.values()),
        left_out=tuple(gathering.left_out),
    )


class _Gathering:
    """What has been found so far."""

    def __init__(self, userland: Userland) -> None:
        self.places = userland.places()
        self.files: dict[str, Text] = {}
        self.mounts: dict[str, Bind] = {}
        self.left_out: list[str] = []

    def pip(self, env: Mapping[str, str]) -> dict[str, str]:
        """Settings of pip, those of the environment before those of files."""
        given = _pip_files(env)
        given.update({name[4:].lower().replace("_", "-"): env[name] for name in sorted(env) if name.startswith("PIP_")})
        kept = {}
        for key, value in given.items():
            if key not in _PIP or not value.strip() or not self._is_public(f"pip's {key}", value):
                continue
            shown = self._file if key in _PIP_FILES else self._local if key in _PIP_PLACES else str
            value_there = " ".join(filter(None, map(shown, value.split())))
            if value_there:
                kept[key] = value_there
        return kept

    def npm(self, env: Mapping[str, str]) -> dict[str, str]:
        """Settings of npm."""
        kept = {}
        for key, value in _npm_settings(env):
            if not _NPM.fullmatch(key) or "${" in value or not self._is_public(f"npm's {key}", value):
                continue
            shown = self._file(value) if key == "cafile" else value
            if shown:
                kept[key] = shown
        return kept

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Proxies, and the certificates that are trusted here."""
        kept = {name: env[name] for name in _VARIABLES if env.get(name) and self._is_public(name, env[name])}
        for name in _CERTIFICATES:
            path = self._file(env[name]) if env.get(name) else ""
            if path:
                kept[name] = path
        return kept

    def _is_public(self, what: str, value: str) -> bool:
        secret = any("@" in (word.partition("://")[2] or word).partition("/")[0] for word in value.split())
        if secret:
            self.left_out.append(f"{what} holds credentials and was left out; give it in env= if the setup may know it")
        return not secret

    def _file(self, path: str) -> str:
        """Where the box sees a copy of a small public file of the host."""
        if "://" in path:
            return path
        real = os.path.realpath(os.path.expanduser(path))
        if real not in self.files:
            try:
                with open(real, encoding="utf-8", errors="replace") as file:
                    content = file.read(_MAX_FILE + 1)
            except OSError as error:
                self.left_out.append(f"{path} was left out: {error.strerror}")
                return ""
            if len(content) > _MAX_FILE or _PRIVATE_KEY in content:
                self.left_out.append(f"{path} was left out: it is too large, or holds a private key")
                return ""
            self.files[real] = Text(f"{PLACE}/{len(self.files)}-{os.path.basename(real)}", content)
        return self.files[real].path

    def _local(self, word: str) -> str:
        """A place where pip looks, as the box sees it: a directory or file of the host is mounted.

        Pages of an index name files beside it, so its parent is mounted where the index is called ``simple``.
        """
        is_url = word.startswith("file:")
        path = os.path.normpath(unquote(urlsplit(word).path) if is_url else os.path.expanduser(word))
        if not path.startswith("/"):
            return word
        if any(path == place or path.startswith(f"{place}/") for place in self.places):
            return word
        top = os.path.dirname(path) if os.path.basename(path) == "simple" else path
        try:
            if top not in self.mounts:
                bind = checked_mounts({top: _ANYWHERE}, self.places, ())[0]
                self.mounts[top] = bind._replace(target=f"{PLACE}/local-{len(self.mounts)}")
        except SpecError as error:
            self.left_out.append(f"{path}, where pip looks for packages, was left out: {error}")
            return ""
        there = self.mounts[top].target + path[len(top) :]
        return f"file://{quote(there)}" if is_url else there


def _indented(value: str) -> str:
    return "\n    ".join(value.split())


def _pip_files(env: Mapping[str, str]) -> dict[str, str]:
    """The settings of pip's configuration files; later files and the section ``[install]`` win, as in pip."""
    config = env.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    shared = [f"{folder}/pip/pip.conf" for folder in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")]
    paths = [*shared, "/etc/pip.conf", os.path.expanduser("~/.pip/pip.conf"), f"{config}/pip/pip.conf"]
    paths += [os.path.join(sys.prefix, "pip.conf"), env.get("PIP_CONFIG_FILE") or os.devnull]
    found: dict[str, str] = {}
    for section in ("global", "install"):
        for path in paths:
            parser = configparser.RawConfigParser()
            try:
                parser.read(path, encoding="utf-8")
            except (configparser.Error, OSError, UnicodeDecodeError):
                continue  # pip itself would say so; a setup that needs it fails with pip's own words
            if parser.has_section(section):
                found.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    return found


def _npm_settings(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    user = env.get("NPM_CONFIG_USERCONFIG") or env.get("npm_config_userconfig") or os.path.expanduser("~/.npmrc")
    for path in ("/etc/npmrc", user):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read(_MAX_FILE).splitlines()
        except OSError:
            continue  # there is none
        for line in lines:
            key, equals, value = line.partition("=")
            if equals and not line.startswith((";", "#")):
                yield key.strip(), value.strip()
    for name in sorted(env):
        if name.lower().startswith("npm_config_"):
            yield name.lower()[len("npm_config_") :].replace("_", "-"), env[name]
