"""Boxes that show an image: its files and settings, our own things on top, and nothing of the host."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kern_sandbox
from command import kern, terminal
from images import build, docker_archive, folder, hard_link, layer, member, oci_archive, symlink, tree_layer
from support import need_boxes
from userlands import busybox, put_python, shell_layer

if TYPE_CHECKING:
    from collections.abc import Iterator

Make = "Callable[..., kern_sandbox.Sandbox]"


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store of this module's own."""
    need_boxes()
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "kern-sandbox" / "images"


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same image in every form that is local, by the form's name."""
    where = tmp_path_factory.mktemp("images")
    passwd = "root:x:0:0:root:/root:/bin/bash\napp:x:1234:1234::/srv:/bin/sh\nweb:x:33:33::/:/bin/false\nbroken\n"
    image = build(
        shell_layer(member("etc/marker", "here"), member("etc/passwd", passwd), member("etc/hosts", "6.6.6.6 evil\n")),
        Env=["GREETING=hello", "HOME=/root", "PATH=/bin:/opt/bin", "BROKEN"], User="app", WorkingDir="/srv",
    )  # fmt: skip
    root = where / "root"
    root.mkdir()
    subprocess.run(["tar", "-xf", "-", "-C", root], input=image_tar(image), check=True)
    return {
        "oci-archive": oci_archive(where / "oci.tar", image),
        "docker-archive": docker_archive(where / "docker.tar", image, "team/shell:v1"),
        "dir": f"dir:{root}",
    }


def image_tar(image: Any) -> bytes:
    import gzip

    return gzip.decompress(image.layers[0])


@pytest.fixture(scope="module")
def python_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system with nothing but this host's Python, a part of its library, and no bytecode."""
    root = tmp_path_factory.mktemp("python")
    put_python(root)
    return root


