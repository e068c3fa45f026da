"""``setup=``, ``preload=`` and ``egress_allow=`` on images: the same as on the host's userland, made of the image."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest

import kern_sandbox
from egress_help import Server, closing_all, echo
from images import build, member, oci_archive, scripted, shelf, tree_layer
from kern_sandbox._image.store import Store
from setup_help import WHEEL, write_wheel
from support import need_boxes
from userlands import put_python, shell_layer

if TYPE_CHECKING:
    from collections.abc import Iterator

SETUP = f"pip install --no-index ./{WHEEL}"
PACKAGES = "/workspace/.deps/lib/python{}.{}/site-packages".format(*sys.version_info)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of this module's own."""
    need_boxes()
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("DOCKER_CONFIG", str(folder))
        yield folder / "kern-sandbox"


@pytest.fixture(scope="module")
def snake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system with Python, pip and sh."""
    root = tmp_path_factory.mktemp("snake")
    put_python(root, pip=True)
    return root


@pytest.fixture(scope="module")
def archive(snake: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same as an image in an archive."""
    return oci_archive(tmp_path_factory.mktemp("archive") / "snake.tar", build(tree_layer(snake), pack=bytes))


@pytest.fixture
def shell(tmp_path: Path) -> str:
    """An image with ``sh`` and no Python."""
    return oci_archive(tmp_path / "shell.tar", build(shell_layer()))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace that holds the wheel."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    write_wheel(folder)
    return folder


def layers(cache: Path) -> set[str]:
    folder = cache / "layers"  # which the first layer makes
    return {name for name in os.listdir(folder) if "." not in name} if folder.exists() else set()


# --- setup ------------------------------------------------------------------------------------------------------


def test_a_package_is_installed_by_the_pip_of_the_image(make: Any, archive: str, workspace: Path) -> None:
    sandbox = make(image=archive, setup=SETUP, workspace=workspace)
    asked = "import kern_probe, sys; print(kern_probe.VERSION, sys.base_prefix, kern_probe.__file__)"
    told = sandbox.run_code(asked)
    assert told.stdout.split() == ["1.0", "/usr", f"{PACKAGES}/kern_probe.py"], told
    assert sandbox.run(["kern-probe"]).stdout == "hello from 1.0\n"
    assert sandbox.run_code("open('/workspace/.deps/x', 'w')").exit_code == 1
    with sandbox.kernel() as kernel:
        assert kernel.run_code("import kern_probe; kern_probe.VERSION").results[0].text == "'1.0'"


def test_what_is_installed_is_preloaded_into_boxes_that_are_kept_ready(archive: str, workspace: Path) -> None:
    options: dict[str, Any] = {"setup": SETUP, "workspace": workspace, "preload": ["kern_probe"], "prewarm": 1}
    with kern_sandbox.Sandbox(image=archive, **options) as sandbox:
        for _ in range(2):
            assert sandbox.run_code("import sys; print('kern_probe' in sys.modules)").stdout == "True\n"


def test_the_pip_of_a_directory_serves_too_and_its_layer_is_another(
    snake: Path, archive: str, workspace: Path, cache: Path
) -> None:
    found = []
    for image in (archive, f"dir:{snake}", archive):
        with kern_sandbox.Sandbox(image=image, setup=SETUP, workspace=workspace) as sandbox:
            assert sandbox.run(["kern-probe"]).stdout == "hello from 1.0\n"
        found.append(layers(cache))
    assert len(found[1] - found[0]) == 1
    assert found[2] == found[1]


def test_a_second_use_of_an_image_of_a_registry_needs_no_registry(tmp_path: Path) -> None:
    image = build(shell_layer(member("only", "here")))  # so that no other test has left a layer of it
    setup = "cat first > .deps/word; rm first"
    (tmp_path / "first").write_text("made once\n")
    with scripted(shelf(image)) as registry:
        options = {"image": f"{registry.host}/team/shell:v1", "setup": f"{setup} # ./first"}
        told = kern_sandbox.run_code("cat .deps/word", language="sh", workspace=tmp_path, **options)
        assert told.stdout == "made once\n"
        assert len(registry.paths()) == 3
    gone = kern_sandbox.run_code("cat .deps/word", language="sh", workspace=tmp_path, **options)
    assert gone.stdout == "made once\n"
    assert (tmp_path / "first").exists()  # the command removed a copy


