"""Measure boxes against bubblewrap, another sandbox and no sandbox at all, interleaved in one run."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from typing import TYPE_CHECKING

from . import chart, leftovers, rootfs
from .engines import Engine, Worker, not_limited, ours, peer, require_bwrap
from .limit import bare_fork, linux_alone
from .machine import fingerprint
from .measure import OURS, PEER, Missing
from .parts import PARTS, Bench
from .report import Report, from_json, plain, table, update

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .measure import Row

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(os.path.dirname(HERE), "BENCHMARKS.md")
JSON, CHART = os.path.join(HERE, "latest.json"), os.path.join(HERE, "latest.svg")
OTHER_PARTS = ("limit", "leftovers")


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[*PARTS, *OTHER_PARTS], metavar="PART", help="of: %(choices)s")
    parser.add_argument("--rounds", type=int, default=100, help="values of a cheap figure (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="20 rounds: whether it works, not how fast it is")
    parser.add_argument(
        "--calls", type=int, default=1000, help="in a row, for what is left behind (default: %(default)s)"
    )
    parser.add_argument(
        "--peer", metavar="PYTHON", help="an interpreter that has kern-sandbox 0.2.49; else it is installed"
    )
    parser.add_argument("--no-peer", action="store_true", help="leave kern-sandbox 0.2.49 out")
    parser.add_argument("--note", default="", help="about this run, for the page")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    parser.add_argument("--svg", metavar="FILE", help="write the chart")
    parser.add_argument("--write", action="store_true", help="bring BENCHMARKS.md, its chart and its JSON up to date")
    parser.add_argument("--redraw", action="store_true", help="only make page and chart anew from the last run's JSON")
    chosen = parser.parse_args(argv)
    if chosen.write and (chosen.only or chosen.quick or chosen.no_peer):
        parser.error("--write takes a whole run: not with --only, --quick or --no-peer")
    if chosen.quick:
        chosen.rounds, chosen.calls = 20, 100
    return chosen


def engines(chosen: argparse.Namespace, home: str, image: str, missing: list[str]) -> dict[str, Engine]:
    """Ours, and the peer where it can be had."""
    found = {OURS: ours(f"{home}/cache")}
    if chosen.no_peer:
        missing.append(f"{PEER}: left out by --no-peer")
        return found
    print(f"preparing {PEER}", file=sys.stderr)
    try:
        found[PEER] = peer(f"{home}/peer", image, chosen.peer)
    except Missing as error:
        missing.append(f"{PEER}: {error}")
    return found


def limits(found: dict[str, Engine], missing: list[str]) -> str:
    """Whose boxes have a memory limit on this host: cgroups cost time, and who has none is faster for it."""
    without = []
    for who, engine in found.items():
        try:
            with Worker(engine) as worker:
                worker.open("box")
                without += [who] if not_limited(worker, "box") else []
        except Missing as error:
            missing.append(f"limits of {who}: {error}")
    return f"enforced, but not for {' and '.join(without)}" if without else "enforced"


def bwrap_works(missing: list[str]) -> bool:
    """Whether bubblewrap can be measured; if not, why is noted."""
    try:
        require_bwrap()
    except Missing as error:
        missing.append(f"bubblewrap: {error}")
        return False
    return True


def measure(chosen: argparse.Namespace, home: str) -> Report:
    """Every part that is asked for; prints each as it is done."""
    wanted = chosen.only or [*PARTS, *OTHER_PARTS]
    missing: list[str] = []
    machine = fingerprint(chosen.note)
    image = f"{home}/image.tar"
    rootfs.archive(image)
    found = engines(chosen, home, image, missing)
    machine["memory and pids limits of boxes"] = limits(found, missing)
    bench = Bench(found, image, bwrap_works(missing), chosen.rounds, missing)
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    rows: list[Row] = []
    for name in filter(wanted.__contains__, PARTS):
        try:
            rows += (new := PARTS[name](bench))
            print(f"\n{name}\n{table(new)}", flush=True)
        except Missing as error:
            bench.note(name, error)
    linux = alone(chosen.rounds, missing) if "limit" in wanted else []
    left = leftovers.count(found[OURS], chosen.calls) if "leftovers" in wanted else []
    return Report(machine, rows, linux, missing, left)


def alone(rounds: int, missing: list[str]) -> list[Row]:
    """What Linux takes without any of us."""
    try:
        found = [*linux_alone(rounds), bare_fork(rounds)]
    except Missing as error:
        missing.append(f"what Linux alone takes: {error}")
        return []
    print(f"\nlimit\n{plain(found)}")
    return found


def main() -> None:
    """Measure and write it down."""
    chosen = options()
    if chosen.redraw:
        with open(JSON, encoding="utf-8") as file:
            draw(from_json(file.read()))
        return
    with tempfile.TemporaryDirectory(prefix="kern-bench-") as home:
        report = measure(chosen, home)
    print("\n" + report.to_markdown())
    if chosen.json or chosen.write:
        save(chosen.json or JSON, report.to_json())
    if chosen.svg:
        save(chosen.svg, picture(report))
    if chosen.write:
        draw(report)


def picture(report: Report) -> str:
    """The chart."""
    about = report.machine
    return chart.svg(report.rows, f"{about['machine']}, Linux {about['Linux']}, {about['date']}")


def draw(report: Report) -> None:
    """Bring the page and its chart up to date."""
    save(CHART, picture(report))
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    save(PAGE, update(page, report.to_markdown(os.path.relpath(CHART, os.path.dirname(PAGE)))))


def save(path: str, text: str) -> None:
    """Write a file and say so."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
