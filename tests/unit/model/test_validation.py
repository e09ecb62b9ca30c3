from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.random_ensembles import random_ensemble
from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance, TreeArrays


def ensemble(**changes: Any) -> Ensemble:
    """Two trees: x0 < 0.5 and then x1 in {1, 3}, and a single leaf."""
    builder = TreeBuilder()
    chosen = builder.add_category_set([1, 3])
    builder.add_tree(
        feature=[0, 0, 1, 0, 0],
        threshold=[0.5, 0, 0, 0, 0],
        left=[1, -1, 3, -1, -1],
        right=[2, -1, 4, -1, -1],
        flags=[1, 0, 4, 0, 0],
        value=[0, 1, 0, 2, 3],
        output=0,
        category_set=[-1, -1, chosen, -1, -1],
    )
    builder.add_tree(
        feature=[0], threshold=[0], left=[-1], right=[-1], flags=[0], value=[7], output=0
    )
    plain: dict[str, Any] = {
        "trees": builder.finish(),
        "n_features": 2,
        "n_outputs": 1,
        "input_precision": "float32",
        "aggregation": Aggregation(precision="float32", start=(0.0,)),
        "decision": Decision(kind="threshold"),
        "classes": (0, 1),
        "provenance": Provenance(library="test"),
    }
    return Ensemble(**(plain | changes))


def at(name: str, index: Any, value: Any) -> Callable[[TreeArrays], TreeArrays]:
    def change(trees: TreeArrays) -> TreeArrays:
        array = getattr(trees, name).copy()
        array[index] = value
        return trees._replace(**{name: array})

    return change


def test_zero_counts_as_missing_only_in_float64_rows():
    trees = at("flags", 0, 3)(ensemble().trees)
    assert ensemble(trees=trees, input_precision="float64").input_precision == "float64"
    with pytest.raises(UnsupportedModel, match=r"float64 rows can .* in tree 0"):
        ensemble(trees=trees)
    # What a leaf has in its flags means nothing.
    assert ensemble(trees=at("flags", 1, 2)(ensemble().trees)).input_precision == "float32"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at("feature", 0, 2), "Tree 0, node 0: the feature must be below 2"),
        (at("threshold", 0, np.nan), "Tree 0, node 0: the threshold must be finite"),
        (at("threshold", 0, np.inf), "Tree 0, node 0: the threshold must be finite"),
        (at("left", 0, 2), "Tree 0, node 0: the left child must follow its parent"),
        (at("right", 2, 5), "Tree 0, node 2: the right child must lie inside its tree"),
        (at("right", 2, 3), "Tree 0, node 2: the right child must lie inside its tree"),
        (at("right", 0, 3), "node 2: every node but the root must have exactly one parent"),
        (at("right", 0, 4), "node 2: every node but the root must have exactly one parent"),
        (at("left", 1, 2), "Tree 0, node 1: a leaf must not have children"),
        (at("leaf", 1, -1), "Tree 0, node 1: a leaf must have a value"),
        (at("leaf", 0, 0), "Tree 0, node 0: an inner node must not have a leaf value"),
        (at("leaf", [1, 3], [1, 0]), "Leaves must be numbered in node order"),
        (at("flags", 0, 32), "Tree 0, node 0: flags must be known"),
        (at("category_set", 2, 1), "Tree 0, node 2: the category set must exist"),
        (at("category_set", 2, -1), "Tree 0, node 2: the category set must exist"),
        (at("leaf_value", 3, np.inf), "Tree 1, node 0: the leaf value must be finite"),
        (at("leaf_value", 0, np.nan), "Tree 0, node 1: the leaf value must be finite"),
        (at("threshold", 0, 0.1), "Tree 0, node 0: the threshold must be a float32 number"),
        (at("leaf_value", 3, 0.1), "Tree 1, node 0: the leaf value must be a float32 number"),
        (at("leaf_value", 0, 1e300), "Tree 0, node 1: the leaf value must be a float32 number"),
        (at("tree_output", 1, 1), "Every tree must name an output in range"),
        (at("tree_output", 1, -1), "Every tree must name an output in range"),
        (at("root", 1, 0), "Array 'root' must rise"),
        (at("root", 2, 7), "Array 'root' must rise"),
        (at("set_offset", 1, 2), "'set_offset' must run from 0"),
        (lambda trees: trees._replace(left=trees.left.astype(np.int64)), "Array 'left' must be"),
        (
            lambda trees: trees._replace(flags=trees.flags[:-1].copy()),
            "'flags' must have one entry",
        ),
        (lambda trees: trees._replace(leaf_source=trees.leaf_source[1:].copy()), "'leaf_source'"),
    ],
)
def test_broken_arrays_are_refused(
    change: Callable[[TreeArrays], TreeArrays], message: str
) -> None:
    sound = ensemble()
    with pytest.raises(BrokenModelFile, match=message):
        replace(sound, trees=change(sound.trees))


