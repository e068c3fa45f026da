"""Grades what students handed in: each solution in a Sandbox of its own, with limits, and a report at the end.

    python examples/batch_grader.py [--count 1000] [--jobs 4] [--timeout-s 2] [--report report.csv] [FOLDER]

FOLDER has one Python file for each student, with a function ``median(numbers)``; without it, ``--count`` solutions are
made up, good ones and bad ones. Nothing that a solution prints, raises or leaves behind can change another one's grade,
and the expected answers are never in its box.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import kern_sandbox as kern

TESTS: tuple[tuple[list[float], float], ...] = (
    ([3], 3), ([1, 2], 1.5), ([5, 1, 3], 3), ([2, 2, 2, 9], 2), ([-1, 0, 1, 10], 0.5), ([7, 7, 1, 1, 4], 4),
)  # fmt: skip
LIMITS: dict[str, Any] = {"memory_mb": 128, "pids": 16, "workspace_mb": 16, "max_output_bytes": 64 << 10}

ASK = """
import json, sys
from solution import median
for line in sys.stdin:
    answer = median(json.loads(line))
    print(json.dumps(answer), flush=True)
"""

MADE_UP = (
    "def median(n):\n    n = sorted(n); m = len(n) // 2\n    return n[m] if len(n) % 2 else (n[m - 1] + n[m]) / 2",
    "from statistics import median",
    "def median(n):\n    return sorted(n)[len(n) // 2]",
    "def median(n):\n    return n.median()",
    "def median(n)\n    return 0",
    "def median(n):\n    while True: pass",
    "import os\ndef median(n):\n    os._exit(0)",
    "def median(n):\n    return open('/etc/shadow').read()",
)


class Grade(NamedTuple):
    """What became of one solution."""

    student: str
    points: int
    verdict: str
    milliseconds: int


def grade(student: str, source: str, timeout_s: float) -> Grade:
    """Run one solution on every test."""
    with kern.Sandbox(track_files=False, timeout_s=timeout_s, **LIMITS) as sandbox:
        sandbox.write_file("solution.py", source)
        questions = "".join(f"{json.dumps(numbers)}\n" for numbers, _ in TESTS)
        result = sandbox.run(["python3", "-c", ASK], stdin=questions)
    points = right_answers(result.stdout)
    return Grade(student, points, verdict(result, points), result.duration_ms)


def right_answers(printed: str) -> int:
    """How many of the lines are the answer to their question; a line is whatever the solution wrote."""
    points = 0
    for line, (_, expected) in zip(printed.splitlines(), TESTS):
        try:
            points += float(line) == expected
        except ValueError:
            continue
    return points


def verdict(result: kern.ExecutionResult, points: int) -> str:
    """Why a solution has the points that it has, in a word or a line."""
    if result.fault:
        return result.fault.type
    if result.exit_code:
        return kern.neutralise(result.code_stderr.strip().rpartition("\n")[2])[:80]
    return "all right" if points == len(TESTS) else "wrong answers"


def handed_in(folder: Path | None, count: int) -> list[tuple[str, str]]:
    """Student and source."""
    if folder is None:
        return [(f"student-{number:04}", MADE_UP[number % len(MADE_UP)]) for number in range(count)]
    return [(path.stem, path.read_text(encoding="utf-8", errors="replace")) for path in sorted(folder.glob("*.py"))]


def plain(grade: Grade) -> Grade:
    """A grade whose words no spreadsheet takes for a formula: a solution has chosen those of its last error."""
    words = (f"'{each}" if each.startswith(("=", "+", "-", "@")) else each for each in (grade.student, grade.verdict))
    student, verdict = words
    return grade._replace(student=student, verdict=verdict)


def write_report(grades: list[Grade], path: Path) -> None:
    """A line for each student."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*Grade._fields])
        rows.writerows(map(plain, grades))


def main() -> None:
    """Grade everything, and say what came of it."""
    parser = argparse.ArgumentParser(description="Grade Python solutions in boxes.")
    parser.add_argument("folder", type=Path, nargs="?", help="one .py file for each student; made up without it")
    parser.add_argument("--count", type=int, default=1000, help="solutions to make up; 1000")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="graded at once")
    parser.add_argument("--timeout-s", type=float, default=2, help="seconds for each; 2")
    parser.add_argument("--report", type=Path, help="a CSV file to write")
    arguments = parser.parse_args()
    began = time.monotonic()
    solutions = handed_in(arguments.folder, arguments.count)
    grades = []
    with ThreadPoolExecutor(arguments.jobs) as threads:
        for one in threads.map(lambda one: grade(one[0], one[1], arguments.timeout_s), solutions):
            grades.append(one)
            if len(grades) % 100 == 0:
                print(f"{len(grades)} of {len(solutions)} graded", file=sys.stderr)
    if arguments.report:
        write_report(grades, arguments.report)
    for words, number in Counter(f"{each.points}/{len(TESTS)} {each.verdict}" for each in grades).most_common():
        print(f"{number:5}  {words}")
    print(f"{len(grades)} solutions")
    print(f"{time.monotonic() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
