"""Results made by hand, whose report is known without running an engine."""

from typing import Any

import numpy as np

from treeproof.results.results import Results
from treeproof.results.run_file import header_record
from treeproof.results.verdict import UnknownReason, Verdict

EVIL = "</script><img src=x onerror=alert(1)><script>alert(2)</script>\"'&\u2028"
"""Text that breaks out of every place that does not escape it."""


def header(n_features: int, names: list[str], **question: Any) -> dict[str, Any]:
    model = {
        "fingerprint": "f" * 64,
        "library": "xgboost",
        "library_version": "3.2.0",
        "source": "model.json",
        "file_sha256": "a" * 64,
        "self_test": "passed",
        "classes": ["ham", "spam"],
        "n_trees": 7,
        "n_features": n_features,
        "feature_names": names,
        "input_precision": "float32",
        "decision": "threshold",
        "decision_rule": "'spam' iff margin >= 0.0, otherwise 'ham'",
        "decision_cut": 0.0,
        "objective": "binary:logistic",
        "categorical": [],
    }
    asked = {
        "kind": "radius",
        "engine": {"name": "exact"},
        "perturbation": {"name": "LInf", "eps": None, "frozen": [], "low": "-inf", "high": "inf"},
        "goal": {"name": "KeepsLabel"},
        "arithmetic": "real",
        "labels": "given",
    }
    return header_record(model, asked | question)


def six_rows(names: list[str] | None = None, **question: Any) -> Results:
    """Exact 0.5 attained, 0.25 approached, wrong, within 0.1 and 1, at least 0.2, never broken."""
    results = Results.empty(6, 2)
    results.verdict[:] = [
        Verdict.VERIFIED,
        Verdict.VERIFIED,
        Verdict.FALSIFIED,
        Verdict.UNKNOWN,
        Verdict.UNKNOWN,
        Verdict.VERIFIED,
    ]
    results.lower[:] = [0.5, 0.25, 0.0, 0.1, 0.2, np.inf]
    results.upper[:] = [0.5, 0.25, 0.0, 1.0, np.inf, np.inf]
    results.exact[:] = [True, True, True, False, False, True]
    results.attained[:] = [True, False, True, True, False, False]
    results.seconds[:] = [0.001, 0.002, 0.0, 3.0, 2.0, 0.001]
    results.reason[3:5] = UnknownReason.TIME_LIMIT
    values = np.array([[1.0, 2.0], [1.0, 3.0], [4.0, 5.0], [6.0, 7.0], [8.0, 9.0], [0.0, 0.0]])
    results.witness[:4] = values[:4]
    results.witness[0, 0] = 1.5
    results.witness[1] = [0.75, 3.25]
    results.witness[3, 1] = 8.0
    label = np.array(["ham", "spam", "ham", "ham", "spam", "ham"], dtype=object)
    results.label, results.header = label, header(2, names or ["width", "height"], **question)
    results.values = values
    results.predicted = np.array(["ham", "spam", "spam", "ham", "spam", "ham"], dtype=object)
    results.witness_label = np.array(["spam", "ham", "spam", "spam", None, None], dtype=object)
    return results


def attacked_rows() -> Results:
    """What an attack says of six rows: distances of what it found, and nothing proved."""
    results = six_rows(engine={"name": "attack"})
    results.verdict[results.verdict == "verified"] = "unknown"
    results.exact[:] = results.verdict == "falsified"
    results.lower[:] = 0.0
    return results


def many_rows(n_rows: int, n_features: int = 20, seed: int = 0) -> Results:
    """Exact radii of random rows."""
    generator = np.random.default_rng(seed)
    results = Results.empty(n_rows, n_features)
    results.verdict[:] = Verdict.VERIFIED
    results.lower[:] = results.upper[:] = np.sort(generator.gamma(2.0, 0.1, n_rows))
    results.exact[:] = results.attained[:] = True
    results.seconds[:] = generator.random(n_rows) * 1e-3
    values = generator.random((n_rows, n_features)).astype(np.float32).astype(np.float64)
    results.witness[:] = values
    changed = generator.random((n_rows, n_features)) < 0.3
    changed[:, 0] = True
    results.witness[changed] += 0.05
    label = np.array(generator.choice(["ham", "spam"], n_rows), dtype=object)
    results.label = label
    results.header = header(n_features, [f"f{k}" for k in range(n_features)])
    results.values = values
    results.predicted = label.copy()
    results.witness_label = np.where(label == "ham", "spam", "ham").astype(object)
    return results
