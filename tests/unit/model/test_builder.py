from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.model.builder import MAX_DEPTH, MAX_SET_WORDS, TreeBuilder
from treeproof.model.ensemble import CATEGORICAL, MISSING_LEFT, TreeArrays

Nested = Any  # a leaf value, or (feature, threshold, left, right)


def nested_trees() -> st.SearchStrategy[Nested]:
    leaf = st.floats(-5, 5)
    return st.recursive(
        leaf,
        lambda child: st.tuples(st.integers(0, 4), st.floats(-2, 2), child, child),
        max_leaves=20,
    )


def shuffled(tree: Nested, random: np.random.Generator, n_dead: int) -> dict[str, Any]:
    """Arrays of a tree with its nodes in random order (the root first) and unreachable ones."""
    nodes: list[dict[str, Any]] = []

    def add(part: Nested) -> int:
        number = len(nodes)
        nodes.append({"feature": 0, "threshold": 0.0, "left": -1, "right": -1, "value": 0.0})
        if isinstance(part, tuple):
            feature, threshold, left, right = part
            nodes[number] |= {"feature": feature, "threshold": threshold}
            nodes[number] |= {"left": add(left), "right": add(right)}
        else:
            nodes[number]["value"] = part
        return number

    add(tree)
    junk = {"feature": 99, "threshold": np.nan, "left": 5_000, "right": -7, "value": np.inf}
    nodes += [junk] * n_dead
    order = np.concatenate([[0], 1 + random.permutation(len(nodes) - 1)])
    place = np.empty(len(nodes), dtype=int)
    place[order] = np.arange(len(nodes))
    arrays = {name: [nodes[old][name] for old in order] for name in nodes[0]}
    for side in ("left", "right"):
        arrays[side] = [
            int(place[child]) if 0 <= child < len(nodes) else child for child in arrays[side]
        ]
    arrays["flags"] = [0] * len(nodes)
    return arrays


def unfolded(trees: TreeArrays, node: int) -> Nested:
    if trees.feature[node] < 0:
        return trees.leaf_value[trees.leaf[node], 0]
    return (
        trees.feature[node],
        trees.threshold[node],
        unfolded(trees, trees.left[node]),
        unfolded(trees, trees.right[node]),
    )


@given(st.lists(nested_trees(), min_size=1, max_size=5), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_trees_survive_any_order_of_their_nodes(trees: list[Nested], seed: int) -> None:
    random = np.random.default_rng(seed)
    builder = TreeBuilder()
    for number, tree in enumerate(trees):
        builder.add_tree(**shuffled(tree, random, int(random.integers(0, 4))), output=number)
    arrays = builder.finish()
    assert arrays.tree_output.tolist() == list(range(len(trees)))
    for number, tree in enumerate(trees):
        assert unfolded(arrays, int(arrays.root[number])) == tree
    nodes = np.arange(len(arrays.feature))
    inner = arrays.feature >= 0
    assert np.array_equal(arrays.left[inner], nodes[inner] + 1)
    assert np.array_equal(arrays.leaf[~inner], np.arange(len(arrays.leaf_value)))


@given(st.lists(nested_trees(), min_size=1, max_size=5), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_forest_is_its_trees(trees: list[Nested], seed: int) -> None:
    parts = [shuffled(tree, np.random.default_rng(seed), 1) for tree in trees]
    one_by_one, together = TreeBuilder(), TreeBuilder()
    for number, part in enumerate(parts):
        one_by_one.add_tree(**part, output=number)
    together.add_forest(
        sizes=[len(part["left"]) for part in parts],
        output=range(len(parts)),
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
    )
    for ours, theirs in zip(together.finish(), one_by_one.finish(), strict=True):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)


def stump(**changes: Any) -> dict[str, Any]:
    tree = {
        "feature": [0, 0, 0],
        "threshold": [0.5, 0.0, 0.0],
        "left": [1, -1, -1],
        "right": [2, -1, -1],
        "flags": [MISSING_LEFT, 0, 0],
        "value": [0.0, 1.0, 2.0],
        "output": 0,
    }
    return tree | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left": [0, -1, -1]}, "node 0 is reached twice"),
        ({"left": [2, -1, -1]}, "node 2 is reached twice"),
        ({"left": [1, 0, -1], "right": [2, 0, -1]}, "node 0 is reached twice"),
        ({"left": [1, 2, -1], "right": [2, 2, -1]}, "node 2 is reached twice"),
        ({"left": [3, -1, -1]}, "children must be between 0 and 2. Got 3 and 2"),
        ({"left": [1, 2, -1]}, "node 1: children must be between 0 and 2. Got 2 and -1"),
        ({"right": [2**40, -1, -1]}, "children must be between 0 and 2"),
        (
            {"left": [], "right": [], "feature": [], "threshold": [], "flags": [], "value": []},
            "empty",
        ),
    ],
)
def test_what_is_no_tree_is_refused(changes: dict[str, Any], message: str) -> None:
    builder = TreeBuilder()
    builder.add_tree(**stump())
    builder.add_tree(**stump(**changes))
    with pytest.raises(BrokenModelFile, match=f"Tree 1.*{message}"):
        builder.finish()


