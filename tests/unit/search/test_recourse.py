"""Recourse: the cheapest ways, different ones, in round numbers, beside all ways there are."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp

RNG = np.random.default_rng(3)
X = RNG.integers(0, 6, (200, 4)).astype(float)
Y = (X @ [2.0, 1.0, -1.0, 3.0] + RNG.normal(size=200) > 12).astype(int)
SOURCE = RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, Y)
MODEL = tp.load(SOURCE)
GRID = np.array(list(itertools.product(range(6), repeat=4)), dtype=float)
DECIDED = SOURCE.predict(GRID)
PRICES = np.array([1.0, 2.0, 1.5, 3.0])
EFFORT = tp.Cost(
    up=PRICES,
    down=PRICES,
    domain=tp.Domain(integer=range(4), ranges=dict.fromkeys(range(4), (0, 5))),
)


def all_ways(row, wanted, step=(1, 1, 1, 1)):
    """Cost and changed features of every row of the grid that is decided as wanted, by cost."""
    there = GRID[wanted == DECIDED]
    is_round = (there == row) | (there % np.array(step) == 0)
    there = there[is_round.all(axis=1)]
    cost = np.abs(there - row) @ PRICES
    order = np.argsort(cost, kind="stable")
    changed = [frozenset(np.flatnonzero(there[i] != row).tolist()) for i in order]
    return list(zip(cost[order].tolist(), changed, strict=True))


def check_ways(found, row, wanted, step=(1, 1, 1, 1)):
    """Each way is the cheapest that changes all that no earlier one does."""
    earlier = []
    for answer in found:
        known = all_ways(row, wanted, step)
        left = [cost for cost, changed in known if not any(s <= changed for s in earlier)]
        if not left:
            assert not answer.has_witness
            assert np.isinf(answer.lower)
            return
        assert answer.exact
        assert answer.upper == pytest.approx(left[0])
        changed = frozenset(f for change in answer.changes for f in change.features)
        assert not any(s <= changed for s in earlier)
        assert SOURCE.predict([answer.witness])[0] == wanted
        earlier.append(changed)


@pytest.mark.parametrize("wanted", [0, 1])
def test_ways_are_the_cheapest_that_differ(wanted):
    found = tp.recourse(MODEL, X[:60], wanted, EFFORT, n_ways=3)
    assert (SOURCE.predict(X[np.unique(found.row)]) != wanted).all()
    assert len(np.unique(found.row)) == (SOURCE.predict(X[:60]) != wanted).sum()
    counts = []
    for row in np.unique(found.row):
        own = found[found.row == row]
        assert own.way.tolist() == list(range(1, len(own) + 1))
        check_ways(own, X[row], wanted)
        counts.append(len(own))
    assert max(counts) == 3


def test_ways_in_round_numbers_are_the_cheapest_of_them():
    steps = {0: 2, 3: 3}
    found = tp.recourse(MODEL, X[:40], 1, EFFORT, n_ways=2, step=steps)
    for row in np.unique(found.row):
        check_ways(found[found.row == row], X[row], 1, step=(2, 1, 1, 3))
    for answer in found:
        for change in answer.changes:
            if change.features[0] in steps:
                assert change.shown % steps[change.features[0]] == 0
    plain = tp.recourse(MODEL, X[:40], 1, EFFORT)
    assert np.all(found.upper[found.way == 1] >= plain.upper)
    assert np.any(found.upper[found.way == 1] > plain.upper)


def test_cents_are_what_people_type():
    rows = np.column_stack([RNG.uniform(0, 1, 50), RNG.uniform(0, 1, 50)])
    tree = DecisionTreeClassifier(max_depth=3).fit(rows, rows.sum(axis=1) > 1)
    found = tp.recourse(tree, rows, True, tp.L1(), step={0: 0.01, 1: 0.1})
    for answer in found:
        for change in answer.changes:
            assert change.shown == round(change.shown, 2 - change.features[0])
        assert tree.predict([answer.witness])[0]


def test_several_classes_lead_to_the_one_that_is_wanted():
    y = np.digitize(X.sum(axis=1), [8, 11])
    forest = RandomForestClassifier(3, max_depth=4, random_state=1).fit(X, y)
    found = tp.recourse(forest, X[:40], 2, tp.L0(domain=EFFORT.domain), n_ways=2)
    there = [answer for answer in found if answer.has_witness]
    assert {answer.becomes for answer in there} == {2}
    assert (forest.predict([answer.witness for answer in there]) == 2).all()


def test_what_people_can_afford_is_counted():
    found = tp.recourse(MODEL, X[:60], 1, tp.Cost(
        budget=4.0, up=PRICES, down=PRICES, domain=EFFORT.domain))  # fmt: skip
    n = (found.upper <= 4.0).sum()
    said = f"{n} of {len(found)} rows that the model does not decide as 1 have an affordable way"
    assert f"{said}, at a cost of at most 4\n" in found.summary()
    assert f"only dearer ways: {len(found) - n} rows" in found.summary()
    assert "broken" not in found.summary()
    assert np.all(np.asarray(found.cost)[found.upper <= 4.0] <= 4.0)
    assert found.header["recourse"]["budget"] == 4.0


def test_tables_have_a_line_for_each_way(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd"), index=[f"p{i}" for i in range(200)])
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(frame, Y)
    effort = tp.Cost(up=PRICES, down=PRICES, domain=EFFORT.domain)
    found = tp.recourse(forest, frame[:30], 1, effort, n_ways=2)
    table = found.to_frame()
    assert table.index.tolist() == [f"p{row}" for row in found.row]
    assert set(table["way"]) == {1, 2}
    for ending in (".jsonl", ".parquet"):
        found.save(tmp_path / f"ways{ending}")
        again = tp.load_results(tmp_path / f"ways{ending}")
        assert again.way.tolist() == found.way.tolist()
        assert again.summary() == found.summary()
    tp.write_report(tmp_path / "ways.jsonl", tmp_path / "page.html")
    page = re.sub(r"<script.*?</script>", "", (tmp_path / "page.html").read_text(), flags=re.S)
    assert re.search(r"probability of 0: \d+\.\d\s% → \d+\.\d\s%", page)
    for said in ("Recourse report", "have a way to it", "What the cheapest way costs", "has a way"):
        assert said in page
    for said in ("break the model", "broken by a change", "wrong as they stand", "stay correct"):
        assert said not in page


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"wanted": 2}, r"'wanted' must be one of the classes \[0, 1\]\. Got 2"),
        ({"n_ways": 0}, "'n_ways' must be a whole number from 1 on"),
        ({"step": {0: 0.0}}, "'step of 0' must be a number above 0"),
        ({"step": [1]}, "'step' must be a dict of features"),
        ({"perturbation": tp.Box(0, 1)}, "must say what changes cost"),
        ({"perturbation": tp.All(tp.L0(2), tp.L1())}, "must say what changes cost"),
        ({"X": X[SOURCE.predict(X) == 1]}, "rows that are not decided as wished"),
    ],
)
def test_wrong_wishes_are_refused(change, sentence):
    asked = {"X": X[:20], "wanted": 1, "perturbation": EFFORT} | change
    with pytest.raises(tp.InvalidInput, match=sentence):
        tp.recourse(MODEL, **asked)
