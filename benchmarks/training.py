"""Training, side by side with XGBoost in one process, and robust training beside the authors'.

Run ``python benchmarks/training.py [natural|robust] [DATASET ...] [--radius ROWS]``; the tables
in ``benchmarks/results/training.md`` are updated for the datasets that were run. Needs the
paper's data and models: TREEPROOF_PAPER_DATA, by default ../shared. Times are processor seconds of
one thread, best of the repeats that the size of the data allows, taking turns; kernels are
compiled before.

The parameters are the authors': number of trees, depth and eps from the paper's table, learning
rate and gamma from what their model files and published settings show.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import xgboost as xgb

import treeproof
from treeproof.training import RobustGBDTClassifier

DATA = Path(os.environ.get("TREEPROOF_PAPER_DATA", Path(__file__).parents[2] / "shared"))
RESULTS = Path(__file__).parent / "results" / "training.md"


@dataclass(frozen=True)
class Case:
    """Parameters of one model of the paper; `feature_start` counts its unused first columns."""

    n_estimators: int
    max_depth: int
    learning_rate: float
    gamma: float = 0.0
    eps: float = 0.0
    authors: str = ""
    feature_start: int = 0
    repeats: int = 1
    base_score: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Parameters that both libraries know."""
        return {
            "n_estimators": self.n_estimators,
            "max_depth": self.max_depth,
            "learning_rate": self.learning_rate,
            "gamma": self.gamma,
            "base_score": self.base_score,
        }


NATURAL = {
    "breast_cancer": Case(4, 6, 0.3, 1.0, repeats=20),
    "diabetes": Case(20, 5, 0.3, 1.0, repeats=20),
    "ijcnn1": Case(60, 8, 0.3, 1.0, repeats=5),
    "mnist26": Case(1000, 4, 0.02),
    "covtype": Case(80, 8, 0.2, base_score=0.5),
}
ROBUST = {
    "breast_cancer": Case(4, 8, 0.2, 1.0, 0.3, "paper_breast_cancer_robust", 1, base_score=0.5),
    "diabetes": Case(20, 5, 0.2, 1.0, 0.2, "paper_diabetes_robust", 1, base_score=0.5),
    "ijcnn1": Case(60, 8, 0.3, 1.0, 0.1, "paper_ijcnn_robust", 1, base_score=0.5),
    "mnist26": Case(1000, 6, 0.01, 0.0, 0.3, "paper_binary_mnist_robust", base_score=0.5),
}


