"""Global properties: largest changes, fairness, monotonicity, the properties of CCS 2021, ranges.

Run ``python -m benchmarks.properties [--parts change,fair,monotone,constrained,ccs,range]
[--models NAME,...] [--veritas N] [--seconds S]`` with TREEPROOF_PAPER_DATA at a folder that holds
``properties`` (the models of ensense, ICLR 2026, with the bounds of their domains) and ``tabular``
(cryptojacker of Chen et al., CCS 2021). Everything runs in one thread. Seconds are wall-clock time,
and beside them stands the time of the processor, which other programs on the machine do not change.

``--veritas N`` asks Veritas the same about the first N features of each model: two instances that
share all features but one, 20 s of processor time each, in the same process.
"""

import argparse
import csv
import os
import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import treeproof as tp

MODELS = (
    "adult_t300_d5",
    "adult_t500_d6",
    "german_credit_t500_d5",
    "german_credit_t800_d6",
    "pimadiabetes_t500_d6",
)
RESULTS = Path(__file__).parent / "results" / "properties.txt"


class Subject:
    """A model of ensense with its domain."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.model = tp.load(root / "properties" / f"{name}.json", self_test=False)
        data = name.rpartition("_t")[0]
        with open(root / "properties" / f"{data}.bounds.csv") as file:
            lines = list(csv.DictReader(file))
        self.names = [line["name"] for line in lines]
        low, high = ([float(line[side]) for line in lines] for side in ("lb", "ub"))
        self.low, self.high, self.domain = low, high, tp.Box(low, high)


class Table:
    """Lines that are printed and saved at once."""

    def __init__(self, path: Path, head: str) -> None:
        self.file = path.open("a")
        self.say(head)

    def say(self, line: str) -> None:
        """Print and save a line."""
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


def timed(ask: Any) -> tuple[Any, float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    found = ask()
    return found, time.perf_counter() - wall, time.process_time() - processor


def gap(lower: float, upper: float) -> float:
    return (upper - lower) / max(abs(upper), 1e-12) if upper > lower else 0.0


def warm_up(subject: Subject) -> None:
    """Compile, or read from disk, what is measured later."""
    for claim in (tp.Stable(0, 1.0), tp.Fair(0), tp.Monotone(0)):
        tp.prove(subject.model, claim, subject.domain, time_limit_s=0.01)


def change(subject: Subject, table: Table, seconds: float, n_veritas: int) -> None:
    gaps, times = [], []
    for feature, name in enumerate(subject.names):
        ask = lambda f=feature: tp.largest_change(  # noqa: E731
            subject.model, f, subject.domain, time_limit_s=seconds
        )
        found, wall, processor = timed(ask)
        gaps.append(gap(found.lower, found.upper))
        times.append(wall)
        line = (
            f"change {subject.name:22} {name:24} {found.lower:10.5f} {found.upper:10.5f}"
            f" gap {gaps[-1]:8.5f} {wall:7.2f} s ({processor:6.2f} s of processor)"
        )
        if feature < n_veritas:
            low, high, took = veritas_change(subject, feature, 20.0)
            line += f" | Veritas {low:.4f} {high:.4f} gap {gap(low, high):.4f}"
            line += f" {took:.2f} s of processor"
        table.say(line)
    table.say(
        f"change {subject.name:22} all: {np.mean(np.array(gaps) <= 1e-3):.0%} closed to 0.1 %,"
        f" {np.mean(np.array(gaps) <= 0.05):.0%} to 5 %; median {np.median(times):.2f} s,"
        f" largest {max(times):.2f} s"
    )


def veritas_change(subject: Subject, feature: int, seconds: float) -> tuple[float, float, float]:
    """Two instances that share all features but one, as Veritas asks for a contrast."""
    import veritas

    n = len(subject.names)
    one, other = (veritas_trees(subject, {feature: place}) for place in (feature, n))
    both = other.concat_negated(one)
    box = [veritas.Interval(a, np.nextafter(np.float32(b), np.float32(np.inf)))
           for a, b in zip(subject.low, subject.high, strict=True)]  # fmt: skip
    box.append(box[feature])
    config = veritas.Config(veritas.HeuristicType.MAX_OUTPUT)
    config.max_memory = 4 << 30
    began = time.process_time()
    search = config.get_search(both, box)
    while time.process_time() - began < seconds:
        search.step_for(1.0, 100)
        bounds = search.current_bounds()
        if search.is_optimal() or gap(bounds.atleast, bounds.top_of_open) <= 1e-3:
            break
    bounds = search.current_bounds()
    return float(bounds.atleast), float(bounds.top_of_open), time.process_time() - began


def veritas_trees(subject: Subject, places: dict[int, int]) -> Any:
    """The model as Veritas's own trees, with features at other places."""
    import veritas

    ensemble = subject.model.ensemble
    trees, found = ensemble.trees, veritas.AddTree(1, veritas.AddTreeType.REGR)
    for tree in range(ensemble.n_trees):
        own = found.add_tree()
        waiting = [(int(trees.root[tree]), own.root())]
        while waiting:
            node, place = waiting.pop()
            if trees.feature[node] < 0:
                own.set_leaf_value(place, float(trees.leaf_value[trees.leaf[node], 0]))
                continue
            feature = int(trees.feature[node])
            own.split(place, places.get(feature, feature), float(trees.threshold[node]))
            waiting.append((node + 1, own.left(place)))
            waiting.append((int(trees.right[node]), own.right(place)))
    return found


