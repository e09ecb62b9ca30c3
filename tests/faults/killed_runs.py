"""A run in a process of its own, for tests that kill it: ``python -m tests.faults.killed_runs``."""

import sys
import time
from pathlib import Path

import numpy as np

import treeproof as tp


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
        on_progress=lambda *_: time.sleep(pause_s),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