def load(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    with np.load(DATA / "data" / f"{name}.npz") as arrays:
        parts = [arrays[key] for key in ("X_train", "y_train", "X_test", "y_test")]
    for number in (0, 2):
        scale = 255.0 if parts[number].dtype == np.uint8 else 1.0
        parts[number] = (parts[number] / scale).astype(np.float32)
    return parts[0], parts[1].astype(np.int64), parts[2], parts[3].astype(np.int64)


def best_times(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, tuple[float, Any]]:
    """Smallest processor time of each task, and what it returned; the tasks take turns."""
    best: dict[str, tuple[float, Any]] = {}
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.process_time()
            made = task()
            seconds = time.process_time() - start
            if name not in best or seconds < best[name][0]:
                best[name] = (seconds, made)
    return best


def accuracy(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(model.predict(X) == y))


def natural_row(name: str, case: Case) -> str:
    X, y, X_test, y_test = load(name)

    def ours(method: str) -> Callable[[], Any]:
        return lambda: RobustGBDTClassifier(tree_method=method, **case.options).fit(X, y)

    def theirs(method: str) -> Callable[[], Any]:
        return lambda: xgb.XGBClassifier(tree_method=method, n_jobs=1, **case.options).fit(X, y)

    tasks = {
        "ours hist": ours("hist"),
        "theirs hist": theirs("hist"),
        "ours exact": ours("exact"),
        "theirs exact": theirs("exact"),
    }
    done = best_times(tasks, case.repeats)
    seconds = {key: value[0] for key, value in done.items()}
    scores = {key: accuracy(value[1], X_test, y_test) for key, value in done.items()}
    cells = [
        f"{name} ({case.n_estimators} rounds, depth {case.max_depth}, {len(X):,} rows)",
        *(f"{scores[key]:.4f}" for key in ("ours hist", "ours exact", "theirs exact")),
        f"{100 * (scores['ours hist'] - scores['theirs exact']):+.2f}",
        *(f"{seconds[key]:.4g}" for key in tasks),
        f"{seconds['ours hist'] / seconds['theirs hist']:.2f}",
        f"{seconds['ours exact'] / seconds['theirs exact']:.2f}",
        f"{seconds['ours exact'] / seconds['theirs hist']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def robust_row(name: str, case: Case, n_radius: int) -> list[str]:
    X, y, X_test, y_test = load(name)
    booster = treeproof.load(DATA / "models" / f"{case.authors}.json")
    padded = np.hstack([np.zeros((len(X_test), case.feature_start), np.float32), X_test])
    authors = accuracy(booster, padded, y_test)
    rows = np.random.default_rng(0).permutation(len(X_test))[:n_radius]
    reference = mean_radius(booster, padded[rows], y_test[rows])
    lines = []
    natural = RobustGBDTClassifier(**NATURAL[name].options).fit(X, y)
    plain = mean_radius(treeproof.Model(natural.to_ensemble()), X_test[rows], y_test[rows])
    for method in ("exact", "hist"):
        estimator = RobustGBDTClassifier(
            tree_method=method, eps=case.eps, method="chen2019", **case.options
        )
        seconds, model = best_times({"fit": lambda estimator=estimator: estimator.fit(X, y)}, 1)[
            "fit"
        ]
        ours = mean_radius(treeproof.Model(model.to_ensemble()), X_test[rows], y_test[rows])
        cells = [
            f"{name}, {method} ({case.n_estimators} rounds, depth {case.max_depth},"
            f" eps {case.eps})",
            f"{accuracy(model, X_test, y_test):.4f}",
            f"{authors:.4f}",
            *(f"{value:.4f}" if n_radius else "" for value in (ours, reference, plain)),
            f"{100 * ours / reference:.0f} %" if n_radius else "",
            str(len(rows)) if n_radius else "",
            f"{seconds:.4g}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def mean_radius(model: treeproof.Model, X: np.ndarray, y: np.ndarray) -> float:
    """Mean exact radius; rows that the model gets wrong have radius 0."""
    if len(X) == 0:
        return 0.0
    found = treeproof.radius(model, X, y, arithmetic="real")
    return float(np.mean((np.asarray(found.lower) + np.asarray(found.upper)) / 2))


HEADS = {
    "natural": [
        "| data | ours hist, accuracy | ours exact | XGBoost exact | hist - XGBoost, points"
        " | ours hist, s | XGBoost hist, s | ours exact, s | XGBoost exact, s"
        " | hist / hist | exact / exact | exact / XGBoost hist |",
        "|" + "---|" * 12,
    ],
    "robust": [
        "| data | accuracy | the authors' | mean radius | the authors' | ours, natural training"
        " | of the authors' | rows | s |",
        "|" + "---|" * 9,
    ],
}
TEXTS = {
    "natural": "## Natural training\n\nAims: accuracy within 0.5 points of XGBoost exact (two rows"
    " on the small sets); hist / hist at most 2, exact / exact at most 4.",
    "robust": "## Robust training\n\nAims: accuracy within 1 point (two rows on the small sets),"
    " mean exact radius at least 90 % of the authors' robust models on the same test rows; larger"
    " than with natural training.",
}


def kept_rows(kind: str) -> dict[str, list[str]]:
    """Rows of the earlier runs, by dataset."""
    rows: dict[str, list[str]] = {}
    if not RESULTS.exists():
        return rows
    section = RESULTS.read_text().partition(TEXTS[kind].partition("\n")[0])[2].partition("\n## ")[0]
    for line in section.splitlines():
        name = line.removeprefix("| ").partition(" ")[0].rstrip(",")
        if name in NATURAL:
            rows.setdefault(name, []).append(line)
    return rows


def write(rows: dict[str, dict[str, list[str]]]) -> str:
    lines = [
        "# Training, beside XGBoost and beside the authors of robust training",
        "",
        "Processor seconds of one thread, in one process; kernels were compiled before.",
    ]
    for kind, head in HEADS.items():
        lines += ["", TEXTS[kind], "", *head]
        for name in NATURAL:
            lines += rows[kind].get(name, [])
    lines += [
        "",
        f"treeproof {treeproof.__version__}, xgboost {xgb.__version__}, numpy {np.__version__},"
        f" Python {platform.python_version()}; {platform.system()} {platform.machine()}.",
    ]
    text = "\n".join(lines) + "\n"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", nargs="?", choices=["natural", "robust"], default="natural")
    parser.add_argument("names", nargs="*", metavar="DATASET")
    parser.add_argument("--radius", type=int, default=0, help="test rows for mean radii")
    arguments = parser.parse_args()
    cases = NATURAL if arguments.kind == "natural" else ROBUST
    rows = {kind: kept_rows(kind) for kind in HEADS}
    warm = np.random.default_rng(0).random((300, 3))
    for method in ("hist", "exact"):
        RobustGBDTClassifier(n_estimators=2, tree_method=method).fit(warm, warm[:, 0] > 0.5)
    for name in arguments.names or cases:
        if arguments.kind == "natural":
            rows["natural"][name] = [natural_row(name, cases[name])]
        else:
            rows["robust"][name] = robust_row(name, cases[name], arguments.radius)
        print(write(rows), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
