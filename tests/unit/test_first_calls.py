"""The calls that people try first: a radius as a number, a perturbation where labels belong."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp

X, Y = load_iris(return_X_y=True)
MODEL = tp.load(RandomForestClassifier(n_estimators=3, max_depth=3, random_state=0).fit(X, Y))
ROWS = X[::30]


@pytest.mark.parametrize("eps", [0.1, np.float32(0.25), 1, np.int64(1), 0])
def test_a_number_is_the_radius_of_a_plain_ball(eps):
    short, long = (tp.verify(MODEL, ROWS, None, ball) for ball in (eps, tp.LInf(float(eps))))
    assert short.verdict.tolist() == long.verdict.tolist()
    assert short.header["question"] == long.header["question"]


def test_so_it_is_wherever_a_radius_is_taken(tmp_path):
    ball, both = tp.LInf(0.1), [0.1, tp.LInf(0.1)]
    run, mapped = (tp.run(MODEL, ROWS, None, b, out=tmp_path / "r.jsonl") for b in both)
    assert run.header["question"] == mapped.header["question"]
    for ask in (tp.unimportant_features, tp.anchor_features, tp.reasons):
        given, meant = (ask(MODEL, ROWS, None, b) for b in both)
        assert given.question == meant.question
    claim = tp.ScoreRange(-1.0, 2.0)
    score = tp.load(RandomForestClassifier(2, max_depth=2, random_state=0).fit(X[:100], Y[:100]))
    given, meant = (tp.prove(score, claim, b, ROWS[:2]) for b in both)
    assert [r.verdict for r in given] == [r.verdict for r in meant]
    given, meant = (tp.diff(MODEL, MODEL, b, ROWS[:2]) for b in both)
    assert [r.verdict for r in given] == [r.verdict for r in meant]
    import pandas as pd

    frame = pd.DataFrame(ROWS)
    given, meant = (tp.FrameMapper(MODEL, b)(frame) for b in both)
    assert given["verdict"].tolist() == meant["verdict"].tolist()
    assert ball == tp.LInf(0.1)


@pytest.mark.parametrize(
    "ask", [tp.verify, tp.radius, tp.reasons, tp.unimportant_features, tp.anchor_features, tp.run]
)
@pytest.mark.parametrize("misplaced", [tp.LInf(0.1), tp.Box(0, 1), 0.1])
def test_a_perturbation_in_the_place_of_labels_is_noticed(ask, misplaced):
    with pytest.raises(tp.InvalidInput, match="'y' must be the labels of the rows, or None"):
        ask(MODEL, ROWS, misplaced)


def test_a_radius_is_no_question_for_a_radius():
    with pytest.raises(tp.InvalidInput, match=r"Got 0\.1\. Ask treeproof\.verify"):
        tp.radius(MODEL, ROWS, None, 0.1)


def test_fractions_in_columns_of_whole_numbers_are_said():
    rng = np.random.default_rng(0)
    owner = rng.integers(0, 2, 80).astype(float)
    rows = np.column_stack([owner, rng.normal(size=80)])
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=1, random_state=0).fit(rows, owner.astype(int))
    plain = tp.radius(tree, rows)
    assert "whole numbers in the rows, fractions in the answers: 0; a Domain" in plain.summary()
    kept = tp.radius(tree, rows, None, tp.LInf(domain=tp.Domain(values={0: [0, 1]})))
    assert "fractions" not in kept.summary()
    assert "fractions" not in tp.radius(tree, rows[:5]).summary()  # too few to tell
