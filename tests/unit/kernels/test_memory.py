"""Kernels read no memory that they have not written: answers do not depend on what it held."""

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier

import treeproof as tp
from tests.unit.engines.test_exact import crossing_trees

QUESTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LInf": (None, {}),
    "L1": (tp.L1(), {}),
    "a domain": (tp.LInf(domain=tp.Domain(integer=[0])), {}),
    "several limits": (tp.All(tp.L0(2), tp.LInf()), {}),
    "a target": (None, {"goal": tp.AvoidsTarget(2)}),
    "attack": (None, {"engine": "attack"}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_do_not_depend_on_what_memory_held(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = load_iris(return_X_y=True)
    X = np.round(2.0 * X)[::15]
    model = tp.load(GradientBoostingClassifier(n_estimators=4, max_depth=3).fit(X, y[::15]))
    if name == "LInf":
        model, X = crossing_trees(3)
    ball, options = QUESTIONS[name]
    monkeypatch.setenv("TREEPROOF_PLAIN", "always")
    real, count = np.empty, itertools.count(1)

    def garbage(shape: Any, dtype: Any = float, **rest: Any) -> Any:
        array = real(shape, dtype, **rest)
        if array.dtype.kind in "biuf":
            held = np.arange(array.size) * 7919 % (11 + next(count) % 97)
            array[...] = (held % 2 if array.dtype.kind == "b" else held).reshape(array.shape)
        return array

    found = []
    for is_garbage in (False, True, True):
        if is_garbage:
            monkeypatch.setattr(np, "empty", garbage)
        results = tp.radius(model, X, None, ball, **options)
        found.append([results.lower, results.upper, results.witness, *results.statistics.values()])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
