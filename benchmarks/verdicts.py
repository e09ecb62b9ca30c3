"""Verdicts beside radii: no verdict may take longer than the radius of the same row.

Run ``python -m benchmarks.verdicts [--rows N] [--models "a;b"]`` with TREEPROOF_PAPER_DATA at a
folder that holds ``training/spambase.npz``; the table goes to ``benchmarks/results/verdicts.md``.

Models have the libraries' default settings: a forest and a boosted model of spam mails, and extra
trees of six classes. Radii are asked for about all rows in one call; then verdicts, each row alone
at a multiple of its own radius, which leaves the time of a call in every one of them, and for all
rows in one call at that multiple of their median. Times are means per row, of the processor, in
one thread.
"""

import argparse
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.subjects import DATA
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

import treeproof as tp

RESULTS = Path(__file__).parent / "results" / "verdicts.md"
FACTORS = (0.5, 1.0, 2.0, 10.0, 100.0)


def spam(kind: Callable[[], Any]) -> tuple[Any, Any]:
    """A model of spam mails, and rows that it was not trained on."""
    data = np.load(DATA / "training" / "spambase.npz")
    return kind().fit(data["X_train0"], data["y_train0"]), data["X_test0"]


def extra_trees() -> tuple[Any, Any]:
    """Extra trees of six classes, and other rows of the same kind."""
    X, y = make_classification(
        2000, 20, n_informative=10, n_classes=6, n_clusters_per_class=1, random_state=0
    )
    return ExtraTreesClassifier(random_state=0).fit(X[:1500], y[:1500]), X[1500:]


def boosted() -> Any:
    """XGBoost with its defaults."""
    import xgboost

    return xgboost.XGBClassifier(n_jobs=1, random_state=0)


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "forest, spam": lambda: spam(lambda: RandomForestClassifier(random_state=0)),
    "XGBoost, spam": lambda: spam(boosted),
    "extra trees, six classes": extra_trees,
}


def timed(ask: Callable[[], tp.Results]) -> tuple[tp.Results, float]:
    """An answer, and the processor's milliseconds per row."""
    began = time.process_time()
    found = ask()
    return found, 1e3 * (time.process_time() - began) / len(found)


def line_of(name: str, n_rows: int) -> list[str]:
    """Milliseconds per row of the radius, and of verdicts at multiples of it."""
    fitted, rows = MODELS[name]()
    model, rows = tp.load(fitted), rows[:n_rows]
    tp.radius(model, rows)  # compiled code is loaded by now
    tp.verify(model, rows[:2], None, tp.LInf(0.01))
    found, whole = timed(lambda: tp.radius(model, rows))
    assert found.exact.all()
    alone = [
        timed(lambda row=row: tp.radius(model, rows[row : row + 1]))[1] for row in range(n_rows)
    ]
    line = [name, str(len(rows)), f"{whole:.2f}", f"{np.mean(alone):.2f}"]
    for factor in FACTORS:
        each = []
        for row in range(n_rows):
            eps = factor * float(found.upper[row])
            answer, ms = timed(
                lambda row=row, eps=eps: tp.verify(model, rows[row : row + 1], None, tp.LInf(eps))
            )
            if factor != 1.0:
                assert answer.verdict[0] == ("falsified" if factor > 1.0 else "verified")
            each.append(ms)
        eps = factor * float(np.median(found.upper))
        _, together = timed(lambda eps=eps: tp.verify(model, rows, None, tp.LInf(eps)))
        line.append(f"{np.mean(each):.2f}, {together:.2f}")
    return line


def main() -> None:
    """Run the models that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--models", default=";".join(MODELS), help="by name, with semicolons")
    options = parser.parse_args()
    head = ["model", "rows", "radius, in one call", "radius, each row alone"]
    head += [f"at {factor:g} times" for factor in FACTORS]
    lines = [head, ["---"] * len(head)]
    for name in options.models.split(";"):
        lines.append(line_of(name, options.rows))
        print(" | ".join(lines[-1]), flush=True)
    names = ("scikit-learn", "xgboost-cpu", "numba", "numpy")
    words = ", ".join(f"{name} {version(name)}" for name in names)
    text = "# Verdicts beside radii\n\nMade by `python -m benchmarks.verdicts`, one thread, the"
    text += (
        " processor's milliseconds per row.\nUnder each multiple: each row alone at that multiple"
    )
    text += " of its own radius, and all rows in one call at\nthat multiple of their median.\n\n"
    text += f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {words}\n\n"
    RESULTS.write_text(text + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n")


if __name__ == "__main__":
    main()
