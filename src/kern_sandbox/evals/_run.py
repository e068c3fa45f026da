"""Runs cases on targets and their controls, each in a place of its own, and collects one row for each."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Literal

from kern_sandbox import ExecutionResult, SandboxError, render

from ._abilities import missing, site_of
from ._cases import HERE, Case
from ._judges import JUDGES, Evidence, Unclear, finished_mark
from ._stage import Scene, Stage
from ._targets import Demand, Exec, Subprocess, Unusable
from ._text import raw_text

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from ._targets import Room, Target

__all__ = ["BAD", "Row", "Word", "run_all", "source_of"]

Word = Literal["held", "breached", "worked", "broke", "unclear", "hung", "skipped"]
BAD: tuple[Word, ...] = ("breached", "broke", "unclear", "hung")
"""Words that fail a run where they are said of kern_sandbox itself."""
_PATIENCE_S = 45.0
_LAST_CASE_S = 20.0
_SITE = "/site"


@dataclass(frozen=True)
class Row:
    """One case on one target.

    Attributes:
        case: what was run.
        target: on what.
        ours: whether the target is kern_sandbox.
        number: from 1, where cases are repeated.
        word: the verdict.
        detail: how it was broken, or why nothing can be said.
        control: the verdict on the control; ``""`` where it was not asked.
        about_control: where that was, or why there is none.
        seconds: how long the calls took.
        output: the end of what the code printed.
    """

    case: Case
    target: str
    ours: bool
    number: int
    word: Word
    detail: str = ""
    control: str = ""
    about_control: str = ""
    seconds: float = 0.0
    output: str = ""

    @property
    def bad(self) -> bool:
        """Whether it fails the run."""
        return self.ours and self.word in BAD

    @property
    def proved(self) -> bool:
        """Whether an attack that failed here is known to work elsewhere."""
        return self.word == "held" and self.control == "breached"


@dataclass(frozen=True)
class _Job:
    case: Case
    target: Target
    number: int


def run_all(
    cases: Sequence[Case], targets: Sequence[Target], *, repeat: int = 1, jobs: int = 1, controls: bool = True
) -> Generator[Row, None, None]:
    """Run every case on every target ``repeat`` times, ``jobs`` at once; rows come as they are done.

    Args:
        cases: what to run.
        targets: those that can run here.
        repeat: how often.
        jobs: how many at once.
        controls: also run the control of each attack that failed on kern_sandbox.
    """
    waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[Row | BaseException] = queue.SimpleQueue()
    wanted = [_Job(case, target, n + 1) for case in cases for target in targets for n in range(repeat)]
    for job in [*wanted, *[None] * jobs]:
        waiting.put(job)
    with Stage() as stage, contextlib.ExitStack() as undo:
        runner = _Runner(stage, controls)
        undo.callback(runner.close)
        for target in targets:
            undo.callback(target.close)
        workers = [threading.Thread(target=_work, args=(runner, waiting, done), daemon=True) for _ in range(jobs)]
        undo.callback(_finish, waiting, workers)
        for worker in workers:
            worker.start()
        for _ in wanted:
            yield _raised(done.get())


def _raised(got: Row | BaseException) -> Row:
    """A row, or the defect that came instead of it, raised here."""
    if isinstance(got, BaseException):
        raise got
    return got


def _finish(waiting: queue.SimpleQueue[_Job | None], workers: Sequence[threading.Thread]) -> None:
    """Let the workers end the cases that they are at, so that what those have set up is taken down, and no more."""
    with contextlib.suppress(queue.Empty):
        while True:
            waiting.get_nowait()
    for _ in workers:
        waiting.put(None)
    for worker in workers:
        worker.join(_LAST_CASE_S)


def _work(
    runner: _Runner, waiting: queue.SimpleQueue[_Job | None], done: queue.SimpleQueue[Row | BaseException]
) -> None:
    while (job := waiting.get()) is not None:
        try:
            done.put(runner.row(job))
        except BaseException as error:  # a defect of the harness ends the run, on the thread that reads
            done.put(error)
            return


class _Runner:
    """Runs jobs against one stage; controls that were asked once are not asked again."""

    def __init__(self, stage: Stage, controls: bool) -> None:
        self._stage = stage
        self._asks_controls = controls
        self._controls: dict[str, tuple[str, str]] = {}
        self._plain = Subprocess()
        self._weak = Exec()

    def close(self) -> None:
        """Let go of what controls have kept."""
        self._weak.close()

    def row(self, job: _Job) -> Row:
        """Run a job, and its control where it is an attack that failed on kern_sandbox."""
        row = self._bounded(job)
        if job.target.name == self._plain.name and job.case.claim.control.target == self._plain.name:
            self._controls[job.case.id] = (row.word, f"a plain process: {row.detail or row.word}")
        if row.word != "held" or not row.ours or not self._asks_controls:
            return row
        if row.control:  # the same call's raw text was the control
            return row
        word, about = self._control(job.case)
        return replace(row, control=word, about_control=about)

    def _control(self, case: Case) -> tuple[str, str]:
        if case.id not in self._controls:
            self._controls[case.id] = self._ask_control(case)
        return self._controls[case.id]

    def _ask_control(self, case: Case) -> tuple[str, str]:
        control = case.claim.control
        if control.why_none:
            return "", f"none: {control.why_none}"
        weak = replace(case, claim=replace(case.claim, options={**case.claim.options, **control.options}))
        target = self._plain if control.target == "subprocess" else self._weak
        row = self._bounded(_Job(weak, target, 1))
        where = "a plain process" if control.target == "subprocess" else f"a box with {dict(control.options)}"
        return row.word, f"{where}: {row.detail or row.word}"

    def _bounded(self, job: _Job) -> Row:
        """Run a job on a thread of its own: one that hangs is given up, and said so."""
        row = Row(job.case, job.target.name, job.target.ours, job.number, "hung")
        claim = job.case.claim
        reason = claim.not_on.get(job.target.name) or missing(claim.needs, boxed=job.target.boxed)
        if reason:
            return replace(row, word="skipped", detail=reason)
        answer: queue.SimpleQueue[Row | BaseException] = queue.SimpleQueue()
        patience = _PATIENCE_S + claim.timeout_s * len(job.case.calls)
        threading.Thread(target=_answer, args=(lambda: self._run(job, row), answer), daemon=True).start()
        try:
            got = answer.get(timeout=patience)
        except queue.Empty:
            return replace(row, detail=f"no answer within {patience:g} s")
        return _raised(got)

    def _run(self, job: _Job, row: Row) -> Row:
        try:
            return self._played(job, row)
        except Unusable as error:
            return replace(row, word="skipped", detail=str(error))
        except Unclear as error:
            return replace(row, word="unclear", detail=str(error))
        except SandboxError as error:
            return replace(row, word="unclear", detail=f"{type(error).__name__}: {error}")

    def _played(self, job: _Job, row: Row) -> Row:
        claim = job.case.claim
        site = site_of(claim.needs)
        # The victim's folder is made after the room: its parent is what is shown.
        shown = self._stage.victims if "shown" in claim.scene else ""
        show = {source: target for source, target in ((site, _SITE), (shown, "/shown")) if source}
        demand = Demand(claim.options, claim.timeout_s, show)
        with job.target.room(demand) as room, Scene.open(self._stage, claim, room.workspace) as scene:
            if shown:
                scene.values["shown"] = f"{job.target.shown(shown)}/{os.path.basename(scene.victim)}"
            if site:
                scene.values["site"] = _SITE if job.target.shown(site) == "/shown" else site
            return _judged(job, row, scene, room)


def _answer(run: Callable[[], Row], answer: queue.SimpleQueue[Row | BaseException]) -> None:
    try:
        answer.put(run())
    except BaseException as error:  # a defect of the harness is raised where its row is awaited
        answer.put(error)


def _judged(job: _Job, row: Row, scene: Scene, room: Room) -> Row:
    case = job.case
    began = time.monotonic()
    with _racing(case, room) as raced:
        results = [room.run(source_of(case, index, scene), case.language) for index in range(len(case.calls))]
    seconds = time.monotonic() - began
    result = results[-1]
    rendered = _rendered(result)
    if case.claim.family == "text" and not job.target.ours:
        rendered = raw_text(result)
    evidence = Evidence(case, results, rendered, scene, room, raced)
    judge = JUDGES[case.claim.judge]
    detail = judge(evidence)
    honest = case.claim.family == "benign"
    word: Word = ("broke" if honest else "breached") if detail else ("worked" if honest else "held")
    row = replace(row, word=word, detail=detail, seconds=seconds, output=_end(result) if row.ours else "")
    if case.claim.control.target == "raw text" and word == "held":
        raw = judge(replace(evidence, rendered=raw_text(result)))
        row = replace(row, control="breached" if raw else "held", about_control=f"the text as it came: {raw or 'held'}")
    return row


def _rendered(result: ExecutionResult) -> str:
    try:
        return render(result)
    except Exception as error:  # it promises to render whatever comes: what it raises is a finding
        raise Unclear(f"the renderer raised {type(error).__name__}: {error}") from error


def _end(result: ExecutionResult) -> str:
    """The end of what a box printed; of other targets nothing is kept: they may have read the host's secrets."""
    return (result.stdout[-1200:] + result.stderr[-1200:])[-1200:]


