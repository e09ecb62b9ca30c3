"""The paper's engines on the paper's models, beside treeVerification's bounds and times.

Run ``python benchmarks/paper_engines.py``; the tables go to
``benchmarks/results/paper_engines.md``, or only to the terminal with ``--dry``. Needs the paper's
data and models: TREEPROOF_PAPER_DATA, by default ../shared.

treeVerification's seconds were measured in another run, on a machine like this one under load; they
vary by up to 2.5 times. Bounds are compared at the same T, L, first radius and number of steps.
"""

import argparse
import csv
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray

import treeproof as tp
from treeproof.engines.instance import cells_of
from treeproof.engines.restricted import restricted_to
from treeproof.kernels.core.compiler import memory_kernel
from treeproof.kernels.core.status import FOUND
from treeproof.kernels.paper.cliques import next_clique
from treeproof.kernels.paper.leaves import Limits
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.paper.cliques import clique_search
from treeproof.query.build import build_query

DATA = Path(os.environ.get("TREEPROOF_PAPER_DATA", Path(__file__).parents[2] / "shared"))
RESULTS = Path(__file__).parent / "results" / "paper_engines.md"
REPEATS = 3
PATH_SECONDS = 1.0
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Setting:
    """A model with the paper's T and L and the first radius of its search."""

    peer: str
    model: str
    data: str
    dummy_column: bool
    T: int
    L: int
    first_eps: float


SETTINGS = (
    Setting("breast_cancer_natural", "paper_breast_cancer_unrobust", "breast_cancer", True, 2, 1,
            0.3),
    Setting("breast_cancer_robust", "paper_breast_cancer_robust", "breast_cancer", True, 2, 1, 0.3),
    Setting("diabetes_natural", "paper_diabetes_unrobust", "diabetes", True, 3, 2, 0.1),
    Setting("diabetes_robust", "paper_diabetes_robust", "diabetes", True, 3, 2, 0.1),
    Setting("ijcnn1_natural", "paper_ijcnn_unrobust", "ijcnn1", True, 2, 2, 0.05),
    Setting("ijcnn1_robust", "paper_ijcnn_robust", "ijcnn1", True, 2, 2, 0.05),
    Setting("webspam_natural", "paper_webspam_unrobust", "webspam", True, 2, 1, 0.001),
    Setting("webspam_robust", "paper_webspam_robust", "webspam", True, 2, 1, 0.02),
    Setting("higgs_robust50", "paper_higgs_robust50", "higgs", False, 4, 1, 0.01),
    Setting("mnist26_natural", "paper_binary_mnist_unrobust", "mnist26", False, 4, 1, 0.1),
    Setting("mnist26_robust", "paper_binary_mnist_robust", "mnist26", False, 4, 1, 0.3),
    Setting("covtype_natural", "paper_covtype_unrobust", "covtype", True, 2, 3, 0.05),
)  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """Rows that treeVerification answered, with its bounds, its times and known exact radii."""

    index: NDArray[np.int64]
    lower: NDArray[np.float64]
    seconds: NDArray[np.float64]
    exact: NDArray[np.float64]


