"""The program of a setup's box: ``python3 make_layer.py COMMAND`` makes a home for packages and runs COMMAND in it.

The home is a virtual environment at ``/workspace/.deps``. While the command runs it shows none of the userland's own
packages, so that what it installs is whole in itself; afterwards it does. Stdlib only, Python 3.8 or later.
"""

import compileall
import glob
import importlib.util
import os
import subprocess
import sys
import sysconfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

DEPS = "/workspace/.deps"
SCRATCH = "/workspace/.kern-setup"
LENT_PIP = "/.box/pip"
"""Where the host shows its own pip to a userland that has none."""

SHIM = "#!%s/bin/python3\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"


def main(command: str) -> int:
    """Run the command; the exit status."""
    make_home(alone=True)
    env = dict(os.environ)
    env.update(pip_from_outside())
    status = subprocess.run(["/bin/sh", "-e", "-c", command], env=env, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        return status if status > 0 else 128 - status
    make_home(alone=False)
    many = importlib.util.find_spec("multiprocessing") is not None  # some images leave it out
    workers = (os.cpu_count() or 1) if many else 1
    compileall.compile_dir(site_packages(), quiet=2, workers=workers)  # files for other Pythons fail
    return 0


def site_packages() -> str:
    """Where the environment's modules are."""
    return os.path.join(DEPS, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")


def make_home(alone: bool) -> None:
    """Make, or complete, what tells Python that this is an environment (PEP 405)."""
    os.makedirs(site_packages(), exist_ok=True)
    os.makedirs(DEPS + "/bin", exist_ok=True)
    python = os.path.realpath(sys.executable)
    for name in ("python3", "python", "python%d.%d" % sys.version_info[:2]):
        if not os.path.lexists(DEPS + "/bin/" + name):
            os.symlink(python if name == "python3" else "python3", DEPS + "/bin/" + name)
    if sys.maxsize > 1 << 32 and not os.path.lexists(DEPS + "/lib64"):
        os.symlink("lib", DEPS + "/lib64")
    lines = (
        "home = " + os.path.dirname(python),
        "include-system-site-packages = " + ("false" if alone else "true"),
        "version = %d.%d.%d" % sys.version_info[:3],
    )
    with open(DEPS + "/pyvenv.cfg", "w") as file:
        file.write("\n".join(lines) + "\n")


def pip_from_outside() -> "Dict[str, str]":
    """Variables with which the environment finds a pip that is not in it, and nothing else from where that is."""
    found = find_pip()
    if not found:
        return {}
    folder = SCRATCH + "/pip"
    os.makedirs(folder + "/bin")
    if os.path.isdir(found):
        os.symlink(found, folder + "/pip")
    for name in ("pip", "pip3", "pip%d.%d" % sys.version_info[:2]):
        with open(folder + "/bin/" + name, "w") as file:
            file.write(SHIM % DEPS)
        os.chmod(folder + "/bin/" + name, 0o700)
    before, _, after = os.environ["PATH"].partition(":")
    path = ":".join([before, folder + "/bin", after])
    return {"PYTHONPATH": folder if os.path.isdir(found) else found, "PATH": path}


def find_pip() -> str:
    """The directory of this userland's pip, or a wheel of it that Python can import, or ``""``."""
    spec = importlib.util.find_spec("pip")
    if spec is not None and spec.origin:
        return os.path.dirname(spec.origin)
    if os.path.isdir(LENT_PIP):
        return LENT_PIP
    bundled = os.path.join(sysconfig.get_paths()["stdlib"], "ensurepip", "_bundled")
    places = filter(None, [sysconfig.get_config_var("WHEEL_PKG_DIR"), bundled])
    wheels = [wheel for place in places for wheel in sorted(glob.glob(glob.escape(place) + "/pip-*.whl"))]
    return wheels[-1] if wheels else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
