"""What is measured, part by part."""

from __future__ import annotations

import importlib.util
import os
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Callable, NamedTuple

from .engines import BWRAP as BWRAP_ARGV
from .engines import PYTHON, Engine, Worker
from .measure import BARE, BWRAP, OURS, PEER, Missing, Row, Stats, Subjects, by_turns, rows, spawned, stats
from .processes import proportional_kib, settle
from .worker import concurrently, per_second

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .measure import Run

IN_A_ROW = 20
POOL = 16
BURST = 8
AT_ONCE = 100
FEW_BOXES, MANY_BOXES = 4, 36
_REFERENCE = ("python", "-I", "-c", "1")


class Bench(NamedTuple):
    """What there is to measure, and how often.

    Attributes:
        engines: the installations of ``kern_sandbox``, by who they are.
        image: an archive of the host's own Python.
        bwrap: whether bubblewrap works here.
        rounds: values of a cheap figure; dear ones take a part of it.
        missing: sentences about what could not be measured, added to on the way.
    """

    engines: Mapping[str, Engine]
    image: str
    bwrap: bool
    rounds: int
    missing: list[str]

    def each(self, stack: ExitStack, what: str) -> Iterator[tuple[str, Worker]]:
        """A fresh worker of each engine. What cannot be measured with one is noted, and the others go on."""
        for who, engine in self.engines.items():
            try:
                yield who, stack.enter_context(Worker(engine))
            except Missing as error:
                self.note(f"{what}, {who}", error)

    def note(self, what: str, error: Missing) -> None:
        """Remember why something has no figure."""
        self.missing.append(f"{what}: {error}")

    def programs(self, key: str, *argv: str, wrapped: bool = True) -> Subjects:
        """A host program, plain and in bubblewrap."""
        found: Subjects = {(key, BARE): spawned(argv)}
        if self.bwrap and wrapped:
            found[key, BWRAP] = spawned([*BWRAP_ARGV, *argv])
        return found


def calls(bench: Bench) -> list[Row]:
    """A program and a snippet, each call in a fresh box."""
    labels = {
        "true": '`run(["true"])`',
        "print": '`run_code("print(1)")`, on a Sandbox that is held',
        "egress": '`run_code("print(1)")`, with one host in `egress_allow`',
        "image": '`run_code("print(1)")`, from an image of the same files',
        "oneshot": '`kern.run_code("print(1)")`, one shot',
        "reference": "`python3 -I -c 1`",
    }
    subjects: Subjects = {}
    with ExitStack() as stack:
        for who, worker in bench.each(stack, "calls"):
            worker.open("box")
            subjects["true", who] = worker.calls(name="box", argv=["true"])
            subjects["print", who] = worker.calls(name="box", code="print(1)")
            subjects["image", who] = _from_image(bench, worker)
            if who == OURS:
                worker.open("egress", egress_allow=["127.0.0.1:9"])
                subjects["egress", who] = _proved(worker.calls(name="egress", code="print(1)"))
            subjects["oneshot", who] = worker.calls(once="print(1)")
        subjects.update(bench.programs("true", "true"))
        subjects.update(bench.programs("print", PYTHON, "-I", "-c", "print(1)"))
        subjects.update(bench.programs("reference", PYTHON, *_REFERENCE[1:], wrapped=False))
        alone = by_turns(subjects, bench.rounds)
        in_a_row = by_turns(subjects, bench.rounds, IN_A_ROW)
    return [
        row._replace(key=f"{row.key} {suffix}", label=f"{row.label}, {how}")
        for found, suffix, how in ((alone, "alone", "one by one"), (in_a_row, "sustained", f"{IN_A_ROW} in a row"))
        for row in rows(labels, found)
    ]


def _from_image(bench: Bench, worker: Worker) -> Run:
    worker.open("image", **({} if "image" in worker.options else {"image": f"docker-archive:{bench.image}"}))
    return _proved(worker.calls(name="image", code="print(1)"))


