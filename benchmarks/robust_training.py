"""Robust training on ten structured sets and larger data, judged exactly, beside the limit.

Run ``python benchmarks/robust_training.py [structured] [refit] [paper] [larger]``, with ``--sets``
for some sets only; the tables in ``benchmarks/results/robust_training.md`` are renewed after every
set, from the records in ``robust_training.json`` beside it, and ``--missing`` leaves out what is
recorded. Needs the data: TREEPROOF_PAPER_DATA, by default ../shared.
Times are processor seconds of one thread, search of parameters included, kernels compiled before.
No choice looks at test rows. GROOT's numbers are those in the data's peers.csv unless
``groot-trees`` can be imported.
"""

import argparse
import csv
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import treeproof as tp
from treeproof.training import RobustGBDTClassifier, RobustSearchCV

DATA = Path(os.environ.get("TREEPROOF_PAPER_DATA", Path(__file__).parents[2] / "shared"))
RESULTS = Path(__file__).parent / "results" / "robust_training.md"
RECORDS = RESULTS.with_suffix(".json")
STRUCTURED = (
    "SPECTF", "banknote-authentication", "blood-transfusion", "breast-cancer",
    "climate-model-simulation", "cylinder-bands", "diabetes", "haberman", "ionosphere", "spambase",
)  # fmt: skip
LARGER: dict[str, tuple[str, float, int | None, int | None]] = {
    "breast_cancer": ("data/breast_cancer.npz", 0.3, None, None),
    "diabetes": ("data/diabetes.npz", 0.05, None, None),
    "cod-rna": ("training/cod-rna.npz", 0.025, None, None),
    "ijcnn1 .05": ("data/ijcnn1.npz", 0.05, None, 20_000),
    "ijcnn1 .1": ("data/ijcnn1.npz", 0.1, None, 20_000),
    "MNIST 2-6": ("data/mnist26.npz", 0.3, None, None),
    "MNIST": ("data/mnist.npz", 0.3, 10_000, 500),
    "Fashion-MNIST": ("data/fashion_mnist.npz", 0.1, 10_000, 500),
}
"""Where the data is, its radius, and how many rows are trained on and judged, from the first on."""
PAPER = {
    "breast_cancer": ("paper_breast_cancer_unrobust", 0.3, None),
    "diabetes": ("paper_diabetes_unrobust", 0.05, None),
    "ijcnn1": ("paper_ijcnn_unrobust", 0.05, 5_000),
    "mnist26": ("paper_binary_mnist_unrobust", 0.3, 1_000),
}
"""Natural models of Chen et al. for each data set, the radius, and how many rows are taken."""


def main() -> None:
    """Run what is asked for and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["structured"], choices=list(RUNS))
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--missing", action="store_true", help="only what is not recorded")
    arguments = parser.parse_args()
    for what in arguments.what:
        run, names = RUNS[what]
        for name in names:
            if arguments.sets and name not in arguments.sets:
                continue
            if arguments.missing and name in recorded().get(what, {}):
                continue
            found = run(name)
            records = recorded()  # others may have written meanwhile
            records.setdefault(what, {})[name] = found
            RECORDS.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
            RESULTS.write_text(page(records))


def recorded() -> dict[str, Any]:
    """What was found so far, by part and set."""
    found: dict[str, Any] = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    return found


def errors(model: Any, X: Any, y: Any, eps: float) -> tuple[float, float]:
    """Plain error, and the share of rows without a proof; exact where no row is unknown."""
    loaded = model if isinstance(model, tp.Model) else tp.load(model)
    results = tp.verify(loaded, X, y, tp.LInf(eps))
    n_open = int(np.sum(results.verdict == "unknown"))
    assert n_open == 0, f"{n_open} rows are open"
    robust = 1.0 - float(np.mean([str(verdict) == "verified" for verdict in results.verdict]))
    return float(np.mean(loaded.predict(X) != y)), robust


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its processor seconds."""
    began = time.process_time()
    found = call()
    return found, time.process_time() - began


def folds(name: str) -> list[tuple[Any, ...]]:
    """Training and test rows of three folds, and the radius."""
    file = np.load(DATA / "training" / f"{name}.npz")
    return [
        (
            file[f"X_train{fold}"].astype(float), file[f"y_train{fold}"].astype(int),
            file[f"X_test{fold}"].astype(float), file[f"y_test{fold}"].astype(int),
            float(file["eps"]),
        )
        for fold in range(3)
    ]  # fmt: skip


