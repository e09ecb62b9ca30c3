"""One question of every kind that the engines answer, as cases that can be asked again and again.

`benchmarks.versions` runs this module once for each version, in a process of its own, and tells it
by lines on standard input what to ask: the name of a case, then ``again`` for another turn, then
``next``. Every answer is a line of JSON: seconds of the processor, bounds in hexadecimal digits,
which of them are exact, and what else is known of it, such as bytes of evidence.

Models are trained here, from a fixed seed, or are the paper's (TREEPROOF_PAPER_DATA).
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from benchmarks.subjects import DATA, rows_of
from numpy.typing import NDArray

import treeproof as tp
from treeproof.checker import RunChecker
from treeproof.results.run_file import row_records

PAPER = (
    *("paper_binary_mnist_robust", "paper_binary_mnist_unrobust", "paper_breast_cancer_robust"),
    *("paper_breast_cancer_unrobust", "paper_covtype_unrobust", "paper_diabetes_robust"),
    *("paper_diabetes_unrobust", "paper_higgs_robust50", "paper_ijcnn_robust"),
    *("paper_ijcnn_unrobust", "paper_webspam_robust", "paper_webspam_unrobust"),
    "tv_breast_cancer_robust8",
)

Rows = NDArray[np.float64]
Ask = Callable[[], tuple[Rows, Rows, NDArray[np.bool_], dict[str, float]]]
"""Asks once: lower and upper bounds, which answers are closed, and what else is of interest."""


@cache
def paper_model(name: str) -> tuple[Any, Any, Any]:
    """A model of the paper with its rows."""
    (entry,) = (
        entry
        for entry in json.loads((DATA / "models" / "models.json").read_text())
        if entry["name"] == name
    )
    X, y = rows_of(entry["dataset"], int(entry["feature_start"]))
    return tp.load(DATA / "models" / f"{name}.json"), X, y


@cache
def trained(kind: str, data: str) -> tuple[Any, Any]:
    """A model trained on data that scikit-learn ships or makes, and rows that it has not seen."""
    from sklearn import datasets, ensemble

    if data == "six":
        X, y = datasets.make_classification(
            2_400, 20, n_informative=14, n_classes=6, n_clusters_per_class=3, class_sep=1.2,
            random_state=0,
        )  # fmt: skip
    else:
        X, y = getattr(datasets, f"load_{data}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order].astype(np.float32), y[order]
    n = len(X) * 2 // 3
    if kind.startswith("xgb"):
        import xgboost

        n_trees, depth = map(int, kind.removeprefix("xgb").split("x"))
        model = xgboost.XGBClassifier(n_estimators=n_trees, max_depth=depth, n_jobs=1)
    elif kind.startswith("lgb"):
        import lightgbm

        model = lightgbm.LGBMClassifier(
            n_estimators=int(kind.removeprefix("lgb")), n_jobs=1, verbose=-1
        )
    else:
        model = getattr(ensemble, kind)(100, random_state=0)
    return tp.load(model.fit(X[:n], y[:n])), X[n:]


@cache
def tabular(kind: str, data: str) -> tuple[Any, Any, Any]:
    """A model of typed columns with rows and their domain, as in benchmarks/costs.py."""
    from benchmarks.costs import trained as fitted
    from benchmarks.costs import typed_columns

    columns = typed_columns(DATA / "tabular" / f"{data}.csv")
    n = len(columns.frame) * 4 // 5
    model = fitted(kind, columns.frame[:n], columns.labels[:n])
    return tp.load(model), columns.frame[n:], columns.domain


@cache
def property_model(name: str) -> tuple[Any, Any]:
    """A model of ensense with its domain."""
    import csv

    with (DATA / "properties" / f"{name.rpartition('_t')[0]}.bounds.csv").open() as file:
        lines = list(csv.DictReader(file))
    low, high = ([float(line[side]) for line in lines] for side in ("lb", "ub"))
    model = tp.load(DATA / "properties" / f"{name}.json", self_test=False)
    return model, tp.Box(low, high)


def of_rows(found: Any) -> tuple[Rows, Rows, NDArray[np.bool_], dict[str, float]]:
    """Bounds of rows; those of verdicts are the verdicts."""
    if found.header["question"]["kind"] == "verify":
        closed = found.verdict != "unknown"
        said = (found.verdict == "verified").astype(float)
        return said, said, closed, {}
    return found.lower.copy(), found.upper.copy(), found.exact.copy(), {}


def of_optimum(*all_found: Any) -> tuple[Rows, Rows, NDArray[np.bool_], dict[str, float]]:
    """Bounds of properties."""
    lower, upper = (
        np.array([getattr(found, side) for found in all_found]) for side in ("lower", "upper")
    )
    return lower, upper, np.array([bool(found.exact) for found in all_found]), {}


def rows_asked(
    question: Callable[..., Any], model: Any, *data: Any, **options: Any
) -> Callable[[], Any]:
    return lambda: of_rows(question(model, *data, **options))


def paper(name: str) -> Ask:
    model, X, y = paper_model(name)
    return rows_asked(tp.radius, model, X[:500], y[:500], arithmetic="real")


def verdicts(name: str, eps: float) -> Ask:
    model, X, y = paper_model(name)
    return rows_asked(tp.verify, model, X[:300], y[:300], tp.LInf(eps))


def radii(kind: str, data: str, n_rows: int, ball: Any = None, **options: Any) -> Ask:
    model, X = trained(kind, data)
    return rows_asked(tp.radius, model, X[:n_rows], None, ball, **options)


def paper_costs(name: str, ball: Any, n_rows: int) -> Ask:
    model, X, y = paper_model(name)
    return rows_asked(tp.radius, model, X[:n_rows], y[:n_rows], ball, time_limit_s=20.0)


def typed(kind: str, data: str, norm: str, n_rows: int) -> Ask:
    model, X, domain = tabular(kind, data)
    ball = getattr(tp, norm)(domain=domain)
    return rows_asked(tp.radius, model, X[:n_rows], None, ball, time_limit_s=20.0)


def targets(kind: str, data: str, n_rows: int) -> Ask:
    model, X = trained(kind, data)
    goals = [tp.AvoidsTarget(label) for label in model.classes]
    own = model.predict(X[:n_rows])

    def ask() -> Any:
        parts = [
            of_rows(tp.radius(model, X[:n_rows][own != goal.target], goal=goal, node_limit=100_000))
            for goal in goals
            if (own != goal.target).any()
        ]
        lower, upper, closed = (
            np.concatenate(column) for column in list(zip(*parts, strict=True))[:3]
        )
        return lower, upper, closed, {}

    return ask


def changes(name: str, features: tuple[int, ...], seconds: float) -> Ask:
    model, box = property_model(name)
    return lambda: of_optimum(
        *(tp.largest_change(model, feature, box, time_limit_s=seconds) for feature in features)
    )


def proofs(name: str, claims: tuple[Any, ...]) -> Ask:
    model, box = property_model(name)
    found = [partial(tp.prove, model, claim, box, time_limit_s=20.0) for claim in claims]

    def ask() -> Any:
        said = [each() for each in found]
        verdict = np.array([float(each.verdict == "verified") for each in said])
        return verdict, verdict, np.array([each.verdict != "unknown" for each in said]), {}

    return ask


def scores(kind: str, data: str) -> Ask:
    model, X = trained(kind, data)
    box = tp.Box(X.min(axis=0), X.max(axis=0))
    return lambda: of_optimum(*tp.score_range(model, box, time_limit_s=20.0))


def differences(one: str, other: str, data: str) -> Ask:
    first, X = trained(one, data)
    second, _ = trained(other, data)
    box = tp.Box(X.min(axis=0), X.max(axis=0))
    return lambda: of_optimum(tp.diff(first, second, box, time_limit_s=20.0))


def reasons(name: str, **options: Any) -> Ask:
    from benchmarks.reasons import explained

    (entry,) = (
        entry
        for entry in json.loads((DATA / "explanations" / "index.json").read_text())
        if entry["name"] == name
    )
    model, X, _ = explained(entry)

    def ask() -> Any:
        found = tp.reasons(model, X[:60], **options)
        size = np.array([float(len(features)) for features in found.features])
        # Which minimal set is found may change, its size with it; that it is minimal may not.
        return size * 0.0, size * 0.0, found.minimal.copy(), {"features": float(size.sum())}

    return ask


def recorded(make: Callable[[], Any]) -> Ask:
    """Evidence: the time is that of answers with it and of checking them together."""

    def ask() -> Any:
        model, found = make()
        header, *records = json.loads(json.dumps([found.header, *row_records(found)]))
        began = time.process_time()
        checks = RunChecker(header, model.ensemble).check_all(records)
        took = time.process_time() - began
        accepted = np.array([check.status != "rejected" for check in checks])
        n_bytes = sum(len(text or "") for text in found.evidence)
        lower, upper, closed, _ = of_rows(found)
        return lower, upper, closed & accepted, {"bytes": float(n_bytes), "check_s": took}

    return ask


def paper_evidence(name: str, n_rows: int, ball: Any = None) -> Ask:
    model, X, y = paper_model(name)
    return recorded(lambda: (model, tp.radius(model, X[:n_rows], y[:n_rows], ball, evidence=True)))


def other_evidence(kind: str, data: str, n_rows: int, ball: Any = None) -> Ask:
    model, X = trained(kind, data)
    return recorded(lambda: (model, tp.radius(model, X[:n_rows], None, ball, evidence=True)))


def property_evidence(name: str, features: tuple[int, ...]) -> Ask:
    model, box = property_model(name)

    def ask() -> Any:
        found = [
            tp.largest_change(model, f, box, evidence=True, time_limit_s=20.0) for f in features
        ]
        lower, upper, closed, _ = of_optimum(*found)
        n_bytes = sum(len(each.evidence or "") for each in found)
        return lower, upper, closed, {"bytes": float(n_bytes)}

    return ask


def engine(name: str, model_name: str, n_rows: int) -> Ask:
    model, X, y = paper_model(model_name)
    return rows_asked(tp.radius, model, X[:n_rows], y[:n_rows], engine=name)


CASES: dict[str, dict[str, Callable[[], Ask]]] = {
    "radius": {name: partial(paper, name) for name in PAPER},
    "verify": {
        "breast cancer 0.3": partial(verdicts, "paper_breast_cancer_unrobust", 0.3),
        "ijcnn1 0.05": partial(verdicts, "paper_ijcnn_unrobust", 0.05),
        "covtype 0.01": partial(verdicts, "paper_covtype_unrobust", 0.01),
    },
    "forests": {
        "random forest, breast cancer": partial(
            radii, "RandomForestClassifier", "breast_cancer", 60
        ),
        "extra trees, breast cancer": partial(radii, "ExtraTreesClassifier", "breast_cancer", 60),
        "random forest, six classes": partial(radii, "RandomForestClassifier", "six", 10),
        "extra trees, six classes": partial(radii, "ExtraTreesClassifier", "six", 10),
    },
    "targets": {
        "six classes, 240 trees": partial(targets, "xgb40x5", "six", 10),
        "digits, 200 trees": partial(targets, "xgb20x4", "digits", 6),
        "forest of six classes": partial(targets, "RandomForestClassifier", "six", 1),
    },
    "costs": {
        "adult L1": partial(typed, "xgb50x4", "adult", "L1", 40),
        "adult L0": partial(typed, "xgb50x4", "adult", "L0", 40),
        "adult L2": partial(typed, "xgb50x4", "adult", "L2", 40),
        "adult LInf": partial(typed, "xgb50x4", "adult", "LInf", 40),
        "adult L1, 100 of depth 6": partial(typed, "xgb100x6", "adult", "L1", 10),
        "compas L1": partial(typed, "xgb100x6", "compas", "L1", 40),
        "compas L1, forest": partial(typed, "rf50x6", "compas", "L1", 20),
        "credit L0": partial(typed, "xgb50x4", "credit", "L0", 20),
        "credit L1": partial(typed, "xgb50x4", "credit", "L1", 10),
        "ijcnn1 L1": partial(paper_costs, "paper_ijcnn_unrobust", tp.L1(), 60),
        "diabetes L2": partial(paper_costs, "paper_diabetes_unrobust", tp.L2(), 150),
        "breast cancer L0": partial(paper_costs, "paper_breast_cancer_robust", tp.L0(), 137),
    },
    "properties": {
        "german credit, changes": partial(changes, "german_credit_t500_d5", (0, 3, 7, 12), 20.0),
        "german credit 800, changes": partial(changes, "german_credit_t800_d6", (0, 3, 7), 20.0),
        "pima, changes": partial(changes, "pimadiabetes_t500_d6", (0, 1), 20.0),
        "fair": partial(
            proofs, "german_credit_t500_d5", tuple(tp.Fair(f, confidence=0.7) for f in range(8))
        ),
        "monotone": partial(
            proofs, "german_credit_t500_d5", tuple(tp.Monotone(f) for f in (1, 4, 12))
        ),
        "score range": partial(scores, "xgb50x3", "breast_cancer"),
        "score range, LightGBM": partial(scores, "lgb40", "breast_cancer"),
    },
    "differences": {
        "XGBoost and LightGBM": partial(differences, "xgb20x3", "lgb15", "breast_cancer"),
        "rounds": partial(differences, "xgb20x3", "xgb25x3", "breast_cancer"),
    },
    "reasons": {
        "sonar": partial(reasons, "sonar"),
        "spambase": partial(reasons, "spambase"),
        "wdbc": partial(reasons, "wdbc"),
        "pendigits": partial(reasons, "pendigits"),
        "glass2, minimum": partial(reasons, "glass2", minimum=True, time_limit_s=5.0),
    },
    "evidence": {
        "breast cancer": partial(paper_evidence, "paper_breast_cancer_unrobust", 137),
        "diabetes": partial(paper_evidence, "paper_diabetes_unrobust", 154),
        "ijcnn1": partial(paper_evidence, "paper_ijcnn_unrobust", 60),
        "covtype": partial(paper_evidence, "paper_covtype_unrobust", 20),
        "diabetes L1": partial(paper_evidence, "paper_diabetes_unrobust", 60, tp.L1()),
        "breast cancer L0": partial(paper_evidence, "paper_breast_cancer_robust", 60, tp.L0()),
        "forest": partial(other_evidence, "RandomForestClassifier", "breast_cancer", 10),
        "properties": partial(property_evidence, "german_credit_t500_d5", (0, 3, 7)),
    },
    "other engines": {
        "attack, ijcnn1": partial(engine, "attack", "paper_ijcnn_unrobust", 60),
        "multilevel, ijcnn1": partial(engine, "multilevel", "paper_ijcnn_unrobust", 60),
    },
}  # fmt: skip


def main() -> None:
    """Answer what lines on standard input ask."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        family, case = json.loads(line)
        ask = CASES[family][case]()
        ask()
        print("ready", flush=True)
        for again in sys.stdin:
            if again == "next\n":
                break
            began = time.process_time()
            lower, upper, closed, more = ask()
            took = time.process_time() - began
            ends = [
                np.ascontiguousarray(side, dtype=float).tobytes().hex() for side in (lower, upper)
            ]
            print(json.dumps([took, *ends, closed.astype(int).tolist(), more]), flush=True)


if __name__ == "__main__":
    main()
