"""The fork server holds little: what it imports is paid for in every fork, and some of it is a danger."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import kern_sandbox

UNWANTED = {"ssl", "_ssl", "_hashlib", "urllib", "asyncio", "threading", "random", "subprocess", "logging", "tempfile"}


def test_the_fork_server_imports_neither_networking_nor_what_slows_a_fork() -> None:
    site = str(Path(kern_sandbox.__path__[0]).parent)
    code = f"""if True:
        import json, sys
        sys.path.insert(0, {site!r})
        import kern_sandbox._forkserver.server
        print(json.dumps(list(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "kern_sandbox._forkserver.server" in loaded
    assert not UNWANTED & loaded