def search(eps: float) -> RobustSearchCV:
    """The default search, as users have it."""
    return RobustSearchCV(RobustGBDTClassifier(eps=eps, random_state=0, min_child_weight=0.01))


def structured(name: str) -> list[dict[str, Any]]:
    """One row per fold."""
    found = []
    peers = [
        row for row in csv.DictReader((DATA / "training/peers.csv").open()) if row["set"] == name
    ]
    for fold, (X, y, X_test, y_test, eps) in enumerate(folds(name)):
        model, seconds = timed(lambda X=X, y=y, eps=eps: search(eps).fit(X, y))
        plain, robust = errors(tp.Model(model.to_ensemble()), X_test, y_test, eps)
        groot = groot_errors(X, y, X_test, y_test, eps)
        found.append(
            {
                "fold": fold, "eps": eps, "rows": len(y_test), "plain": plain, "robust": robust,
                "seconds": seconds, "params": model.best_params_, "held_out": model.best_score_,
                "limit": tp.least_robust_error(X_test, y_test, tp.LInf(eps)),
                "constant": float(np.mean(y_test != np.argmax(np.bincount(y)))),
                "groot": groot or [float(peers[fold]["groot TE"]), float(peers[fold]["groot RTE"])],
                "groot_live": groot is not None,
            }
        )  # fmt: skip
        print(name, found[-1], flush=True)
    return found


def groot_errors(X: Any, y: Any, X_test: Any, y_test: Any, eps: float) -> list[float] | None:
    """GROOT's forest with the settings of peers.csv, where it is installed."""
    try:
        from groot.model import GrootRandomForestClassifier
    except ImportError:
        return None
    model = GrootRandomForestClassifier(
        attack_model=[eps] * X.shape[1], n_estimators=100, min_samples_leaf=5, min_samples_split=10,
        random_state=0,
    )  # fmt: skip
    return list(errors(model.fit(X, y), X_test, y_test, eps))


def refit(name: str) -> list[dict[str, Any]]:
    """Natural models of three libraries before and after `robust_refit`."""
    import lightgbm
    import xgboost
    from sklearn.ensemble import RandomForestClassifier

    warnings.simplefilter("ignore")
    found = []
    for fold, (X, y, X_test, y_test, eps) in enumerate(folds(name)):
        models = {
            "XGBoost": xgboost.XGBClassifier(n_estimators=30, max_depth=4, random_state=0),
            "LightGBM": lightgbm.LGBMClassifier(n_estimators=30, max_depth=4, verbosity=-1),
            "forest": RandomForestClassifier(30, max_depth=5, random_state=0),
        }
        for kind, model in models.items():
            model.fit(X, y)
            before = errors(model, X_test, y_test, eps)
            again, seconds = timed(
                lambda m=model, X=X, y=y, e=eps: tp.robust_refit(m, X, y, tp.LInf(e))
            )
            loaded = tp.load(again)  # the self-test compares margins bit by bit
            after = errors(loaded, X_test, y_test, eps)
            same = bool(np.all(loaded.predict(X_test) == again.predict(X_test)))
            found.append(
                {
                    "fold": fold, "kind": kind, "before": before, "after": after,
                    "seconds": seconds,
                    "equal": same and "passed" in loaded.ensemble.provenance.self_test,
                }
            )  # fmt: skip
            print(name, found[-1], flush=True)
    return found


def larger(name: str) -> dict[str, Any]:
    """One split of larger data."""
    place, eps, n_trained, n_judged = LARGER[name]
    X, y, X_test, y_test = split(place)
    X, y, X_test, y_test = X[:n_trained], y[:n_trained], X_test[:n_judged], y_test[:n_judged]
    model, seconds = timed(lambda: trainer(name, eps).fit(X, y))
    plain, robust = errors(tp.Model(model.to_ensemble()), X_test, y_test, eps)
    found = {
        "eps": eps, "rows": len(y_test), "plain": plain, "robust": robust, "seconds": seconds,
        "trained": len(y),
        "limit": tp.least_robust_error(X_test, y_test, tp.LInf(eps)),
        "constant": float(np.mean(y_test != np.argmax(np.bincount(y)))),
    }  # fmt: skip
    print(name, found, flush=True)
    return found