def read_peer(setting: Setting) -> Peer:
    with (DATA / "peers" / f"anchors_{setting.peer}.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["tv_lower"]]
    return Peer(
        index=np.array([int(row["index"]) for row in rows]),
        lower=np.array([float(row["tv_lower"]) for row in rows]),
        seconds=np.array([float(row["tv_seconds"]) for row in rows]),
        exact=np.array([float(row["r_star_exact"] or "nan") for row in rows]),
    )


def read_rows(setting: Setting, index: NDArray[np.int64], n_features: int):
    with np.load(DATA / "data" / f"{setting.data}.npz") as arrays:
        images = setting.data == "mnist26"
        X = arrays["X_test" if images else "X_attack500"][index]
        y = arrays["y_test" if images else "y_attack500"][index]
    X = X.astype(np.float32) / np.float32(255.0) if images else X.astype(np.float32)
    if setting.dummy_column:
        X = np.hstack([np.zeros((len(X), 1), dtype=np.float32), X])
    X = np.hstack([X, np.zeros((len(X), n_features - X.shape[1]), dtype=np.float32)])
    return X, y.astype(int)


def best_time(call, repeats: int) -> tuple[tp.Results, float]:
    """Result, and the least mean time per row of a few runs."""
    results = call()
    times = [np.mean(results.seconds)] + [np.mean(call().seconds) for _ in range(repeats - 1)]
    return results, float(min(times))


def slack_at(model: tp.Model, X, y, radius: float) -> float:
    """How much of the floor of a row's constraint is left to the rounding of float32 sums."""
    query = build_query(model.ensemble, X, y, tp.LInf(radius), arithmetic="real")
    low, high = query.reach.box(query.rows, radius)
    constraint = query.alternatives.of_group(int(query.group[0]))[0][0]
    cells = cells_of(query, 0, low[0], high[0])
    restricted = restricted_to(query, 0, range(constraint, constraint + 1), cells)
    return float(query.alternatives.need[constraint] - restricted.floor[0])


def compare(setting: Setting, explained: list[str]) -> tuple[list[str], list[str]]:
    peer = read_peer(setting)
    model = tp.load(DATA / "models" / f"{setting.model}.json", self_test=False)
    X, y = read_rows(setting, peer.index, model.n_features)
    search = tp.PaperProtocol(first_eps=setting.first_eps)

    def ask_with(protocol, **options):
        engine = tp.multilevel(T=setting.T, L=setting.L, **options)
        limit = PATH_SECONDS if "bound" in options else np.inf
        return best_time(
            lambda: tp.radius(
                model, X, y, engine=engine, search=protocol, time_limit_s=limit, arithmetic="real"
            ),
            1 if "bound" in options else REPEATS,
        )

    tp.radius(model, X[:1], y[:1], engine=tp.multilevel(), search=search, arithmetic="real")
    protocol, seconds = ask_with(search)
    listed, listed_seconds = ask_with(None)
    shared, shared_seconds = ask_with(None, grouping="shared")
    path, path_seconds = ask_with(None, bound="path")
    both, both_seconds = ask_with(None, bound="path", grouping="shared")
    # treeVerification prints six digits.
    different = np.flatnonzero(np.abs(protocol.lower - peer.lower) > TOLERANCE + 5e-6 * peer.lower)
    for row in different:
        radius = float(peer.lower[row])
        engine = tp.multilevel(T=setting.T, L=setting.L)
        at = tp.verify(model, X[[row]], y[[row]], tp.LInf(radius), engine=engine, arithmetic="real")
        excess = float(at.statistics["excess"][0])
        explained.append(
            f"* {setting.peer}, row {peer.index[row]}: {protocol.lower[row]:.7g} instead of"
            f" {radius:.7g}. At {radius:.7g} the sum lies {excess:.2e} above the floor, of which"
            f" {slack_at(model, X[[row]], y[[row]], radius):.2e} is the slack for XGBoost's float32"
            " sums, which treeVerification does not have."
        )
    assert (listed.lower >= protocol.lower).all()
    known = ~np.isnan(peer.exact)
    for results in (protocol, listed, shared, path, both):
        # Exact radii of the peers are differences of float32 numbers in double, as ours are.
        assert (results.lower[known] <= peer.exact[known] + 2e-8).all()
    n_trees = model.ensemble.n_trees
    speed = [
        f"{setting.peer} ({n_trees})",
        f"{setting.T}/{setting.L}",
        str(len(X)),
        f"{np.mean(peer.lower):.6f}",
        f"{np.mean(protocol.lower):.6f}",
        str(len(different)),
        f"{np.mean(peer.seconds) * 1e3:.3g}",
        f"{seconds * 1e3:.3g}",
        f"{np.mean(peer.seconds) / seconds:.0f}",
    ]
    exact = np.where(known, peer.exact, np.nan)
    rows = known & (peer.exact > 0)

    def quality(results):
        return f"{np.mean(results.lower[rows]) / np.mean(exact[rows]):.3f}" if rows.any() else "–"

    gain = [f"{setting.peer} ({n_trees})", str(int(rows.sum()))]
    for results, spent in (
        (protocol, seconds),
        (listed, listed_seconds),
        (path, path_seconds),
        (shared, shared_seconds),
        (both, both_seconds),
    ):
        gain += [quality(results), f"{spent * 1e3:.3g}"]
    return speed, gain


def random_trees(
    rng: np.random.Generator, n_trees: int, n_leaves: int, n_features: int
) -> Ensemble:
    """Trees with random splits of [0, 1)^d, each splitting its largest leaf at random."""
    builder = TreeBuilder()
    for _ in range(n_trees):
        feature, threshold, left, right = [0], [0.0], [-1], [-1]
        boxes = [(np.zeros(n_features), np.ones(n_features))]
        leaves = [0]
        while len(leaves) < n_leaves:
            node = leaves.pop(int(rng.integers(len(leaves))))
            low, high = boxes[node]
            axis = int(rng.integers(n_features))
            cut = float(rng.uniform(low[axis], high[axis]))
            feature[node], threshold[node] = axis, cut
            is_axis = np.arange(n_features) == axis
            halves = (
                (left, (low, np.where(is_axis, cut, high))),
                (right, (np.where(is_axis, cut, low), high)),
            )
            for side, bounds in halves:
                side[node] = len(feature)
                leaves.append(len(feature))
                boxes.append(bounds)
                feature.append(0)
                threshold.append(0.0)
                left.append(-1)
                right.append(-1)
        n = len(feature)
        builder.add_tree(
            feature=feature, threshold=threshold, left=left, right=right, flags=[0] * n,
            value=rng.normal(size=n), output=0,
        )  # fmt: skip
    return Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=1,
        input_precision="float64",
        aggregation=Aggregation(precision="float64", start=(0.0,)),
        decision=Decision(kind="threshold", cut=0.0),
        classes=(0, 1),
        provenance=Provenance(library="random"),
    )


