"""Programs that people use, unchanged, in boxes that reach a named few: each by its own way of finding a host."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import http.server
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

import pytest

import kern_sandbox
from egress_help import Authority, make_authority
from support import need, need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 45.0
CA = "/workspace/ca.pem"
TRUST = {
    "SSL_CERT_FILE": CA,
    "REQUESTS_CA_BUNDLE": CA,
    "CURL_CA_BUNDLE": CA,
    "NODE_EXTRA_CA_CERTS": CA,
    "GIT_SSL_CAINFO": CA,
    "PIP_CERT": CA,
    # Programs take a name below localhost to be excepted from the proxy as well; here it is to be used.
    "no_proxy": "",
    "NO_PROXY": "",
}


class Outside(NamedTuple):
    """An HTTPS server of the tests' own authority, and what its box sees."""

    sandbox: kern_sandbox.Sandbox
    url: str
    port: int


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        return


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"), ["web.localhost", "localhost"])


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Outside]:
    """The server, serving a file, a repository and a package index, and a Sandbox that may reach it."""
    need_boxes()
    folder = tmp_path_factory.mktemp("site")
    (folder / "hello").write_text("hello from outside\n")
    _make_repository(folder)
    _make_index(folder / "simple" / "tiny-package")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    server.socket = authority.server.wrap_socket(server.socket, server_side=True)
    port = server.server_address[1]
    threading.Thread(target=server.serve_forever, name="site", daemon=True).start()
    entries = [f"web.localhost:{port}", f"localhost:{port}"]
    with kern_sandbox.Sandbox(egress_allow=entries, env=TRUST, memory_mb=1024, timeout_s=60) as sandbox:
        sandbox.write_file("ca.pem", authority.certificate.read_bytes())
        yield Outside(sandbox, f"https://web.localhost:{port}", port)
    server.shutdown()
    server.server_close()


def _make_repository(folder: Path) -> None:
    if shutil.which("git") is None:
        return  # the test that needs it says so

    def git(*words: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "init.defaultBranch=main")
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", *who, *words], cwd=folder, env=environment, check=True, capture_output=True)

    git("init", "work")
    (folder / "work" / "file").write_text("from the repository\n")
    git("-C", "work", "add", "file")
    git("-C", "work", "commit", "-m", "first")
    git("clone", "--bare", "work", "repository.git")
    git("-C", "repository.git", "update-server-info")


