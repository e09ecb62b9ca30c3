"""Two models in one: below the switch stands each of them, bit for bit."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.soundness.test_differences import LARGE, random_pair
from tests.strategies import Sizes, random_rows, random_tree_ensemble
from treeproof.errors import InvalidInput
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    Aggregation,
    Decision,
    Ensemble,
    Provenance,
)
from treeproof.model.joined import NO_TREE, join, match_trees


def sums_below_switch(models, rows: np.ndarray, side: int) -> np.ndarray:
    """Sums of one side of the joint trees, in the order and arithmetic of the model there."""
    model = (models.first, models.second)[side]
    leaves = evaluate.leaf_rows(models.joint, np.hstack([rows, np.full((len(rows), 1), side)]))
    trees = models.joint.trees
    real = np.dtype(model.aggregation.precision).type
    total = np.tile(np.array(model.aggregation.start, dtype=real), (len(rows), 1))
    for tree, owner in enumerate(trees.tree_output.tolist()):
        values = trees.leaf_value[leaves[:, tree]].astype(real)
        for output in range(model.n_outputs):
            if owner in (-1, output):
                total[:, output] += values[:, output if owner < 0 else 0]
    return total


@pytest.mark.parametrize("seed", range(60))
def test_each_side_of_the_switch_is_its_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pair = random_pair(rng, LARGE)
    if pair is None:
        return
    models = join(*pair)
    rows = random_rows(rng, models.joint, 40)[:, :-1]
    for side, model in enumerate(pair):
        own = evaluate.accumulate(model, evaluate.leaf_rows(model, rows))
        assert np.array_equal(sums_below_switch(models, rows, side), own)


@pytest.mark.parametrize("seed", range(30))
def test_partners_keep_the_order_of_both_models(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pair = random_pair(rng, LARGE)
    if pair is None:
        return
    partners = match_trees(*pair)
    for side, model in enumerate(pair):
        found = [partner[side] for partner in partners if partner[side] != NO_TREE]
        assert sorted(found) == list(range(model.n_trees))
        output = model.trees.tree_output
        for one, other in pairwise(found):
            assert one < other or output[one] != output[other]


def test_trees_that_were_added_or_left_out_have_no_partner() -> None:
    rng = np.random.default_rng(3)
    ensemble = random_tree_ensemble(
        rng, Sizes(trees=8, depth=3, features=3), plain=True, kind="score"
    )
    while ensemble.n_trees < 5:
        ensemble = random_tree_ensemble(
            rng, Sizes(trees=8, depth=3, features=3), plain=True, kind="score"
        )
    shorter = without_last_tree(ensemble)
    partners = match_trees(ensemble, shorter)
    assert sum(NO_TREE in partner for partner in partners) == 1
    assert all(one == other for one, other in partners if NO_TREE not in (one, other))


def without_last_tree(ensemble: Ensemble) -> Ensemble:
    trees = ensemble.trees
    n_nodes = int(trees.root[-2])
    n_leaves = int((trees.feature[:n_nodes] < 0).sum())
    per_node = ("feature", "threshold", "left", "right", "flags", "category_set", "leaf")
    arrays = {name: getattr(trees, name)[:n_nodes].copy() for name in per_node}
    arrays |= {name: getattr(trees, name)[:n_leaves].copy()
               for name in ("leaf_value", "leaf_source")}  # fmt: skip
    arrays |= {"root": trees.root[:-1].copy(), "tree_output": trees.tree_output[:-1].copy()}
    return replace(ensemble, trees=trees._replace(**arrays))


def by_town(names: tuple[str, ...], left: list[int], feature: int = 0) -> Ensemble:
    """A stump on categories, over two columns."""
    builder = TreeBuilder()
    number = builder.add_category_set(left)
    builder.add_tree(
        left=[1, -1, -1], right=[2, -1, -1], output=0, feature=[feature, -1, -1],
        threshold=[0.0, 0.0, 0.0], flags=[CATEGORICAL, 0, 0], value=[0.0, 1.0, -1.0],
        category_set=[number, -1, -1],
    )  # fmt: skip
    columns = ["", ""]
    columns[feature], columns[1 - feature] = "town", "age"
    return Ensemble(
        trees=builder.finish(), n_features=2, n_outputs=1, input_precision="float64",
        aggregation=Aggregation(precision="float64", start=(0.0,)), decision=Decision(kind="score"),
        feature_names=tuple(columns), categories={feature: names},
        provenance=Provenance(library="test"),
    )  # fmt: skip


def test_columns_and_categories_in_another_order_are_matched() -> None:
    first = by_town(("Delft", "Gouda", "Leiden"), [0])
    second = by_town(("Leiden", "Delft", "Gouda"), [1], feature=1)
    models = join(first, second)
    rows = np.array([[code, 0.5] for code in (0.0, 1.0, 2.0)])
    one, other = (evaluate.margins(model, rows) for model in (models.first, models.second))
    assert np.array_equal(one, other)
    assert models.second.feature_names == first.feature_names
    assert models.second.categories == first.categories


def test_what_takes_other_rows_is_refused() -> None:
    first = by_town(("Delft", "Gouda"), [0])
    with pytest.raises(InvalidInput, match="same categories"):
        join(first, by_town(("Delft", "Leiden"), [0]))
    with pytest.raises(InvalidInput, match="same columns"):
        join(first, replace(first, feature_names=("city", "age"), categories={}))
    with pytest.raises(InvalidInput, match="same columns"):
        join(first, replace(first, n_features=3, feature_names=()))
