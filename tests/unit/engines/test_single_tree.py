"""Single trees: leaf boxes, the linear walk, and who is refused."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import treeproof as tp
from tests.strategies import Sizes, random_case
from treeproof.engines.base import Budget
from treeproof.model import evaluate
from treeproof.model.ensemble import CATEGORICAL, ZERO_IS_MISSING
from treeproof.paper.single_tree import SingleTreeEngine
from treeproof.query.constraints import breaks_claim


def leaf_boxes(ensemble):
    """Low and high of every leaf: the values x with low <= x < high; the paper's O(nd) way."""
    trees = ensemble.trees
    assert not np.any(trees.flags & (CATEGORICAL | ZERO_IS_MISSING))  # such leaves are no boxes
    low = np.full((len(trees.feature), ensemble.n_features), -np.inf)
    high = np.full((len(trees.feature), ensemble.n_features), np.inf)
    for node in range(len(trees.feature)):
        feature = trees.feature[node]
        if feature < 0:
            continue
        left, right = trees.left[node], trees.right[node]
        for child in (left, right):
            low[child], high[child] = low[node], high[node]
        high[left, feature] = min(high[left, feature], trees.threshold[node])
        low[right, feature] = max(low[right, feature], trees.threshold[node])
    leaves = trees.feature < 0
    return low[leaves], high[leaves]


@pytest.mark.parametrize("seed", range(80))
def test_the_walk_finds_the_nearest_box_of_a_breaking_leaf(seed):
    # The paper's O(nd) way: the distance to every leaf box, and the least of them.
    rng = np.random.default_rng(seed)
    sizes = Sizes(trees=1, depth=5, features=3, rows=3)
    query = random_case(rng, sizes, ask="radius", plain=True).query
    outcomes = SingleTreeEngine().radius(query, Budget())
    low, high = leaf_boxes(query.ensemble)
    leaves = np.arange(query.ensemble.n_leaves, dtype=np.int32)[:, np.newaxis]
    for row in range(len(query)):
        if not np.isfinite(query.rows[row]).all():
            continue
        many = query.take(slice(row, row + 1))
        best = None
        for leaf in leaves:
            if (low[leaf[0]] >= high[leaf[0]]).any():
                continue  # behind contradicting splits
            sums = evaluate.accumulate(query.ensemble, leaf[np.newaxis])
            if not breaks_claim(query.ensemble, many.alternatives, many.group, sums)[0]:
                continue
            level = _box_level(query, low[leaf[0]], high[leaf[0]], row)
            if level is not None and (best is None or level < best):
                best = level
        if best is None:
            assert outcomes.upper[row] == np.inf
        else:
            assert Fraction(float(outcomes.upper[row])) <= best[0]
            assert best[0] < Fraction(float(np.nextafter(outcomes.upper[row], np.inf)))


def _box_level(query, low, high, row):
    x, reach = query.rows[row], query.reach
    worst = (Fraction(0), False)
    for f in range(len(x)):
        if low[f] <= x[f] < high[f]:
            continue
        if x[f] < low[f]:
            if reach.up[f] == 0.0 or low[f] > reach.high[row, f]:
                return None
            level = ((Fraction(low[f]) - Fraction(x[f])) / Fraction(reach.up[f]), False)
        else:
            if reach.down[f] == 0.0 or high[f] <= reach.low[row, f]:
                return None
            # Real numbers approach the threshold; the last double below it is attained.
            is_real = query.ensemble.over_reals
            last = high[f] if is_real else np.nextafter(high[f], -np.inf)
            level = ((Fraction(x[f]) - Fraction(last)) / Fraction(reach.down[f]), is_real)
        worst = max(worst, level)
    return worst


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


def test_a_tree_of_many_classes(digits):
    X, y = digits
    tree = tp.load(DecisionTreeClassifier(max_depth=8, random_state=0).fit(X, y))
    found = tp.radius(tree, X[:200], y[:200], engine="single_tree")
    assert found.exact.all()
    right = tree.predict(X[:200]) == y[:200]
    assert (found.lower[~right] == 0.0).all()
    finite = right & np.isfinite(found.upper)
    assert finite.sum() > 100
    assert (tree.predict(found.witness[finite]) != y[:200][finite]).all()
    other = tp.radius(tree, X[:20], y[:20], engine="cliques")
    np.testing.assert_array_equal(found.lower[:20], other.lower)
    np.testing.assert_array_equal(found.attained[:20], other.attained)


def test_a_regression_tree_changes_its_score(digits):
    X, y = digits
    tree = tp.load(DecisionTreeRegressor(max_depth=6, random_state=0).fit(X, y))
    found = tp.radius(tree, X[:50], goal=tp.ScoreChange(2.0), engine="single_tree")
    assert found.exact.all()
    before, after = tree.predict(X[:50]), tree.predict(np.nan_to_num(found.witness))
    moved = np.isfinite(found.upper)
    assert (np.abs(after - before)[moved] > 2.0).all()
    inside = tp.verify(
        tree,
        X[:1],
        None,
        tp.LInf(found.lower[0] * 0.99),
        goal=tp.ScoreChange(2.0),
        engine="single_tree",
    )
    assert inside.verdict.tolist() == ["verified"]


def test_several_trees_are_refused():
    query = random_case(np.random.default_rng(3), Sizes(trees=4), ask="ball").query
    assert query.ensemble.n_trees > 1
    sentence = SingleTreeEngine().refusal(query)
    assert sentence is not None
    assert f"Got {query.ensemble.n_trees} trees" in sentence


def test_thread_counts_do_not_change_answers(digits):
    X, y = digits
    tree = tp.load(DecisionTreeClassifier(max_depth=6, random_state=0).fit(X, y))
    one = tp.radius(tree, X[:300], y[:300], engine="single_tree", n_jobs=1)
    two = tp.radius(tree, X[:300], y[:300], engine="single_tree", n_jobs=2)
    np.testing.assert_array_equal(one.lower, two.lower)
    np.testing.assert_array_equal(one.witness, two.witness)
