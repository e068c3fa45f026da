"""A table goes into a box, numbers and a chart come out.

The code stands for what a model would have written. It runs without network, and sees one file.

    python examples/data_analysis.py chart.png               # installs matplotlib for the box, once
    python examples/data_analysis.py chart.png --libs DIR    # or shows one that is installed, a site-packages directory
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import kern_sandbox as kern

ANALYSE = """
import csv, statistics
import matplotlib.pyplot as plt

by_month = {}
for row in csv.DictReader(open("temperatures.csv")):
    by_month.setdefault(int(row["month"]), []).append(float(row["celsius"]))
means = {month: round(statistics.fmean(values), 1) for month, values in sorted(by_month.items())}

plt.figure(figsize=(6, 3))
plt.bar(list(means), list(means.values()))
plt.title("Mean temperature")
plt.xlabel("month")
plt.ylabel("°C")
plt.tight_layout()
plt.show()
means
"""


def temperatures() -> str:
    """A made-up table, the same each time."""
    rows = ["month,celsius"]
    for month in range(1, 13):
        rows += [f"{month},{10 - 9 * abs(month - 7) / 3 + day % 5:.1f}" for day in range(28)]
    return "\n".join(rows)


def options(libs: str | None) -> dict[str, Any]:
    """How the box gets matplotlib."""
    if libs is None:
        return {"setup": "pip install matplotlib==3.9.2"}
    return {"mounts": {str(Path(libs).resolve()): "/libs"}, "env": {"PYTHONPATH": "/libs"}}


def main() -> None:
    """Analyse, save the chart, and print the numbers."""
    parser = argparse.ArgumentParser(description="Analyse a table in a box, and draw a chart of it.")
    parser.add_argument("chart", type=Path, help="where the PNG goes")
    parser.add_argument("--libs", help="a site-packages directory with matplotlib, shown instead of installing it")
    arguments = parser.parse_args()
    with kern.Sandbox(memory_mb=1024, timeout_s=60, **options(arguments.libs)) as sandbox:
        sandbox.write_file("temperatures.csv", temperatures())
        result = sandbox.run_code(ANALYSE)
    images = [value.png for value in result.results if value.png]
    if not result.success or not images:
        raise SystemExit(kern.render(result))
    arguments.chart.write_bytes(images[0])
    print(kern.neutralise(result.results[-1].text or ""))


if __name__ == "__main__":
    main()
