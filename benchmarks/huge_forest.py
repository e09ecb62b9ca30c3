"""A forest of 1,000 full-depth trees: seconds and memory that loading it and answering take.

Run ``python -m benchmarks.huge_forest [--trees N] [--rows N]``; the table goes to
``benchmarks/results/huge_forest.md``, or only to the terminal with ``--dry``. The forest is
scikit-learn's with default settings and random_state 0, on 50,000 rows of covtype, found by
TREEPROOF_PAPER_DATA, by default ../shared. Seconds are those of the processor, memory is the
largest that the process ever had, the forest itself included.
"""

import argparse
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numba
import sklearn
from benchmarks.large_boxes import table, table_of
from benchmarks.processor_clock import UNIT
from sklearn.ensemble import RandomForestClassifier

import treeproof

RESULTS = Path(__file__).parent / "results" / "huge_forest.md"
N_TRAINING = 50_000
COLUMNS = ("step", "seconds", "largest memory so far, GB")

Value = TypeVar("Value")


class Steps:
    """What was done, how long it took, and the memory it needed."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, ...]] = []

    def do(self, name: str, function: Callable[[], Value]) -> Value:
        """Do one."""
        began = time.process_time()
        value = function()
        seconds = time.process_time() - began
        gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        self.lines.append((name, f"{seconds:.2f}", f"{gigabytes:.2f}"))
        print(self.lines[-1], file=sys.stderr, flush=True)
        return value


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trees", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for each row")
    parser.add_argument("--dry", action="store_true", help="print only, save nothing")
    options = parser.parse_args()
    X, y, rows, labels = table_of("covtype")
    # Compiled on a small forest, so that nothing below is about compiling.
    small = treeproof.load(RandomForestClassifier(100, random_state=0).fit(X[:2_000], y[:2_000]))
    treeproof.radius(small, rows[:5], time_limit_s=1.0)
    steps = Steps()
    forest = RandomForestClassifier(options.trees, random_state=0)
    X, y = X[:N_TRAINING].copy(), y[:N_TRAINING].copy()
    steps.do("train", lambda: forest.fit(X, y))
    model = steps.do("load", lambda: treeproof.load(forest))
    rows, labels = rows[: options.rows], labels[: options.rows]
    limit_s = options.limit
    steps.do("predict the rows", lambda: model.predict(rows))
    steps.do("first radius", lambda: treeproof.radius(model, rows[:1], time_limit_s=limit_s))
    found = steps.do(
        f"{len(rows)} radii, at most {limit_s:g} s each",
        lambda: treeproof.radius(model, rows, time_limit_s=limit_s),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forest.treeproof"
        steps.do("save", lambda: model.save(path))
        size = path.stat().st_size / 2**30
        steps.do(f"load the file of {size:.2f} GB", lambda: treeproof.load(path))
    n_nodes = len(model.ensemble.trees.feature)
    share = (found.lower / found.upper)[~found.exact]
    text = (
        "# A huge forest\n\n"
        f"{options.trees:,} trees, {n_nodes:,} nodes; treeproof {treeproof.__version__},"
        f" scikit-learn {sklearn.__version__}, numba {numba.__version__},"
        f" Python {platform.python_version()}, {platform.machine()}; one thread, {UNIT}."
        " Made by `benchmarks/huge_forest.py`.\n\n"
        + table(COLUMNS, steps.lines)
        + f"\n{int(found.exact.sum())} of {len(rows)} radii are exact"
        + (f"; lower / upper of the others: {share.min():.3f} at least.\n" if len(share) else ".\n")
    )
    print(text)
    if not options.dry:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