def cold(bench: Bench) -> list[Row]:
    """A new process: its import of the package, and its first call."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(max(3, bench.rounds // 10)):
        with ExitStack() as stack:
            for who, worker in bench.each(stack, "cold"):
                found.setdefault(("import", who), []).append(worker.import_ms)
                first = worker.calls(once="print(1)")(1)[0]
                found.setdefault(("cold", who), []).append(worker.import_ms + first)
        time.sleep(0.1)
    labels = {
        "import": "`from kern_sandbox import Sandbox, run_code`",
        "cold": 'import and first `run_code("print(1)")` of a new process',
    }
    return rows(labels, {name: stats(values) for name, values in found.items()})


def pool(bench: Bench) -> list[Row]:
    """Bursts from prewarmed boxes, each once the pool is full again."""
    spent: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        for who, worker in bench.each(stack, "pool"):
            try:
                worker.open("box", prewarm=POOL)
                spent["burst", who] = _bursts(worker, max(2, bench.rounds // (2 * BURST)))
            except Missing as error:
                bench.note(f"pool, {who}", error)
    label = f'`run_code("print(1)")`, {BURST} in a row from `prewarm={POOL}`'
    return rows({"burst": label}, {name: stats(values) for name, values in spent.items()})


def _bursts(worker: Worker, count: int) -> list[float]:
    run, spent = worker.calls(name="box", code="print(1)"), []
    run(1)
    for _ in range(count):
        settle(worker.pid, POOL)
        spent += run(BURST)
    return spent


def imports(bench: Bench) -> list[Row]:
    """Modules of the standard library, and pandas where it is installed."""
    labels = {
        "json": "`import json, re`",
        "json preload": "`import json, re`, with `preload`",
        "pandas": "`import pandas`",
        "pandas preload": "`import pandas`, with `preload`",
    }
    subjects = bench.programs("json", PYTHON, "-I", "-c", "import json, re")
    with ExitStack() as stack:
        for who, worker in bench.each(stack, "imports"):
            worker.open("box")
            subjects["json", who] = _proved(worker.calls(name="box", code="import json, re"))
            if who == OURS:
                worker.open("preloaded", preload=["json", "re"])
                subjects["json preload", who] = _proved(worker.calls(name="preloaded", code="import json, re"))
        found = by_turns(subjects, bench.rounds // 2)
    try:
        found.update(_pandas(bench))
    except Missing as error:
        bench.note("import pandas", error)
    return rows(labels, found)


def _pandas(bench: Bench) -> dict[tuple[str, str], Stats]:
    packages = _site_packages()
    shown = {"mounts": {packages: "/packages"}, "env": {"PYTHONPATH": "/packages"}}
    code = "import pandas"
    there = f"import sys; sys.path.append({packages!r}); {code}"
    subjects = bench.programs("pandas", PYTHON, "-I", "-c", there)
    with ExitStack() as stack:
        for who, worker in bench.each(stack, code):
            try:
                worker.open("box", **shown)
                subjects["pandas", who] = _proved(worker.calls(name="box", code=code))
                if who == OURS:
                    worker.open("preloaded", **shown, preload=["pandas"])
                    subjects["pandas preload", who] = _proved(worker.calls(name="preloaded", code=code))
            except Missing as error:
                bench.note(f"{code}, {who}", error)
        return by_turns(subjects, max(5, bench.rounds // 10))


def _proved(run: Run) -> Run:
    """``run``, which has worked twice: the second call may be the first that is served the usual way."""
    run(2)
    return run


def _site_packages() -> str:
    spec = importlib.util.find_spec("pandas")
    if spec is None or spec.origin is None:
        raise Missing("pandas is not installed beside the interpreter that runs the benchmark")
    return os.path.dirname(os.path.dirname(spec.origin))


def kernel(bench: Bench) -> list[Row]:
    """A cell in a warm interpreter."""
    subjects: Subjects = {}
    with ExitStack() as stack:
        for who, worker in bench.each(stack, "kernel"):
            worker.open("cells")
            worker.ask("kernel", name="cells")
            subjects["cell", who] = worker.calls(name="cells", cell="print(1)")
        found = by_turns(subjects, 2 * bench.rounds, IN_A_ROW)
    return rows({"cell": f"a kernel's cell `print(1)`, {IN_A_ROW} in a row"}, found)


def at_once(bench: Bench) -> list[Row]:
    """Many concurrent calls on one Sandbox, every answer checked."""
    subjects: Subjects = {}
    with ExitStack() as stack:
        for who, worker in bench.each(stack, "at once"):
            worker.open("box")
            worker.ask("call", how={"name": "box", "code": "1"}, times=2)
            subjects["at once", who] = _asked(worker, "at_once", name="box", count=AT_ONCE)
        for (_, who), run in bench.programs("at once", PYTHON, "-I", "-c", "print(1)").items():
            subjects["at once", who] = _together(run)
        found = by_turns(subjects, max(3, bench.rounds // 20))
    return rows(
        {"at once": f"{AT_ONCE} concurrent `print(1)`, until all have ended; ours and the peer's on one Sandbox"}, found
    )


def _together(run: Run) -> Run:
    return lambda _: [concurrently([partial(run, 1)] * AT_ONCE)]


def _asked(worker: Worker, do: str, **request: object) -> Run:
    return lambda _: list(worker.ask(do, **request)["ms"])


def rate(bench: Bench) -> list[Row]:
    """Boxes per second that threads, two for each core, get through together."""
    seconds = 3.0 if bench.rounds >= 100 else 1.0
    threads = 2 * len(os.sched_getaffinity(0))
    found: dict[tuple[str, str], Stats] = {}
    with ExitStack() as stack:
        for who, worker in bench.each(stack, "rate"):
            worker.open("box")
            for key, how in (("true", {"argv": ["true"]}), ("print", {"code": "print(1)"})):
                request = {"how": {"name": "box", **how}, "threads": threads}
                worker.ask("rate", seconds=0.5, **request)
                time.sleep(1)
                found[f"rate {key}", who] = stats([worker.ask("rate", seconds=seconds, **request)["rate"]])
                time.sleep(1)
    programs = {**bench.programs("rate true", "true"), **bench.programs("rate print", PYTHON, "-I", "-c", "print(1)")}
    for name, run in programs.items():
        found[name] = stats([per_second(partial(run, 1), seconds, threads)])
    labels = {
        "rate true": f"`true` in fresh boxes, {threads} threads",
        "rate print": f"`print(1)` in fresh boxes, {threads} threads",
    }
    return rows(labels, found, "per second")


def memory(bench: Bench) -> list[Row]:
    """What one more idle prewarmed box takes, where memory that boxes share counts in parts."""
    found: dict[tuple[str, str], Stats] = {}
    for who, engine in bench.engines.items():
        try:
            few, many = (_idle_kib(engine, count) for count in (FEW_BOXES, MANY_BOXES))
            found["memory", who] = stats([(many - few) / (MANY_BOXES - FEW_BOXES) / 1024])
        except Missing as error:
            bench.note(f"memory, {who}", error)
    label = f"proportional memory of an idle prewarmed box ({MANY_BOXES} against {FEW_BOXES})"
    return rows({"memory": label}, found, "MiB")


def _idle_kib(engine: Engine, prewarm: int) -> int:
    with Worker(engine) as worker:
        worker.open("box", prewarm=prewarm)
        worker.ask("probe", name="box")
        settle(worker.pid, prewarm)
        return proportional_kib(worker.pid)


PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "calls": calls,
    "cold": cold,
    "pool": pool,
    "imports": imports,
    "kernel": kernel,
    "at-once": at_once,
    "rate": rate,
    "memory": memory,
}
__all__ = ["AT_ONCE", "PARTS", "PEER", "Bench"]