def split(place: str) -> tuple[Any, Any, Any, Any]:
    """Training and test rows of a file; pixels from 0 to 1."""
    file = np.load(DATA / place)
    X, X_test = (np.asarray(file[key]) for key in ("X_train", "X_test"))
    if X.dtype == np.uint8:
        X, X_test = (part / np.float32(255.0) for part in (X, X_test))
    X, X_test = (part.reshape(len(part), -1).astype(np.float32) for part in (X, X_test))
    return X, file["y_train"].astype(int), X_test, file["y_test"].astype(int)


def trainer(name: str, eps: float) -> Any:
    """The search for small data; one setting, chosen on training rows, where rows are many."""
    if name in ("breast_cancer", "diabetes"):
        return search(eps)
    shared = {"eps": eps, "conflicts": "keep", "min_child_weight": 0.01, "random_state": 0}
    if name in ("MNIST", "Fashion-MNIST"):
        return RobustGBDTClassifier(
            n_estimators=40, max_depth=7, colsample_bytree=0.2, subsample=0.5, learning_rate=0.15,
            max_bin=32, leaf_penalty=3.0, **shared,
        )  # fmt: skip
    if name.startswith("ijcnn1"):
        grid = {"max_depth": [2, 4, 8], "n_estimators": [60], "learning_rate": [0.2]}
        penalties = (5.0, 50.0, 200.0)
        return RobustSearchCV(RobustGBDTClassifier(**shared), grid, leaf_penalties=penalties, cv=3)
    if name == "MNIST 2-6":
        return RobustGBDTClassifier(
            n_estimators=100, max_depth=5, colsample_bytree=0.2, subsample=0.5, learning_rate=0.1,
            max_bin=32, leaf_penalty=3.0, **shared,
        )  # fmt: skip
    return RobustGBDTClassifier(
        n_estimators=60, max_depth=8, learning_rate=0.2, leaf_penalty=5.0, **shared
    )


def paper(name: str) -> dict[str, Any]:
    """A natural model of Chen et al. before and after `robust_refit`."""
    import xgboost

    file, eps, n_rows = PAPER[name]
    model = xgboost.Booster(model_file=str(DATA / "models" / f"{file}.json"))
    X, y, X_test, y_test = split(f"data/{name}.npz")
    n_before = model.num_features() - X.shape[1]
    X, X_test = (
        np.hstack([np.zeros((len(part), n_before), dtype=np.float32), part]) for part in (X, X_test)
    )
    X, y, X_test, y_test = X[:n_rows], y[:n_rows], X_test[:n_rows], y_test[:n_rows]
    before = errors(model, X_test, y_test, eps)
    again, seconds = timed(lambda: tp.robust_refit(model, X, y, tp.LInf(eps), leaf_penalty=1.0))
    loaded = tp.load(again)
    rows = xgboost.DMatrix(X_test)
    same = np.array_equal(again.predict(rows, output_margin=True), loaded.margins(X_test).ravel())
    found = {
        "eps": eps, "rows": len(y_test), "trained": len(y), "trees": loaded.ensemble.n_trees,
        "before": before, "after": errors(loaded, X_test, y_test, eps), "seconds": seconds,
        "equal": bool(same),
        "limit": tp.least_robust_error(X_test, y_test, tp.LInf(eps)),
        "constant": float(np.mean(y_test != np.argmax(np.bincount(y)))),
    }  # fmt: skip
    print(name, found, flush=True)
    return found


RUNS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "structured": (structured, STRUCTURED),
    "refit": (refit, STRUCTURED),
    "paper": (paper, tuple(PAPER)),
    "larger": (larger, tuple(LARGER)),
}


def page(records: dict[str, Any]) -> str:
    """All tables."""
    import sklearn

    lines = [
        "# Robust training",
        "",
        "Errors on test rows in per cent; robust errors are exact for every row. Written by",
        "`benchmarks/robust_training.py`; processor seconds of one thread, search included.",
        f"treeproof {tp.__version__}, NumPy {np.__version__}, scikit-learn {sklearn.__version__},"
        f" Python {sys.version.split()[0]}.",
        "",
    ]
    if "structured" in records:
        lines += _structured_table(records["structured"])
    if "refit" in records:
        lines += _refit_table(records["refit"])
    if "paper" in records:
        lines += _paper_table(records["paper"])
    if "larger" in records:
        lines += _larger_table(records["larger"])
    return "\n".join(lines)


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f}"


