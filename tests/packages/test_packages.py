"""What is published: the same bytes from any clone, with all that belongs to it and nothing else.

``KERN_DIST`` names a folder that ``make dist`` has filled from this tree; without it there is one build more.
"""

from __future__ import annotations

import email
import fcntl
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import kern_sandbox
from support import REPO, need, repo_files

if TYPE_CHECKING:
    from email.message import Message

VERSION = kern_sandbox.__version__
STRAY = (".env", "notes.txt", *(f"{code}/__pycache__/stray.cpython-39.pyc" for code in (
    "src/kern_sandbox", "integrations/langchain/langchain_kern_sandbox", "integrations/llamaindex/llama_index",
    "integrations/pi/guest")))  # fmt: skip
"""What lies about in a tree that somebody works in."""


class Package(NamedTuple):
    """A distribution: its name as files have it, its place in the repository, and where its code lies there."""

    name: str
    place: str
    code: str


PYTHON = [
    Package("kern_sandbox", "", "src/"),
    Package("langchain_kern_sandbox", "integrations/langchain/", "integrations/langchain/"),
    Package("llama_index_tools_kern_sandbox", "integrations/llamaindex/", "integrations/llamaindex/"),
]
NODE = [
    Package("kern-sandbox", "integrations/node/", "integrations/node/src/"),
    Package("pi-kern-sandbox", "integrations/pi/", "integrations/pi/src/"),
]
FILES = [
    *(f"{package.name}-{VERSION}{end}" for package in PYTHON for end in (".tar.gz", "-py3-none-any.whl")),
    *(f"{package.name}-{VERSION}.tgz" for package in NODE),
]
each_python = pytest.mark.parametrize("package", PYTHON, ids=lambda package: package.name)


# --- building ---------------------------------------------------------------------------------------------------


