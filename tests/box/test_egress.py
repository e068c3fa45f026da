"""``egress_allow``: the only ways out of a box, what is said about them, and what ends with what."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest

import kern_sandbox
from egress_help import PROXY, TALK, Keep, Server, closing_all, echo, proxies
from kern_sandbox import EgressEvent
from support import applies, leaks, need_boxes, past_a_deadline

if TYPE_CHECKING:
    from collections.abc import Iterator

Make = Callable[..., kern_sandbox.Sandbox]


@pytest.fixture
def keep() -> Iterator[Keep]:
    with closing_all() as keep:
        yield keep


@pytest.fixture
def server(keep: Keep) -> Server:
    """An echo on the host's loopback."""
    made: Server = keep(Server(echo))
    return made


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as sock:
        sock.bind(("::1", 0))
        return True
    return False


def event(port: int, host: str = "echo.localhost", **more: Any) -> EgressEvent:
    return EgressEvent(host, port, **{"verdict": "allowed", "bytes_up": 4, "bytes_down": 4, **more})


# --- ways out ---------------------------------------------------------------------------------------------------


def test_an_allowed_host_is_reached_by_the_proxy_and_without_it_and_nothing_else_is(make: Make, server: Server) -> None:
    sandbox = make(egress_allow=[f"echo.localhost:{server.port}", "*.b.example"])
    code = f"""{TALK}
port = {server.port}
print(talk(('echo.localhost', port)), talk({PROXY}, tunnel=f'ECHO.localhost.:{{port}}'))
print(talk({PROXY}, tunnel='evil.example:443'), talk({PROXY}, tunnel=f'127.0.0.1:{{port}}'))
print(talk(('127.0.0.1', port)), talk(('1.1.1.1', 443)), talk(('evil.example', 443)), talk(('a.b.example', 443)))
"""
    result = sandbox.run_code(code)
    assert result.stdout == "b'ping' b'ping'\n403 403\nECONNREFUSED ENETUNREACH EAI EAI\n".replace("EAI", "-3"), result
    assert result.success
    refused = {"verdict": "refused", "bytes_up": 0, "bytes_down": 0, "reason": "the host is not in egress_allow"}
    assert sorted(result.egress, key=lambda event: event.host) == [
        event(server.port, "127.0.0.1", **refused),
        event(server.port, connections=2, bytes_up=8, bytes_down=8),
        event(443, "evil.example", **refused),
    ]
    assert "egress: evil.example port 443 was refused: the host is not in egress_allow" in result.runtime_notes
    assert result.to_dict()["egress"][0]["host"]


def test_no_other_kind_of_traffic_has_a_way_out(make: Make, server: Server) -> None:
    code = """
import errno, socket
for place in [('1.1.1.1', 443), ('2606:4700::1111', 443), ('10.0.0.1', 53), ('169.254.169.254', 80), ('224.0.0.1', 53)]:
    family = socket.AF_INET6 if ':' in place[0] else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as s:
            s.settimeout(5)
            print(errno.errorcode.get(s.connect_ex(place)))
try: print(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
except OSError as error: print(errno.errorcode[error.errno])
"""
    said = make(egress_allow=[f"echo.localhost:{server.port}"]).run_code(code).stdout.split()
    assert len(said) == 11
    assert set(said[:-1]) <= {"ENETUNREACH", "EADDRNOTAVAIL"}
    assert said[-1] == "EPERM"
    assert server.accepted == 0


def test_sandboxes_with_doors_leave_nothing_behind(server: Server) -> None:
    need_boxes()

    def use() -> None:
        with kern_sandbox.Sandbox(egress_allow=[f"echo.localhost:{server.port}"]) as sandbox:
            code = f"{TALK}\nprint(talk(('echo.localhost', {server.port})))"
            assert [sandbox.run_code(code).stdout for _ in range(3)] == ["b'ping'\n"] * 3

    use()
    with leaks():
        use()


def test_without_it_a_box_has_no_door(make: Make, server: Server) -> None:
    code = f"{TALK}\nprint(talk({PROXY}), talk(('127.0.0.1', {server.port})))"
    result = make().run_code(code)
    assert (result.stdout, result.egress) == ("ECONNREFUSED ECONNREFUSED\n", [])


def test_an_empty_list_allows_nothing_and_says_so(make: Make, server: Server) -> None:
    result = make(egress_allow=[]).run_code(f"{TALK}\nprint(talk({PROXY}, tunnel='localhost:{server.port}'))")
    assert result.stdout == "403\n"
    assert [event.verdict for event in result.egress] == ["refused"]
    assert server.accepted == 0


def test_an_entry_for_loopback_stands_at_the_same_address_in_the_box(make: Make, server: Server) -> None:
    sandbox = make(egress_allow=[f"127.0.0.1:{server.port}"])
    result = sandbox.run_code(f"{TALK}\nprint(talk(('127.0.0.1', {server.port})), talk(('localhost', {server.port})))")
    assert result.stdout == "b'ping' b'ping'\n"
    assert result.egress == [event(server.port, "127.0.0.1", connections=2, bytes_up=8, bytes_down=8)]