@pytest.fixture(scope="module")
def python_image(python_root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same as an archive."""
    return oci_archive(tmp_path_factory.mktemp("archive") / "python.tar", build(tree_layer(python_root), pack=bytes))


def sh(code: str, **options: Any) -> kern_sandbox.ExecutionResult:
    return kern_sandbox.run_code(code, language="sh", **options)


# --- its files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dir", "oci-archive", "docker-archive"])
def test_a_box_shows_the_image_and_nothing_of_the_host(form: str, shells: dict[str, str]) -> None:
    code = (
        "cat /etc/marker; echo; ls -A /; cat /etc/hosts; touch /bin/x /etc/x; echo kept > /workspace/kept; : > /tmp/x"
    )
    with kern_sandbox.Sandbox(image=shells[form], network=False) as sandbox:
        result = sandbox.run_code(code, "sh")
        assert sandbox.read_file("kept") == b"kept\n"
        assert not sandbox.run(["test", "-e", "/tmp/x"]).success
    assert result.stdout.split() == [
        "here", ".box", "bin", "dev", "etc", "home", "proc", "run", "sys", "tmp", "workspace",
        "127.0.0.1", "localhost", "sandbox", "::1", "localhost", "ip6-localhost",
    ]  # fmt: skip
    assert result.stderr.count("Read-only file system") == 2


@pytest.mark.parametrize(
    ("language", "program"), [("python", "python3"), ("node", "node"), ("bash", "bash")]
)  # fmt: skip
def test_a_missing_interpreter_is_named_with_the_image(language: str, program: str, shells: dict[str, str]) -> None:
    result = kern_sandbox.run_code("1", language=language, image=shells["dir"])
    assert result.fault is not None
    assert (result.exit_code, result.fault.type, result.fault.detail) == (127, "exec_failed", program)
    assert shells["dir"] in result.fault.message


def test_settings_of_the_image_are_honoured_below_the_callers(shells: dict[str, str]) -> None:
    code = "id -u; echo $GREETING $HOME $PATH; pwd; cat /etc/passwd"
    image = shells["oci-archive"]
    lines = sh(code, image=image).stdout.splitlines()
    assert lines[:3] == ["1234", "hello /home/sandbox /bin:/opt/bin", "/workspace"]
    assert "web:x:33:33::/:/bin/false" in lines
    assert "sandbox:x:1234:1234::/home/sandbox:/bin/sh" in lines
    assert not [line for line in lines if "broken" in line or "/root" in line]
    assert sh(code, image=image, user=0, env={"GREETING": "mine"}).stdout.splitlines()[:2] == [
        "0", "mine /home/sandbox /bin:/opt/bin",
    ]  # fmt: skip


@pytest.mark.parametrize("user", ["1234:99", "nobody-knows", "4294967295"])
def test_a_user_of_the_image_is_one_that_can_be(user: str, tmp_path: Path) -> None:
    result = sh("id -u", image=oci_archive(tmp_path / "a.tar", build(shell_layer(), User=user)))
    assert (result.stdout == "1234\n") is (user == "1234:99")
    assert result.success or "Say user= yourself" in result.stderr


def test_what_layers_hold_is_readable_and_harmless_in_a_box(tmp_path: Path) -> None:
    second = layer(
        member("private", "p", mode=0o600), folder("locked"), member("locked/in", "x"),
        member("bin/su", "x", mode=0o4755),
        hard_link("other", "private"), member("new\nline", "n"), member("bin/.wh.env"),
    )  # fmt: skip
    image = oci_archive(tmp_path / "a.tar", build(shell_layer(), second))
    code = "cat /private /locked/in /other '/new\nline'; ls -l /bin/su; ls /bin/env"
    result = sh(code, image=image)
    assert result.stdout.startswith("pxpn-rwxr-xr-x")
    assert "/bin/env: No such file" in result.stderr


HOSTILE = [
    symlink("etc", "/nowhere"), symlink("tmp", "bin"), symlink("home", "/root"), symlink("proc", "/"),
    member("workspace", "a file"), member(".box", "a file"), symlink("run", "/tmp"), member("dev", "a file"),
    symlink("sys", "../../.."), symlink("srv", "/workspace"),
]  # fmt: skip


@pytest.mark.parametrize("root", ["read-only", "scratch"])
def test_what_is_a_boxs_own_takes_the_place_of_the_images(root: str, tmp_path: Path) -> None:
    image = oci_archive(tmp_path / "a.tar", build(shell_layer(*HOSTILE)))
    code = "cat /etc/hostname; : > /tmp/x; : > /workspace/x; : > /dev/null; cat /proc/1/comm >/dev/null; readlink /srv"
    result = sh(code, image=image, root=root)
    assert (result.stdout, result.code_stderr) == ("sandbox\n/workspace\n", "")


@pytest.mark.parametrize("tmpfs", [{"/var/tmp": "1m"}, {"/mnt/deep/er": "1m"}, {"/data": "1m"}])
def test_scratch_can_be_anywhere_in_an_image(tmpfs: dict[str, str], tmp_path: Path) -> None:
    entries = [folder("var"), member("var/other", "x"), member("mnt/file", "x"), symlink("data", "/bin")]
    image = oci_archive(tmp_path / "a.tar", build(shell_layer(*entries)))
    place = next(iter(tmpfs))
    result = sh(f": > {place}/x && cat /var/other /mnt/file", image=image, tmpfs=tmpfs)
    assert (result.stdout, result.code_stderr) == ("xx", "")


@pytest.mark.parametrize(("count", "runs"), [(300, True), (2100, False)])
def test_a_directory_that_is_taken_apart_has_a_limit(count: int, runs: bool, tmp_path: Path) -> None:
    entries = [member(f"etc/{number}", str(number)) for number in range(count)]
    result = sh("cat /etc/299", image=oci_archive(tmp_path / "a.tar", build(shell_layer(*entries))))
    assert (result.stdout == "299") is runs
    assert runs or "more than 2000 entries" in result.stderr


def test_a_mount_may_not_cover_the_image(shells: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    assert sh("cat /data/x", image=shells["dir"], mounts={str(tmp_path): "/data"}).stdout == "mine"
    with pytest.raises(kern_sandbox.MountRefused, match="is there already"):
        sh("1", image=shells["dir"], mounts={str(tmp_path): "/bin/x"})


def test_a_directory_that_is_exchanged_for_a_link_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/busybox").write_bytes(busybox())
    (root / "bin/busybox").chmod(0o755)
    with kern_sandbox.Sandbox(image=f"dir:{root}") as sandbox:
        assert any("/root/bin →" in line for line in sandbox.plan.lines())
        (root / "bin").rename(root / "moved")
        (root / "bin").symlink_to("/etc")
        with pytest.raises(kern_sandbox.StartError, match="replaced since it was vetted"):
            sandbox.run(["/bin/busybox", "true"])


# --- Python -----------------------------------------------------------------------------------------------------


def test_python_of_an_image_runs_in_every_kind_of_box(make: Any, python_image: str) -> None:
    sandbox = make(image=python_image)
    result = sandbox.run_code(
        "import json, os, sys\nopen('made', 'w').close()\nprint(sys.executable)\n{'a': os.getpid()}"
    )
    assert (result.stdout, result.code_stderr) == ("/usr/bin/python3\n", "")
    assert [file.path for file in result.files] == ["made"]
    assert (result.results[0].text or "").startswith("{'a': ")
    assert sandbox.run_code("import tkinter").exit_code == 1


def test_python_of_another_version_reads_our_sources(
    make: Any, python_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kern_sandbox._box.imageroot._minor", lambda *_: None)
    sandbox = make(image=f"dir:{python_root}")
    assert not sandbox.plan.like_host
    assert sandbox.run_code("print(1 + 1)").stdout == "2\n"


def test_kernels_and_preloaded_modules_are_those_of_the_image(python_image: str) -> None:
    with kern_sandbox.Sandbox(image=python_image, preload=["json"], prewarm=1) as sandbox:
        assert sandbox.run_code("import sys; print('json' in sys.modules, sys.executable)").stdout == (
            "True /usr/bin/python3\n"
        )
        with sandbox.kernel() as kernel:
            kernel.run_code("x = 41")
            assert kernel.run_code("x + 1").results[0].text == "42"


def test_a_kernel_of_an_image_that_cannot_be_had_raises(tmp_path: Path, shells: dict[str, str]) -> None:
    with (
        kern_sandbox.Sandbox(image=f"dir:{tmp_path}/none", prewarm=1) as sandbox,
        pytest.raises(kern_sandbox.ImageError, match="none as a root file system"),
    ):
        sandbox.kernel()
    with (
        kern_sandbox.Sandbox(image=shells["dir"]) as sandbox,
        pytest.raises(kern_sandbox.StartError, match="python3 was not found in the image"),
    ):
        sandbox.kernel()


def test_the_library_of_a_stored_image_has_bytecode(python_image: str, python_root: Path) -> None:
    code = "import importlib.util as u, json, os; print(os.path.exists(u.cache_from_source(json.__file__)))"
    assert kern_sandbox.run_code(code, image=python_image).stdout == "True\n"
    assert kern_sandbox.run_code(code, image=f"dir:{python_root}").stdout == "False\n"


# --- its life ---------------------------------------------------------------------------------------------------


def test_an_image_stays_while_a_sandbox_uses_it(tmp_path: Path) -> None:
    reference = oci_archive(tmp_path / "a.tar", build(shell_layer(member("once", "x"))))
    with kern_sandbox.Sandbox(image=reference) as sandbox:
        assert sandbox.run(["cat", "/once"]).stdout == "x"
        assert b"a Sandbox uses it" in kern("rmi", reference).stderr
        assert kern("gc").returncode == 0
        assert sandbox.run(["cat", "/once"]).stdout == "x"
    assert kern("rmi", reference).returncode == 0
    assert reference.encode() not in kern("images").stdout


def test_the_same_words_for_asyncio(shells: dict[str, str], tmp_path: Path) -> None:
    async def both() -> tuple[str, str]:
        async with kern_sandbox.AsyncSandbox(image=shells["dir"]) as sandbox:
            good = await sandbox.run(["cat", "/etc/marker"])
        async with kern_sandbox.AsyncSandbox(image=f"dir:{tmp_path}/none") as sandbox:
            bad = await sandbox.run(["true"])
        return good.stdout, bad.fault.type if bad.fault else ""

    assert asyncio.run(both()) == ("here", "startup_failed")


@pytest.mark.usefixtures("no_leaks")
def test_a_sandbox_of_an_image_leaves_nothing(shells: dict[str, str]) -> None:
    for _ in range(3):
        assert sh("cat /etc/marker", image=shells["oci-archive"]).stdout == "here"


# --- the command ------------------------------------------------------------------------------------------------


def test_the_command_loads_lists_runs_and_removes(shells: dict[str, str], tmp_path: Path) -> None:
    path = shells["docker-archive"].partition(":")[2]
    loaded = json.loads(kern("load", "--json", path).stdout)
    assert [each["name"] for each in loaded] == ["docker.io/team/shell:v1"]
    listed = json.loads(kern("images", "--json").stdout)
    assert loaded[0]["digest"] in [each["digest"] for each in listed]
    assert re.search(rb"docker.io/team/shell:v1 +sha256:", kern("images").stdout)
    done = kern("exec", "--image", "team/shell:v1", "--", "cat", "/etc/marker")
    assert (done.stdout, done.returncode) == (b"here", 0)
    assert kern("rmi", "team/shell:v1").returncode == 0
    gone = kern("rmi", "--json", "team/shell:v1")
    assert (gone.returncode, json.loads(gone.stdout)["error"]["type"]) == (125, "ImageError")
    assert set(json.loads(kern("gc", "--json").stdout)) == {"removed", "setups", "freed_bytes"}


def test_a_failed_image_ends_the_command_with_1_and_words(tmp_path: Path) -> None:
    done = kern("run", "--image", f"oci-archive:{tmp_path}/none.tar", "-c", "1")
    assert done.returncode == 1
    assert done.stderr.startswith(b"kern-sandbox: startup_failed: opening the image archive")


@pytest.mark.parametrize("words", [["pull", "A B"], ["pull", "dir:/srv"], ["rmi", "A B"], ["pull"], ["load"]])
def test_a_wrong_command_line_is_2(words: list[str]) -> None:
    assert kern(*words).returncode == 2


def test_a_terminal_sees_progress_and_a_pipe_does_not(tmp_path: Path) -> None:
    reference = oci_archive(tmp_path / "a.tar", build(shell_layer(member("progress", "x"))))
    with terminal("pull", reference) as shown:
        assert shown.end() == 0
    assert b"unpacking" in shown.shown
    assert kern("pull", reference).stderr == b""


def test_a_terminal_sees_the_image_come_before_the_box_runs(tmp_path: Path) -> None:
    reference = oci_archive(tmp_path / "a.tar", build(shell_layer(member("shown", "x"))))
    with terminal("exec", "--image", reference, "--", "cat", "/shown") as shown:
        assert shown.end() == 0
    assert re.search(rb"unpacking.*x", shown.shown, re.DOTALL)