def build(tree: Path, into: Path, umask: int, **env: str) -> Path:
    """Every package of ``tree``, as ``make dist`` builds them."""
    ours = {name: value for name, value in os.environ.items() if name not in {"SOURCE_DATE_EPOCH", "MAKEFLAGS"}}
    done = subprocess.run(
        ["make", "dist", f"PY={sys.executable}", f"DIST={into}", "BUILD_ARGS=--no-isolation"],
        cwd=tree, env={**ours, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=functools.partial(os.umask, umask),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return into


def clone(where: Path, mode: int) -> Path:
    """A copy of the tree as somebody else has it: other path, other modes, other times, and things lying about."""
    for name in [*STRAY, *reversed([str(path.relative_to(REPO)) for path in repo_files()])]:
        target = where / name
        target.parent.mkdir(mode=mode | 0o100, parents=True, exist_ok=True)
        target.write_bytes((REPO / name).read_bytes() if name not in STRAY else b"private")
        executable = name not in STRAY and os.access(REPO / name, os.X_OK)
        target.chmod(mode | 0o111 & mode >> 2 if executable else mode)
        os.utime(target, (1_000_000_000, 1_000_000_000))
    return where


class Builds(NamedTuple):
    """Two folders with every package."""

    first: Path
    second: Path


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    """Built once for all workers that test side by side."""
    for tool in ("build", "hatchling", "twine"):
        need(importlib.util.find_spec(tool) is not None, f"{tool} is not installed")
    for program in ("make", "npm"):
        need(shutil.which(program) is not None, f"{program} is not installed")
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    root /= "packages"
    root.mkdir(exist_ok=True)
    made = Builds(Path(os.environ.get("KERN_DIST") or root / "one"), root / "two")
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "done").exists():
            if "KERN_DIST" not in os.environ:
                build(clone(root / "a", 0o644), made.first, 0o022)
            far = clone(root / "somewhere" / "else" / "altogether", 0o600)
            build(far, made.second, 0o077, TZ="Pacific/Kiritimati", LC_ALL="C", PYTHONHASHSEED="7")
            (root / "done").touch()
    return made


# --- what they are ----------------------------------------------------------------------------------------------


def test_two_clones_give_the_same_bytes(builds: Builds) -> None:
    """At other paths, from files of other times and modes, under another umask, and with private things beside them."""
    assert [sorted(os.listdir(folder)) for folder in builds] == [sorted(FILES)] * 2
    differ = [name for name in FILES if (builds.first / name).read_bytes() != (builds.second / name).read_bytes()]
    assert not differ, [_first_difference(builds, name) for name in differ]


def _first_difference(builds: Builds, name: str) -> str:
    """For whoever has to find out why."""
    one, two = (_contents(folder / name) for folder in builds)
    changed = sorted(key for key in one.keys() | two.keys() if one.get(key) != two.get(key))
    return f"{name}: {', '.join(changed[:5]) or 'the same contents, packed differently'}"


def _contents(archive: Path) -> dict[str, bytes]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as packed:
        return {member.name: _read(packed, member) for member in packed if member.isfile()}


def _read(packed: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = packed.extractfile(member)
    assert file is not None
    return file.read()


def wheel(builds: Builds, package: Package) -> dict[str, bytes]:
    return _contents(builds.first / f"{package.name}-{VERSION}-py3-none-any.whl")


def sdist(builds: Builds, package: Package) -> set[str]:
    top = f"{package.name}-{VERSION}/"
    return {name[len(top) :] for name in _contents(builds.first / f"{package.name}-{VERSION}.tar.gz")}


def committed(place: str) -> set[str]:
    """The files of the repository below ``place``, as they are called there."""
    names = (str(path.relative_to(REPO)) for path in repo_files())
    return {name[len(place) :] for name in names if name.startswith(place)}


@each_python
def test_a_wheel_holds_the_package_its_licence_and_nothing_else(builds: Builds, package: Package) -> None:
    names = set(wheel(builds, package))
    described = {name for name in names if name.startswith(f"{package.name}-{VERSION}.dist-info/")}
    entry_points = set() if package is PYTHON[2] else {"entry_points.txt"}
    assert {name.split("/", 1)[1] for name in described} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "licenses/LICENSE",
    } | entry_points
    roots = ("tests/", "examples/")
    code = {name for name in committed(package.code) if "/" in name and not name.startswith(roots)}
    assert names - described == code


def test_the_sdist_of_the_core_holds_all_that_is_committed(builds: Builds) -> None:
    assert sdist(builds, PYTHON[0]) == committed("") | {"PKG-INFO"}


@pytest.mark.parametrize("package", PYTHON[1:], ids=lambda package: package.name)
def test_the_sdist_of_an_adapter_holds_all_but_what_needs_this_repository(builds: Builds, package: Package) -> None:
    apart = ("tests/", "examples/")
    wanted = {name for name in committed(package.place) if not name.startswith(apart)}
    assert sdist(builds, package) - {".gitignore"} == wanted | {"PKG-INFO"}


@pytest.mark.parametrize("package", NODE, ids=lambda package: package.name)
def test_a_tarball_of_npm_holds_the_package_and_no_tests(builds: Builds, package: Package) -> None:
    names = {name[len("package/") :] for name in _contents(builds.first / f"{package.name}-{VERSION}.tgz")}
    assert names == {name for name in committed(package.place) if not name.startswith(("test/", "tsconfig"))}
    said = json.loads((REPO / package.place / "package.json").read_text())
    wanted = {"author", "description", "engines", "exports", "keywords", "license", "name", "type", "version"}
    assert wanted <= set(said)
    assert said["version"] == VERSION
    assert said.get("dependencies", {}).get("kern-sandbox", VERSION) == VERSION


# --- what they say of themselves --------------------------------------------------------------------------------


def metadata(builds: Builds, package: Package) -> Message:
    return email.message_from_string(wheel(builds, package)[f"{package.name}-{VERSION}.dist-info/METADATA"].decode())


@each_python
def test_a_package_says_who_may_use_it_and_for_what(builds: Builds, package: Package) -> None:
    said = metadata(builds, package)
    assert re.sub("[-_.]+", "_", said["Name"]) == package.name
    assert (said["Version"], said["License-Expression"], said["License-File"]) == (VERSION, "Apache-2.0", "LICENSE")
    assert all(said[field] for field in ("Summary", "Author", "Keywords"))
    assert said["Description-Content-Type"] == "text/markdown"
    assert str(said.get_payload()).strip() == (REPO / package.place / "README.md").read_text(encoding="utf-8").strip()
    classifiers = said.get_all("Classifier", [])
    assert {"Operating System :: POSIX :: Linux", "Typing :: Typed"} <= set(classifiers)
    assert any(name.endswith("/py.typed") for name in wheel(builds, package))


@each_python
def test_the_versions_of_python_that_a_package_names_begin_with_the_one_it_requires(
    builds: Builds, package: Package
) -> None:
    said = metadata(builds, package)
    named = [text.rpartition(":: ")[2] for text in said.get_all("Classifier", []) if ":: Python :: 3." in text]
    lowest = said["Requires-Python"].rpartition(">=3.")[2]
    assert named == [f"3.{minor}" for minor in range(int(lowest), 14)]


def test_the_core_requires_nothing_and_every_extra_is_for_something(builds: Builds) -> None:
    said = metadata(builds, PYTHON[0])
    required = said.get_all("Requires-Dist", [])
    assert not [line for line in required if "extra ==" not in line]
    extras = set(said.get_all("Provides-Extra", []))
    assert extras == {"cli", "dev", "docs", "langchain", "profiles", "test", "zstd"}
    assert {extra for extra in extras if any(f"extra == '{extra}'" in line for line in required)} == extras


@each_python
def test_an_entry_point_names_what_the_wheel_has(builds: Builds, package: Package) -> None:
    files = wheel(builds, package)
    parser = ConfigParser()
    parser.read_string(files.get(f"{package.name}-{VERSION}.dist-info/entry_points.txt", b"").decode())
    points = [dict(parser[section]) for section in parser.sections()]
    named = {name: target for section in points for name, target in section.items()}
    assert set(named) == {
        "kern_sandbox": {"kern-sandbox", "kern-mcp"}, "langchain_kern_sandbox": {"kern"},
    }.get(package.name, set())  # fmt: skip
    for target in named.values():
        module, _, attribute = target.partition(":")
        path = module.replace(".", "/")
        source = files.get(f"{path}.py") or files[f"{path}/__init__.py"]
        assert attribute in source.decode()
