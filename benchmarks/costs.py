"""The cheapest change: typed columns beside OCEAN, the paper's models beside their L∞ radii.

Run ``python -m benchmarks.costs [--parts tabular,paper] [--data adult,...] [--models xgb50x4,...]
[--norms L1,L0,L2] [--rows N] [--ocean N] [--ocean-seconds S]`` with TREEPROOF_PAPER_DATA at a folder
that holds ``tabular`` (Adult, COMPAS, Credit, with the types of their columns) and ``models``.

``tabular``: continuous columns are scaled to a range of 1, as OCEAN does; discrete ones are
integers, binary ones 0 or 1, categories one-hot groups. A unit of a continuous column is its range, of
a discrete one 1; another category or binary value costs 1. ``--ocean N`` asks OCEAN's CP solver
(``oceanpy``, one worker) the same about the first N rows of each model, in the same process.

Everything runs in one thread. Seconds are those of the processor, since other programs may be
running: of this process for treeproof, with everything from the call to its results; OCEAN's own
without the making of its model, which is done once.
"""

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import treeproof as tp

RESULTS = Path(__file__).parent / "results" / "costs.txt"
NORMS: dict[str, Any] = {"L1": tp.L1, "L0": tp.L0, "L2": tp.L2}
TRAINED = ("xgb50x4", "xgb100x6", "rf50x6")
TARGET = {"adult": "Class", "compas": "Class", "credit": "DEFAULT_PAYEMENT"}


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
    parts, groups, integer, binary = [], [], [], []
    for name in table.columns:
        column, kind = table[name], kinds[name]
        if kind == "D":
            parts.append(column.astype(float))
            integer.append(name)
        elif kind == "E":
            dummies = pd.get_dummies(column).astype(float)
            dummies.columns = [plain(f"{name}={value}") for value in dummies.columns]
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
    domain = tp.Domain(
        integer=integer, one_hot=groups, values={name: [0, 1] for name in binary}
    )
    encoded = tuple(name for name, kind in kinds.items() if kind == "E")
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


def timed(ask: Callable[[slice], tp.Results], n_rows: int) -> tuple[list[tp.Results], Any]:
    """Answers one row at a time, as a user would ask, with the processor's seconds of each."""
    answers, seconds = [], []
    for row in range(n_rows):
        began = time.process_time()
        answers.append(ask(slice(row, row + 1)))
        seconds.append(time.process_time() - began)
    return answers, np.array(seconds)


def ocean_answers(
    library_model: Any, columns: Columns, rows: Any, norm: int, max_time: float, explainer: Any
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
        "data     model     norm  rows proved   median ms  mean ms    90 %     max"
        "   OCEAN rows closed  equal  mean s  times   mean cost"
    )
    for name in options.data.split(","):
        columns = typed_columns(root / "tabular" / f"{name}.csv")
        n = len(columns.frame)
        order = np.random.default_rng(0).permutation(n)
        train, test = order[: n * 4 // 5], order[n * 4 // 5 :]
        X, y = columns.frame, columns.labels
        rows = X.iloc[test[: options.rows]]
        for kind in options.models.split(","):
            library_model = trained(kind, X.iloc[train], y[train])
            model = tp.load(library_model)
            explainer, ocean_rows = None, None
            if options.ocean:
                explainer, ocean_rows = new_ocean(library_model, columns, rows)
            for norm_name in options.norms.split(","):
                perturbation = NORMS[norm_name](domain=columns.domain)

                def ask(part: slice, perturbation: Any = perturbation) -> tp.Results:
                    return tp.radius(
                        model, rows.iloc[part], None, perturbation, time_limit_s=10.0
                    )

                ask(slice(0, 1))
                answers, seconds = timed(ask, len(rows))
                cost = np.array([float(a.upper[0]) for a in answers])
                proved = np.array([bool(a.exact[0]) for a in answers])
                line = (
                    f"{name:8s} {kind:9s} {norm_name:4s} {len(rows):5d} {proved.sum():6d}"
                    f" {1e3 * np.median(seconds):11.1f} {1e3 * seconds.mean():8.1f}"
                    f" {1e3 * np.quantile(seconds, 0.9):7.1f} {1e3 * seconds.max():7.0f}"
                )
                if options.ocean:
                    power = int(norm_name[1])
                    found = list(
                        ocean_answers(
                            library_model, columns, ocean_rows.iloc[: options.ocean], power,
                            options.ocean_seconds, explainer,
                        )
                    )  # fmt: skip
                    ocean = np.array(found)
                    closed = ocean[:, 1] > 0
                    own = cost[: len(ocean)] ** (2 if power == 2 else 1)
                    equal = closed & (np.abs(ocean[:, 0] - own) <= 1e-6 * np.maximum(own, 1.0))
                    ratio = ocean[closed, 2].mean() / seconds[: len(ocean)][closed].mean()
                    line += (
                        f" {len(ocean):8d} {closed.sum():8d} {equal.sum():6d}"
                        f" {ocean[closed, 2].mean():7.2f} {ratio:6.0f}"
                    )
                    worse = closed & ~equal
                    for row in np.flatnonzero(worse):
                        table.say(f"    row {row}: {own[row]!r}, OCEAN {ocean[row, 0]!r}")
                else:
                    line += " " * 42
                table.say(line + f" {cost[np.isfinite(cost)].mean():11.4f}")


def new_ocean(library_model: Any, columns: Columns, rows: Any) -> tuple[Any, Any]:
    """OCEAN's CP explainer of a model, and the rows in its columns."""
    from ocean.cp import Explainer
    from ocean.feature import parse_features

    data, mapper = parse_features(
        columns.raw, discretes=columns.discrete, encoded=columns.encoded, scale=True
    )
    ours = columns.frame.to_numpy()
    assert data.shape == ours.shape and np.allclose(data.to_numpy(dtype=float), ours)
    return Explainer(library_model, mapper=mapper), rows


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
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    root = Path(os.environ.get("TREEPROOF_PAPER_DATA", "../shared"))
    table = Table(options.output, f"# {versions()}")
    for part in options.parts.split(","):
        {"tabular": tabular}[part](options, root, table)


if __name__ == "__main__":
    main()