def test_an_address_of_the_new_kind_is_reached(make: Make, keep: Keep) -> None:
    applies(has_ipv6(), "this machine has no IPv6 loopback")
    server = keep(Server(echo, address="::1"))
    result = make(egress_allow=[f"[::1]:{server.port}", "[2001:db8::1]:9"]).run_code(f"""{TALK}
print(talk(('::1', {server.port})), talk({PROXY}, tunnel='[0:0::1]:{server.port}'))
""")
    assert (result.stdout, result.egress) == (
        "b'ping' b'ping'\n",
        [event(server.port, "::1", connections=2, bytes_up=8, bytes_down=8)],
    )


def test_ports_80_and_443_stand_open_and_another_address_is_the_boxs_own_alone(make: Make) -> None:
    sandbox = make(egress_allow=["none.invalid", "10.77.1.2:5432"])
    result = sandbox.run_code(f"""{TALK}
print([talk(('none.invalid', port)) for port in (80, 443, 81)])
for address in ('10.77.1.2', '10.77.1.3'):
    with socket.socket() as s:
        try: print(s.bind((address, 0)))
        except OSError as error: print(error.strerror)
""")
    opened = [seen for seen in result.egress if seen.host == "none.invalid"]
    assert [(seen.port, seen.verdict) for seen in sorted(opened, key=lambda seen: seen.port)] == [
        (80, "allowed"),
        (443, "allowed"),
    ]
    assert result.stdout.splitlines()[0].endswith(", 'ECONNREFUSED']")
    assert result.stdout.splitlines()[1:] == ["None", "Cannot assign requested address"]


def test_the_variables_name_the_proxy_and_the_codes_own_come_first(make: Make) -> None:
    names = "print([os.environ.get(n) for n in ('https_proxy', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY', 'HTTP_PROXY')])"
    said = make(egress_allow=[], env={"HTTP_PROXY": "mine"}).run_code(f"import os\n{names}").stdout
    url = "http://127.1.0.1:3128"
    assert said == f"{[url, url, url, 'localhost,127.0.0.1,::1', 'mine']}\n"
    assert make().run_code(f"import os\n{names}").stdout == f"{[None] * 5}\n"


# --- calls ------------------------------------------------------------------------------------------------------


def test_a_setup_reaches_what_its_sandbox_may_and_no_more(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_boxes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fetch = (
        'python3 -c \'import socket as s; c = s.create_connection(("{}", {})); c.sendall(b"got"); print(c.recv(3))\''
    )
    allowed = [f"echo.localhost:{server.port}"]
    setup = f"{fetch.format('echo.localhost', server.port)} > .deps/got"
    with kern_sandbox.Sandbox(egress_allow=allowed, setup=setup) as sandbox:
        assert sandbox.run(["cat", "/workspace/.deps/got"]).stdout == "b'got'\n"
    through = "python3 -c 'import urllib.request as u; u.urlopen(\"http://evil.example/\")'"
    refused = pytest.raises(kern_sandbox.StartError, match=r"egress: evil\.example port 80 was refused")
    with kern_sandbox.Sandbox(egress_allow=allowed, setup=through) as sandbox, refused:
        sandbox.run(["true"])


def test_a_setup_may_have_a_list_of_its_own(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Keep
) -> None:
    need_boxes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = f"{TALK}\nprint(talk(('echo.localhost', {server.port})))"
    here, setup = [f"echo.localhost:{server.port}"], f'python3 -c "{code}" > .deps/got'
    for mine, its in ([], here), (here, []), (None, []):
        sandbox = keep(kern_sandbox.Sandbox(egress_allow=mine, setup_egress_allow=its, setup=setup))
        assert sandbox.run(["cat", ".deps/got"]).stdout == ("b'ping'\n" if its else "-3\n")
        assert sandbox.run_code(code).stdout == ("b'ping'\n" if mine else "-3\n")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"setup_egress_allow": ["a.example"]}, "there is none"),
        ({"setup_egress_allow": ["http://a"], "setup": "true"}, "setup_egress_allow has the entry"),
        ({"setup_egress_allow": "a.example", "setup": "true"}, "setup_egress_allow"),
    ],
)
def test_a_list_for_a_setup_is_checked(options: dict[str, Any], says: str) -> None:
    with pytest.raises(kern_sandbox.SpecError, match=says):
        kern_sandbox.Sandbox(**options)


def test_each_call_has_its_own_doors_and_its_own_record(make: Make, server: Server) -> None:
    sandbox = make(egress_allow=[f"echo.localhost:{server.port}"])
    results: dict[int, kern_sandbox.ExecutionResult] = {}

    def call(times: int) -> None:
        code = f"{TALK}\nfor _ in range({times}): assert talk(('echo.localhost', {server.port})) == b'ping'"
        results[times] = sandbox.run_code(code)

    for wave in (range(1, 4), range(4, 7)):
        threads = [threading.Thread(target=call, args=(times,)) for times in wave]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [seen.connections for times in range(1, 7) for seen in results[times].egress] == [1, 2, 3, 4, 5, 6]
    assert sandbox.run_code("pass").egress == []


