"""The cheapest change: typed columns beside OCEAN, the paper's models beside their L∞ radii.

Run ``python -m benchmarks.costs [--parts tabular,paper] [--data adult,...] [--models xgb50x4,...]
[--norms L1,L0,L2] [--rows N] [--ocean N] [--ocean-seconds S] [--milp N]`` with TREEPROOF_PAPER_DATA
at a folder that holds ``tabular`` (Adult, COMPAS, Credit, with the types of their columns),
``models`` and ``data``.

``tabular``: continuous columns are scaled to a range of 1, as OCEAN does; discrete ones are
integers, binary ones 0 or 1, categories one-hot groups. A unit of a continuous column is its range,
of a discrete one 1; another category or binary value costs 1. ``--ocean N`` asks OCEAN's CP solver
(``oceanpy``, one worker) the same about the first N rows of each model, in the same process.

``paper``: radii of L1 and L2 on the paper's models beside those of L∞; medians over rows of times
over those of L∞, of the compiled search in one call for all rows (wall-clock time of both), and
of each row alone; ``--milp N`` asks the engine 'milp' about the first N rows.

Everything runs in one thread, and all times are of the processor, since other programs may be
running. Those of a row begin with the question in numbers and end with a replayed witness, each row
alone; "all" is one call for all rows, with everything from data frames to results, over the number
of rows. OCEAN's are without the making of its model, which is done once.
"""

import argparse
import json
import os
import platform
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import treeproof as tp
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.prediction import accumulators
from treeproof.query.build import build_query

RESULTS = Path(__file__).parent / "results" / "costs.txt"
NORMS: dict[str, Any] = {"L1": tp.L1, "L0": tp.L0, "L2": tp.L2}
TRAINED = ("xgb50x4", "xgb100x6", "rf50x6")


class Columns(NamedTuple):
    """A data set with one-hot groups, and what its columns are."""

    frame: Any
    labels: NDArray[np.int64]
    domain: tp.Domain
    discrete: tuple[str, ...]  # columns of the file, for OCEAN
    encoded: tuple[str, ...]
    raw: Any


def plain(name: str) -> str:
    """A name without brackets and signs of comparison."""
    return "".join("_" if sign in "[]<>" else sign for sign in name)


def typed_columns(path: Path) -> Columns:
    """Read a file whose second line gives the type of each column: D, F, E, B, T."""
    import pandas as pd

    table = pd.read_csv(path, header=[0, 1])
    kinds = dict(table.columns.tolist())
    # Names without the signs that XGBoost refuses.
    kinds = {plain(name): kind for name, kind in kinds.items()}
    table.columns = [plain(name) for name in table.columns.get_level_values(0)]
    (target,) = (name for name, kind in kinds.items() if kind == "T")
    labels = table.pop(target).astype(int).to_numpy()
    table = table.loc[:, table.nunique() > 1]
    parts, groups, integer, binary = [], [], [], []
    for name in table.columns:
        column, kind = table[name], kinds[name]
        if kind == "D":
            parts.append(column.astype(float))
            integer.append(name)
        elif kind == "E":
            dummies = pd.get_dummies(column).astype(float)
            dummies.columns = [plain(f"{name} {value}") for value in dummies.columns]
            parts.append(dummies)
            groups.append(list(dummies.columns))
        elif kind == "B":
            codes = pd.get_dummies(column, drop_first=True).iloc[:, 0].astype(float)
            parts.append(codes.rename(name))
            binary.append(name)
        else:
            value = column.astype(float)
            parts.append((value - value.min()) / (value.max() - value.min()) - 0.5)
    frame = pd.concat(parts, axis=1)
    domain = tp.Domain(integer=integer, one_hot=groups, values={name: [0, 1] for name in binary})
    encoded = tuple(name for name in table.columns if kinds[name] == "E")
    return Columns(frame, labels, domain, tuple(integer), encoded, table)


def trained(kind: str, X: Any, y: Any) -> Any:
    """A model of the library, by its kind."""
    if kind.startswith("xgb"):
        import xgboost

        n_trees, depth = map(int, kind.removeprefix("xgb").split("x"))
        return xgboost.XGBClassifier(
            n_estimators=n_trees, max_depth=depth, random_state=0, n_jobs=1
        ).fit(X, y)
    from sklearn.ensemble import RandomForestClassifier

    n_trees, depth = map(int, kind.removeprefix("rf").split("x"))
    return RandomForestClassifier(n_trees, max_depth=depth, random_state=0).fit(X, y)