def fair(subject: Subject, table: Table, seconds: float, n_veritas: int) -> None:
    del n_veritas
    decided, times = [], []
    for confidence in (0.7, 0.6):
        for feature, name in enumerate(subject.names):
            claim = tp.Fair(feature, confidence=confidence)
            ask = lambda c=claim: tp.prove(  # noqa: E731
                subject.model, c, subject.domain, time_limit_s=seconds
            )
            found, wall, processor = timed(ask)
            decided.append(found.verdict != "unknown")
            times.append(wall)
            table.say(
                f"fair {subject.name:22} {name:24} {confidence} {found.verdict!s:10}"
                f" {wall:7.2f} s ({processor:6.2f} s of processor)"
            )
    table.say(
        f"fair {subject.name:22} all: {np.mean(decided):.0%} decided; median"
        f" {np.median(times):.2f} s, largest {max(times):.2f} s"
    )


def monotone(subject: Subject, table: Table, seconds: float, n_veritas: int) -> None:
    del n_veritas
    gaps, firsts = [], []
    for direction in ("increasing", "decreasing"):
        for feature, name in enumerate(subject.names):
            claim = tp.Monotone(feature, direction)  # type: ignore[arg-type]
            quick = tp.prove(subject.model, claim, subject.domain, node_limit=1)
            firsts.append(quick.seconds if quick.verdict == "falsified" else np.inf)
            ask = lambda c=claim: tp.prove(  # noqa: E731
                subject.model, c, subject.domain, time_limit_s=2 * seconds
            )
            found, wall, processor = timed(ask)
            gaps.append(gap(found.lower, found.upper))
            table.say(
                f"monotone {subject.name:22} {name:24} {direction} {found.verdict!s:10}"
                f" {found.lower:9.4f} {found.upper:9.4f} gap {gaps[-1]:8.5f} {wall:7.2f} s"
                f" ({processor:6.2f} s of processor); first violation {firsts[-1]:.2f} s"
            )
    table.say(
        f"monotone {subject.name:22} all: largest violation closed to 5 % for"
        f" {np.mean(np.array(gaps) <= 0.05):.0%}; violations at the root within 1 s:"
        f" {np.mean(np.array(firsts) <= 1.0):.0%}"
    )


