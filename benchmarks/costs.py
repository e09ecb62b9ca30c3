"""The cheapest change: typed columns beside OCEAN, the paper's models beside their L∞ radii.

Run ``python -m benchmarks.costs [--parts tabular,paper] [--data adult,...] [--models xgb50x4,...]
[--norms L1,L0,L2] [--only NAMES] [--rows N] [--ocean N] [--ocean-seconds S] [--milp N]`` with
TREEPROOF_PAPER_DATA at a folder that holds ``tabular`` (Adult, COMPAS, Credit, with the types of
their columns), ``models`` and ``data``. Lines go to ``benchmarks/results/costs.json``, in the place
of those of the same model and norm, and all of them as a page to ``costs.md`` beside it.

``tabular``: continuous columns are scaled to a range of 1, as OCEAN does; discrete ones are
integers, binary ones 0 or 1, categories one-hot groups. A unit of a continuous column is its range,
of a discrete one 1; another category or binary value costs 1. ``--ocean N`` asks OCEAN's CP solver
(``oceanpy``, one worker) the same about the first N rows of each model, in the same process.

``paper``: radii of L1 and L2 on the paper's models beside those of L∞ on the same rows, and medians
over rows of times over those of L∞; ``--milp N`` asks the engine 'milp' about the first N rows.

Everything runs in one thread, and all times are of the processor, since other programs may be
running; so are the limits of rows. Times of a row begin with the question in numbers and end
with a replayed witness, each row alone; "in one call" is one call for all rows, with everything
from data frames to results, over the number of rows. OCEAN's are without the making of its model,
which is done once.
"""

import argparse
import contextlib
import json
import platform
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.subjects import DATA, subjects
from numpy.typing import NDArray

import treeproof as tp
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.prediction import accumulators
from treeproof.query.build import build_query
from treeproof.results.verdict import UnknownReason

RESULTS = Path(__file__).parent / "results" / "costs.json"
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


OURS = (
    "norm", "rows", "proved", "median ms", "90 % ms", "max ms", "in one call, ms", "mean cost",
)  # fmt: skip
COLUMNS = {
    "tabular": (
        "data", "model", *OURS, "OCEAN rows", "closed", "equal", "mean s", "times faster",
    ),
    "paper": ("model", *OURS, "median of times over L∞", "milp rows", "closed", "equal"),
}  # fmt: skip
ABOUT = {
    "tabular": """Typed columns (integers, 0 or 1, one-hot groups), at most {seconds:g} s a row.
OCEAN's times are means over the rows that it closed, and so are ours beside them.""",
    "paper": """The paper's models, at most {seconds:g} s a row. The attacks that came with them
(LT-attack) are for L∞ alone, so that radii of L1 and L2 are compared with `milp`, on its rows; they
are never below those of L∞.""",
}
LIMIT_S = 10.0


