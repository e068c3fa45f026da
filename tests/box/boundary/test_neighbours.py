"""What one box can do to its init, to its fork server, to the next call and to boxes beside it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable

import pytest

import kern_sandbox
from kern_sandbox import Sandbox
from support import need_boxes

from .probes_limits import _IN_FLIGHT

if TYPE_CHECKING:
    from pathlib import Path

KEYCTL = "import ctypes\nctypes.CDLL(None).syscall(250, 0, -3, 0)\n"


@pytest.fixture(autouse=True)
def _boxes() -> None:
    need_boxes()


@pytest.mark.parametrize(
    "code", ["os.kill(-1, 9)", "os.kill(1, 9)", "os.kill(1, 19)", "os.kill(0, 9)", "os.kill(1, 15)"]
)
def test_whatever_a_box_kills_the_next_call_works(code: str) -> None:
    """B87."""
    with Sandbox() as sandbox:
        sandbox.run_code(f"import os\nfor _ in range(3): {code}")
        assert sandbox.run_code("print(1)").stdout == "1\n"


def test_a_cell_that_stops_the_keeper_of_its_kernel_still_ends() -> None:
    """B87."""
    with Sandbox() as sandbox, sandbox.kernel(timeout_s=2) as kernel:
        result = kernel.run_code("import os, time\nos.kill(os.getppid(), 19)\ntime.sleep(600)")
        assert result.fault is not None
        assert (result.fault.type, kernel.alive) == ("timeout", False)
        assert sandbox.run_code("print(1)").stdout == "1\n"


def test_an_escape_in_one_box_does_not_touch_the_box_beside_it() -> None:
    """B07: both boxes have listeners of their own, and each fault goes to its own call."""
    with Sandbox() as sandbox, sandbox.spawn(["cat"]) as calm:
        assert sandbox.run_code(KEYCTL).fault is not None
        assert calm.poll() is None
        calm.stdin.close()
        assert calm.wait().exit_code == 0


def test_many_boxes_that_escape_at_once_each_get_their_own_fault() -> None:
    """B07: flooding the one fork server."""
    faults: list[str] = []
    with Sandbox() as sandbox:

        def attack() -> None:
            try:
                fault = sandbox.run_code(KEYCTL).fault
                faults.append(f"{fault.type} {fault.detail}" if fault else "none")
            except kern_sandbox.SandboxError as error:
                faults.append(str(error))

        threads = [threading.Thread(target=attack) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert faults == ["escape_blocked keyctl"] * 12


def test_a_filter_of_the_codes_own_cannot_turn_an_escape_into_success() -> None:
    """B27: the stricter of two filters counts; with its own filter the code can only fail differently."""
    code = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
steps = (0x20, 0, 0, 0), (0x15, 0, 1, 250), (6, 0, 0, 0x00050000), (6, 0, 0, 0x7FFF0000)  # keyctl: errno 0
raw = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
class Prog(ctypes.Structure): _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc.syscall(317, 1, 0, ctypes.byref(Prog(4, ctypes.addressof(raw))))
print(libc.syscall(250, 0, -3, 0))
"""
    result = kern_sandbox.run_code(code)
    assert result.fault is not None or result.stdout == "0\n", "errno 0 from its own filter, or our report"


def test_boxes_of_two_sandboxes_do_not_meet_in_a_workspace_of_their_own() -> None:
    """B57, B61: a socket that one box listens on is not in the other's sight."""
    listen = (
        "import socket\ns = socket.socket(socket.AF_UNIX); s.bind('/workspace/s'); s.listen()\n"
        "print(1, flush=True); s.accept()"
    )
    with Sandbox() as one, Sandbox() as other, one.spawn(["python3", "-c", listen]) as box:
        box.stdout.readline()
        assert "s" not in other.run_code("import os; print(os.listdir('/workspace'))").stdout.strip("[]\n'")
        assert one.run_code("import os; print(os.path.exists('/workspace/s'))").stdout == "True\n"
        box.kill()


class Secret(str):
    """As those of settings libraries: it does not show itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret(***)"


class Variables(dict[str, str]):
    """The same for all of them."""

    def __repr__(self) -> str:
        return "Variables(***)"


@pytest.mark.parametrize("hidden", [lambda text: {"TOKEN": Secret(text)}, lambda text: Variables(TOKEN=text)])
def test_a_one_shot_call_never_gets_what_was_meant_for_another(hidden: Callable[[str], dict[str, str]]) -> None:
    """The next session is made ahead: it has to be one for the same values, not for what looks the same."""
    show = "import os; print(os.environ['TOKEN'])"
    told = [kern_sandbox.run_code(show, env=hidden(f"of {tenant}")).stdout for tenant in range(5)]
    assert told == [f"of {tenant}\n" for tenant in range(5)]


def test_results_are_data_and_never_run_on_the_host(tmp_path: Path) -> None:
    """B08."""
    mark = f"{tmp_path}/made"
    code = f"""
import pickle
class Bomb:
    def __reduce__(self): return (open, ({mark!r}, "w"))
    def _repr_mimebundle_(self, **_): return {{"application/x-pickle": pickle.dumps(self), "text/plain": "x"}}
Bomb()
"""
    kern_sandbox.run_code(code)
    assert not tmp_path.joinpath("made").exists()


def test_descriptors_that_one_box_keeps_in_flight_keep_no_other_box_from_being_made() -> None:
    """Linux counts them for the host user, whom boxes of equal Sandboxes share."""
    need_boxes()
    with kern_sandbox.Sandbox(timeout_s=60) as hostile, kern_sandbox.Sandbox(timeout_s=60) as other:
        argv = [hostile.plan.python, "-c", f"import os, socket\n{_IN_FLIGHT}"]
        with hostile.spawn(argv) as process:
            assert process.stdout.readline() == b"1\n", "control: it has filled what it may"
            assert [other.run_code("print(1)").stdout for _ in range(3)] == ["1\n"] * 3
            assert hostile.run(["echo", "x"]).stdout == "x\n"
