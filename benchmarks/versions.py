"""Two versions of treeproof, in turns: whether answers are equal, and which one is faster.

    python -m benchmarks.versions --before FOLDER [--families a,b] [--cases TEXT] [--turns N]

`FOLDER` is a checkout of the older version. Each version answers in a process of its own, which
waits while the other one works; the least processor time of all turns counts, one thread. The
questions are those of `benchmarks.families`, which both versions are asked. Needs the paper's data
and models: TREEPROOF_PAPER_DATA, by default ../shared.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.families import CASES

CHECKOUT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "versions.md"
HEADER = (
    "family", "case", "answers", "closed before", "closed now", "equal", "worse", "before, ms",
    "now, ms", "now / before", "other figures before → now",
)  # fmt: skip


class Version:
    """One version at work, in a process of its own."""

    def __init__(self, checkout: Path) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(CHECKOUT)]),
            "TREEPROOF_PLAIN": "never",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.families"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, line: str) -> str:
        """Write a line, and read the one that answers it."""
        self.tell(line)
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def tell(self, line: str) -> None:
        """Write a line that has no answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


def commit(checkout: Path) -> str:
    """The commit of a checkout."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def bounds(answer: list[Any]) -> tuple[Any, Any, Any]:
    """Lower and upper bounds and what is closed, of an answer."""
    lower, upper = (np.frombuffer(bytes.fromhex(side)) for side in answer[1:3])
    return lower, upper, np.array(answer[3], dtype=bool)


def compared(one: list[Any], other: list[Any]) -> tuple[int, int, int, int, int]:
    """Answers, closed before and now, equal ones, and worse ones: open ones with looser bounds."""
    (low, high, closed), (low_now, high_now, closed_now) = bounds(one), bounds(other)
    equal = (low == low_now) & (high == high_now)
    # Closed before and open now, or both open and farther apart.
    worse = closed & ~closed_now
    with np.errstate(invalid="ignore"):
        worse |= ~closed & ~closed_now & ((low_now < low) | (high_now > high))
        worse |= closed & closed_now & ~equal
    return len(low), int(closed.sum()), int(closed_now.sum()), int(equal.sum()), int(worse.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--families", help="names, with commas between")
    parser.add_argument("--cases", default="", help="only cases whose names hold this")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--dry", action="store_true", help="print only, save nothing")
    options = parser.parse_args()
    names = options.families.split(",") if options.families else list(CASES)
    both = Version(options.before), Version(CHECKOUT)
    lines = [
        "# Every kind of question, before and now",
        "",
        f"Commits {commit(options.before)} and {commit(CHECKOUT)} of treeproof"
        f" {version('treeproof')}, numba {version('numba')}, Python {platform.python_version()},"
        f" {platform.machine()}; least processor time of {options.turns} turns, all rows in one"
        " call, one thread. Made by `benchmarks/versions.py`.",
        "",
        f"| {' | '.join(HEADER)} |",
        f"|{' --- |' * len(HEADER)}",
    ]
    print("\n".join(lines), flush=True)
    for family in names:
        ratios = []
        for case in CASES[family]:
            if options.cases not in case:
                continue
            for each in both:
                each.ask(json.dumps([family, case]))
            answers: tuple[list[Any], list[Any]] = ([], [])
            for _ in range(options.turns):
                for each, kept in zip(both, answers, strict=True):
                    kept.append(json.loads(each.ask("again")))
            for each in both:
                each.tell("next")
            before, now = (1e3 * min(answer[0] for answer in kept) for kept in answers)
            ratios.append(now / before)
            (one, *_), (other, *_) = answers
            more = ", ".join(
                f"{name} {one[4][name]:.4g} → {other[4].get(name, np.nan):.4g}" for name in one[4]
            )
            cells = [family, case, *map(str, compared(one, other)), f"{before:.1f}", f"{now:.1f}"]
            lines.append(f"| {' | '.join([*cells, f'{now / before:.3f}', more])} |")
            print(lines[-1], flush=True)
        if ratios:
            lines.append(f"| {family} | mean |{' |' * 7} {np.mean(ratios):.3f} | |")
            print(lines[-1], flush=True)
    if not options.dry:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
