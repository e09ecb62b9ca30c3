"""The packed layout gives the same leaves as the plain walk, for every shape of tree and block."""

from typing import Any

import numpy as np
import pytest

from treeproof.kernels.core.trees import (
    BLOCK,
    PackedTrees,
    buffer_for,
    pack_trees,
    reach_packed,
)
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    MISSING_LEFT,
    ZERO_BAND,
    ZERO_IS_MISSING,
    Aggregation,
    Decision,
    Ensemble,
    Provenance,
)
from treeproof.prediction import Model


def grown(builder: TreeBuilder, depth: int, random: np.random.Generator, *, chain: bool) -> None:
    """Add a random tree: full, or a chain with one leaf per level."""
    columns: dict[str, list[float]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "flags", "value")
    }

    def add(level: int) -> int:
        node = len(columns["left"])
        for column in columns.values():
            column.append(0)
        columns["value"][node] = random.normal()
        columns["left"][node] = columns["right"][node] = -1
        if level == depth:
            return node
        columns["feature"][node] = int(random.integers(0, 3))
        columns["threshold"][node] = float(np.round(random.normal(), 1))
        columns["flags"][node] = int(random.integers(0, 2)) * MISSING_LEFT
        if random.random() < 0.02:
            columns["flags"][node] |= ZERO_IS_MISSING
        if random.random() < 0.02:
            columns["threshold"][node] = -np.inf
        ends_left = chain and random.random() < 0.5
        columns["left"][node] = add(depth if ends_left else level + 1)
        columns["right"][node] = add(depth if chain and not ends_left else level + 1)
        return node

    add(0)
    builder.add_tree(**columns, output=0)


def ensemble(seed: int, depths: list[int], *, chain: bool) -> Ensemble:
    random = np.random.default_rng(seed)
    builder = TreeBuilder()
    for depth in depths:
        grown(builder, depth, random, chain=chain)
    return Ensemble(
        trees=builder.finish(),
        n_features=3,
        n_outputs=1,
        input_precision="float64",
        aggregation=Aggregation(precision="float64", start=(0.5,)),
        decision=Decision(kind="score"),
        provenance=Provenance(library="test"),
    )


def rows(seed: int, n: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = np.round(random.normal(size=(n, 3)), 1)
    odd = random.random(values.shape)
    values[odd < 0.15] = np.nan
    values[odd > 0.95] = random.choice([np.inf, -np.inf, 0.0, 1e-36], size=(odd > 0.95).sum())
    return values


@pytest.mark.parametrize("n", [16, 17, BLOCK - 1, BLOCK, BLOCK + 1, 1024, 1025, 2049])
def test_blocks_of_every_size(n: int) -> None:
    model = ensemble(0, [0, 1, 3, 6, 7], chain=False)
    assert np.array_equal(
        Model(model).margins(rows(n, n)), evaluate.margins(model, rows(n, n))[:, 0]
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("chain", [False, True])
def test_full_and_lopsided_trees(seed: int, chain: bool) -> None:
    depths = [40, 5, 4, 9, 1, 0, 300] if chain else [8, 5, 4, 9, 1, 0]
    model = ensemble(seed, depths, chain=chain)
    values = rows(seed, 200)
    leaves = np.empty((200, len(depths)), dtype=np.int32)
    packed = pack_trees(model.trees, 3)
    reach_packed(model.trees, packed, values, ZERO_BAND, buffer_for(packed), leaves)
    assert np.array_equal(leaves, evaluate.leaf_rows(model, values))


def test_trees_with_other_tests_are_not_plain() -> None:
    model = ensemble(3, [9, 9], chain=False)
    packed = pack_trees(model.trees, 3)
    trees = model.trees
    for tree in range(2):
        part = slice(trees.root[tree], trees.root[tree + 1])
        special = (trees.flags[part] > 1).any() or np.isneginf(trees.threshold[part]).any()
        assert packed.is_plain[tree] == (not special)


def test_a_column_per_feature_and_direction() -> None:
    packed = pack_trees(ensemble(1, [7], chain=False).trees, 3)
    assert len(packed.column_feature) == 7
    assert packed.column_feature[0] == -1
    assert set(packed.column_missing[1:]) == {-np.inf, np.inf}


@pytest.mark.usefixtures("compiled")
def test_few_rows_need_no_layout_and_others_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def noted(*arguments: Any) -> PackedTrees:
        made.append(pack_trees(*arguments))
        return made[-1]

    monkeypatch.setattr("treeproof.kernels.core.trees.pack_trees", noted)
    model = Model(ensemble(2, [4], chain=False))
    model.margins(rows(0, 15))
    assert not made
    model.margins(rows(0, 16))
    Model(model.ensemble).leaf_indices(rows(0, 16))
    assert len(made) == 1