def test_an_image_of_other_content_gets_a_layer_of_its_own(tmp_path: Path, cache: Path) -> None:
    seen = []
    for number in (1, 2):
        image = oci_archive(tmp_path / f"{number}.tar", build(shell_layer(), Env=[f"NUMBER={number}"]))
        told = kern_sandbox.run_code("cat .deps/n", language="sh", image=image, setup="echo $NUMBER > .deps/n")
        assert told.stdout == f"{number}\n"
        seen.append(layers(cache))
    assert len(seen[1] - seen[0]) == 1


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("echo one; echo two >&2; false; echo three", r"exit code 1\none\ntwo"),
        ("pip install nothing", "exit code 127\nsh: pip: not found"),
        ("exit 3", "exit code 3"),
    ],
)
def test_a_setup_that_fails_in_an_image_says_how(setup: str, says: str, shell: str, cache: Path) -> None:
    before = layers(cache)
    with (
        kern_sandbox.Sandbox(image=shell, setup=setup) as sandbox,
        pytest.raises(kern_sandbox.StartError, match=says) as failure,
    ):
        sandbox.run(["true"])
    assert failure.value.stage == "setup"
    assert layers(cache) == before


def test_pip_of_an_image_says_what_it_misses(archive: str) -> None:
    with (
        kern_sandbox.Sandbox(image=archive, setup="pip install --no-index none-such") as sandbox,
        pytest.raises(kern_sandbox.StartError, match="No matching distribution found for none-such"),
    ):
        sandbox.run(["true"])


# --- preload ----------------------------------------------------------------------------------------------------


def test_preloading_into_an_image_without_python_names_both(shell: str) -> None:
    with kern_sandbox.Sandbox(image=shell, preload=["json"]) as sandbox:
        assert sandbox.run(["test", "-e", "/bin/sh"]).success
        with pytest.raises(kern_sandbox.StartError, match="python3 was not found in the image") as failure:
            sandbox.run_code("1")
    assert failure.value.stage == "preload"
    assert shell in str(failure.value)


def test_preloading_a_module_that_ends_the_process_says_that(archive: str) -> None:
    setup = f"echo 'import os; os._exit(3)' > {PACKAGES}/ends.py"
    with (
        kern_sandbox.Sandbox(image=archive, setup=setup, preload=["ends"]) as sandbox,
        pytest.raises(kern_sandbox.StartError, match="a module ended the process while it was imported"),
    ):
        sandbox.run_code("1")


# --- a constructor that fails ----------------------------------------------------------------------------------


def refuse(kind: type[BaseException]) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise kind("not today")

    return call


@pytest.mark.parametrize("failure", ["mount", "server", "interrupt"])
def test_a_constructor_that_fails_leaves_neither_a_workspace_nor_a_used_image(
    failure: str, shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    kern_sandbox.Sandbox(image=shell, prewarm=1).close()
    options: dict[str, Any] = {"mounts": {str(tmp_path): "/bin/x"}} if failure == "mount" else {}
    kinds: dict[str, type[BaseException]] = {"server": kern_sandbox.HostError, "interrupt": KeyboardInterrupt}
    kind = kinds.get(failure, kern_sandbox.MountRefused)
    if failure in kinds:
        monkeypatch.setattr("kern_sandbox.session.current_server", refuse(kind))
    with pytest.raises(kind):
        kern_sandbox.Sandbox(image=shell, prewarm=1, **options)
    assert os.listdir(temporary) == []
    assert Store().remove(shell).name == shell


# --- egress -----------------------------------------------------------------------------------------------------

TALK = """
import socket
with socket.create_connection(('echo.localhost', {port}), 20) as s:
    s.sendall(b'ping')
    print(s.recv(100))
"""


def test_doors_by_name_work_in_an_image_whatever_hosts_file_it_has(snake: Path, make: Any) -> None:
    (snake / "etc").mkdir(exist_ok=True)
    (snake / "etc/hosts").write_text("6.6.6.6 echo.localhost\n")
    with closing_all() as keep:
        server = keep(Server(echo))
        sandbox = make(image=f"dir:{snake}", egress_allow=[f"echo.localhost:{server.port}"])
        result = sandbox.run_code(TALK.format(port=server.port))
        assert result.stdout == "b'ping'\n", result
        assert [(event.host, event.verdict) for event in result.egress] == [("echo.localhost", "allowed")]
        refused = sandbox.run_code("import socket; socket.create_connection(('evil.example', 443))")
    assert "Temporary failure in name resolution" in refused.stderr


def test_a_setup_in_an_image_reaches_what_its_sandbox_may_and_so_do_the_calls(archive: str) -> None:
    with closing_all() as keep:
        server = keep(Server(echo))
        code = TALK.format(port=server.port)
        setup = f'python3 -c "{code}" > .deps/got'
        with kern_sandbox.Sandbox(
            image=archive, setup=setup, egress_allow=[f"echo.localhost:{server.port}"], prewarm=1
        ) as sandbox:
            assert sandbox.run_code(f"{code}\nprint(open('.deps/got').read())").stdout == "b'ping'\nb'ping'\n\n"
        assert server.accepted == 2
