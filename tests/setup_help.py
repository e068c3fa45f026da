"""What tests of setups share: a wheel of their own, and a gate at which a setup waits."""

from __future__ import annotations

import http.server
import sys
import threading
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WHEEL = "kern_probe-1.0-py3-none-any.whl"
PATIENCE_S = 100.0


def write_wheel(folder: Path, version: str = "1.0") -> Path:
    """A wheel with one module and one console script."""
    info = f"kern_probe-{version}.dist-info"
    files = {
        "kern_probe.py": f"VERSION = {version!r}\n\n\ndef main():\n    print('hello from', VERSION)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: kern-probe\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nkern-probe = kern_probe:main\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / f"kern_probe-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)
    return path


class Gate:
    """A server on loopback at which setups wait; it counts them."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.count = 0
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gate.count += 1
                gate.arrived.release()
                gate.open.wait(PATIENCE_S)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def setup(self) -> str:
        """A command that passes the gate and leaves a module."""
        url = f"http://127.0.0.1:{self.server.server_port}/"
        place = "/workspace/.deps/lib/python{}.{}/site-packages".format(*sys.version_info)
        fetch = f"import urllib.request as r; r.build_opener(r.ProxyHandler({{}})).open('{url}')"
        return f'python -c "{fetch}"; echo passed=1 > {place}/gated.py'

    def await_arrival(self) -> None:
        """Wait until a setup is at the gate."""
        assert self.arrived.acquire(timeout=PATIENCE_S), "no setup came to the gate"

    def close(self) -> None:
        """Let everybody through and end."""
        self.open.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
