"""A registry as it is on a bad day: every answer that it can give ends in an image, or in an error that says why."""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from images import (
    Answer,
    Asked,
    Script,
    build,
    digest,
    folder,
    index,
    layer,
    member,
    missing,
    refusal,
    scripted,
    shelf,
)  # fmt: skip
from kern_sandbox import DigestMismatch, ImageError, PullError, SandboxError
from kern_sandbox._image.images import Image, Making, obtain
from kern_sandbox._image.reference import parse
from kern_sandbox._image.store import Store
from kern_sandbox._image.transport import Patience, Transport

IMAGE = build(layer(folder("bin"), member("bin/a", random.Random(1).randbytes(200_000))))
LAYER = digest(IMAGE.layers[0])
PATIENT = Patience(silence_s=30, attempts=3, longest_s=0.2, first_s=0.01)
QUICK = PATIENT._replace(silence_s=0.3)
"""For a registry that falls silent; every other one may be as slow as this machine is busy."""


@pytest.fixture(autouse=True)
def no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's credentials."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    (tmp_path / "docker").mkdir()


def pull(host: str, where: Path, name: str = "app:v1", patience: Patience = PATIENT) -> Image:
    image = obtain(parse(f"{host}/{name}"), Store(str(where / "store")), Making(patience=patience))
    image.close()
    return image


def first(answer: Answer, then: Script, part: str = "/blobs/", times: int = 1) -> Script:
    """Answer so to the first ``times`` requests with ``part`` in their path, and then like ``then``."""
    left = [times]

    def script(asked: Asked) -> Answer:
        if part in asked.path and left[0]:
            left[0] -= 1
            return answer
        return then(asked)

    return script


def always(answer: Answer, part: str = "/manifests/") -> Script:
    return first(answer, shelf(IMAGE), part, times=1000)


# --- what ends well ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["app:v1", f"app@{IMAGE.digest}", f"team/app:v1@{IMAGE.digest}"])
def test_an_image_is_pulled_by_tag_and_by_digest(name: str, tmp_path: Path) -> None:
    with scripted(shelf(IMAGE)) as registry:
        image = pull(registry.host, tmp_path, name)
        assert os.path.getsize(Path(image.root, "bin/a")) == 200_000
        count = len(registry.asked)
        assert pull(registry.host, tmp_path, name).root == image.root
        assert len(registry.asked) == count


def test_of_an_index_this_machines_image_is_taken(tmp_path: Path) -> None:
    other = build(layer(member("other", "x")), architecture="s390x")
    machine = json.loads(IMAGE.config)["architecture"]
    both = index({"s390x": other, machine: IMAGE})
    with scripted(first(Answer(body=both), shelf(IMAGE), "/manifests/v1")) as registry:
        assert pull(registry.host, tmp_path).digest == IMAGE.digest
    with (
        scripted(always(Answer(body=index({"s390x": other})))) as registry,
        pytest.raises(ImageError, match=r"has no linux/.*It has linux/s390x"),
    ):
        pull(registry.host, tmp_path / "second")


