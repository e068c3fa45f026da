"""Who we are to a registry: Docker's own ``config.json`` and credential helpers, read and never written."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import shutil
import subprocess
from typing import Any, NamedTuple

from ..errors import PullError
from .reference import HUB

__all__ = ["Credentials", "find_credentials"]

_HUB_KEY = f"https://index.{HUB}/v1/"
_HELPER_LIMIT_S = 30
_HELPER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_BY_TOKEN = "<token>"  # noqa: S105 - the user name with which helpers mark an identity token


class Credentials(NamedTuple):
    """A user and a password, or an identity token that a token service exchanges."""

    user: str
    password: str
    identity_token: str = ""


def find_credentials(host: str) -> Credentials | None:
    """What Docker would send to the registry ``host``; ``None`` where it knows nothing.

    Raises:
        PullError: the configuration cannot be read, or its helper fails.
    """
    folder = os.environ.get("DOCKER_CONFIG") or os.path.join(os.path.expanduser("~"), ".docker")
    path = os.path.join(folder, "config.json")
    config = _read(path)
    keys = [_HUB_KEY, HUB, f"index.{HUB}"] if host == HUB else [host, f"https://{host}", f"http://{host}"]
    helpers = _mapping(config.get("credHelpers"))
    for key in keys:
        if isinstance(helpers.get(key), str):
            return _ask_helper(helpers[key], key)
    store = config.get("credsStore")
    if isinstance(store, str) and store:
        found = _ask_helper(store, keys[0])
        if found is not None:
            return found
    return _from_auths(_mapping(config.get("auths")), keys, path)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return _mapping(json.loads(file.read()))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise PullError("reading the credentials for registries", errno=error.errno, path=path) from error
    except ValueError:
        raise PullError("reading the credentials for registries: not JSON", path=path, hint="Mend the file") from None


def _from_auths(auths: dict[str, Any], keys: list[str], path: str) -> Credentials | None:
    plain = {re.sub(r"\Ahttps?://|/v[12]/?\Z|/\Z", "", key): value for key, value in auths.items()}
    for key in keys:
        entry = _mapping(auths.get(key) or plain.get(key))
        if entry:
            return _entry(entry, key, path)
    return None


def _entry(entry: dict[str, Any], key: str, path: str) -> Credentials | None:
    user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        try:
            user, _, password = base64.b64decode(str(entry["auth"]), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            words = f"reading the credentials for {key}: its 'auth' is not base64 of USER:PASSWORD"
            raise PullError(words, path=path, hint="Log in again") from None
    token = str(entry.get("identitytoken") or "")
    return Credentials(user, password.rstrip("\0"), token) if user or token else None


def _ask_helper(name: str, key: str) -> Credentials | None:
    """``docker-credential-NAME get``: the key on its standard input, JSON back."""
    program = shutil.which(f"docker-credential-{name}") if _HELPER_NAME.fullmatch(name) else None
    asked = f"asking the credential helper {name!r} about {key}"
    if program is None:
        raise PullError(f"{asked}: it is not installed", hint="Install it, or take it out of Docker's config.json")
    try:
        done = subprocess.run(
            [program, "get"], input=key.encode(), capture_output=True, timeout=_HELPER_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PullError(f"{asked}: {error}") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        if "not found" in said:
            return None
        raise PullError(f"{asked}: {said[:200] or f'exit status {done.returncode}'}")
    try:
        answer = _mapping(json.loads(done.stdout))
    except ValueError:
        raise PullError(f"{asked}: its answer is not JSON") from None
    user, secret = str(answer.get("Username") or ""), str(answer.get("Secret") or "")
    return Credentials("", "", secret) if user == _BY_TOKEN else Credentials(user, secret)
