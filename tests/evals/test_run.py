"""Running and reporting: a breach is seen as one and fails the run; pages are whole and harmless."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import kern_sandbox
from kern_sandbox.cli import main
from kern_sandbox.evals import _main, _run
from kern_sandbox.evals._cases import Control
from kern_sandbox.evals._page import page
from kern_sandbox.evals._report import cell, one_line, summary, table
from kern_sandbox.evals._run import Row, run_all
from kern_sandbox.evals._targets import all_targets, wiped
from support import leaks

from . import made

if TYPE_CHECKING:
    from pathlib import Path

    from kern_sandbox import ExecutionResult
    from kern_sandbox.evals._cases import Case

Printed = pytest.CaptureFixture[str]
ABOUT: dict[str, Any] = {**_main.fingerprint({}), "seconds": 1.5}


def obedient(code: str) -> ExecutionResult:
    """A box that holds: the code runs to its end and finds nothing."""
    mark = re.findall(r"finished [0-9a-f]{16}", code)
    return made.result(f"{mark[-1]}\n" if mark else "")


def leaky(code: str) -> ExecutionResult:
    """A box that lets the host's file be read."""
    secret = re.search(r"'secret': '([^']+)'", code)
    assert secret is not None
    with open(secret[1]) as file:
        return made.result(file.read() + obedient(code).stdout)


def rows(case: Case, *targets: made.Target, **how: Any) -> list[Row]:
    """What a run of one case gives."""
    return list(run_all([case], targets, **how))


SECRET = made.case("no secret comes out")


def test_a_box_that_holds_is_said_to_hold() -> None:
    (row,) = rows(SECRET, made.Target(obedient))
    assert (row.word, row.bad) == ("held", False)


def test_a_planted_breach_is_seen_as_a_breach() -> None:
    (row,) = rows(SECRET, made.Target(leaky))
    assert (row.word, row.bad, row.detail) == ("breached", True, "came out: file")


def test_a_breach_of_another_target_is_no_fault_of_ours_and_its_output_is_not_kept() -> None:
    (row,) = rows(SECRET, made.Target(leaky, name="other", ours=False))
    assert (row.word, row.bad, row.output) == ("breached", False, "")


def test_an_engine_that_raises_is_unclear_and_fails() -> None:
    def broken(code: str) -> ExecutionResult:
        raise kern_sandbox.InternalError("making a box")

    (row,) = rows(SECRET, made.Target(broken))
    assert (row.word, row.bad, row.detail) == ("unclear", True, "InternalError: making a box")


def test_a_renderer_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(result: ExecutionResult) -> str:
        raise KeyError("disk_full")

    monkeypatch.setattr(_run, "render", broken)
    (row,) = rows(SECRET, made.Target(obedient))
    assert (row.word, row.bad, row.detail) == ("unclear", True, "the renderer raised KeyError: 'disk_full'")


def test_a_call_that_never_returns_is_given_up_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "_PATIENCE_S", 0.05)
    released = threading.Event()
    case = made.case(timeout_s=0.01)

    def hangs(code: str) -> ExecutionResult:
        released.wait(60)
        return made.result()

    (row,) = rows(case, made.Target(hangs))
    released.set()
    assert (row.word, row.bad) == ("hung", True)


def test_a_defect_of_the_harness_is_raised_and_not_counted() -> None:
    def broken(code: str) -> ExecutionResult:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rows(SECRET, made.Target(broken))


def test_what_a_case_needs_and_the_host_has_not_is_skipped_with_the_reason() -> None:
    (row,) = rows(made.case(needs=("no-such-program",)), made.Target(obedient))
    assert (row.word, row.bad) == ("skipped", False)
    assert "no-such-program" in row.detail


def test_a_target_that_does_not_make_a_claim_is_skipped_with_the_reason() -> None:
    case = made.case("no secret comes out", not_on={"kernel": "by design"})
    found = rows(case, made.Target(leaky, name="kernel"), made.Target(leaky))
    assert sorted((row.target, row.word, row.bad) for row in found) == [
        ("exec", "breached", True),
        ("kernel", "skipped", False),
    ]


def test_cases_are_repeated_and_run_together() -> None:
    together = threading.Barrier(2)

    def meets(code: str) -> ExecutionResult:
        together.wait(60)
        return obedient(code)

    found = rows(SECRET, made.Target(meets), repeat=4, jobs=2)
    assert sorted(row.number for row in found) == [1, 2, 3, 4]


def test_a_run_leaves_nothing_behind() -> None:
    rows(made.case("no secret comes out"), made.Target(obedient))
    with leaks():
        rows(made.case("no secret comes out", scene=("neighbour", "meeting", "once")), made.Target(obedient))