@memory_kernel
def count_cliques(leaves, order, path, limits):
    found = 0
    while next_clique(leaves, order, path, limits) == FOUND:
        found += 1
    return found


def growth(
    n_features: int, sizes: tuple[int, ...], n_trees: int = 20
) -> tuple[list[list[str]], str]:
    """Cliques and time against the number of leaves, with the fitted exponents."""
    rng = np.random.default_rng(n_features)
    lines, leaves, cliques, visited, times = [], [], [], [], []
    for n_leaves in sizes:
        ensemble = random_trees(rng, n_trees, n_leaves, n_features)
        query = build_query(ensemble, np.full((1, n_features), 0.5), None, tp.Box(0.0, 1.0))
        cells = cells_of(query, 0, np.zeros(n_features), np.ones(n_features))
        restricted, order, path = clique_search(query, 0, range(1), cells)
        everything = order._replace(floor=np.full(1, -np.inf), sure=np.full(1, np.inf))
        limits = Limits(np.array([0, 2**62]), np.full(1, np.inf), np.empty(2, dtype=np.int64))
        began = time.perf_counter()
        n = count_cliques(restricted.leaves, everything, path, limits)
        spent = time.perf_counter() - began
        leaves.append(n_trees * n_leaves)
        cliques.append(n)
        visited.append(int(limits.nodes[0]))
        times.append(spent)
        lines.append(
            [
                str(n_features),
                str(n_trees),
                str(leaves[-1]),
                f"{n:,}",
                f"{visited[-1]:,}",
                f"{spent * 1e3:.3g}",
            ]
        )
    fits = [
        np.polyfit(np.log(leaves), np.log(values), 1)[0] for values in (cliques, visited, times)
    ]
    note = (
        f"* {n_features} features: cliques grow with the {fits[0]:.2f}th power of the number of"
        f" leaves, partial cliques with the {fits[1]:.2f}th, time with the {fits[2]:.2f}th."
    )
    return lines, note


def table(columns: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dry", action="store_true", help="print only")
    parser.add_argument("--models", help="comma-separated names")
    arguments = parser.parse_args()
    chosen = arguments.models.split(",") if arguments.models else [s.peer for s in SETTINGS]
    explained: list[str] = []
    speeds, gains = [], []
    for setting in SETTINGS:
        if setting.peer in chosen:
            speed, gain = compare(setting, explained)
            speeds.append(speed)
            gains.append(gain)
            print(" | ".join(speed), flush=True)
            print("    " + " | ".join(gain), flush=True)
    lines, notes = [], []
    count_cliques_of_nothing = growth(1, (2,))  # compiles
    del count_cliques_of_nothing
    for n_features, sizes in (
        (1, (4, 8, 16, 32, 64)),
        (2, (4, 8, 16, 32, 64)),
        (3, (4, 8, 16, 32)),
    ):
        rows, note = growth(n_features, sizes)
        lines += rows
        notes.append(note)
        print(note, flush=True)
    text = [
        "# The paper's engines, measured",
        "",
        f"treeproof {tp.__version__}, numba {numba.__version__}, numpy {np.__version__}, Python"
        f" {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, one thread."
        " Made by `benchmarks/paper_engines.py`.",
        "",
        "## treeVerification's bounds, and how long they take",
        "",
        "Same T, L, first radius and ten steps; rows that treeVerification answered. Its seconds"
        " come from another run on a machine like this one under load and vary by up to 2.5 times;"
        f" ours are the best of {REPEATS} runs. `different` counts rows whose bounds differ by more"
        f" than {TOLERANCE:g} (it prints six digits).",
        "",
        *table(
            ("model (trees)", "T/L", "rows", "its mean bound", "our mean bound", "different",
             "its ms", "our ms", "times faster"), speeds,
        ),
        *(["Rows that differ:", "", *explained, ""] if explained else []),
        "## What exact search, paths and grouping gain",
        "",
        "Mean lower bound as a share of the mean exact radius, over rows whose exact radius is"
        " known, and ms per row. `list` searches the finite list of distances instead of ten"
        f" steps; the others do so, too. Paths have {PATH_SECONDS:g} s per row.",
        "",
        *table(
            ("model (trees)", "rows", "ten steps", "ms", "list", "ms", "paths", "ms",
             "contradicting trees grouped", "ms", "both", "ms"), gains,
        ),
        "On every row: list >= ten steps, and no bound above the exact radius.",
        "",
        "## Few features: enumerating all cliques",
        "",
        "Random trees over the unit cube, no pruning: all cliques of 20 trees are enumerated.",
        "",
        *table(("features", "trees", "leaves", "cliques", "partial cliques", "ms"), lines),
        *notes,
        "",
    ]  # fmt: skip
    if not arguments.dry:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