def _mean(rows: list[dict[str, Any]], read: Callable[[dict[str, Any]], float]) -> float:
    return float(np.mean([read(row) for row in rows]))


def _structured_table(sets: dict[str, Any]) -> list[str]:
    is_live = all(rows[0]["groot_live"] for rows in sets.values())
    lines = [
        "## Ten structured sets, mean of three folds",
        "",
        "`limit` is the least robust error of any classifier on the test rows, `constant` that of",
        "the training rows' most frequent label. `GROOT`: its forest of 100 trees"
        + (", trained here." if is_live else ", as in peers.csv; it cannot be imported here."),
        "",
        "| set | eps | limit | constant | GROOT plain | GROOT robust | plain | robust | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    columns: list[list[float]] = []
    for name, rows in sorted(sets.items()):
        numbers = [
            _mean(rows, lambda r: r["limit"]), _mean(rows, lambda r: r["constant"]),
            _mean(rows, lambda r: r["groot"][0]), _mean(rows, lambda r: r["groot"][1]),
            _mean(rows, lambda r: r["plain"]), _mean(rows, lambda r: r["robust"]),
        ]  # fmt: skip
        columns.append(numbers)
        seconds = _mean(rows, lambda r: r["seconds"])
        cells = " | ".join(map(_percent, numbers))
        lines.append(f"| {name} | {rows[0]['eps']:g} | {cells} | {seconds:.1f} |")
    cells = " | ".join(map(_percent, np.mean(columns, axis=0)))
    lines += [f"| mean | | {cells} | |", ""]
    return lines


def _refit_table(sets: dict[str, Any]) -> list[str]:
    lines = [
        "## Natural models before and after `robust_refit`",
        "",
        "Robust error (plain error), mean of three folds; the structure is kept. Margins and",
        "labels of every refitted model are the same in its own library.",
        "",
        "| set | XGBoost | after | LightGBM | after | forest | after |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in sorted(sets.items()):
        assert all(row["equal"] for row in rows)
        cells = []
        for kind in ("XGBoost", "LightGBM", "forest"):
            some = [row for row in rows if row["kind"] == kind]
            for state in ("before", "after"):
                plain = _mean(some, lambda r, s=state: r[s][0])
                robust = _mean(some, lambda r, s=state: r[s][1])
                cells.append(f"{_percent(robust)} ({_percent(plain)})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, *_not_run(STRUCTURED, sets), ""]


def _not_run(names: Any, sets: dict[str, Any]) -> list[str]:
    missing = [name for name in names if name not in sets]
    if not missing:
        return []
    return ["", f"Not run: {', '.join(missing)}, where a fit takes minutes or more."]


def _larger_table(sets: dict[str, Any]) -> list[str]:
    lines = [
        "## Other data, one split",
        "",
        "`rows` are trained on: the first 10,000 of 60,000 for ten classes of images, else all;",
        "`judged` are the first of the test rows. Settings for images and cod-rna were chosen on",
        "training rows, those of the others by the search.",
        "",
        "| data | eps | rows | judged | limit | constant | plain | robust | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(sets.items()):
        cells = " | ".join(_percent(row[key]) for key in ("limit", "constant", "plain", "robust"))
        lines.append(
            f"| {name} | {row['eps']:g} | {row['trained']} | {row['rows']} | {cells} |"
            f" {row['seconds']:.0f} |"
        )
    return [*lines, ""]


def _paper_table(sets: dict[str, Any]) -> list[str]:
    lines = [
        "## The natural models of Chen et al. before and after `robust_refit`",
        "",
        "Robust error (plain error); margins of the refitted models are the same bits in XGBoost.",
        "",
        "| data | eps | trees | rows | judged | limit | constant | before | after | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(sets.items()):
        assert row["equal"]
        states = [
            f"{_percent(row[state][1])} ({_percent(row[state][0])})"
            for state in ("before", "after")
        ]
        cells = [
            name, f"{row['eps']:g}", row["trees"], row["trained"], row["rows"],
            _percent(row["limit"]), _percent(row["constant"]), *states, f"{row['seconds']:.0f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, *_not_run(PAPER, sets), ""]


if __name__ == "__main__":
    main()
