"""A run in a process of its own, for tests that kill it: ``python -m tests.faults.killed_runs``."""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import treeproof as tp
from treeproof.search.question import Question


def save_model(path: Path) -> None:
    """A small forest: fast enough that a run is mostly bookkeeping."""
    from sklearn.datasets import make_classification
    from sklearn.ensemble import GradientBoostingClassifier

    X, y = make_classification(400, 5, n_informative=3, random_state=0)
    tp.load(GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, y)).save(path)


def save_rows(path: Path, n_rows: int) -> None:
    """Rows in a file that is read in chunks."""
    np.savez(path, X=np.random.default_rng(1).normal(size=(n_rows, 5)))


def main(folder: Path, out: Path, pause_s: float) -> None:
    """Resume a run; a pause per batch leaves time to kill it."""
    tp.run(
        folder / "model.treeproof",
        folder / "rows.npz",
        None,
        tp.LInf(0.05),
        out=out,
        resume=True,
        n_jobs=2,
        batch_rows=50,
        progress=lambda *_: time.sleep(pause_s),
    )


def cost_s(values: Any) -> float:
    """How long a row is made to take: most next to nothing, some long, some in between."""
    return float(np.select([values[0] > 1.0, values[1] > 1.5], [0.25, 0.04], 0.0))


def make_rows_slow(diary: Path) -> None:
    """Have rows take their time, within the limits of the question; a diary says when they end."""
    answer = Question.answer
    file = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    lock = threading.Lock()

    def slow(self: Question, model: Any, X: Any, y: Any = None, **how: Any) -> tp.Results:
        results = answer(self, model, X, y, **how)
        for place, row in enumerate(X):
            cost = cost_s(row)
            time.sleep(min(cost, self.time_limit_s))
            if cost > self.time_limit_s:
                results.verdict[place], results.reason[place] = "unknown", "time limit"
            else:
                with lock:  # by the system at once: nothing of it is lost with the process
                    os.write(file, f"{float(row[0])!r} {time.time()}\n".encode())
        return results

    Question.answer = slow  # type: ignore[method-assign]


def main_slow(folder: Path, out: Path, kind: str) -> None:
    """Resume a run with slow rows."""
    make_rows_slow(folder / "diary.txt")
    ball = tp.LInf() if kind == "radius" else tp.LInf(0.05)
    model, rows = folder / "model.treeproof", folder / "rows.npz"
    tp.run(model, rows, None, ball, out=out, resume=True, n_jobs=2)


if __name__ == "__main__":
    folder, out, how = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    if how in ("radius", "verify"):
        main_slow(folder, out, how)
    else:
        main(folder, out, float(how))