@contextlib.contextmanager
def _racing(case: Case, room: Room) -> Iterator[list[bytes]]:
    """Within, the host reads and writes what the case races for; gives what was read."""
    read: list[bytes] = []
    if "racing" not in case.claim.scene:
        yield read
        return
    stop = threading.Event()
    racer = threading.Thread(target=_race, args=(case.parameters["paths"], room, read, stop), daemon=True)
    racer.start()
    try:
        yield read
    finally:
        stop.set()
        racer.join()


def _race(paths: Sequence[str], room: Room, read: list[bytes], stop: threading.Event) -> None:
    while not stop.is_set():
        for path in paths:
            with contextlib.suppress(Exception):  # a refusal is what is hoped for, whatever a target raises
                read.append(room.read(path))
            with contextlib.suppress(Exception):  # and the same for writing
                room.write(path, "broken")


def source_of(case: Case, index: int, scene: Scene) -> str:
    """What a call runs: an honest snippet as it is, after what it needs; an attack between prelude and mark."""
    part = case.calls[index]
    values = {name: value for name, value in scene.values.items() if name != "once" or index == 0}
    if case.claim.family in ("benign", "text"):
        return f"import sys; sys.path.insert(0, {values['site']!r})\n{part}" if "site" in values else part
    mark = finished_mark(scene.token)
    if case.language == "python":
        with open(os.path.join(HERE, "prelude.py"), encoding="utf-8") as file:
            prelude = file.read()
        return f"stage = {values!r}\n{prelude}\n{part}\nprint({mark!r}, flush=True)\n"
    if case.language == "bash":
        words = "".join(f"{name}='{value}'\n" for name, value in values.items())
        return f"{words}{part}\necho '{mark}'\n"
    return f"const stage = {json.dumps(values)};\n{part}\nconsole.log({json.dumps(mark)});\n"


def described(row: Row) -> dict[str, Any]:
    """A row as plain data."""
    claim = row.case.claim
    return {
        "case": row.case.id,
        "claim": claim.id,
        "family": claim.family,
        "sentence": claim.claim,
        "title": row.case.title,
        "sources": list(claim.sources),
        "target": row.target,
        "ours": row.ours,
        "number": row.number,
        "verdict": row.word,
        "detail": row.detail,
        "control": row.control,
        "about_control": row.about_control,
        "seconds": round(row.seconds, 3),
    }
