"""What a setup's box gets of the workspace, and of the user's configuration of pip and npm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kern_sandbox._box.plan import Text, Userland
from kern_sandbox.setup._inputs import named_files
from kern_sandbox.setup._registries import Registries, registries
from kern_sandbox.workspace import Workspace

USERLAND = Userland("a userland", (), "/usr/bin/python3", "/usr/bin")


# --- files of the workspace -------------------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """One with some files, a link that leads out, and a FIFO."""
    for path in (
        "requirements.txt",
        "a b.txt",
        "lib/setup.py",
        "lib/deep/x.py",
        "pip",
        "pandas/x.py",
        ".deps/y",
        ".kern-setup/z",
    ):
        (tmp_path / "w" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "w" / path).write_text(path)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "w" / "out").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "w" / "fifo")
    return Workspace(tmp_path / "w")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("pip install pandas", ["pip"]),
        ("pip3 install -r requirements.txt", ["requirements.txt"]),
        ("pip3 install -r /workspace/requirements.txt;true", ["requirements.txt"]),
        ("pip3 install -rrequirements.txt", ["requirements.txt"]),
        ("pip3 install --requirement=./requirements.txt", ["requirements.txt"]),
        ("cat 'a b.txt'", ["a b.txt"]),
        ("cat <requirements.txt", ["requirements.txt"]),
        ("it's requirements.txt", ["requirements.txt"]),
        ("pip3 install ./lib[extra]", ["lib/deep/x.py", "lib/setup.py"]),
        ("pip3 install lib", []),
        ("pip3 install -e lib/", ["lib/deep/x.py", "lib/setup.py"]),
        ("pip3 install .", ["a b.txt", "lib/deep/x.py", "lib/setup.py", "pandas/x.py", "pip", "requirements.txt"]),
        ("cat out fifo ../secret /workspace/../secret /etc/passwd lib/../requirements.txt", []),
        ("cat .deps/y /workspace/.deps/y .kern-setup/z ./.kern-setup", []),
        ("curl https://localhost/requirements.txt", []),
        ("x" * 90_000, []),
    ],
)
def test_a_command_names_files_and_directories(command: str, named: list[str], workspace: Workspace) -> None:
    found = named_files(command, workspace)
    assert sorted(found) == named
    assert all(content == path.encode() for path, content in found.items())


# --- configuration ----------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and a machine without configuration of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))
    return tmp_path


def known(**env: str) -> Registries:
    """What is found with these variables alone."""
    return registries(USERLAND, {"XDG_CONFIG_DIRS": "/nonexistent", **env})


def text(found: Registries, name: str) -> str:
    """The content of a configuration file of the box."""
    return next(step.content for step in found.steps if isinstance(step, Text) and step.path.endswith(name))


def test_pips_files_and_variables_are_taken_by_an_allow_list(home: Path) -> None:
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://one.example/simple\nclient-cert = /keys/mine.pem\ntarget = /elsewhere\n"
        "trusted-host =\n  a.example\n  b.example\n[install]\nretries = 9\n[freeze]\nno-index = true\n"
    )
    conf = text(known(PIP_RETRIES="1", PIP_PREFIX="/elsewhere"), "pip.conf")
    assert "index-url = https://one.example/simple\n" in conf
    assert "trusted-host = a.example\n    b.example\n" in conf
    assert "retries = 1\n" in conf
    assert not any(word in conf for word in ("client-cert", "target", "prefix", "no-index"))


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "https_proxy", "NPM_CONFIG_REGISTRY"])
def test_what_holds_credentials_stays_outside_and_is_told(name: str, home: Path) -> None:
    for value in ("https://user:word@index.example/simple", "user:word@index.example"):  # a proxy may lack its scheme
        found = known(**{name: value})
        assert "word@" not in str((found.env, found.steps))
        assert "env=" in found.left_out[0]
    without = known(**{name: "https://index.example/simple"})
    assert "index.example" in str((without.env, without.steps))
    assert without.left_out == ()


def test_of_npms_file_registries_go_in_and_tokens_do_not(home: Path) -> None:
    (home / ".npmrc").write_text(
        "; a comment\nregistry=https://npm.example/\n@team:registry=https://team.example/\n"
        "//npm.example/:_authToken=abc\n_password=abc\nproxy=${PROXY}\nstrict-ssl=false\n"
    )
    conf = text(known(), "npmrc").splitlines()
    assert "registry=https://npm.example/" in conf
    assert "@team:registry=https://team.example/" in conf
    assert "strict-ssl=false" in conf
    assert not any("abc" in line or "PROXY" in line for line in conf)


def test_certificates_and_constraints_are_copied_and_keys_are_not(home: Path) -> None:
    (home / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (home / "key.pem").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    ca = str(home / "ca.pem")
    found = known(PIP_CERT=ca, SSL_CERT_FILE=ca, NODE_EXTRA_CA_CERTS=str(home / "key.pem"), CURL_CA_BUNDLE="/not/there")
    assert text(found, "ca.pem") == "-----BEGIN CERTIFICATE-----\n"
    place = found.env["SSL_CERT_FILE"]
    assert f"cert = {place}\n" in text(found, "pip.conf")
    assert "PRIVATE" not in str(found.steps)
    assert not {"NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE"} & set(found.env)
    assert len(found.left_out) == 2


def test_local_places_are_mounted_read_only_where_mounts_may_be(home: Path) -> None:
    (home / "an index" / "simple").mkdir(parents=True)
    (home / "wheels").mkdir()
    (home / "b" / ".ssh").mkdir(parents=True)
    extra = f"{(home / 'an index').as_uri()}/simple file:///not/there/simple https://index.example/simple"
    found = known(PIP_EXTRA_INDEX_URL=extra, PIP_FIND_LINKS=f"{home}/wheels {home}/b /usr/share/wheels")
    shown = {bind.source: bind for bind in found.mounts}
    assert set(shown) - {"/usr/share/wheels"} == {str(home / "an index"), str(home / "wheels")}
    assert not any(bind.writable for bind in found.mounts)
    conf = text(found, "pip.conf")
    assert f"file://{shown[str(home / 'an index')].target}/simple" in conf
    assert shown[str(home / "wheels")].target in conf
    assert "https://index.example/simple" in conf
    assert not any(word in conf for word in ("/not/there", f"{home}/b"))
    assert any(".ssh" in words for words in found.left_out)