def test_a_run_that_is_given_up_takes_down_what_it_had_set_up() -> None:
    case = made.case("no secret comes out", scene=("neighbour",))
    rows(case, made.Target(obedient))
    with leaks():
        run = run_all([case], [made.Target(obedient)], repeat=50, jobs=2)
        next(run)
        run.close()


def test_an_attack_that_works_on_a_plain_process_is_proved_by_it() -> None:
    case = replace(SECRET, claim=replace(SECRET.claim, control=Control("subprocess")))
    case = replace(case, calls=('attempt(lambda: content(stage["secret"]))',))
    (row,) = rows(case, made.Target(obedient))
    assert (row.word, row.control, row.proved) == ("held", "breached", True)
    (row,) = rows(case, made.Target(obedient), controls=False)
    assert (row.word, row.control, row.proved) == ("held", "", False)
    (row,) = rows(replace(case, calls=("pass",)), made.Target(obedient))
    assert (row.word, row.control, row.proved) == ("held", "held", False)


def test_a_workspace_is_emptied_whatever_lies_in_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "a" / "file").write_text("x")
    assert wiped(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


# --- targets ----------------------------------------------------------------------------------------------------


def test_targets_have_names_of_their_own_and_say_why_they_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERN_EVALS_OLDER_PYTHON", raising=False)
    known = {target.name: target for target in all_targets()}
    assert set(known) == {"exec", "template", "prewarmed", "kernel", "subprocess", "bwrap", "kern-sandbox 0.2.49"}
    assert "KERN_EVALS_OLDER_PYTHON" in known["kern-sandbox 0.2.49"].why_not()
    assert known["subprocess"].why_not() == ""


def test_an_older_version_that_cannot_run_says_so_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERN_EVALS_OLDER_PYTHON", "/no/such/python")
    assert "/no/such/python" in {target.name: target for target in all_targets()}["kern-sandbox 0.2.49"].why_not()


# --- the command ------------------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[made.Target]:
    """The targets of the command; tests put theirs in."""
    targets: list[made.Target] = []
    monkeypatch.setattr(_main, "all_targets", lambda: targets)
    return targets


def test_the_command_succeeds_where_all_is_well(stand_in: list[made.Target], capsys: Printed) -> None:
    stand_in.append(made.Target(obedient))
    assert main(["eval", "--case", "escape/path-plain"]) == 0
    assert "1 held" in capsys.readouterr().out


def test_a_planted_breach_fails_the_command_and_is_in_every_report(
    stand_in: list[made.Target], capsys: Printed, tmp_path: Path
) -> None:
    stand_in.append(made.Target(leaky))
    files = ["--jsonl", str(tmp_path / "rows"), "--html", str(tmp_path / "page.html")]
    assert main(["eval", "--case", "escape/path-plain", *files]) == 1
    assert "breached: escape/path-plain on exec: came out: file" in capsys.readouterr().out
    (row,) = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert (row["verdict"], row["case"]) == ("breached", "escape/path-plain")
    assert {"linux", "machine", "commit", "kern_sandbox"} <= set(row["host"])
    assert '<span class="tag bad">breached</span>' in (tmp_path / "page.html").read_text()


def test_a_run_in_which_nothing_was_asked_is_no_success(stand_in: list[made.Target]) -> None:
    class Unboxed(made.Target):
        boxed = False

    stand_in.append(Unboxed(obedient))
    assert main(["eval", "--case", "resources/forks"]) == 1


def test_a_target_that_was_named_and_cannot_run_is_no_success(stand_in: list[made.Target], capsys: Printed) -> None:
    class Absent(made.Target):
        def why_not(self) -> str:
            return "it is not here"

    stand_in += [made.Target(obedient), Absent(obedient, name="kernel")]
    assert main(["eval", "--case", "escape/path-plain"]) == 0
    assert main(["eval", "--case", "escape/path-plain", "--target", "kernel"]) == 1
    assert "cannot run: kernel: it is not here" in capsys.readouterr().out


def test_a_run_on_a_host_without_boxes_is_no_success(stand_in: list[made.Target]) -> None:
    assert main(["eval", "--case", "escape/path-plain"]) == 1
    stand_in.append(made.Target(leaky, name="subprocess", ours=False))
    assert main(["eval", "--case", "escape/path-plain", "--target", "subprocess"]) == 0


@pytest.mark.parametrize("option", ["--html", "--jsonl"])
def test_a_file_that_cannot_be_written_is_said_before_anything_runs(
    option: str, stand_in: list[made.Target], capsys: Printed, tmp_path: Path
) -> None:
    stand_in.append(made.Target(obedient))
    assert main(["eval", "--case", "escape/path-plain", option, str(tmp_path / "missing" / "file")]) == 2
    printed = capsys.readouterr()
    assert "No such file or directory" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("words", [["--family", "nobody"], ["--case", "nobody/*"], ["--target", "nobody"]])
def test_what_is_not_there_cannot_be_chosen(words: list[str], capsys: Printed) -> None:
    assert main(["eval", "--list" if words[0] != "--target" else "--jobs=1", *words]) == 2
    said = capsys.readouterr().err
    assert f"choosing {' '.join(words)}: " in said
    assert {"--family": "escape, ", "--case": "eval --list", "--target": "exec, "}[words[0]] in said


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--repeat", "-1"], ["--jobs", "x"]])
def test_a_number_that_is_none_is_refused(words: list[str]) -> None:
    assert main(["eval", *words]) == 2


@pytest.mark.parametrize(
    ("pattern", "some"), [("B23", "syscalls/unshare"), ("leaks/host-name", "leaks/host-name-shell")]
)
def test_cases_are_chosen_by_source_claim_or_name(pattern: str, some: str, capsys: Printed) -> None:
    assert main(["eval", "--list", "--case", pattern]) == 0
    said = capsys.readouterr().out
    assert some in said
    assert "benign/" not in said


# --- reports ----------------------------------------------------------------------------------------------------


def row(word: str = "held", **more: Any) -> Row:
    """A row of the engine's."""
    of = more.pop("case", made.case())
    return Row(of, more.pop("target", "exec"), more.pop("ours", True), 1, word, **more)  # type: ignore[arg-type] # closed


def test_a_cell_counts_what_was_asked() -> None:
    assert cell([row(), row()]) == "2"
    assert cell([row(), row("breached"), row("skipped")]) == "1/2"
    assert cell([row("skipped")]) == "\N{EN DASH}"


def test_the_table_names_what_went_wrong_and_what_could_not_run() -> None:
    said = table([row(), row("broke", detail="a\x1b[31m\nb")], {"kernel": "it is not there"})
    assert "escape            1/2" in said
    assert "broke: escape/made on exec: a\N{REPLACEMENT CHARACTER}[31m b" in said
    assert "cannot run: kernel: it is not there" in said


def test_the_summary_tells_what_is_proved_and_what_is_not() -> None:
    said = summary([row(control="breached"), row(control="held"), row("skipped", detail="no gcc")], ABOUT)
    assert "of 2 attacks that failed, 1 work on their control" in said
    assert "prove nothing: escape/made" in said
    assert "1 skipped: no gcc" in said


def test_a_line_of_the_report_is_one_line_that_no_terminal_obeys() -> None:
    assert one_line("a\r\n\x1b]0;x\x07 b" + "y" * 500).isprintable()
    assert len(one_line("y" * 500)) == 201


HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\u202e</pre></details>"


def test_a_page_needs_nothing_else() -> None:
    said = page([row(), row("breached", detail="x")], ABOUT)
    assert not re.findall(r"https?://|<script|<link|<img|src=|@import|url\(", said)
    assert said.startswith("<!doctype html>")
    assert "prefers-color-scheme: dark" in said
    assert '<a href="#escape-0">1/2</a>' in said
    assert '<section id="escape-0" class="open">' in said


def test_no_name_or_text_of_a_case_is_obeyed_by_the_page() -> None:
    hostile = row("breached", case=made.case(title=HOSTILE), detail=HOSTILE, output=HOSTILE, target=HOSTILE)
    said = page([hostile], {**ABOUT, "linux": HOSTILE, "absent": {HOSTILE: HOSTILE}})
    plain = page([row("breached", detail="x", output="x")], {**ABOUT, "absent": {"x": "x"}})
    assert HOSTILE not in said
    assert "&lt;script&gt;" in said
    for tag in ("<script", "</pre>", "</details>", "\x1b", "\u202e"):
        assert said.count(tag) == plain.count(tag)


@pytest.mark.parametrize(
    ("words", "headline"),
    [
        (["held", "skipped"], 'good">kern_sandbox kept every claim: 1 attacks failed.'),
        (["worked"], 'good">kern_sandbox kept every claim: 1 honest snippets worked.'),
        (["held", "worked"], 'good">kern_sandbox kept every claim: 1 attacks failed, 1 honest snippets worked.'),
        (["held", "breached"], 'bad">1 of 2 cases went wrong on kern_sandbox.'),
        (["skipped"], 'verdict">kern_sandbox was not asked.'),
        ([], 'verdict">kern_sandbox was not asked.'),
    ],
    ids=str,
)
def test_the_pages_headline_says_what_was_asked_and_no_more(words: list[str], headline: str) -> None:
    assert headline in page([row(word) for word in words], ABOUT)
