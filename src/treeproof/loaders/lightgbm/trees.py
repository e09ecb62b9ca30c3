"""LightGBM's trees and categories in canonical form."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import UnsupportedModel
from treeproof.loaders.lightgbm.text import TextModel, TextTree
from treeproof.loaders.rules import canonical_splits
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    ZERO_BAND,
    ZERO_IS_MISSING,
    FloatArray,
)

_MISSING_NONE, _MISSING_ZERO = 0, 1  # the third kind, 2, is NaN


def add_tree(builder: TreeBuilder, tree: TextTree, output: int) -> None:
    """Add a tree; inner nodes keep their numbers, leaf l becomes node ``n_inner + l``."""
    n_inner, n_leaves = len(tree.feature), len(tree.leaf_value)
    categorical = (tree.decision_type & 1) == 1
    left, right = (np.where(c >= 0, c, n_inner - 1 - c) for c in (tree.left, tree.right))
    threshold, flags, swap = _splits(tree, ~categorical)
    sets = np.full(n_inner + n_leaves, -1)
    for node in np.flatnonzero(categorical):
        words = tree.category_words[int(tree.threshold[node])]
        bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")
        sets[node] = builder.add_category_set(np.flatnonzero(bits).tolist())
    no_child, no_number = np.full(n_leaves, -1), np.zeros(n_leaves)
    builder.add_tree(
        feature=np.concatenate([tree.feature, no_child]),
        threshold=np.concatenate([threshold, no_number]),
        left=np.concatenate([left, no_child]),
        right=np.concatenate([right, no_child]),
        flags=np.concatenate([flags, np.zeros(n_leaves, dtype=np.int64)]),
        value=np.concatenate([np.zeros(n_inner), tree.leaf_value]),
        output=output,
        source=np.concatenate([np.zeros(n_inner, dtype=np.int64), np.arange(n_leaves)]),
        category_set=sets,
        swap=np.concatenate([swap, np.zeros(n_leaves, dtype=bool)]),
    )


def _splits(
    tree: TextTree, numeric: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.bool_]]:
    """Canonical thresholds, flags, and the nodes that change sides for them."""
    given = np.where(numeric, tree.threshold, 0.0)
    largest = np.flatnonzero(given == np.finfo(np.float64).max)
    if largest.size:
        raise UnsupportedModel(
            f"Tree {tree.number}, node {largest[0]} splits at the largest double, which leaves no"
            " number for its right side. Scale the feature."
        )
    threshold, swap = canonical_splits(given, "float64")
    # Rows are cleaned of |x| <= ZERO_BAND first, so thresholds inside the band move to its edge.
    edge = np.where(given >= 0.0, np.nextafter(ZERO_BAND, np.inf), -ZERO_BAND)
    threshold = np.where(np.abs(given) <= ZERO_BAND, edge, threshold)
    missing_type = tree.decision_type >> 2
    missing_left = np.where(
        missing_type == _MISSING_NONE, given >= 0.0, (tree.decision_type & 2) > 0
    )
    flags = np.where(missing_left, MISSING_LEFT, 0)
    flags |= np.where(missing_type == _MISSING_ZERO, ZERO_IS_MISSING, 0)
    return threshold, np.where(numeric, flags, CATEGORICAL), swap


def raw_categories(model: TextModel) -> dict[int, tuple[Any, ...]]:
    """Raw categories of pandas columns, by feature.

    The file lists the categories of each categorical column, in order, but not which columns those
    were. Unordered ones are categorical features (their description lists codes, not a range),
    unless they are constant; ordered ones are numeric features over codes.
    """
    columns = model.pandas_categories
    if not columns:
        return {}
    coded = coded_features(model)
    if len(columns) == len(coded):
        return dict(zip(coded, columns, strict=True))
    others = [f for f, info in enumerate(model.feature_infos) if _may_be_codes(info)]
    wanted = len(columns) - len(coded)
    if wanted > 0 and len(others) == wanted:
        return dict(zip(sorted([*coded, *others]), columns, strict=True))
    raise UnsupportedModel(
        f"The model was trained on a data frame with {len(columns)} categorical columns, but the"
        " text does not tell which features they are, since some are constant, ordered, or not"
        " used as categories. Replace them by integer codes before training."
    )


def coded_features(model: TextModel) -> list[int]:
    """Features whose description lists codes: those that LightGBM was told to be categorical."""
    return [f for f, info in enumerate(model.feature_infos) if re.match(r"-?\d+(:|$)", info)]


def _may_be_codes(info: str) -> bool:
    """Whether a feature that is not categorical may hold codes of an ordered or constant column."""
    match = re.fullmatch(r"\[([^:]*):([^:]*)\]", info)
    return info == "none" or (match is not None and all(map(str.isdigit, match.groups())))
