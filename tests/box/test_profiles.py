"""What a box has from a profile of ``kern.toml``."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest

import kern_sandbox
from kern_sandbox import SpecError
from support import applies, need

if TYPE_CHECKING:
    from collections.abc import Iterator

Make = Callable[..., kern_sandbox.Sandbox]
PROFILES = """
[[vcpu]]
name = "one"
cpus = 1
memory = "96m"
[[vdisk]]
name = "scratch"
size = "4m"
[[vgpio]]
name = "zeros"
extra = ["/dev/gpiochip4242"]
"""


@pytest.fixture(params=["exec"])
def box_path(request: pytest.FixtureRequest) -> str:
    """Both ways to a box start from the same plan."""
    return str(request.param)


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kern").mkdir()
    (tmp_path / "kern" / "kern.toml").write_text(PROFILES)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def device() -> Iterator[Path]:
    """A node that has the name of a GPIO chip and is another thing; for root only."""
    applies(os.geteuid() == 0, "only root makes device nodes")
    node = Path("/dev/gpiochip4242")
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        need(False, "device nodes cannot be made here")
    try:
        os.chmod(node, 0o666)
        yield node
    finally:
        node.unlink()


def test_a_slice_and_a_disk_are_in_the_box(make: Make) -> None:
    sandbox = make(profiles=["vcpu:one", "vdisk:scratch"])
    seen = sandbox.run(["sh", "-c", "nproc; head -1 /proc/meminfo; stat -f -c %b /vdisk/scratch /tmp"]).stdout.split()
    assert seen == ["1", "MemTotal:", str(96 << 10), "kB", str(1 << 10), str(16 << 10)]
    code = "try: open('/vdisk/scratch/big', 'wb').write(bytes(5 << 20))\nexcept OSError as e: print(e.errno)"
    assert sandbox.run_code(code).stdout == "28\n"
    assert sandbox.run_code("import os; print(os.listdir('/vdisk/scratch'))").stdout == "[]\n"
    assert make().run(["ls", "/vdisk"]).exit_code != 0


def test_a_device_set_shows_its_nodes_and_no_other(make: Make, device: Path) -> None:
    code = "import os; f = open('/dev/gpiochip4242', 'r+b', 0); print(f.read(3), f.write(b'x'))"
    code += "\nprint(os.listdir('/dev'))"
    seen = make(profiles=["vgpio:zeros"]).run_code(code)
    assert seen.stdout.splitlines()[0] == "b'\\x00\\x00\\x00' 1", seen.stderr
    without = make().run_code("import os; print(os.listdir('/dev'))").stdout
    assert set(eval(seen.stdout.splitlines()[1])) - set(eval(without)) == {device.name}


def test_a_link_under_a_devices_name_is_refused(make: Make, device: Path) -> None:
    device.unlink()
    device.symlink_to("/dev/zero")
    with pytest.raises(SpecError, match="not a character device"):
        make(profiles=["vgpio:zeros"])


def test_untrusted_code_gets_no_device(make: Make, device: Path) -> None:
    with pytest.raises(SpecError, match="contradicts"):
        make(profiles=["vgpio:zeros"], security_profile="untrusted")


def test_what_one_profile_shaped_never_serves_a_sandbox_without_it(make: Make) -> None:
    shaped, plain = make(profiles=["vdisk:scratch"]), make()
    assert shaped.plan.key != plain.plan.key
    for _ in range(2):
        assert shaped.run(["ls", "/vdisk"]).stdout == "scratch\n"
        assert plain.run(["ls", "/vdisk"]).stdout == ""
