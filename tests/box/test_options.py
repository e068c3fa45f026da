"""What the options of a Sandbox change, seen from inside a box; each beside what the default gives."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Callable

import pytest

import kern_sandbox

Make = Callable[..., kern_sandbox.Sandbox]


def said(sandbox: kern_sandbox.Sandbox, line: str) -> str:
    """What a shell line prints; it must succeed."""
    result = sandbox.run(["sh", "-c", line])
    assert result.success, result
    return result.stdout


# --- what is shown ----------------------------------------------------------------------------------------------


def test_a_mount_is_read_only_unless_asked_otherwise(make: Make, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    sandbox = make(mounts={str(tmp_path): "/data"})
    assert said(sandbox, "cat /data/f; touch /data/g 2>/dev/null || echo refused") == "xrefused\n"
    sandbox = make(mounts={str(tmp_path): ("/data", "rw")})
    assert said(sandbox, "echo y > /data/g; cat /data/g") == "y\n"
    assert (tmp_path / "g").read_text() == "y\n"
    assert (tmp_path / "g").stat().st_uid == os.geteuid()


def test_a_file_can_be_mounted(make: Make, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    assert said(make(mounts={str(tmp_path / "f"): "/opt/deep/f"}), "cat /opt/deep/f") == "x"


def test_a_source_that_was_replaced_since_it_was_vetted_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    sandbox = make(mounts={str(tmp_path / "d"): "/data"}, used=False)
    (tmp_path / "d").rename(tmp_path / "old")
    (tmp_path / "d").symlink_to("/etc")
    with pytest.raises(kern_sandbox.StartError, match="replaced"):
        sandbox.run(["true"])


def test_tmpfs_places_and_sizes_are_as_asked(make: Make) -> None:
    sizes = "df -k --output=size,target /tmp /scratch 2>/dev/null | tail -n +2 | awk '{print $1, $2}'"
    assert said(make(tmpfs={"/tmp": "8m", "/scratch": "2m"}), sizes) == "8192 /tmp\n2048 /scratch\n"
    assert said(make(), "df -k --output=size /tmp | tail -1").strip() == "65536"
    assert said(make(tmpfs={}), "touch /tmp/x 2>/dev/null || echo none; touch $TMPDIR/x && echo home") == "none\nhome\n"


# --- the root ---------------------------------------------------------------------------------------------------


def test_the_root_is_read_only_by_default(make: Make) -> None:
    assert said(make(), "mkdir /opt/x 2>/dev/null || mkdir /y 2>/dev/null || echo refused") == "refused\n"


def test_a_scratch_root_takes_files_and_is_gone_with_the_box(make: Make) -> None:
    sandbox = make(root="scratch", memory_mb=64)
    assert (
        said(sandbox, "mkdir -p /opt/x /var/log && echo 1 > /opt/x/f && echo 2 > /etc/new && cat /opt/x/f /etc/new")
        == "1\n2\n"
    )
    assert said(sandbox, "ls -d /opt /etc/new 2>/dev/null || echo gone") == "gone\n"
    assert said(sandbox, "touch /usr/x 2>/dev/null || echo refused") == "refused\n"


def test_a_scratch_root_is_capped(make: Make) -> None:
    line = "dd if=/dev/zero of=/big bs=1M count=64 2>&1 | grep -c 'No space left'"
    assert said(make(root="scratch", memory_mb=64), line) == "1\n"


# --- who the code is --------------------------------------------------------------------------------------------


def test_the_code_sees_itself_as_the_user_that_was_asked(make: Make) -> None:
    sandbox = make(user=1234)
    assert said(sandbox, "id -u; id -g; whoami; echo $USER; touch $HOME/x /tmp/x /workspace/x && echo writes") == (
        "1234\n1234\nsandbox\nsandbox\nwrites\n"
    )
    assert (Path(sandbox.workspace) / "x").stat().st_uid == os.geteuid()
    assert said(make(), "id -u; whoami") == "0\nroot\n"


BIND_80 = """
import socket
sock = socket.socket()
sock.bind(("127.0.0.1", 80))
print("bound")
"""


def test_capabilities_over_its_own_namespaces_are_kept_only_when_asked(make: Make) -> None:
    caps = "grep CapEff /proc/self/status | cut -f2"
    assert make(cap_drop=()).run_code(BIND_80).stdout == "bound\n"
    assert int(said(make(cap_drop=()), caps), 16) > 0
    assert "PermissionError" in make().run_code(BIND_80).stderr
    assert int(said(make(), caps), 16) == 0


def test_with_capabilities_the_escape_calls_are_as_forbidden(make: Make) -> None:
    fault = make(cap_drop=()).run(["mount", "-t", "tmpfs", "x", "/mnt"]).fault
    assert fault is not None
    assert (fault.type, fault.detail) == ("escape_blocked", "mount")


# --- profiles ---------------------------------------------------------------------------------------------------


def test_untrusted_runs_ordinary_code_and_refuses_more(make: Make, memory_cgroup: None) -> None:
    code = """
import socket
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    print("open")
except OSError:
    print("refused")
"""
    assert make(security_profile="untrusted").run_code(code).stdout == "refused\n"
    assert make().run_code(code).stdout == "open\n"


@pytest.mark.parametrize("option", [{"network": True}, {"cap_drop": ()}, {"root": "scratch"}, {"memory_mb": None}])
def test_nothing_loosens_untrusted(make: Make, option: dict[str, object]) -> None:
    with pytest.raises(kern_sandbox.SpecError, match="untrusted"):
        make(security_profile="untrusted", **option)


def test_an_apparmor_profile_that_is_not_loaded_is_an_error(make: Make) -> None:
    with pytest.raises(kern_sandbox.StartError, match=r"no AppArmor profile 'no-such-profile' is loaded|not in use"):
        make(apparmor="no-such-profile").run(["true"])


# --- the network ------------------------------------------------------------------------------------------------

CONNECT = """
import socket, sys
try:
    print(socket.create_connection(("127.0.0.1", int(sys.stdin.read())), 5).recv(9))
except OSError as error:
    print(type(error).__name__)
"""


def test_the_hosts_network_is_there_only_when_asked(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        server.settimeout(100)

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"hello")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        assert make().run_code(CONNECT, stdin=port).stdout == "ConnectionRefusedError\n"
        assert make(network=True).run_code(CONNECT, stdin=port).stdout == "b'hello'\n"
        thread.join(30)


# --- what the code sees of its limits ---------------------------------------------------------------------------


def test_the_code_sees_its_limits(make: Make) -> None:
    sandbox = make(memory_mb=64, cpus=1)
    count = "import os; print(os.cpu_count(), len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    assert sandbox.run_code(count).stdout == "1 1 1\n"
    assert said(sandbox, "nproc; grep MemTotal /proc/meminfo | tr -s ' '") == "1\nMemTotal: 65536 kB\n"
    assert make().run_code("import os; print(os.cpu_count())").stdout == f"{os.cpu_count()}\n"
