"""Targeted radii: how near is a row that a given class wins, for every class but the row's own.

Run ``python -m benchmarks.targets [--rows N] [--limit S] [--dry]``; the table goes to
``benchmarks/results/targets.md``. Covtype is the paper's natural model, MNIST and the model of six
classes are trained by XGBoost here; data of the first two is found by TREEPROOF_PAPER_DATA, and
what is not there is left out. One thread; the untargeted radii of the same rows are asked for in
the same run. Seconds, also those of limits, are those of the processor (processor_clock.py).
"""

import argparse
import platform
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import xgboost
from benchmarks.processor_clock import UNIT
from benchmarks.subjects import DATA
from numpy.typing import NDArray
from sklearn.datasets import make_classification

import treeproof
from treeproof.prediction import Model

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    *("model", "classes", "questions", "untargeted median ms", "median ms", "times", "99 % ms"),
    *("max ms", "exact", "lower / upper of open ones"),
)

Case = tuple[str, Model, NDArray[np.float32], NDArray[np.int64]]


def boosted(X: NDArray[np.float32], y: NDArray[np.int64], n_rounds: int) -> Model:
    model = xgboost.XGBClassifier(
        n_estimators=n_rounds, max_depth=5, n_jobs=1, tree_method="hist", random_state=0
    )
    return treeproof.load(model.fit(X, y))


def cases() -> Iterator[Case]:
    """Models, each with rows that it has not seen."""
    X, y = make_classification(
        12_000, 20, n_informative=14, n_classes=6, n_clusters_per_class=3, class_sep=1.2,
        random_state=0,
    )  # fmt: skip
    X = ((X - X.min(0)) / np.ptp(X, 0)).astype(np.float32)
    yield "six classes, 240 trees", boosted(X[:10_000], y[:10_000], 40), X[10_000:], y[10_000:]
    if (DATA / "data" / "mnist.npz").exists():
        with np.load(DATA / "data" / "mnist.npz", allow_pickle=False) as table:
            X, y, rows, labels = (
                table[name] for name in ("X_train", "y_train", "X_test", "y_test")
            )
        X, rows = (part[:20_000].astype(np.float32) / np.float32(255) for part in (X, rows))
        yield "MNIST, 200 trees", boosted(X, y[:20_000], 20), rows, labels
        with np.load(DATA / "data" / "covtype.npz", allow_pickle=False) as table:
            rows, labels = table["X_test"], table["y_test"]
        rows = np.hstack([np.zeros((len(rows), 1), dtype=np.float32), rows])
        model = treeproof.load(DATA / "models" / "paper_covtype_unrobust.json")
        yield "covtype, 560 trees", model, rows, labels


def line_of(case: Case, n_rows: int, limit_s: float) -> tuple[str, ...]:
    name, model, rows, labels = case
    right = np.flatnonzero(model.predict(rows[:2_000]) == labels[:2_000])[:n_rows]
    rows, labels = rows[right], labels[right]
    treeproof.radius(model, rows[:2], time_limit_s=limit_s)
    plain = 1e3 * treeproof.radius(model, rows, labels, time_limit_s=limit_s).seconds
    found = []
    for target in model.classes:
        asked = labels != target
        goal = treeproof.AvoidsTarget(target)
        found.append(
            treeproof.radius(model, rows[asked], labels[asked], goal=goal, time_limit_s=limit_s)
        )
    ms = 1e3 * np.concatenate([part.seconds for part in found])
    exact = np.concatenate([part.exact for part in found])
    lower, upper = (
        np.concatenate([getattr(part, n) for part in found]) for n in ("lower", "upper")
    )
    share = lower[~exact] / upper[~exact]
    return (
        name,
        str(len(model.classes)),
        str(len(ms)),
        f"{np.median(plain):.2f}",
        f"{np.median(ms):.2f}",
        f"{np.median(ms) / np.median(plain):.1f}",
        f"{np.percentile(ms, 99):.0f}",
        f"{ms.max():.0f}",
        f"{100 * exact.mean():.1f} %",
        f"{np.median(share):.2f}" if len(share) else "–",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds for each question")
    parser.add_argument("--dry", action="store_true", help="print only, save nothing")
    options = parser.parse_args()
    lines = [line_of(case, options.rows, options.limit) for case in cases()]
    text = (
        "# Targeted radii\n\n"
        f"treeproof {treeproof.__version__}, XGBoost {xgboost.__version__},"
        f" numba {numba.__version__}, Python {platform.python_version()}, {platform.machine()};"
        f" {options.rows} rows, every other class as target, at most {options.limit:g} s each, one"
        f" thread, {UNIT}. Made by `benchmarks/targets.py`.\n\n"
    )
    table = [COLUMNS, ("---",) * len(COLUMNS), *lines]
    text += "\n".join("| " + " | ".join(line) + " |" for line in table) + "\n"
    print(text)
    if not options.dry:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "targets.md").write_text(text)


if __name__ == "__main__":
    main()
