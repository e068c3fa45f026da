"""Which host paths are never shown in a box, whatever leads there; each refusal has its control."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kern_sandbox import MountRefused, SpecError
from kern_sandbox._box.mountrules import check_workspace, checked_mounts
from kern_sandbox._box.plan import Bind

CREDENTIALS = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".azure",
    ".oci",
    ".terraform.d",
    ".password-store",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".npmrc",
    ".databrickscfg",
    ".boto",
    ".s3cfg",
    ".rclone.conf",
    ".config/gcloud",
    ".config/gh",
    ".config/doctl",
    ".config/rclone",
]


class BytesPath(os.PathLike[bytes]):
    """A path in bytes."""

    def __fspath__(self) -> bytes:
        return b"/srv"


USERLAND = ["/usr", "/lib", "/bin"]


def check(source: object, target: object = "/data") -> Bind:
    (bind,) = checked_mounts({source: target}, USERLAND, ["/tmp"])  # type: ignore[dict-item]  # some are wrong on purpose
    return bind


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with credentials, and nothing else of this machine's."""
    home = tmp_path / "home"
    for name in (".ssh", ".config/gcloud", ".cache/kern-sandbox", ".config/kern", "project/src"):
        (home / name).mkdir(parents=True)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    return home


def test_a_project_is_shown_read_only_unless_asked_otherwise(home: Path) -> None:
    about = (home / "project").stat()
    plain, writable = check(home / "project"), check(home / "project", ("/data", "rw"))
    assert (plain.source, plain.target, plain.writable) == (str(home / "project"), "/data", False)
    assert plain.identity == (about.st_dev, about.st_ino)
    assert writable.writable


@pytest.mark.parametrize(
    "source",
    ["/", "/etc", "/etc/ssl", "/root", "/boot", "/proc", "/proc/self", "/sys", "/dev", "/dev/null", "/run", "/var/run",
     "/etc/", "//etc", "/usr/../etc", "/proc/self/root/etc"],
)  # fmt: skip
def test_the_host_s_own_directories_are_refused_however_they_are_written(home: Path, source: str) -> None:
    with pytest.raises(MountRefused):
        check(source)


@pytest.mark.parametrize(
    "name", [".", ".ssh", ".config/gcloud", ".config/kern", ".cache/kern-sandbox", ".config", ".cache", ".."]
)
def test_home_its_credentials_our_state_and_what_holds_them_are_refused(home: Path, name: str) -> None:
    if name in (".config", ".cache", ".."):
        with pytest.raises(MountRefused, match=r"own state|as a whole"):
            check(home / name)
        return
    with pytest.raises(MountRefused):
        check(home / name)


def test_our_state_is_refused_where_a_relative_cache_directory_counts_for_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    with pytest.raises(MountRefused):
        check(home / ".cache/kern-sandbox")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "elsewhere"))
    assert check(home / ".cache/kern-sandbox").target == "/data"


@pytest.mark.parametrize("name", CREDENTIALS)
def test_a_path_through_a_credential_directory_is_refused_anywhere(tmp_path: Path, home: Path, name: str) -> None:
    place = tmp_path / "elsewhere" / name / "deep"
    place.mkdir(parents=True)
    with pytest.raises(MountRefused, match="credentials"):
        check(place)
    twin = tmp_path / "elsewhere" / ("x" + name.rsplit("/", 1)[-1]) / "deep"
    twin.mkdir(parents=True)
    assert check(twin)


def test_a_link_is_as_refused_as_what_it_leads_to(tmp_path: Path, home: Path) -> None:
    (tmp_path / "innocent").symlink_to("/etc")
    (tmp_path / "fine").symlink_to(home / "project")
    with pytest.raises(MountRefused, match="/etc"):
        check(tmp_path / "innocent")
    assert check(tmp_path / "fine").source == str(home / "project")


def test_a_socket_a_fifo_and_a_directory_with_a_socket_are_refused(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "plain").write_text("x")
    (tmp_path / "engine").mkdir()
    for path in (tmp_path / "sock", tmp_path / "engine" / "docker.sock"):
        with socket.socket(socket.AF_UNIX) as sock:
            monkeypatch.chdir(path.parent)  # a socket's name is short
            sock.bind(path.name)
    for name in ("fifo", "sock", "engine"):
        with pytest.raises(MountRefused):
            check(tmp_path / name)
    assert check(tmp_path / "plain")


@pytest.mark.parametrize(
    "target",
    ["/", "/etc/x", "/usr/share/x", "/lib", "/proc/x", "/dev/x", "/workspace", "/workspace/x", "/home/sandbox", "/home",
     "/.box", "/tmp", "/tmp/x", "relative", "/a/../b", "/a/", "/a//b", "//usr", "//data", "/bin/x", "/a\0b"],
)  # fmt: skip
def test_a_target_that_would_cover_something_is_refused(home: Path, target: str) -> None:
    with pytest.raises(MountRefused):
        check(home / "project", target)


@pytest.mark.parametrize("target", ["/data", "/mnt/deep/er", "/opt/x", "/srv"])
def test_a_free_target_is_accepted(home: Path, target: str) -> None:
    assert check(home / "project", target).target == target


def test_two_mounts_may_not_lie_in_each_other(home: Path) -> None:
    with pytest.raises(MountRefused, match="/data"):
        checked_mounts({str(home / "project"): "/data", str(home / "project/src"): "/data/src"}, USERLAND, [])


@pytest.mark.parametrize(
    ("source", "target"),
    [("relative", "/data"), (7, "/data"), (b"/srv", "/data"), (BytesPath(), "/data"), ("/srv", 7),
     ("/srv", ("/data", "rx")), ("/srv", ("/data",)),
     ("/no/such/file", "/data"), ("/a\0b", "/data")],
)  # fmt: skip
def test_a_wrong_form_is_a_spec_error(home: Path, source: object, target: object) -> None:
    with pytest.raises(SpecError):
        check(source, target)


@pytest.mark.parametrize("path", ["/", "/etc", "/root", "/dev", "/run", "/proc", "~", "~/.ssh", "~/.config/kern"])
def test_a_workspace_is_held_to_the_same_rules(home: Path, path: str) -> None:
    with pytest.raises(MountRefused, match="workspace"):
        check_workspace(path.replace("~", str(home)))
    check_workspace(home / "project")
    check_workspace(None)


def test_a_workspace_by_a_relative_path_or_a_link_is_looked_through(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(MountRefused):
        check_workspace(tmp_path / "link")
    monkeypatch.chdir(home)
    with pytest.raises(MountRefused):
        check_workspace(".")
    monkeypatch.chdir(home / "project")
    check_workspace(".")


@pytest.mark.parametrize("name", [".ssh", ".aws", ".netrc"])
def test_a_directory_that_holds_credentials_directly_is_refused(home: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "other" / name).mkdir(parents=True)
    (tmp_path / "other" / "fine").mkdir()
    with pytest.raises(MountRefused, match="credentials"):
        check(tmp_path / "other")
    assert check(tmp_path / "other" / "fine")