@pytest.mark.parametrize("name", ["feature", "threshold", "right", "flags"])
def test_arrays_of_different_lengths_are_refused(name: str) -> None:
    with pytest.raises(BrokenModelFile, match=f"'{name}' must have one entry per node"):
        TreeBuilder().add_tree(**stump(**{name: [0, 1]}))


def test_leaf_values_must_have_the_width() -> None:
    with pytest.raises(BrokenModelFile, match="width 3"):
        TreeBuilder(leaf_width=3).add_tree(**stump())


@pytest.mark.parametrize("feature", [2**31, -(2**33), 2**62])
def test_numbers_beyond_32_bits_are_refused_and_not_wrapped(feature: int) -> None:
    builder = TreeBuilder()
    builder.add_tree(**stump(feature=[feature, 0, 0]))
    with pytest.raises(BrokenModelFile, match="feature index is out of range"):
        builder.finish()


def chain(depth: int) -> dict[str, Any]:
    n = 2 * depth + 1
    left, right = np.full(n, -1), np.full(n, -1)
    left[0 : 2 * depth : 2] = np.arange(2, n, 2)
    right[0 : 2 * depth : 2] = np.arange(1, n, 2)
    zeros = np.zeros(n)
    return {
        "feature": zeros.astype(int),
        "threshold": zeros,
        "left": left,
        "right": right,
        "flags": zeros.astype(int),
        "value": zeros,
        "output": 0,
    }


def test_the_depth_is_limited() -> None:
    builder = TreeBuilder()
    builder.add_tree(**chain(MAX_DEPTH))
    assert len(builder.finish().feature) == 2 * MAX_DEPTH + 1
    builder.add_tree(**chain(MAX_DEPTH + 1))
    with pytest.raises(UnsupportedModel, match=f"Tree 1 is deeper than {MAX_DEPTH}"):
        builder.finish()


def test_a_model_needs_a_tree() -> None:
    with pytest.raises(UnsupportedModel, match="at least one tree"):
        TreeBuilder().finish()


def test_category_sets_are_bit_sets() -> None:
    builder = TreeBuilder()
    assert builder.add_category_set([0, 33, 33]) == 0
    assert builder.add_category_set([]) == 1
    assert builder.add_category_set(np.array([31])) == 2
    builder.add_tree(**stump(flags=[CATEGORICAL, 0, 0], category_set=[2, -1, -1]))
    builder.add_tree(**stump(flags=[CATEGORICAL, 0, 0], category_set=[0, -1, -1]))
    trees = builder.finish()
    # In the order of the nodes that test them, without the one that nobody tests.
    assert trees.set_words.tolist() == [1 << 31, 1, 2]
    assert trees.set_offset.tolist() == [0, 1, 3]
    assert trees.category_set.tolist() == [0, -1, -1, 1, -1, -1]
    assert trees.threshold[0] == 0.0


@pytest.mark.parametrize("code", [-1, 1 << 24])
def test_category_codes_have_a_range(code: int) -> None:
    with pytest.raises(UnsupportedModel, match=f"Got {code}"):
        TreeBuilder().add_category_set([3, code])


def test_category_sets_have_a_bounded_size() -> None:
    builder = TreeBuilder()
    for _ in range(MAX_SET_WORDS // (1 << 19)):
        builder.add_category_set([(1 << 24) - 1])
    with pytest.raises(UnsupportedModel, match="128 MB"):
        builder.add_category_set([0])