def test_subtrees_must_be_ranges_of_nodes() -> None:
    """A proper tree whose right children cross: 0 has 1 and 3, 1 has 2 and 4."""
    sound = ensemble()
    builder = TreeBuilder()
    builder.add_tree(
        feature=[0, 0, 0, 0, 0],
        threshold=[0.5, 0.1, 0, 0, 0],
        left=[1, 2, -1, -1, -1],
        right=[4, 3, -1, -1, -1],
        flags=[0] * 5,
        value=[0, 0, 1, 2, 3],
        output=0,
    )
    crossed = at("right", [0, 1], [3, 4])(builder.finish())
    with pytest.raises(BrokenModelFile, match="follow the subtree of the left one"):
        replace(sound, trees=crossed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"aggregation": Aggregation(precision="float32", start=(0.0, 1.0))},
            "must have 1 entries",
        ),
        ({"aggregation": Aggregation(precision="float32", start=(np.nan,))}, "must be finite"),
        ({"n_outputs": 2}, "must have 2 entries"),
        ({"classes": (1,)}, "at least two classes"),
        ({"feature_names": ("a",)}, "one name per feature"),
        ({"decision": Decision(kind="threshold", cut=np.nan)}, "cut must be a number"),
        ({"decision": Decision(kind="argmax", link_divisor=0.0)}, "must be finite and positive"),
        (
            {"aggregation": Aggregation(precision="float32", start=(0.1,))},
            r"base score must be a float32 number, .* Got 0\.1",
        ),
        ({"decision": Decision(kind="threshold", cut=5e-324)}, "cut must be a float32 number"),
        ({"decision": Decision(kind="score", link_divisor=0.1)}, "divisor must be a float32"),
        (
            {
                "aggregation": Aggregation(
                    precision="float32", start=(0.0,), finish="divide", divisor=2.0**24 + 1
                )
            },
            "divisor must be a float32 number",
        ),
        (
            {
                "aggregation": Aggregation(
                    precision="float32", start=(0.0,), finish="isolation", bias=(0.1,)
                )
            },
            "offset must be a float32 number",
        ),
    ],
)
def test_contradicting_semantics_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BrokenModelFile, match=message):
        ensemble(**changes)


def test_numbers_that_are_used_in_double_may_be_doubles() -> None:
    affine = Aggregation(precision="float32", start=(0.0,), finish="affine", scale=0.1, bias=(0.1,))
    assert ensemble(aggregation=affine).aggregation.bias == (0.1,)
    trees = at("leaf_value", 3, 0.1)(ensemble().trees)
    double = Aggregation(precision="float64", start=(0.1,), finish="divide", divisor=0.1)
    cut = Decision(kind="threshold", cut=5e-324)
    assert ensemble(trees=trees, aggregation=double, decision=cut).decision.cut == 5e-324


def test_a_model_without_trees_is_refused() -> None:
    trees = ensemble().trees
    empty = {name: array[:0].copy() for name, array in trees._asdict().items()}
    empty["root"] = np.zeros(1, np.int32)
    empty["set_offset"] = np.zeros(1, np.int64)
    with pytest.raises(UnsupportedModel, match="at least one tree"):
        ensemble(trees=TreeArrays(**empty))


def test_arrays_become_read_only() -> None:
    for array in ensemble().trees:
        assert not array.flags.writeable


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_any_wrong_right_child_is_noticed(seed: int) -> None:
    random = np.random.default_rng(seed)
    sound = random_ensemble(random)
    inner = np.flatnonzero(sound.trees.feature >= 0)
    if not inner.size:
        return
    node = int(random.choice(inner))
    wrong = int(random.integers(-1, len(sound.trees.feature) + 1))
    if wrong == sound.trees.right[node]:
        return
    with pytest.raises(BrokenModelFile):
        replace(sound, trees=at("right", node, wrong)(sound.trees))
