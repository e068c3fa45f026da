"""An "agent" works on a real CSV: three generated snippets, one Sandbox, and a loop that branches on data.

The first snippet analyses the file and writes a report, the second has a bug, the third hangs. What the loop does next
depends on ``fault``, ``exit_code`` and ``files``; it never looks into text to find out what happened.

    python examples/agent_loop.py
"""

from __future__ import annotations

import csv
import io
import random

import kern_sandbox as kern

ANALYSE = """
import csv, json, statistics
by_city = {}
for row in csv.DictReader(open("sales.csv")):
    by_city.setdefault(row["city"], []).append(float(row["amount"]))
report = {
    city: {"n": len(values), "mean": round(statistics.fmean(values), 2)}
    for city, values in sorted(by_city.items())
}
json.dump(report, open("report.json", "w"), indent=2)
print(f"{len(by_city)} cities")
report
"""
BUGGY = """
import json
report = json.load(open("report.json"))
print(max(report, key=lambda city: report[city]["average"]))
"""
HANGS = """
print("waiting for a lock that nobody holds", flush=True)
while True:
    pass
"""


def sales(rows: int = 500) -> str:
    """A CSV of made-up sales, the same each time."""
    chooser = random.Random(7)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["day", "city", "amount"])
    for day in range(rows):
        city = chooser.choice(["Aachen", "Bilbao", "Cork", "Delft"])
        writer.writerow([day, city, f"{chooser.lognormvariate(3, 1):.2f}"])
    return out.getvalue()


def next_move(result: kern.ExecutionResult) -> str:
    """What an agent would do now."""
    if result.fault is not None:
        return f"stopped by the sandbox ({result.fault.type}, {result.fault.detail}): try something cheaper"
    if result.exit_code != 0:
        return "the code failed: show the traceback to the model"
    made = ", ".join(kern.neutralise(file.path) for file in result.files) or "nothing"
    return f"done; made {made}"


def main() -> None:
    """Run the three snippets and say what happened to each."""
    with kern.Sandbox(timeout_s=4, memory_mb=256) as sandbox:
        sandbox.write_file("sales.csv", sales())
        for name, code in (("analyse", ANALYSE), ("buggy", BUGGY), ("hangs", HANGS)):
            result = sandbox.run_code(code)
            print(f"{name}: {next_move(result)}")
        print(kern.neutralise(sandbox.read_file("report.json")))


if __name__ == "__main__":
    main()
