"""Configuration of the whole suite; what tests import stands in support.py."""

from __future__ import annotations

import getpass
import os
import platform
import resource
import shutil
import tempfile
import time
from typing import TYPE_CHECKING

import hypothesis
import pytest

import kern_sandbox
from support import cgroup_mode, heed_signals, leaks, must_work, need_boxes, user_namespaces

if TYPE_CHECKING:
    from collections.abc import Iterator

# No example database: a test leaves nothing in the tree. No deadline, and no health check of speed: a test asserts
# nothing about time. In CI the examples are the same each time, so that a change is judged and not its luck.
hypothesis.settings.register_profile(
    "house",
    database=None,
    deadline=None,
    derandomize=must_work(),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("house")

_DESCRIPTORS = 1 << 14


def pytest_configure(config: pytest.Config) -> None:
    """Whatever runs tests has a temporary directory of its own: what is left in it is its own, and nobody else's.

    A test of the boundary keeps a thousand descriptors in flight, and Linux counts them for its user: whoever of that
    user's has the usual limit cannot pass any meanwhile. So the tests beside it have a higher one.
    """
    heed_signals()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _DESCRIPTORS)), hard))
    if "PYTEST_XDIST_WORKER" in os.environ or not getattr(config.option, "numprocesses", None):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # what tests write is kept for a look
        own = tempfile.mkdtemp(prefix="kern-")
        os.chmod(own, 0o711)  # as /tmp lets servers of other users reach what a test makes for them
        os.environ["TMPDIR"] = tempfile.tempdir = own
        config.add_cleanup(lambda: _remove(own))


def _remove(folder: str) -> None:
    """Remove a directory in which a server of an ended process may just be tidying up as well."""
    until = time.monotonic() + 20
    while os.path.exists(folder) and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)
    if os.path.exists(folder):
        shutil.rmtree(folder)  # which says why not


def pytest_report_header() -> list[str]:
    """What a reader of a log has to know about the machine and about what is tested."""
    host = f"Linux {platform.release()} {platform.machine()}, uid {os.getuid()} ({_user()}), cgroup {cgroup_mode()}"
    tested = kern_sandbox.__path__[0]
    missing = "fails its test" if must_work() else "skips its test"
    return [
        f"host: {host}, user namespaces {user_namespaces()}",
        f"kern_sandbox: {tested}; a missing ability {missing}",
    ]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "no name"


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """The test leaves nothing behind; see `support.leaks`."""
    need_boxes()
    with leaks():
        yield
