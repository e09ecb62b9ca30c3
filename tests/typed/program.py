"""A program of a user, for `mypy --strict`: every type that it states is what mypy finds."""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import treeproof as tp

X = np.zeros((2, 3))
y = np.array([0, 1])


def questions(model: tp.Model) -> tp.Results:
    """Ask about rows."""
    domain = tp.Domain(integer=["age"], one_hot=[["red", "green"]])
    results = tp.radius(model, X, y, tp.L1(scale=[1.0, 2.0, 1.0], domain=domain), n_jobs=-1)
    assert_type(results, tp.Results)
    assert_type(results[0], tp.RowAnswer)
    assert_type(results[:1], tp.Results)
    assert_type(results[0].radius, float)
    assert_type(results[0].exact, bool)
    assert_type(results.summary(), str)
    assert_type(results.radius, NDArray[np.float64])
    for answer in results:
        assert_type(answer, tp.RowAnswer)
    verdicts = tp.verify(model, X, y, 0.1, engine=tp.milp("whole"), time_limit_s=10)
    assert_type(verdicts.verified_error(0.1), float)
    assert_type(tp.recourse(model, X, 1, tp.Cost(up={"age": 2.0}), n_ways=3), tp.Results)
    assert_type(tp.reasons(model, X, minimum=True), tp.Reasons)
    prepared = tp.prepare("verify", model, tp.All(tp.L0(2), tp.LInf(0.5)))
    assert_type(prepared, tp.PreparedQuestion)
    return results


def files(results: tp.Results) -> None:
    """Write and read."""
    model = tp.load("model.json", decision_threshold=0.5, rounds="best")
    assert_type(model, tp.Model)
    assert_type(model.margins(X), NDArray[np.floating])
    tp.write_report([results], "report.html", title="One page")
    assert_type(tp.load_results("run.jsonl"), tp.Results)
    try:
        tp.assert_robust(model, X, y, 0.1, at_least=0.9)
    except tp.TreeproofError as error:
        print(error)


def mistakes(model: tp.Model) -> None:
    """What mypy shall notice; a comment that is not needed is an error, too."""
    tp.radius(model, X, y, eps=0.1)  # type: ignore[call-arg]
    tp.verify(model, X, y, "0.1")  # type: ignore[arg-type]
    tp.load("model.json", rounds="some")  # type: ignore[arg-type]
    tp.verfy(model, X, y)  # type: ignore[attr-defined]