def constrained(table: Table) -> None:
    """Models trained with monotone constraints are proved tree by tree."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 8))
    target = (rows[:, 0] + np.sin(3 * rows[:, 1]) + rng.normal(size=4000) > 0).astype(int)
    for name, model in constrained_models(rows, target):
        loaded = tp.load(model)
        claim = tp.Monotone(0, "increasing")
        domain = tp.Box(np.full(8, -4.0), np.full(8, 4.0))
        found, wall, processor = timed(lambda m=loaded, c=claim, d=domain: tp.prove(m, c, d))
        table.say(
            f"constrained {name:10} {loaded.ensemble.n_trees} trees {found.verdict} {wall:.2f} s"
            f" ({processor:.2f} s of processor)"
        )


def constrained_models(rows: Any, target: Any) -> Iterator[tuple[str, Any]]:
    from catboost import CatBoostClassifier
    from lightgbm import LGBMClassifier
    from xgboost import XGBClassifier

    signs = [1] + [0] * 7
    yield (
        "XGBoost",
        XGBClassifier(
            n_estimators=500, max_depth=6, n_jobs=1, monotone_constraints=tuple(signs)
        ).fit(rows, target),
    )
    yield (
        "LightGBM",
        LGBMClassifier(n_estimators=500, n_jobs=1, verbose=-1, monotone_constraints=signs).fit(
            rows, target
        ),
    )
    yield (
        "CatBoost",
        CatBoostClassifier(
            iterations=500, depth=6, thread_count=1, verbose=False, monotone_constraints=signs
        ).fit(rows, target),
    )


def ccs(root: Path, table: Table) -> None:
    """The five properties of Chen et al. on their data, with more rounds than they had."""
    from xgboost import XGBClassifier

    folder = root / "tabular"
    train = np.loadtxt(folder / "cryptojacker.train.csv", delimiter=",")
    spread = np.loadtxt(folder / "cryptojacker_featstd.csv", delimiter=",").ravel()
    names = (folder / "cryptojacker_header.csv").read_text().strip().split(",")[-7:]
    rows, target = train[:, 1:], train[:, 0].astype(int)
    domain = tp.Box(np.zeros(7), rows.max(axis=0))
    claims = [
        ("monotone", tp.Monotone([0, 1], "increasing")),
        ("stable", tp.Stable(0, 2.0)),
        ("high confidence", tp.HighConfidence([0, 1, 2], confidence=0.98)),
        ("redundant", tp.Redundant([[0, 1], [2, 3, 4], [5, 6]], confidence=0.98)),
        ("small neighbourhood", tp.SmallNeighbourhood(0.2, 5.0, spread[-7:])),
    ]
    for rounds in (10, 100, 300):
        model = XGBClassifier(n_estimators=rounds, max_depth=4, n_jobs=1).fit(rows, target)
        loaded = tp.load(model)
        for name, claim in claims:
            ask = lambda m=loaded, c=claim: tp.prove(m, c, domain, time_limit_s=30.0)  # noqa: E731
            found, wall, processor = timed(ask)
            table.say(
                f"ccs {rounds:4} rounds {name:20} {found.verdict!s:10} {found.lower:9.4f}"
                f" {found.upper:9.4f} {wall:7.2f} s ({processor:6.2f} s of processor)"
            )
    table.say(f"ccs features: {', '.join(names)}")


def score_range(subject: Subject, table: Table, seconds: float, n_veritas: int) -> None:
    """Exact ranges beside the sums of every tree's extremes, which is what LightGBM offers."""
    del n_veritas
    ask = lambda: tp.score_range(subject.model, subject.domain, time_limit_s=seconds)  # noqa: E731
    found, wall, processor = timed(ask)
    trees = subject.model.ensemble.trees
    owner = np.searchsorted(trees.root, np.flatnonzero(trees.feature < 0), side="right") - 1
    least, most = np.full((2, subject.model.ensemble.n_trees), np.inf)
    most *= -1.0
    np.minimum.at(least, owner, trees.leaf_value[:, 0])
    np.maximum.at(most, owner, trees.leaf_value[:, 0])
    start = subject.model.ensemble.aggregation.start[0]
    table.say(
        f"range {subject.name:22} {found.minimum.lower:9.3f} … {found.minimum.upper:9.3f} to"
        f" {found.maximum.lower:9.3f} … {found.maximum.upper:9.3f}; sums of extremes"
        f" {start + least.sum():9.2f} to {start + most.sum():9.2f}; {wall:.2f} s"
        f" ({processor:.2f} s of processor)"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default="change,fair,monotone,constrained,ccs,range")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--veritas", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    root = Path(os.environ.get("TREEPROOF_PAPER_DATA", Path(__file__).parents[2] / "shared"))
    versions = ", ".join(f"{name} {version(name)}" for name in ("treeproof", "numba", "numpy"))
    if options.veritas:
        versions += f", dtai-veritas {version('dtai-veritas')}"
    load = os.getloadavg()[0]
    head = (
        f"# {versions}, Python {platform.python_version()}, {platform.machine()}, load {load:.1f}"
    )
    table = Table(RESULTS, head)
    parts = options.parts.split(",")
    ways = {"change": change, "fair": fair, "monotone": monotone, "range": score_range}
    for name in options.models.split(","):
        if any(part in ways for part in parts):
            subject = Subject(root, name)
            warm_up(subject)
            for part in parts:
                if part in ways:
                    ways[part](subject, table, options.seconds, options.veritas)
    if "constrained" in parts:
        constrained(table)
    if "ccs" in parts:
        ccs(root, table)


if __name__ == "__main__":
    main()
