"""The repository says nothing about the machine that it was written on, and ships what it promises."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from support import REPO, repo_files

# Written so that this file does not contain what it looks for.
MACHINE = [
    "/root/" + r"\.pyenv",
    "/opt/" + "kv",
    "/work/" + r"(main|shared|\.library)",
    "/tmp/" + "bash_jobs",
]
REGISTRY = ["py" + r"pi\.org", "python" + r"hosted\.org", "npm" + r"js\.(org|com)", r"\w+\.deb" + r"ian\.org"]
FORBIDDEN = re.compile("|".join(MACHINE + REGISTRY), re.IGNORECASE)


def told(text: str) -> list[str]:
    """The machine paths and registry hosts that the text names."""
    return [match.group() for match in FORBIDDEN.finditer(text)]


@pytest.mark.parametrize("path", repo_files(), ids=lambda path: str(path.relative_to(REPO)))
def test_no_file_names_a_path_of_this_machine_or_a_registry_host(path: Path) -> None:
    wrong = told(path.read_bytes().decode("utf-8", "replace"))
    assert not wrong


@pytest.mark.parametrize("planted", ["/root/." + "pyenv/versions", "/opt/" + "kv/bin", "https://py" + "pi.org/simple"])
def test_a_planted_path_or_host_is_found(planted: str) -> None:
    assert told(f"see {planted} for more")


def test_words_that_only_resemble_them_are_accepted() -> None:
    assert not told("/workspace/main.py /root/.ssh /opt/app pypi Debian registry.example")


@pytest.mark.parametrize(
    "name", ["README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "src/kern_sandbox/py.typed"]
)
def test_the_files_that_a_reader_expects_are_there(name: str) -> None:
    assert (REPO / name).is_file()


def test_ci_can_be_started_as_a_program() -> None:
    assert (REPO / ".ci" / "run").stat().st_mode & stat.S_IXUSR


def test_the_changelog_speaks_of_the_version_that_is_built() -> None:
    import kern_sandbox

    headings = re.findall(r"^## \[?([^\]\s]+)", (REPO / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] in {"Unreleased", kern_sandbox.__version__}
