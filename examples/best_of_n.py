"""A search that tries several ways from one state, keeps the best, and goes on from there.

The task: order eight jobs so that the total lateness is small. The state, with its data and the best order so far,
lives in a kernel. In each round the kernel is forked; every branch runs another idea as code, side by side; the best
one is taken over, and a checkpoint lets the search go back when an idea ruins the state.

    python examples/best_of_n.py [--rounds 3] [--branches 4]
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

import kern_sandbox as kern

STATE = """
import itertools, random
jobs = [(3, 9), (5, 12), (2, 4), (7, 30), (1, 3), (4, 18), (6, 22), (2, 7)]  # how long, and due when
order = list(range(len(jobs)))

def lateness(order):
    ends = itertools.accumulate(jobs[job][0] for job in order)
    return sum(max(0, end - jobs[job][1]) for end, job in zip(ends, order))
"""
IDEAS = (
    "order = sorted(order, key=lambda job: jobs[job][0])",
    "order = min((random.sample(order, len(order)) for _ in range(200)), key=lateness)",
    "order = sorted(order, key=lambda job: jobs[job][1], reverse=True)",
    "order = undefined_name(order)",
    "i, j = min(itertools.combinations(range(len(order)), 2), key=lambda p: lateness(swapped(order, *p)))",
    "order = sorted(order, key=lambda job: jobs[job][1])",
)
"""What a model would write; two of them fail, and one makes things worse."""

SCORE = "print(lateness(order))"
WORST = 1 << 30


def score_of(kernel: kern.Kernel, idea: str) -> int:
    """Run an idea, then ask for its score; an idea that fails has the worst one."""
    if not kernel.run_code(idea):
        return WORST
    result = kernel.run_code(SCORE)
    last = result.stdout.strip()
    return int(last) if result and last.isdigit() else WORST


def best_of(kernel: kern.Kernel, ideas: list[str]) -> tuple[str, int]:
    """Try each idea in a branch of its own, all at once; the best one and its score."""
    branches = kernel.fork(len(ideas))
    try:
        with ThreadPoolExecutor(len(ideas)) as threads:
            scores = list(threads.map(score_of, branches, ideas))
    finally:
        for branch in branches:
            branch.close()
    best = min(range(len(ideas)), key=scores.__getitem__)
    return ideas[best], scores[best]


def search(kernel: kern.Kernel, rounds: int, branches: int) -> int:
    """The best score that the rounds have found; the kernel has its state at the end."""
    best = score_of(kernel, "pass")
    print(f"start: {best}")
    for number in range(rounds):
        ideas = [IDEAS[(number + shift) % len(IDEAS)] for shift in range(branches)]
        before = kernel.checkpoint()
        idea, promised = best_of(kernel, ideas)
        score = score_of(kernel, idea)  # of an idea with chance in it, not what the branch had
        if score < best:
            best = score
            print(f"round {number + 1}: {score} (a branch had {promised}) by {idea.partition(' = ')[2]}")
        else:
            kernel.rollback(before)
            print(f"round {number + 1}: nothing better; back to {best}")
        before.close()
    return best


def main() -> None:
    """Parse, search, report."""
    parser = argparse.ArgumentParser(description="Search for a good order of jobs, in branches of a kernel.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--branches", type=int, default=4)
    arguments = parser.parse_args()
    with kern.Sandbox(memory_mb=256, timeout_s=10) as sandbox, sandbox.kernel() as kernel:
        kernel.run_code(STATE)
        best = search(kernel, arguments.rounds, arguments.branches)
        print(f"best: {best}, order {kernel.run_code('order').results[0].text}")


if __name__ == "__main__":
    main()
