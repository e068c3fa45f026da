"""Hosts that are not like this one: filtered, forbidden, without a PATH. A box either works or says why not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support import need_boxes

RUN = """
import kern_sandbox as kern
try:
    code = "import ctypes; print(1, flush=True); ctypes.CDLL(None).umount2(b'/proc', 0); print('not stopped')"
    result = kern.run_code(code)
    print(result.stdout.split(), result.fault.type, result.fault.detail, len(result.runtime_notes))
except kern.SandboxError as error:
    print(type(error).__name__, error.hint)
"""
OUTER = """
from kern_sandbox._linux import bpf, caps, seccomp
code = bpf.Assembler()
{rules}
code.ret(int(bpf.Action.ALLOW))
caps.no_new_privileges()
seccomp.install(code.assemble(), listener={listener})
"""


@pytest.fixture(autouse=True)
def _boxes() -> None:
    need_boxes()


def in_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_host_without_a_filter_names_the_call() -> None:
    """The control of the next test."""
    assert in_python(RUN).split(" ")[1:3] == ["escape_blocked", "umount2"]


def test_inside_another_listener_the_call_is_stopped_unnamed_and_the_result_says_so() -> None:
    """A container engine may have the one listener that a process can have."""
    plain, filtered = (in_python(OUTER.format(rules="", listener=each) + RUN) for each in (False, True))
    assert plain.split(" ")[1:3] == ["escape_blocked", "umount2"]
    assert "umount2" not in filtered
    assert int(filtered.rsplit(" ", 1)[1]) == int(plain.rsplit(" ", 1)[1]) + 1


def test_a_host_that_forbids_namespaces_is_an_error_with_the_way_out() -> None:
    rules = """
from kern_sandbox._linux.syscalls import NUMBERS
code.load(bpf.NR)
code.branch("jeq", NUMBERS["clone"], no="other")
code.load(bpf.argument(0))
code.mask(0x10000000)
code.branch("jeq", 0, yes="other")
code.ret(bpf.errno_return(1))
code.label("other")
"""
    said = in_python(OUTER.format(rules=rules, listener=False) + RUN)
    assert said.startswith("NamespacesUnavailable ")
    assert "kern-sandbox doctor" in said


def test_an_empty_path_of_the_host_changes_nothing() -> None:
    """No program of the host is needed to make a box, so nothing can be missing and nothing fails open."""
    assert "escape_blocked" in in_python("import os; os.environ['PATH'] = '/nonexistent'\n" + RUN)


def test_the_language_of_the_host_does_not_reach_the_box() -> None:
    code = "import os; os.environ.update(LC_ALL='tr_TR', LANG='C')\nimport kern_sandbox as kern\n"
    code += "print(ascii(kern.run_code(\"print('\\u0131\\u0130\\u00e9', 'I'.lower())\").stdout))"
    assert in_python(code) == ascii("\u0131\u0130\u00e9 i\n") + "\n"
