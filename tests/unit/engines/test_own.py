"""Engines of others: asked like any engine, with witnesses that are replayed."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from treeproof.engines import evidence, registry
from treeproof.results.results import withdraw

RNG = np.random.default_rng(3)
X = RNG.random((80, 3))
MODEL = tp.load(RandomForestClassifier(4, max_depth=3, random_state=0).fit(X, X.sum(1) > 1.5))
ROWS = X[:12]


class Grid(tp.OwnEngine):
    """All cells of a small model, one by one: where no row breaks the claim, none does."""

    name = "grid"
    is_complete = True

    def decide(self, asked: Any) -> Any:
        trees = asked.model.trees
        sides = []
        for feature, ends in enumerate(zip(asked.low, asked.high, strict=True)):
            cuts = trees.threshold[trees.feature == feature]
            inside = cuts[(ends[0] < cuts) & (cuts <= ends[1])]
            sides.append(np.unique([*ends, *inside]))
        points = np.array(list(itertools.product(*sides)))
        broken = points[asked.breaks(points)]
        return broken[0] if len(broken) else True


class Says(tp.OwnEngine):
    name = "says"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def decide(self, asked: Any) -> Any:
        return self.answer(asked) if callable(self.answer) else self.answer


@pytest.mark.parametrize("eps", [0.05, 0.2])
def test_verdicts_are_those_of_the_exact_engine(eps):
    found = tp.verify(MODEL, ROWS, None, eps, engine=Grid())
    exact = tp.verify(MODEL, ROWS, None, eps)
    assert found.verdict.tolist() == exact.verdict.tolist()
    assert {"verified", "falsified"} >= set(found.verdict)
    assert found.header["question"]["engine"]["name"] == "grid"


def test_radii_are_those_of_the_exact_engine():
    found, exact = (tp.radius(MODEL, ROWS, engine=engine) for engine in (Grid(), "exact"))
    np.testing.assert_array_equal(found.lower, exact.lower)
    assert found.exact.all()


def test_what_an_engine_does_not_know_is_unknown():
    found = tp.verify(MODEL, ROWS, None, 0.2, engine=Says(None))
    assert set(found.verdict[~found.misclassified]) == {"unknown"}


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ([0.5], r"must be a row of 3 values\. Got one of the shape \(1,\) for row 0"),
        (lambda asked: asked.row, "that breaks the claim. Got one for row 0 that does not"),
        (
            lambda asked: next(
                x for x in ROWS if not asked.breaks(asked.row[None])[0] and asked.breaks(x[None])[0]
            ),
            "in the box of its row. Got one outside for row 0",
        ),
    ],
)
def test_what_is_no_witness_is_refused(answer, sentence):
    with pytest.raises(tp.InvalidInput, match=sentence):
        tp.verify(MODEL, ROWS, None, 1e-9, engine=Says(answer))


def test_an_engine_decides():
    with pytest.raises(NotImplementedError, match="OwnEngine must have a method 'decide'"):
        tp.verify(MODEL, ROWS, None, 0.2, engine=tp.OwnEngine())


def test_costs_are_for_engines_that_know_them():
    with pytest.raises(tp.UnsupportedQuery, match="The engine 'grid' answers for plain LInf"):
        tp.verify(MODEL, ROWS, None, tp.L1(0.2), engine=Grid())


def test_evidence_takes_nobody_at_his_word(monkeypatch):
    monkeypatch.setattr(evidence, "withdraw", withdraw)  # in tests it is an error otherwise
    found = tp.verify(MODEL, ROWS, None, 0.3, engine=Says(True), evidence=True)
    exact = tp.verify(MODEL, ROWS, None, 0.3)
    assert "falsified" in set(exact.verdict)
    lies = exact.verdict == "falsified"
    assert not (found.verdict[lies] == "verified").any()


def test_packages_make_their_engines_known(monkeypatch):
    def points(group: str) -> list[Any]:
        assert group == "treeproof.engines"
        broken = SimpleNamespace(name="broken", value="there:No", load=lambda: 1 / 0)
        return [SimpleNamespace(name="grid", value="here:Grid", load=lambda: Grid), broken]

    monkeypatch.setattr(registry, "entry_points", points)
    assert tp.verify(MODEL, ROWS[:1], None, 0.1, engine="grid").verdict[0]
    with pytest.raises(tp.InvalidInput, match=r"at there:No\. Got ZeroDivisionError"):
        tp.verify(MODEL, ROWS[:1], None, 0.1, engine="broken")
    with pytest.raises(tp.InvalidInput, match=r"hard_label, grid, broken\. Got 'grit'"):
        tp.verify(MODEL, ROWS[:1], None, 0.1, engine="grit")
