"""Loading and predicting, side by side with XGBoost in one process.

Run ``python benchmarks/loading.py``; the table goes to ``benchmarks/results/loading.md``. Each
figure is the best of several runs, which alternate between both sides, so that a busy machine
slows both alike.
"""

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# One thread for both sides; read by the OpenMP runtime when the library is loaded.
os.environ["OMP_NUM_THREADS"] = "1"

import numba
import numpy as np
import xgboost as xgb

import treeproof
from treeproof.loaders import load_ensemble
from treeproof.prediction import Model

REPEATS = 7
RESULTS = Path(__file__).parent / "results" / "loading.md"


def train(n_trees: int, max_depth: int) -> xgb.XGBClassifier:
    random = np.random.default_rng(0)
    X = random.normal(size=(20_000, 20)).astype(np.float32)
    noise = random.normal(size=len(X))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * noise > 0).astype(int)
    options = {"learning_rate": 0.1, "tree_method": "hist", "n_jobs": 2}
    return xgb.XGBClassifier(n_estimators=n_trees, max_depth=max_depth, **options).fit(X, y)


def side_by_side(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Best times in seconds of two functions that take turns."""
    best = [np.inf, np.inf]
    for _ in range(REPEATS):
        for side, function in enumerate((ours, theirs)):
            start = time.perf_counter()
            function()
            best[side] = min(best[side], time.perf_counter() - start)
    return best[0], best[1]


def loading_rows(folder: Path) -> list[tuple[str, float, float, str]]:
    classifier = train(1_000, 8)
    booster = classifier.get_booster()
    rows = []
    for suffix, limit in (("json", "3"), ("ubj", "")):
        path = folder / f"model.{suffix}"
        classifier.save_model(path)
        ours, theirs = side_by_side(
            lambda path=path: load_ensemble(path, self_test=False),
            lambda path=path: xgb.Booster(model_file=path),
        )
        megabytes = path.stat().st_size / 1e6
        rows.append((f"load .{suffix}, {megabytes:.1f} MB", ours, theirs, limit))
    n_nodes = len(load_ensemble(booster, self_test=False).trees.feature)
    rows[0] = (f"{rows[0][0]}, {n_nodes:,} nodes", *rows[0][1:])
    return rows


def prediction_rows() -> list[tuple[str, float, float, str]]:
    rows = []
    for n_trees, max_depth, limit in ((300, 6, "2"), (1_000, 8, "")):
        classifier = train(n_trees, max_depth)
        booster = classifier.get_booster()
        booster.set_param({"nthread": 1})
        model = Model(load_ensemble(classifier, self_test=False))
        X = np.random.default_rng(1).normal(size=(10_000, 20))
        assert np.array_equal(model.margins(X), booster.inplace_predict(X, predict_type="margin"))
        ours, theirs = side_by_side(
            lambda model=model, X=X: model.margins(X),
            lambda booster=booster, X=X: booster.inplace_predict(X, predict_type="margin"),
        )
        name = f"margins, 10,000 rows x {n_trees:,} trees, depth {max_depth}"
        rows.append((name, ours, theirs, limit))
    return rows


def table(rows: list[tuple[str, float, float, str]]) -> str:
    versions = {
        "treeproof": treeproof.__version__,
        "xgboost": xgb.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "Python": platform.python_version(),
    }
    lines = [
        "# Loading and predicting, beside XGBoost",
        "",
        "Best of several alternating runs in one process, one thread each; no self-test.",
        "",
        "| task | treeproof, ms | XGBoost, ms | ratio | aim |",
        "|---|---|---|---|---|",
    ]
    for name, ours, theirs, limit in rows:
        aim = f"at most {limit}" if limit else ""
        lines.append(
            f"| {name} | {1e3 * ours:.1f} | {1e3 * theirs:.1f} | {ours / theirs:.2f} | {aim} |"
        )
    stated = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines += ["", f"{stated}; {platform.system()} {platform.machine()}, {os.cpu_count()} cores."]
    return "\n".join(lines) + "\n"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        rows = loading_rows(Path(folder)) + prediction_rows()
    text = table(rows)
    print(text)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text)
    return int(any(limit and ours > float(limit) * theirs for _, ours, theirs, limit in rows))


if __name__ == "__main__":
    sys.exit(main())