def _make_index(folder: Path) -> None:
    """A package index with one wheel, made by hand."""
    folder.mkdir(parents=True)
    name = "tiny_package-1.0-py3-none-any.whl"
    files = {
        "tiny_package.py": b"WORDS = 'from the index'\n",
        "tiny_package-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n",
        "tiny_package-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "tiny_package-1.0.dist-info/RECORD"
    digests = [base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode() for data in files.values()]
    rows = [f"{path},sha256={digest.rstrip('=')},{len(files[path])}" for path, digest in zip(files, digests)]
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for path, data in {**files, record: "\n".join([*rows, f"{record},,", ""]).encode()}.items():
            wheel.writestr(path, data)
    (folder / "index.html").write_text(f'<!DOCTYPE html><a href="{name}">{name}</a>')


def installed(program: str) -> None:
    need(shutil.which(program, path="/usr/bin:/usr/local/bin:/bin") is not None, f"{program} is not installed")


def importable(sandbox: kern_sandbox.Sandbox, module: str) -> None:
    need(sandbox.run_code(f"import {module}").success, f"the box's Python has no {module}")


def gives(result: kern_sandbox.ExecutionResult, said: str) -> None:
    """The program did what it should, and its only traffic was allowed."""
    assert (result.exit_code, said in result.stdout) == (0, True), (result.stdout, result.stderr)
    assert {event.verdict for event in result.egress} == {"allowed"}
    assert all(event.bytes_down > 0 for event in result.egress)


# --- HTTP -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [[], ["--noproxy", "*"]], ids=["by the proxy", "without it"])
def test_curl(outside: Outside, how: list[str]) -> None:
    installed("curl")
    place = f"https://localhost:{outside.port}" if how else outside.url  # curl has its own idea of *.localhost
    gives(outside.sandbox.run(["curl", "-sS", *how, f"{place}/hello"]), "hello from outside")
    refused = outside.sandbox.run(["curl", "-sS", *how, "https://evil.example/"])
    assert refused.exit_code in (6, 56)
    assert [event.verdict for event in refused.egress] == ([] if how else ["refused"])


@pytest.mark.parametrize(
    "how", ["", "u.install_opener(u.build_opener(u.ProxyHandler({})))"], ids=["by the proxy", "without"]
)
def test_urllib(outside: Outside, how: str) -> None:
    code = f"import urllib.request as u\n{how}\nprint(u.urlopen('{outside.url}/hello').read().decode())"
    gives(outside.sandbox.run_code(code), "hello from outside")


def test_requests(outside: Outside) -> None:
    importable(outside.sandbox, "requests")
    get = f"import requests\nprint(requests.get('{outside.url}/hello').text)"
    gives(outside.sandbox.run_code(get), "hello from outside")
    refused = outside.sandbox.run_code("import requests\nrequests.get('https://evil.example/')")
    assert "403 Forbidden by egress_allow" in refused.stderr
    assert any("evil.example" in note for note in refused.runtime_notes)


def test_fetch_of_node_which_knows_no_proxy(outside: Outside) -> None:
    installed("node")
    code = f"fetch('{outside.url}/hello').then(r => r.text()).then(t => console.log(t))"
    gives(outside.sandbox.run_code(code, language="node"), "hello from outside")


def test_git_clones(outside: Outside) -> None:
    installed("git")
    line = f"cd /tmp && git clone -q {outside.url}/repository.git cloned && cat cloned/file"
    gives(outside.sandbox.run(["sh", "-c", line]), "from the repository")


def test_pip_installs(outside: Outside) -> None:
    python = outside.sandbox.plan.python
    need(outside.sandbox.run([python, "-m", "pip", "--version"]).success, "the box's Python has no pip")
    install = f"{python} -m pip install -q --no-cache-dir --index-url {outside.url}/simple --target /tmp/t tiny-package"
    show = f"PYTHONPATH=/tmp/t {python} -c 'import tiny_package; print(tiny_package.WORDS)'"
    gives(outside.sandbox.run(["sh", "-c", f"{install} && {show}"]), "from the index")


def test_a_tls_client_that_asks_for_another_name_is_stopped(outside: Outside) -> None:
    code = f"""
import socket, ssl
context = ssl.create_default_context(cafile={CA!r})
for name in ('localhost', 'web.localhost'):
    try:
        with socket.create_connection(('web.localhost', {outside.port})) as plain:
            print(context.wrap_socket(plain, server_hostname=name).version())
    except ssl.SSLError as error:
        print(error.reason)
"""
    result = outside.sandbox.run_code(code)
    assert result.stdout.split() == ["TLSV1_ALERT_ACCESS_DENIED", "TLSv1.3"]
    assert any("TLS asks for the server name localhost" in note for note in result.runtime_notes)


# --- databases --------------------------------------------------------------------------------------------------


def free_port() -> int:
    """One that no connection and no listener with a port of Linux's choice gets before the server binds it."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(lowest // 2, lowest)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def wait_until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Look until it is so, or the server has ended; the test's own timeout ends a wait that never does."""
    while not true():
        assert process.poll() is None, "the server ended at once"
        threading.Event().wait(0.05)


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def postgres() -> Iterator[int]:
    """A PostgreSQL server on loopback, its files gone with it."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    need(bool(programs), "postgresql is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # not pytest's, which nobody but this user may enter
    user = 65534 if os.geteuid() == 0 else None
    if user:
        os.chown(folder, user, user)
    run_as = {"user": user, "group": user, "extra_groups": []} if user else {}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/", **run_as}
    make = [
        programs[-1].with_name("initdb"),
        "-D",
        folder / "data",
        "-U",
        "kern",
        "-A",
        "trust",
        "-N",
        "--no-instructions",
    ]
    subprocess.run(make, check=True, **quiet)  # type: ignore[call-overload]  # which keywords there are depends on the user
    port = free_port()
    words = [programs[-1], "-D", folder / "data", "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
    process = subprocess.Popen(words, **quiet)  # type: ignore[call-overload]  # the same
    try:
        wait_until(lambda: listens(port), process)
        yield port
    finally:
        stop(process)
        shutil.rmtree(folder)


def test_psql_and_psycopg(postgres: int) -> None:
    need_boxes()
    psql = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/psql"))), None)
    need(psql is not None, "psql is not installed")
    with kern_sandbox.Sandbox(egress_allow=[f"pg.localhost:{postgres}"]) as sandbox:
        query = [str(psql), "-h", "pg.localhost", "-p", str(postgres), "-U", "kern", "-Atc", "select 6 * 7", "postgres"]
        gives(sandbox.run(query), "42")
        importable(sandbox, "psycopg")
        connect = f"psycopg.connect('host=pg.localhost port={postgres} user=kern dbname=postgres')"
        gives(sandbox.run_code(f"import psycopg\nprint({connect}.execute('select 6 * 7').fetchone())"), "(42,)")
        elsewhere = [word.replace("pg.localhost", "db.localhost") for word in query]
        assert "could not translate host name" in sandbox.run(elsewhere).stderr


def test_redis(tmp_path: Path) -> None:
    need_boxes()
    installed("redis-server")
    port = free_port()
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port), process)
        with kern_sandbox.Sandbox(egress_allow=[f"kv.localhost:{port}"]) as sandbox:
            line = f"redis-cli -h kv.localhost -p {port} set k v && redis-cli -h kv.localhost -p {port} get k"
            gives(sandbox.run(["sh", "-c", line]), "OK\nv\n")
            assert sandbox.run(["redis-cli", "-h", "127.0.0.1", "-p", str(port), "ping"]).exit_code == 1
    finally:
        stop(process)
