"""References mean what they mean to Docker, and what is none is refused with what is accepted."""

from __future__ import annotations

import pytest

from kern_sandbox import MountRefused, Sandbox, SpecError
from kern_sandbox._image.reference import is_loopback, parse

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("python", "docker.io", "library/python", "latest", ""),
        ("python:3.12-slim", "docker.io", "library/python", "3.12-slim", ""),
        ("team/app", "docker.io", "team/app", "latest", ""),
        ("docker.io/python:3", "docker.io", "library/python", "3", ""),
        ("index.docker.io/team/app:v1", "docker.io", "team/app", "v1", ""),
        ("localhost/app", "localhost", "app", "latest", ""),
        ("localhost:5000/team/app:v1", "localhost:5000", "team/app", "v1", ""),
        ("registry.example/a/b/c", "registry.example", "a/b/c", "latest", ""),
        ("registry.example:443/a_b/c-d__e.f:T.g-1_2", "registry.example:443", "a_b/c-d__e.f", "T.g-1_2", ""),
        ("[::1]:5000/app", "[::1]:5000", "app", "latest", ""),
        (f"app@{DIGEST}", "docker.io", "library/app", "", DIGEST),
        (f"registry.example/app:v1@{DIGEST}", "registry.example", "app", "v1", DIGEST),
    ],
)
def test_a_reference_is_taken_apart_as_docker_does(
    text: str, host: str, repository: str, tag: str, digest: str
) -> None:
    found = parse(text)
    assert (found.kind, found.host, found.repository, found.tag, found.digest) == (
        "registry", host, repository, tag, digest,
    )  # fmt: skip
    assert parse(found.name) == found
    assert found.wanted == (digest or tag)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "App", "a b", "app:", "app:-x", "app:" + "t" * 129, "app@sha256:12", f"app@{DIGEST.upper()}",
        "http://registry.example/app", "registry.example/", "../app", "a//b", "-a", "a\nb", "a\0b",
        "oci-archive:", "dir:",
        "docker-archive:", "registry.example:port/app", "a/" + "b" * 256, 5, b"app", True,
    ],
)  # fmt: skip
def test_what_is_no_reference_is_refused_when_given(text: object) -> None:
    with pytest.raises(SpecError, match="image="):
        Sandbox(image=text)  # type: ignore[arg-type]


def test_a_local_archive_may_name_one_of_its_images(tmp_path) -> None:
    (tmp_path / "a:b.tar").touch()
    (tmp_path / "c.tar").touch()
    assert parse(f"docker-archive:{tmp_path}/a:b.tar").path == f"{tmp_path}/a:b.tar"
    named = parse(f"docker-archive:{tmp_path}/c.tar:team/app:v1")
    assert (named.path, named.tag) == (f"{tmp_path}/c.tar", "team/app:v1")


@pytest.mark.parametrize("place", ["/", "/etc", "/root", "/proc/self/root", "/usr/.."])
def test_a_directory_that_is_never_shown_is_no_root(place: str) -> None:
    with pytest.raises(MountRefused):
        Sandbox(image=f"dir:{place}")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True), ("localhost:5000", True), ("127.0.0.1:1", True), ("127.9.9.9", True), ("[::1]:5000", True),
        ("[::1]", True), ("::1", True), ("0.0.0.0", True), ("2001:db8::1", False), ("localhost.example", False),
        ("127.0.0.1.example", False), ("10.0.0.1:5000", False), ("registry.example", False),
    ],
)  # fmt: skip
def test_only_this_machine_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