def test_a_spawned_program_and_an_awaited_call_have_a_record(server: Server) -> None:
    need_boxes()
    code = f"{TALK}\nprint(talk(('echo.localhost', {server.port})))"
    options: dict[str, Any] = {"egress_allow": [f"echo.localhost:{server.port}"]}
    with kern_sandbox.Sandbox(**options) as sandbox, sandbox.spawn(["python3", "-c", code]) as process:
        assert process.stdout.read() == b"b'ping'\n"
        assert process.wait().egress == [event(server.port)]

    async def call() -> kern_sandbox.ExecutionResult:
        async with kern_sandbox.AsyncSandbox(**options) as sandbox:
            return await sandbox.run_code(code)

    assert asyncio.run(call()).egress == [event(server.port)]


def test_a_box_that_is_stopped_loses_its_connections_and_keeps_its_record(make: Make, keep: Keep) -> None:
    ended = threading.Event()

    def talk(client: socket.socket) -> None:
        client.sendall(b"hello")
        with contextlib.suppress(OSError):
            client.recv(1)
        ended.set()

    server = keep(Server(talk))
    sandbox = make(egress_allow=[f"echo.localhost:{server.port}"])
    hold = f"s = socket.create_connection(('echo.localhost', {server.port})); print(s.recv(5), flush=True); s.recv(1)"
    result, _ = past_a_deadline(
        lambda limit: sandbox.run_code(f"import socket\n{hold}", timeout_s=limit), lambda got: got.stdout != ""
    )
    assert result.fault is not None
    assert result.fault.type == "timeout"
    assert ended.wait(60)
    assert result.egress == [event(server.port, bytes_up=0, bytes_down=5)]


def test_a_flood_of_connections_and_half_requests_ends_with_its_box(make: Make, server: Server) -> None:
    sandbox = make(egress_allow=[f"echo.localhost:{server.port}"])
    flood = f"""
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
kept = []
for number in range(1000):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex({PROXY} if number % 2 else ('echo.localhost', {server.port}))
    kept.append(s)
kept[1].setblocking(True)
kept[1].sendall(b'CONNECT half')
print('held')
"""
    assert sandbox.run_code(flood).stdout == "held\n"
    result = sandbox.run_code(f"{TALK}\nprint(talk(('echo.localhost', {server.port})))")
    assert (result.stdout, result.egress) == ("b'ping'\n", [event(server.port)])


# --- the proxy as a process -------------------------------------------------------------------------------------


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_one_proxy_without_any_privilege_serves_every_sandbox(server: Server) -> None:
    need_boxes()
    for _ in range(2):
        with kern_sandbox.Sandbox(egress_allow=[f"localhost:{server.port}"]) as sandbox:
            sandbox.run(["true"])
    (pid,) = proxies()
    seen = status(pid)
    assert {int(seen[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert seen["NoNewPrivs"] == "1"
    assert os.stat(f"/proc/{pid}/environ").st_uid == 0, "what others of its user may look into belongs to that user"
    if os.geteuid() == 0:
        assert 0 not in {int(part) for part in (seen["Uid"] + " " + seen["Gid"] + " " + seen["Groups"]).split()}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_proxy_that_is_killed_or_falls_silent_costs_a_note_and_the_next_call_gets_a_new_one(
    keep: Keep, server: Server, number: int
) -> None:
    need_boxes()
    sandbox = keep(kern_sandbox.Sandbox(egress_allow=[f"echo.localhost:{server.port}"]))
    code = f"""{TALK}
print(talk(('echo.localhost', {server.port})), flush=True)
input()
"""
    with sandbox.spawn(["python3", "-c", code]) as process:
        assert process.stdout.readline() == b"b'ping'\n"
        (before,) = proxies()
        os.kill(before, number)
        process.stdin.write(b"\n")
        process.stdin.close()
        result = process.wait(60)
    assert (result.exit_code, result.fault, result.egress) == (0, None, [])
    assert [note for note in result.runtime_notes if "the egress proxy has died" in note]
    after = sandbox.run_code(f"{TALK}\nprint(talk(('echo.localhost', {server.port})))")
    assert (after.stdout, after.egress) == ("b'ping'\n", [event(server.port)])
    assert not [note for note in after.runtime_notes if "egress" in note]
    assert before not in proxies()


def test_the_proxy_dies_with_the_process_that_used_it(user_process: Callable[..., Any]) -> None:
    user = user_process("box = kern.Sandbox(egress_allow=[]); box.run(['true']); print('up', flush=True); input()")
    assert user.process.stdout.readline() == "up\n"
    (proxy,) = [seen.pid for seen in user.below() if "(kern-egress)" in Path(f"/proc/{seen.pid}/stat").read_text()]
    gone = os.pidfd_open(proxy)
    try:
        user.process.kill()
        assert select.select([gone], [], [], 100)[0]
    finally:
        os.close(gone)
