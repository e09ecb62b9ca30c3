"""How the exact engine's time grows with trees, depth, features and radius.

Run ``python -m benchmarks.scaling [--rows N] [--dry]``; the tables go to
``benchmarks/results/scaling.md``, the picture beside them. Models are trained by XGBoost on
generated data: two classes, 8,000 rows in the unit cube, a tenth of the labels flipped, so that
every further tree still finds something to split. One thread, seconds of the processor
(processor_clock.py).

Exponents are slopes of straight lines fitted to the logarithms of size and of time.
"""

import argparse
import platform
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numba
import numpy as np
import xgboost
from benchmarks.processor_clock import UNIT
from numpy.typing import NDArray
from sklearn.datasets import make_classification

import treeproof
from treeproof.prediction import Model

mpl.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).parent / "results"

TREES = (10, 20, 50, 100, 200, 500, 1000, 2000)
DEPTHS = (3, 4, 5, 6, 8, 10, 12)
FEATURES = (5, 10, 20, 50, 100, 200, 400, 784)
RADII = (0.125, 0.25, 0.5, 1.0, 1.5, 2.0)
COLUMNS = ("leaves", "mean r*", "mean ms", "median ms", "max ms", "nodes", "sweeps", "exact")


@dataclass(frozen=True)
class Point:
    """One model or radius, and what its rows took."""

    size: float
    words: tuple[str, ...]
    mean_ms: float
    median_ms: float


def trained(n_trees: int, depth: int, n_features: int) -> tuple[Model, NDArray[np.float32]]:
    """A model, and rows that it has not seen."""
    X, y = make_classification(
        8_200,
        n_features,
        n_informative=min(n_features, 20),
        n_redundant=0,
        n_clusters_per_class=4,
        flip_y=0.1,
        random_state=0,
    )
    X = ((X - X.min(0)) / np.ptp(X, 0)).astype(np.float32)
    model = xgboost.XGBClassifier(
        n_estimators=n_trees, max_depth=depth, learning_rate=0.2, n_jobs=1, tree_method="hist"
    )
    model.fit(X[:8_000], y[:8_000])
    return treeproof.load(model), X[8_000:]


def measured(size: float, model: Model, found: treeproof.Results) -> Point:
    ms = 1e3 * found.seconds
    finite = found.upper[np.isfinite(found.upper)]
    nodes, sweeps = found.statistics["nodes"], found.statistics["sweeps"]
    words = (
        f"{len(model.ensemble.trees.leaf_value):,}",
        f"{finite.mean():.5f}" if len(finite) else "–",
        f"{ms.mean():.3f}",
        f"{np.median(ms):.3f}",
        f"{ms.max():.3f}",
        f"{nodes.mean():.1f}",
        f"{sweeps.mean():.1f}",
        f"{100 * found.exact.mean():.0f} %",
    )
    return Point(size, words, float(ms.mean()), float(np.median(ms)))


def radii_of(size: float, n_rows: int, shape: tuple[int, int, int]) -> Point:
    model, X = trained(*shape)
    treeproof.radius(model, X[:2])
    return measured(size, model, treeproof.radius(model, X[:n_rows], time_limit_s=30.0))


def verdicts_at(n_rows: int) -> list[Point]:
    """Decisions at fixed multiples of each row's own radius, on one model."""
    model, X = trained(200, 6, 20)
    rows = X[:n_rows]
    radius = treeproof.radius(model, rows).upper
    points = []
    for share in RADII:
        parts = [
            treeproof.verify(model, rows[[i]], None, treeproof.LInf(share * radius[i]))
            for i in range(n_rows)
        ]
        seconds = np.array([part.seconds[0] for part in parts])
        nodes = np.array([part.statistics["nodes"][0] for part in parts])
        sweeps = np.array([part.statistics["sweeps"][0] for part in parts])
        decided = np.mean([part.verdict[0] != "unknown" for part in parts])
        ms = 1e3 * seconds
        words = (
            f"{len(model.ensemble.trees.leaf_value):,}",
            f"{radius.mean():.5f}",
            f"{ms.mean():.3f}",
            f"{np.median(ms):.3f}",
            f"{ms.max():.3f}",
            f"{nodes.mean():.1f}",
            f"{sweeps.mean():.1f}",
            f"{100 * decided:.0f} %",
        )
        points.append(Point(share, words, float(ms.mean()), float(np.median(ms))))
    return points


def exponent(points: list[Point], attribute: str) -> float:
    sizes = np.log([point.size for point in points])
    times = np.log([getattr(point, attribute) for point in points])
    return float(np.polyfit(sizes, times, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--dry", action="store_true", help="print only, save nothing")
    options = parser.parse_args()
    n = options.rows
    studies = {
        "trees (depth 6, 20 features)": [radii_of(t, n, (t, 6, 20)) for t in TREES],
        "depth (200 trees, 20 features)": [radii_of(d, n, (200, d, 20)) for d in DEPTHS],
        "features (200 trees, depth 6)": [radii_of(f, n, (200, 6, f)) for f in FEATURES],
        "radius as a share of r* (200 trees, depth 6, 20 features), fixed-radius decisions": (
            verdicts_at(n)
        ),
    }
    text = (
        "# How the time of exact answers grows\n\n"
        f"treeproof {treeproof.__version__}, XGBoost {xgboost.__version__},"
        f" numba {numba.__version__}, Python {platform.python_version()}, {platform.machine()};"
        f" {n} rows each, one thread, {UNIT}. Made by `benchmarks/scaling.py`.\n"
    )
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), sharey=True)
    for (title, points), axis in zip(studies.items(), axes, strict=True):
        text += f"\n## {title[0].upper()}{title[1:]}\n\n"
        rows = [("size", *COLUMNS), ("---",) * (len(COLUMNS) + 1)]
        rows += [(f"{point.size:g}", *point.words) for point in points]
        text += "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
        text += (
            f"\nThe mean grows with the {exponent(points, 'mean_ms'):.2f}th power, the median with"
            f" the {exponent(points, 'median_ms'):.2f}th.\n"
        )
        for name, label in (("mean_ms", "mean"), ("median_ms", "median")):
            times = [getattr(point, name) for point in points]
            axis.loglog([point.size for point in points], times, "o-", label=label)
        axis.set_xlabel(title.partition(" (")[0])
        # The sizes themselves, every other one: powers of ten say little between 3 and 12.
        sizes = [point.size for point in points][::2]
        axis.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axis.set_xticks([], minor=True)
    axes[0].set_ylabel("ms per row")
    axes[0].legend()
    figure.tight_layout()
    print(text)
    if not options.dry:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "scaling.md").write_text(text)
        figure.savefig(RESULTS / "scaling.png", dpi=110)


if __name__ == "__main__":
    main()