@pytest.mark.parametrize(
    "answer",
    [Answer(429, headers={"Retry-After": "0"}), Answer(500), Answer(502), Answer(503), Answer(504),
     Answer(503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
     Answer(503, headers={"Retry-After": "soon"})],
    ids=lambda answer: f"{answer.status} {answer.headers}",
)  # fmt: skip
@pytest.mark.parametrize("part", ["/manifests/", "/blobs/"])
def test_a_registry_that_is_busy_is_asked_again(answer: Answer, part: str, tmp_path: Path) -> None:
    with scripted(first(answer, shelf(IMAGE), part)) as registry:
        assert pull(registry.host, tmp_path).digest == IMAGE.digest


def test_a_blob_that_breaks_off_is_resumed_where_it_broke(tmp_path: Path) -> None:
    whole = IMAGE.blobs[LAYER]

    def script(asked: Asked) -> Answer:
        if not asked.path.endswith(LAYER):
            return shelf(IMAGE)(asked)
        start = int(asked.headers.get("Range", "bytes=0-")[6:-1])
        return Answer(206 if start else 200, whole[start:], cut=80_000)

    with scripted(script) as registry:
        pull(registry.host, tmp_path)
        ranges = [asked.headers.get("Range") for asked in registry.asked if asked.path.endswith(LAYER)]
    assert ranges == [None, "bytes=80000-", "bytes=160000-"]


def test_a_registry_that_cannot_resume_sends_all_of_it_again(tmp_path: Path) -> None:
    with scripted(first(Answer(body=IMAGE.blobs[LAYER], cut=50_000), shelf(IMAGE), LAYER)) as registry:
        assert pull(registry.host, tmp_path).digest == IMAGE.digest


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_without_our_password(status: int, tmp_path: Path) -> None:
    log_in(tmp_path, "user", "secret")
    with scripted(lambda asked: Answer(body=IMAGE.blobs[asked.path[1:]])) as elsewhere:

        def script(asked: Asked) -> Answer:
            if "Authorization" not in asked.headers:
                return Answer(401, headers={"WWW-Authenticate": 'Basic realm="here"'})
            if "/blobs/" in asked.path:
                name = asked.path.rpartition("/")[2]
                return Answer(status, headers={"Location": f"http://{elsewhere.host}/{name}"})
            return shelf(IMAGE)(asked)

        with scripted(script) as registry:
            log_in(tmp_path, "user", "secret", registry.host)
            assert pull(registry.host, tmp_path).digest == IMAGE.digest
        assert elsewhere.paths()
        assert not [asked for asked in elsewhere.asked if "Authorization" in asked.headers]


# --- who we are -------------------------------------------------------------------------------------------------


def log_in(where: Path, user: str, password: str, host: str = "registry.example", **more: Any) -> None:
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    (where / "docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth, **more}}}))


def guarded(realm: str, token: str = "t0ken") -> Script:
    """A registry that wants a token of ``realm``."""

    def script(asked: Asked) -> Answer:
        if asked.headers.get("Authorization") == f"Bearer {token}":
            return shelf(IMAGE)(asked)
        challenge = f'Bearer realm="{realm}",service="here",scope="repository:app:pull"'
        return refusal(401, "authentication required", "UNAUTHORIZED", WWW_Authenticate=challenge)

    return script


def test_a_token_is_asked_for_where_the_registry_says(tmp_path: Path) -> None:
    with scripted(lambda _: Answer(body=b'{"token": "t0ken"}')) as service:
        with scripted(guarded(f"http://{service.host}/token?x=1")) as registry:
            log_in(tmp_path, "user", "pass:word", registry.host)
            assert pull(registry.host, tmp_path).digest == IMAGE.digest
        query = parse_qs(urlsplit(service.paths()[0]).query)
        assert query == {"x": ["1"], "service": ["here"], "scope": ["repository:app:pull"]}
        assert service.asked[-1].headers["Authorization"] == "Basic " + base64.b64encode(b"user:pass:word").decode()


def test_an_identity_token_is_exchanged(tmp_path: Path) -> None:
    with scripted(lambda _: Answer(body=b'{"access_token": "t0ken"}')) as service:
        with scripted(guarded(f"http://{service.host}/token")) as registry:
            log_in(tmp_path, "user", "", registry.host, identitytoken="refresh")
            pull(registry.host, tmp_path)
        form = parse_qs(service.asked[-1].body.decode())
        assert (service.asked[-1].method, form["grant_type"], form["refresh_token"]) == (
            "POST", ["refresh_token"], ["refresh"],
        )  # fmt: skip


@pytest.mark.parametrize("setting", ["credsStore", "credHelpers"])
def test_a_credential_helper_is_asked(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "docker-credential-mine"
    helper.write_text('#!/bin/sh\nread -r host; echo "$host" >"$0.asked"; echo \'{"Username": "u", "Secret": "s"}\'\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def script(asked: Asked) -> Answer:
        if asked.headers.get("Authorization") == "Basic " + base64.b64encode(b"u:s").decode():
            return shelf(IMAGE)(asked)
        return Answer(401, headers={"WWW-Authenticate": "Basic realm=here"})

    with scripted(script) as registry:
        value = "mine" if setting == "credsStore" else {registry.host: "mine"}
        (tmp_path / "docker" / "config.json").write_text(json.dumps({setting: value}))
        assert pull(registry.host, tmp_path).digest == IMAGE.digest
        assert (tmp_path / "docker-credential-mine.asked").read_text().strip() == registry.host


@pytest.mark.parametrize(
    ("config", "words"),
    [("{", "not JSON"), ('{"credsStore": "none-such"}', "not installed"), ('{"credsStore": "../x"}', "not installed"),
     ('{"auths": {"HOST": {"auth": "!"}}}', "not base64"), ("{}", "wants a user and a password")],
)  # fmt: skip
def test_credentials_that_are_of_no_use_are_said(config: str, words: str, tmp_path: Path) -> None:
    with scripted(lambda _: Answer(401, headers={"WWW-Authenticate": 'Basic realm="x"'})) as registry:
        (tmp_path / "docker" / "config.json").write_text(config.replace("HOST", registry.host))
        with pytest.raises(PullError, match=words):
            pull(registry.host, tmp_path)


# --- what ends in an error --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (always(missing()), r"404: manifest unknown \(MANIFEST_UNKNOWN\)"),
        (always(refusal(403, "denied: \x1b[31mno", "DENIED")), r"403: denied:  \[31mno \(DENIED\)"),
        (always(Answer(401)), "by 'no scheme'"),
        (always(Answer(503, b"out for lunch")), "503: out for lunch"),
        (always(Answer(429, headers={"Retry-After": "3600"})), "429 and wants us to wait 3600 s"),
        (always(Answer(body=b"", headers={"Content-Length": "9"}, hang=True)), "said nothing"),
        (always(Answer(body=IMAGE.blobs[LAYER], cut=10, hang=True), LAYER), "said nothing"),
        (always(Answer(body=IMAGE.blobs[LAYER], cut=0), LAYER), "broke off.* after 0 of"),
        (always(Answer(404), LAYER), "404: Not Found"),
        (always(Answer(body=b"x" * (5 << 20))), "longer than"),
        (always(Answer(302, headers={"Location": "http://registry.example/x"})), "only https is followed"),
        (always(Answer(302, headers={"Location": "file:///etc/passwd"})), "only https is followed"),
        (always(Answer(302, headers={"Location": "/v2/app/manifests/v1"})), "more than 5 redirects"),
        (guarded("http://registry.example/token"), "only https is followed"),
        (guarded("https://[half/token"), "an address that cannot be read"),
        (always(Answer(302, headers={"Location": "https://[half/x"})), "Invalid IPv6 URL"),
        (always(Answer(503, headers={"Retry-After": "\xb2"})), "503: Service Unavailable"),
        (always(Answer(503, headers={"Retry-After": "Mon, 01 Jan 0001 00:00:00 -0000"})), "503: Service Unavailable"),
        (always(Answer(404, b"[" * 50_000)), r"404: \[\[\["),
        (always(Answer(404, b"no", headers={"Content-Length": "\xb2"})), "404: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pull_that_fails_says_why_in_the_registrys_words(script: Script, words: str, tmp_path: Path) -> None:
    patience = QUICK if words == "said nothing" else PATIENT
    with scripted(script) as registry, pytest.raises(PullError, match=rf"^pulling {registry.host}/app:v1: .*{words}"):
        pull(registry.host, tmp_path, patience=patience)
    assert Store(str(tmp_path / "store")).images() == []


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[]", "not a JSON object"), (b"{", "not a JSON object"), (b'{"schemaVersion": 1}', "schema 1"),
     (b"{}", "no image"),
     (b'{"config": {"digest": "md5:1", "size": 1}, "layers": []}', "not by a sha256"),
     (b'{"config": {"digest": "sha256:%s", "size": -1}, "layers": []}' % (b"0" * 64), "the size -1"),
     (b"[" * 100_000, "not a JSON object")],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    with scripted(always(Answer(body=content))) as registry, pytest.raises(ImageError, match=words):
        pull(registry.host, tmp_path)


@pytest.mark.parametrize("name", [IMAGE.digest, LAYER, digest(IMAGE.config)], ids=["manifest", "layer", "config"])
def test_content_that_is_not_what_was_named_is_refused(name: str, tmp_path: Path) -> None:
    content = {**IMAGE.blobs, IMAGE.digest: IMAGE.manifest}[name]
    other = content[:-1] + (b"!" if content[-1:] != b"!" else b"?")
    with scripted(always(Answer(body=other), name)) as registry, pytest.raises(DigestMismatch, match=name):
        pull(registry.host, tmp_path, f"app@{IMAGE.digest}")


def test_nobody_there_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:  # so that nobody else comes to listen there meanwhile
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(PullError, match="refused"):
            pull(f"127.0.0.1:{taken.getsockname()[1]}", tmp_path)


def test_a_layer_that_was_fetched_whole_is_not_fetched_again(tmp_path: Path) -> None:
    two = build(layer(member("a", "A")), layer(member("b", "B")))
    names = [digest(each) for each in two.layers]
    with scripted(first(missing("blob unknown", "BLOB_UNKNOWN"), shelf(two), names[1])) as registry:
        with pytest.raises(PullError, match="blob unknown"):
            pull(registry.host, tmp_path)
        pull(registry.host, tmp_path)
        asked = [name for path in registry.paths() for name in names if path.endswith(name)]
    assert asked == [names[0], names[1], names[1]]


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1/x", "https://localhost:5000/x", "https://[::1]/x", "http://a.example/"]
)
def test_a_registry_elsewhere_cannot_send_us_to_this_machine_or_to_plain_http(url: str) -> None:
    with pytest.raises(SandboxError, match=r"this machine itself|only https"):
        Transport("registry.example").check(url)
    Transport("registry.example").check("https://cdn.example/x")


def test_a_token_service_that_sends_a_riddle_is_said(tmp_path: Path) -> None:
    riddle = first(Answer(body=b"[" * 100_000), guarded("http://HOST/token"), "/token")
    with scripted(riddle) as registry:
        registry.script = first(Answer(body=b"[" * 100_000), guarded(f"http://{registry.host}/token"), "/token")
        with pytest.raises(PullError, match="sends no token"):
            pull(registry.host, tmp_path)


def test_the_pause_that_a_registry_asks_for_is_kept(tmp_path: Path) -> None:
    pauses: list[float] = []
    with scripted(first(Answer(429, headers={"Retry-After": "7"}), shelf(IMAGE), "/x")) as registry:
        transport = Transport(registry.host, Patience(longest_s=10))
        transport._pause = pauses.append
        with transport.get(f"http://{registry.host}/x", {}) as response:
            assert response.status == 404
    assert pauses == [7.0]


def test_a_registry_that_dribbles_counts_as_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda _: Answer(body=b"x" * 100)) as registry:
        response = Transport(registry.host, PATIENT).get(f"http://{registry.host}/x", {})
        later = time.monotonic() + 100
        monkeypatch.setattr("kern_sandbox._image.transport.time.monotonic", lambda: later)
        with response, pytest.raises(PullError, match="next to nothing"):
            response.read(10)