class Page:
    """Lines that are printed and saved at once, among those of other runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(exist_ok=True)
        self.lines: dict[str, dict[str, list[str]]] = {part: {} for part in COLUMNS}
        if path.exists():
            self.lines |= json.loads(path.read_text())

    def add(self, part: str, key: str, cells: list[str]) -> None:
        """Put a line in its place."""
        cells = cells + ["–"] * (len(COLUMNS[part]) - len(cells))
        print(" | ".join(cells), flush=True)
        self.lines[part][key] = [*cells, versions()]
        self.path.write_text(json.dumps(self.lines, indent=1, ensure_ascii=False) + "\n")
        self.path.with_suffix(".md").write_text(self.text())

    def text(self) -> str:
        """All lines as tables."""
        found = "# Costs: the cheapest change\n\n"
        made = sorted({line[-1] for lines in self.lines.values() for line in lines.values()})
        found += "Made by `python -m benchmarks.costs`, one thread, processor times.\n\n"
        found += "".join(f"* {words}\n" for words in made)
        for part, lines in self.lines.items():
            rows = [COLUMNS[part], ("---",) * len(COLUMNS[part])]
            rows += [tuple(line[:-1]) for _, line in sorted(lines.items())]
            found += f"\n## {part.capitalize()}\n\n{ABOUT[part].format(seconds=LIMIT_S)}\n\n"
            found += "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
        return found


class Answers(NamedTuple):
    """Answers about all rows, the seconds of each row alone, and of one call for all, per row."""

    results: tp.Results
    seconds: NDArray[np.float64]
    per_row: float


def asked(model: Any, rows: Any, y: Any, perturbation: Any) -> Answers:
    """Ask about all rows in one call, then about each of them alone."""
    began = time.process_time()
    results = tp.radius(model, rows, y, perturbation, time_limit_s=LIMIT_S)
    per_row = (time.process_time() - began) / len(rows)
    query = build_query(model.ensemble, rows, y, perturbation, sums=accumulators)
    seconds = np.empty(len(rows))
    for row in range(len(rows)):
        alone, seconds[row] = asked_alone(query.take(slice(row, row + 1)))
        if alone.exact[0] and not results.exact[row]:
            results.lower[row], results.upper[row] = alone.lower[0], alone.upper[0]
            results.exact[row] = seconds[row] <= LIMIT_S
    return Answers(results, seconds, per_row)


def asked_alone(query: Any) -> tuple[tp.Results, float]:
    """Answer about a row and its seconds of processor time, of which it may take `LIMIT_S`.

    Engines know limits of wall-clock time alone. Where other programs take most of the processor, a
    row that ends before it had its time is asked again, with a limit that makes up for them.
    """
    limit = LIMIT_S
    while True:
        began = time.process_time()
        results = ExactEngine().radius(query, Budget(time_limit_s=limit))
        seconds = time.process_time() - began
        if results.reason[0] != UnknownReason.TIME_LIMIT or seconds >= 0.9 * LIMIT_S:
            return results, seconds
        limit *= LIMIT_S / seconds


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


def tabular(options: argparse.Namespace, page: Page) -> None:
    """Typed columns of Adult, COMPAS and Credit."""
    for name in options.data.split(","):
        columns = typed_columns(DATA / "tabular" / f"{name}.csv")
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
                line = [name, kind, norm, *summary(answers)]
                if explainer is not None:
                    found = ocean_answers(
                        library_model, rows.iloc[: options.ocean], int(norm[1]),
                        options.ocean_seconds, explainer,
                    )  # fmt: skip
                    line += compared(np.array(list(found)), answers, norm)
                page.add("tabular", f"{name} {TRAINED.index(kind)} {norm}", line)


def summary(answers: Answers) -> list[str]:
    """Rows, how many are proved, times and the mean cost."""
    results, ms = answers.results, 1e3 * answers.seconds
    cost = results.upper[np.isfinite(results.upper)]
    return [
        f"{len(ms)}", f"{int(results.exact.sum())}", f"{np.median(ms):.2f}",
        f"{np.quantile(ms, 0.9):.1f}", f"{ms.max():.1f}", f"{1e3 * answers.per_row:.2f}",
        f"{cost.mean():.5f}",
    ]  # fmt: skip


def compared(ocean: NDArray[np.float64], answers: Answers, norm: str) -> list[str]:
    """OCEAN's answers beside ours: rows, closed ones, equal optima, mean time, how much faster."""
    closed = ocean[:, 1] > 0.0
    own = answers.results.upper[: len(ocean)] ** (2 if norm == "L2" else 1)
    # Its costs are whole numbers of 1e-8 per feature, rounded towards 0.
    equal = closed & (np.abs(ocean[:, 0] - own) <= 1e-6 * np.maximum(own, 1.0))
    for row in np.flatnonzero(closed & ~equal):
        print(f"    row {row}: {own[row]!r}, OCEAN {ocean[row, 0]!r}")
    line = [f"{len(ocean)}", f"{closed.sum()}", f"{equal.sum()}"]
    if not closed.any():
        return line
    mean, ours = ocean[closed, 2].mean(), answers.seconds[: len(ocean)][closed].mean()
    return [*line, f"{mean:.2f}", f"{mean / ours:.0f}"]


def paper(options: argparse.Namespace, page: Page) -> None:
    """L1 and L2 radii of the paper's models, beside those of L∞."""
    for subject in subjects(options.only.split(",") if options.only else None, options.rows):
        model = subject.model
        right = model.predict(subject.X) == subject.y
        X, y = subject.X[right], subject.y[right]
        for number, (norm, perturbation) in enumerate(
            (("LInf", tp.LInf()), ("L2", tp.L2()), ("L1", tp.L1()))
        ):
            asked(model, X[:1], y[:1], perturbation)
            answers = asked(model, X, y, perturbation)
            results = answers.results
            line = [subject.name, norm, *summary(answers)]
            if norm == "LInf":
                plain, nearest = answers, results.lower
            else:
                assert np.all(results.upper >= nearest * (1.0 - 1e-9))
                line.append(f"{np.median(answers.seconds / plain.seconds):.1f}")
                if options.milp:
                    line += by_milp(
                        model, X[: options.milp], y[: options.milp], perturbation, results
                    )
            page.add("paper", f"{subject.name} {number}", line)


def by_milp(model: Any, X: Any, y: Any, perturbation: Any, results: tp.Results) -> list[str]:
    """How many rows 'milp' closes, and on how many it agrees."""
    other = tp.radius(model, X, y, perturbation, engine="milp", time_limit_s=20.0)
    closed = other.exact & results.exact[: len(X)]
    equal = closed & np.isclose(other.upper, results.upper[: len(X)], rtol=1e-6)
    return [f"{len(X)}", f"{closed.sum()}", f"{equal.sum()}"]


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
    found = [f"treeproof {tp.__version__}"]
    names = ("xgboost", "xgboost-cpu", "scikit-learn", "oceanpy", "ortools", "numba", "numpy")
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
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
    page = Page(options.output)
    for part in options.parts.split(","):
        {"tabular": tabular, "paper": paper}[part](options, page)


if __name__ == "__main__":
    main()