class Table:
    """Lines that are printed and saved at once."""

    def __init__(self, path: Path, head: str) -> None:
        path.parent.mkdir(exist_ok=True)
        self.file = path.open("a")
        self.say(head)

    def say(self, line: str) -> None:
        """Print and save a line."""
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


class Answers(NamedTuple):
    """Answers about all rows, the seconds of each row alone, and of one call for all, per row."""

    results: tp.Results
    seconds: NDArray[np.float64]
    per_row: float


def asked(model: Any, rows: Any, y: Any, perturbation: Any) -> Answers:
    """Ask about all rows in one call, then about each of them alone."""
    began = time.process_time()
    results = tp.radius(model, rows, y, perturbation, time_limit_s=10.0)
    per_row = (time.process_time() - began) / len(rows)
    query = build_query(model.ensemble, rows, y, perturbation, sums=accumulators)
    engine, budget, seconds = ExactEngine(), Budget(time_limit_s=10.0), np.empty(len(rows))
    for row in range(len(rows)):
        began = time.process_time()
        engine.radius(query.take(slice(row, row + 1)), budget)
        seconds[row] = time.process_time() - began
    return Answers(results, seconds, per_row)


def ocean_answers(
    library_model: Any, rows: Any, norm: int, max_time: float, explainer: Any
) -> Iterator[tuple[float, bool, float]]:
    """Cost, whether it is proved, and seconds of each row, from OCEAN's CP solver."""
    predicted = library_model.predict(rows)
    for number in range(len(rows)):
        x = rows.iloc[number].to_numpy(dtype=float)
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = explainer.explain(
                x, y=int(1 - predicted[number]), norm=norm, max_time=int(max_time), num_workers=1
            )
        seconds = time.process_time() - began
        proved = explainer.get_solving_status() == "OPTIMAL"
        cost = explainer.get_objective_value() if found is not None else np.inf
        yield cost, proved, seconds


