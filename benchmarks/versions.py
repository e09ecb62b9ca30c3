"""Exact radii of two versions of treeproof, in turns: whether they are equal, and which is faster.

    python -m benchmarks.versions --before FOLDER [--rows N] [--turns N] [--models a,b] [--dry]

`FOLDER` is a checkout of the older version. Each version answers in a process of its own, which
waits while the other one works; the least processor time of all turns counts, of all rows in one
call, one thread. Needs the paper's data and models: TREEPROOF_PAPER_DATA, by default ../shared.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from benchmarks.subjects import subjects

CHECKOUT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "versions.md"

PROGRAM = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import treeproof as tp

for line in sys.stdin:
    path, rows = json.loads(line)
    model = tp.load(path)
    with np.load(rows) as table:
        X, y = table["X"], table["y"]
    tp.radius(model, X, y, **json.loads(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "next\\n":
            break
        began = time.process_time()
        found = tp.radius(model, X, y, **json.loads(sys.argv[1]))
        took = time.process_time() - began
        ends = [bound.tobytes().hex() for bound in (found.lower, found.upper)]
        print(json.dumps([took, *ends]), flush=True)
"""


class Version:
    """One version at work, in a process of its own."""

    def __init__(self, checkout: Path, options: dict[str, str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(options)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--models", help="names in models.json, with commas between")
    parser.add_argument("--dry", action="store_true", help="print only, save nothing")
    options = parser.parse_args()
    names = options.models.split(",") if options.models else None
    # What 0.1.0 answers by default has another name today.
    both = Version(options.before, {}), Version(CHECKOUT, {"arithmetic": "real"})
    lines = [
        "# Exact radii, before and now",
        "",
        f"treeproof 0.1.0 and {version('treeproof')}, numba {version('numba')}, Python"
        f" {platform.python_version()}, {platform.machine()}; least processor time of"
        f" {options.turns} turns, all rows in one call, one thread. Made by"
        " `benchmarks/versions.py`.",
        "",
        "| model | rows | radii equal, bit for bit | 0.1.0, ms | now, ms | now / 0.1.0 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines), flush=True)
    rows = CHECKOUT / "build" / "versions.npz"
    rows.parent.mkdir(exist_ok=True)
    for subject in subjects(names, options.rows):
        np.savez(rows, X=subject.X, y=subject.y)
        for each in both:
            each.ask(json.dumps([str(subject.path), str(rows)]))
        times: tuple[list[float], list[float]] = ([], [])
        n_equal = 0
        for _ in range(options.turns):
            (one, *ours), (other, *theirs) = (json.loads(each.ask("again")) for each in both)
            n_equal += ours == theirs
            times[0].append(one)
            times[1].append(other)
        for each in both:
            each.tell("next")
        before, now = (1e3 * min(taken) for taken in times)
        verdict = "yes" if n_equal == options.turns else "no"
        lines.append(
            f"| {subject.name} | {len(subject.X)} | {verdict} | {before:.1f} | {now:.1f} |"
            f" {now / before:.3f} |"
        )
        print(lines[-1], flush=True)
    if not options.dry:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
