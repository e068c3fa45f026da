"""Evidence becomes a verdict in one place, purely; every row of the fault table has its test here."""

from __future__ import annotations

import errno
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern_sandbox import InternalError, NamespacesUnavailable, SandboxError, SessionClosed, StartError
from kern_sandbox._box.verdict import Facts, judge, raise_failure

FACTS = Facts("python3", "the host userland", 2.0, 64, 16, 20)


def ended(**more: Any) -> dict[str, Any]:
    return {"ready": True, "ending": "exit", "status": 0, "oom_kills": 0, "pids_refused": 0, **more}


@pytest.mark.parametrize(
    ("evidence", "exit_code", "fault"),
    [
        (ended(), 0, None),
        (ended(status=3 << 8), 3, None),
        (ended(status=signal.SIGSEGV), 139, None),
        (ended(status=signal.SIGTERM), 143, None),
        (ended(ending="timeout", status=None), 124, "timeout"),
        (ended(ending="timeout", status=None, oom_kills=2), 124, "timeout"),
        (ended(status=signal.SIGKILL, oom_kills=1), 137, "oom"),
        (ended(status=0, oom_kills=1), 0, "oom"),
        (ended(status=None, oom_kills=1), 137, "oom"),
        (ended(status=signal.SIGKILL), 137, "killed"),
        (ended(status=None), 137, "killed"),
        (ended(ending="killed", status=None), 137, "killed"),
        (ended(ending="escape", status=None, escape="mount"), 159, "escape_blocked"),
        (ended(ending="disk_full", status=None, disk_full=False), 137, "disk_full"),
        (ended(status=3 << 8, disk_full=True), 3, "disk_full"),
        (ended(disk_full=False), 0, None),
        (ended(status=signal.SIGKILL, oom_kills=1, disk_full=True), 137, "oom"),
        (ended(ending="timeout", status=None, disk_full=True), 124, "timeout"),
        (ended(status=signal.SIGSYS), 159, None),
        (ended(status=159 << 8), 159, None),
        (ended(status=signal.SIGSYS, named=False), 159, "escape_blocked"),
        (ended(status=159 << 8, named=False), 159, None),
        (ended(failed="exec", errno=errno.ENOENT), 127, "exec_failed"),
        (ended(failed="exec", errno=errno.EACCES), 126, "exec_failed"),
    ],
)
def test_each_kind_of_end_has_its_verdict(evidence: dict[str, Any], exit_code: int, fault: str | None) -> None:
    judgement = judge(evidence, FACTS)
    assert judgement.exit_code == exit_code
    assert (judgement.fault.type if judgement.fault else None) == fault


def test_a_fault_carries_its_one_datum() -> None:
    def detail(evidence: dict[str, Any]) -> str:
        fault = judge(evidence, FACTS).fault
        assert fault is not None
        return fault.detail

    assert detail(ended(ending="timeout")) == "2 s"
    assert detail(ended(oom_kills=1)) == "64 MiB"
    assert detail(ended(disk_full=True)) == "20 MiB"
    assert detail(ended(ending="escape", escape="bpf")) == "bpf"
    assert detail(ended(failed="exec", errno=errno.ENOENT)) == "python3"


def test_a_refused_fork_is_a_note_and_no_fault() -> None:
    judgement = judge(ended(pids_refused=3), FACTS)
    assert judgement.fault is None
    assert "limit of 16 processes" in judgement.notes[0]
    assert judge(ended(), FACTS).notes == []


@pytest.mark.parametrize(
    ("reason", "kind", "word"),
    [
        ({"failed": "namespaces", "errno": errno.EPERM, "text": "no"}, NamespacesUnavailable, "doctor"),
        ({"failed": "namespaces", "errno": errno.ENOSPC, "text": "no"}, NamespacesUnavailable, "max_user_namespaces"),
        ({"failed": "mounts", "errno": errno.ENOSPC, "text": "no"}, StartError, "out of a resource"),
        ({"failed": "working directory", "errno": errno.ENOENT, "text": "no", "path": "/x"}, StartError, "cwd="),
        ({"failed": "engine", "errno": None, "text": "a fault"}, InternalError, "a fault"),
        ({"failed": "closed"}, SessionClosed, "closed"),
    ],
)
def test_a_box_that_could_not_be_made_is_an_error_that_says_what_to_do(
    reason: dict[str, Any], kind: type[SandboxError], word: str
) -> None:
    with pytest.raises(kind, match=word):
        raise_failure(reason)


def test_a_box_that_was_never_ready_is_an_error_and_no_result() -> None:
    with pytest.raises(StartError):
        judge({"ready": False, "ending": "timeout", "status": None}, FACTS)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "ready": st.booleans(),
            "ending": st.sampled_from(["exit", "timeout", "killed", "escape", "cancelled", "disk_full", "?"]),
            "status": st.none() | st.integers(0, 0xFFFF),
            "oom_kills": st.integers(0, 9),
            "disk_full": st.booleans(),
            "pids_refused": st.integers(0, 9),
            "failed": st.none() | st.sampled_from(["exec", "mounts", "namespaces", "stem", "?"]),
            "errno": st.none() | st.integers(0, 200),
            "text": st.none() | st.text(),
            "escape": st.none() | st.text(),
            "notes": st.lists(st.text(), max_size=3),
        },
    )
)
def test_any_evidence_gives_a_verdict_or_one_of_our_errors(evidence: dict[str, Any]) -> None:
    try:
        judgement = judge(evidence, FACTS)
    except SandboxError:
        return
    assert 0 <= judgement.exit_code <= 255
