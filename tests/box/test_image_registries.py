"""Debian's docker-registry on loopback: in the open, behind a password, and with TLS by a CA of the tests."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

import pytest

import kern_sandbox
from command import kern
from images import INDEX, MACHINE, MANIFEST, Built, build, folder, gzipped, index, layer, member, symlink, zstd_packed
from support import need, need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# htpasswd(1)'s line for the user "user" with the password "secret".
_USER = "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"
PACKS: dict[str, Callable[[bytes], bytes]] = {"plain": bytes, "gzip": gzipped, "zstd": zstd_packed}


class Registries(NamedTuple):
    """Three doors to the same images."""

    open: str
    guarded: str
    secure: str
    ca: Path


def box_image(pack: str, architecture: str = MACHINE) -> Built:
    busybox = Path(shutil.which("busybox") or "")
    entries = [folder("bin"), member("bin/busybox", busybox.read_bytes(), mode=0o755), symlink("bin/sh", "busybox")]
    return build(layer(*entries), layer(member("etc/packed", pack)), pack=PACKS[pack], architecture=architecture)


def push(host: str, image: Built, tag: str) -> None:
    """Upload as the distribution specification says; ``tag`` or a digest."""
    with contextlib.closing(http.client.HTTPConnection(host, timeout=30)) as connection:
        _push(connection, image)
        _put(connection, image.manifest, tag, MANIFEST)


def _push(connection: http.client.HTTPConnection, image: Built) -> None:
    for name, content in image.blobs.items():
        connection.request("POST", "/v2/team/app/blobs/uploads/")
        response = connection.getresponse()
        response.read()
        target = response.headers["Location"]
        connection.request("PUT", f"{target}&digest={name}", content, {"Content-Type": "application/octet-stream"})
        response = connection.getresponse()
        assert response.status == 201, response.read()
        response.read()


def _put(connection: http.client.HTTPConnection, content: bytes, tag: str, kind: str) -> None:
    connection.request("PUT", f"/v2/team/app/manifests/{tag}", content, {"Content-Type": kind})
    response = connection.getresponse()
    said = response.read()
    assert response.status == 201, said


@contextlib.contextmanager
def serving(where: Path, name: str, more: Mapping[str, object], door: Mapping[str, object]) -> Iterator[str]:
    """A registry process; yields its address."""
    config = {
        "version": 0.1, "log": {"level": "info", "accesslog": {"disabled": True}},
        "http": {"addr": "127.0.0.1:0", **door},
        "storage": {"filesystem": {"rootdirectory": str(where / "data")}}, **more,
    }  # fmt: skip
    path = where / f"{name}.yml"
    path.write_text(json.dumps(config))  # which is YAML, too
    with subprocess.Popen(["docker-registry", "serve", str(path)], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = ""
            while not (found := re.search(r"listening on (127\.0\.0\.1:[0-9]+)", said)):
                line = process.stderr.readline()
                assert line, said
                said += line
            reader = threading.Thread(target=process.stderr.read, daemon=True, name="test-registry")
            reader.start()  # else it would stop at a full pipe
            yield found[1]
            process.kill()
            reader.join()
        finally:
            process.kill()


def _certificate(where: Path) -> None:
    """``ca.pem``, and ``key.pem`` and ``cert.pem`` for 127.0.0.1."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=where, check=True, capture_output=True)

    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    usage = ["-addext", "keyUsage=critical,keyCertSign"]  # Python 3.13 verifies strictly
    openssl(*new, "-x509", *usage, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=tests", "-days", "30")
    openssl(*new, "-keyout", "key.pem", "-out", "cert.csr", "-subj", "/CN=127.0.0.1")
    (where / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    signed = ["x509", "-req", "-in", "cert.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30"]
    openssl(*signed, "-out", "cert.pem", "-extfile", "names")


@pytest.fixture(scope="module")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registries]:
    """Images of one repository: plain, gzip, zstd, an index for two platforms, and one for another machine."""
    need_boxes()
    for program in ("docker-registry", "openssl", "busybox"):
        need(shutil.which(program) is not None, f"{program} is not installed")
    where = tmp_path_factory.mktemp("registry")
    _certificate(where)
    (where / "users").write_text(_USER)
    guard = {"auth": {"htpasswd": {"realm": "tests", "path": str(where / "users")}}}
    tls = {"tls": {"certificate": str(where / "cert.pem"), "key": str(where / "key.pem")}}
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(serving(where, "open", {}, {}))
        second = stack.enter_context(serving(where, "guarded", guard, {}))
        third = stack.enter_context(serving(where, "secure", {}, tls))
        for pack in ("plain", "gzip"):
            push(first, box_image(pack), pack)
        both = {"s390x": box_image("plain", "s390x"), MACHINE: box_image("gzip")}
        for image in both.values():
            push(first, image, image.digest)
        with contextlib.closing(http.client.HTTPConnection(first, timeout=30)) as connection:
            _put(connection, index(both), "both", INDEX)
        push(first, both["s390x"], "foreign")
        yield Registries(first, second, third, where / "ca.pem")


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store and a Docker configuration of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


def packed(image: str) -> kern_sandbox.ExecutionResult:
    return kern_sandbox.run_code("read -r how </etc/packed; echo $how", language="sh", image=image)


@pytest.mark.parametrize(("tag", "how"), [("plain", "plain"), ("gzip", "gzip"), ("both", "gzip")])
def test_a_box_shows_what_a_registry_serves(tag: str, how: str, registries: Registries) -> None:
    result = packed(f"{registries.open}/team/app:{tag}")
    assert (result.stdout, result.fault) == (f"{how}\n", None)
    digest = box_image(how).digest
    assert packed(f"{registries.open}/team/app@{digest}").stdout == f"{how}\n"


def test_layers_packed_with_zstd_are_read(registries: Registries) -> None:
    push(registries.open, box_image("zstd"), "zstd")
    assert packed(f"{registries.open}/team/app:zstd").stdout == "zstd\n"


def test_an_image_is_there_when_the_registry_is_not(registries: Registries, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    with serving(tmp_path / "again", "short", {}, {}) as host:
        push(host, box_image("gzip"), "v1")
        assert packed(f"{host}/team/app:v1").stdout == "gzip\n"
    assert packed(f"{host}/team/app:v1").stdout == "gzip\n"
    gone = packed(f"{host}/team/app:v2")
    assert gone.fault is not None
    assert gone.fault.type == "startup_failed"


@pytest.mark.parametrize(
    ("name", "words"),
    [("team/app:tpyo", "manifest unknown"), ("team/none:v1", "404"), ("team/app:foreign", "it is for linux/s390x")],
)
def test_what_cannot_be_had_is_a_fault_in_the_registrys_words(name: str, words: str, registries: Registries) -> None:
    with kern_sandbox.Sandbox(image=f"{registries.open}/{name}") as sandbox:
        for result in (sandbox.run_code("print(1)"), sandbox.run(["true"])):
            assert result.fault is not None
            assert (result.exit_code, result.fault.type) == (1, "startup_failed")
            assert words in result.fault.message
            assert words in result.stderr
            assert not result.success
        with pytest.raises(kern_sandbox.ImageError, match=words):
            sandbox.spawn(["true"])


def test_a_password_from_dockers_configuration_opens_the_door(registries: Registries, tmp_path: Path) -> None:
    name = f"{registries.guarded}/team/app:gzip"
    refused = packed(name)
    assert refused.fault is not None
    assert "wants a user and a password" in refused.fault.message
    for password, opens in (("wrong", False), ("secret", True)):
        auth = base64.b64encode(f"user:{password}".encode()).decode()
        (tmp_path / "config.json").write_text(json.dumps({"auths": {registries.guarded: {"auth": auth}}}))
        result = packed(name)
        assert (result.stdout == "gzip\n") is opens
        assert opens or "401" in result.stderr


def test_a_certificate_is_checked(registries: Registries, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{registries.secure}/team/app:gzip"
    refused = packed(name)
    assert refused.fault is not None
    assert "certificate is not trusted" in refused.fault.message
    monkeypatch.setenv("SSL_CERT_FILE", str(registries.ca))
    assert packed(name).stdout == "gzip\n"


def test_pulling_again_asks_what_the_tag_names_now(registries: Registries) -> None:
    name = f"{registries.open}/team/app:moving"
    push(registries.open, box_image("plain"), "moving")
    assert packed(name).stdout == "plain\n"
    push(registries.open, box_image("gzip"), "moving")
    assert packed(name).stdout == "plain\n"
    done = kern("pull", "--json", name)
    assert json.loads(done.stdout) == [{"name": name, "digest": box_image("gzip").digest}]
    assert done.stderr == b""
    assert packed(name).stdout == "gzip\n"


def test_a_pull_that_fails_has_a_status_and_words(registries: Registries) -> None:
    done = kern("pull", "--json", f"{registries.open}/team/app:tpyo")
    assert done.returncode == 125
    assert json.loads(done.stdout)["error"]["type"] == "PullError"
    assert b"manifest unknown" in done.stderr