def tabular(options: argparse.Namespace, root: Path, table: Table) -> None:
    """Typed columns of Adult, COMPAS and Credit."""
    table.say("")
    table.say(
        "data     model     norm  rows proved  median ms    90 %     max  all, ms   mean cost"
        "   OCEAN rows  closed  equal  mean s  times faster"
    )
    for name in options.data.split(","):
        columns = typed_columns(root / "tabular" / f"{name}.csv")
        order = np.random.default_rng(0).permutation(len(columns.frame))
        train, test = np.split(order, [len(order) * 4 // 5])
        X, y = columns.frame, columns.labels
        rows = X.iloc[test[: options.rows]]
        for kind in options.models.split(","):
            library_model = trained(kind, X.iloc[train], y[train])
            model = tp.load(library_model)
            explainer = new_ocean(library_model, columns) if options.ocean else None
            for norm in options.norms.split(","):
                perturbation = NORMS[norm](domain=columns.domain)
                asked(model, rows.iloc[:1], None, perturbation)
                answers = asked(model, rows, None, perturbation)
                line = f"{name:8s} {kind:9s} {norm:4s} " + summary(answers)
                if explainer is not None:
                    found = ocean_answers(
                        library_model, rows.iloc[: options.ocean], int(norm[1]),
                        options.ocean_seconds, explainer,
                    )  # fmt: skip
                    line += compared(np.array(list(found)), answers, norm, table)
                table.say(line)


def summary(answers: Answers) -> str:
    """Rows, how many are proved, times and the mean cost."""
    results, ms = answers.results, 1e3 * answers.seconds
    cost = results.upper[np.isfinite(results.upper)]
    return (
        f"{len(ms):5d} {int(results.exact.sum()):6d} {np.median(ms):10.2f}"
        f" {np.quantile(ms, 0.9):7.1f} {ms.max():7.1f} {1e3 * answers.per_row:8.2f}"
        f" {cost.mean():11.5f}"
    )


def compared(ocean: NDArray[np.float64], answers: Answers, norm: str, table: Table) -> str:
    """OCEAN's answers beside ours: rows, closed ones, equal optima, mean time, how much faster."""
    closed = ocean[:, 1] > 0.0
    own = answers.results.upper[: len(ocean)] ** (2 if norm == "L2" else 1)
    # Its costs are whole numbers of 1e-8 per feature, rounded towards 0.
    equal = closed & (np.abs(ocean[:, 0] - own) <= 1e-6 * np.maximum(own, 1.0))
    for row in np.flatnonzero(closed & ~equal):
        table.say(f"    row {row}: {own[row]!r}, OCEAN {ocean[row, 0]!r}")
    if not closed.any():
        return f"{len(ocean):13d} {0:7d}"
    mean, ours = ocean[closed, 2].mean(), answers.seconds[: len(ocean)][closed].mean()
    return f"{len(ocean):13d} {closed.sum():7d} {equal.sum():6d} {mean:7.2f} {mean / ours:13.0f}"


def paper(options: argparse.Namespace, root: Path, table: Table) -> None:
    """L1 and L2 radii of the paper's models, beside those of L∞."""
    table.say("")
    table.say(
        "model                            norm   rows proved  median ms    90 %     max  all, ms"
        "   mean cost  times over L∞: search    row   milp closed  equal"
    )
    for entry in json.loads((root / "models" / "models.json").read_text()):
        if options.only and entry["name"] not in options.only.split(","):
            continue
        X, y = paper_rows(root, entry["dataset"], int(entry["feature_start"]))
        model = tp.load(root / "models" / f"{entry['name']}.json")
        X, y = X[: options.rows], y[: options.rows]
        right = model.predict(X) == y
        X, y = X[right], y[right]
        for norm, perturbation in (("LInf", tp.LInf()), ("L2", tp.L2()), ("L1", tp.L1())):
            asked(model, X[:1], y[:1], perturbation)
            answers = asked(model, X, y, perturbation)
            results = answers.results
            line = f"{entry['name']:32s} {norm:4s} " + summary(answers)
            if norm == "LInf":
                plain, nearest = answers, results.lower
            else:
                assert np.all(results.upper >= nearest * (1.0 - 1e-9))
                search = np.median(results.seconds / plain.results.seconds)
                line += f" {search:22.1f} {np.median(answers.seconds / plain.seconds):6.1f}"
                if options.milp:
                    n = options.milp
                    other = tp.radius(
                        model, X[:n], y[:n], perturbation, engine="milp", time_limit_s=20.0
                    )
                    closed = other.exact & results.exact[:n]
                    equal = closed & np.isclose(other.upper, results.upper[:n], rtol=1e-6)
                    line += f" {closed.sum():19d} {equal.sum():6d}"
            table.say(line)


def paper_rows(
    root: Path, dataset: str, feature_start: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The authors' rows where they are known, otherwise the first test rows."""
    with np.load(root / "data" / f"{dataset}.npz", allow_pickle=False) as arrays:
        part = "attack500" if "X_attack500" in arrays.files else "test"
        X, y = arrays[f"X_{part}"], arrays[f"y_{part}"]
    if X.dtype == np.uint8:
        X = X.astype(np.float32) / np.float32(255)
    if feature_start:
        X = np.hstack([np.zeros((len(X), feature_start), dtype=np.float32), X])
    return X, y.astype(np.int64)


def new_ocean(library_model: Any, columns: Columns) -> Any:
    """OCEAN's CP explainer of a model; its columns are ours."""
    from ocean.cp import Explainer
    from ocean.feature import parse_features

    data, mapper = parse_features(
        columns.raw, discretes=columns.discrete, encoded=columns.encoded, scale=True
    )
    if not np.allclose(data.to_numpy(dtype=float), columns.frame.to_numpy()):
        raise SystemExit("OCEAN's columns are not ours.")
    return Explainer(library_model, mapper=mapper)


def versions() -> str:
    """What the table was made with."""
    found = []
    for name in ("treeproof", "xgboost", "scikit-learn", "oceanpy", "ortools", "numba", "numpy"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} {tp.__version__ if name == 'treeproof' else 'none'}")
    return f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, " + ", ".join(found)


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default="tabular,paper")
    parser.add_argument("--data", default="adult,compas,credit")
    parser.add_argument("--models", default=",".join(TRAINED))
    parser.add_argument("--norms", default="L1,L0,L2")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--ocean", type=int, default=0)
    parser.add_argument("--ocean-seconds", type=float, default=20.0)
    parser.add_argument("--only", default="", help="models of the paper, by name")
    parser.add_argument("--milp", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    root = Path(os.environ.get("TREEPROOF_PAPER_DATA", "../shared"))
    table = Table(options.output, f"# {versions()}")
    for part in options.parts.split(","):
        {"tabular": tabular, "paper": paper}[part](options, root, table)


if __name__ == "__main__":
    main()
