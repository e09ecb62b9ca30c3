"""From an XGBoost document to canonical trees."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile
from treeproof.loaders.xgboost.document import (
    TreeRecord,
    XGBoostDocument,
    as_float32,
    joined,
    parse_int,
)
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import CATEGORICAL, MISSING_LEFT, NONNEGATIVE_CATEGORY, TreeArrays

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_CATEGORY_LISTS = ("categories_nodes", "categories_segments", "categories_sizes", "categories")


def trees_after_rounds(document: XGBoostDocument, n_outputs: int) -> list[int]:
    """Number of trees after each round of boosting, from 0 before the first one."""
    n_trees = len(document.trees)
    first = document.model.iteration_indptr
    if not first:
        # Before 2.0 files did not say where rounds begin; all rounds were alike.
        params = document.model.gbtree_model_param
        per_round = parse_int(params, "num_parallel_tree", default=1, most=2**31)
        per_round = max(1, per_round) * n_outputs
        first = list(range(0, n_trees + 1, per_round))
    if first[0] != 0 or first[-1] != n_trees or any(np.diff(first) < 0):
        raise BrokenModelFile(
            f"'iteration_indptr' must rise from 0 to the number of trees ({n_trees})."
            " The file is damaged."
        )
    return first


def tree_arrays(
    document: XGBoostDocument, n_trees: int, start: tuple[float, ...], *, in_place: bool
) -> TreeArrays:
    """Canonical arrays of the first trees of a document.

    `start` is the margin before the first tree, per output. Estimators predict in place, others on
    a DMatrix, which differ for dart.
    """
    n_outputs = len(start)
    trees = document.trees[:n_trees]
    widths = {tree.leaf_width for tree in trees}
    if not widths <= {1} and widths != {n_outputs}:
        raise BrokenModelFile(
            f"All leaves must have one number, or all one per output ({n_outputs})."
            f" Got widths {sorted(widths)}. The file is damaged."
        )
    is_vector = bool(widths) and widths != {1}
    nodes = document.nodes
    sizes = nodes.sizes[:n_trees]
    n_nodes = int(sizes.sum())
    left, right = nodes.left[:n_nodes], nodes.right[:n_nodes]
    _require_neighbours(sizes, left, right)
    builder = TreeBuilder(leaf_width=n_outputs if is_vector else 1)
    if is_vector:
        value: FloatArray = _vector_values(trees, left, right, n_outputs)
        right = np.where(left < 0, -1, right)
        output = np.full(n_trees, -1)
    else:
        output = _outputs(document, n_trees, n_outputs)
        value = document.nodes.condition[:n_nodes]
        if document.tree_weight is not None:
            weight = np.repeat(document.tree_weight[:n_trees], sizes)
            base = np.repeat(np.array(start)[output], sizes) if in_place else None
            value = _dart_values(value, weight, base)
    # XGBoost sends a category in the listed set right, here it goes left.
    categorical = nodes.categorical[:n_nodes]
    other = categorical * (CATEGORICAL | NONNEGATIVE_CATEGORY)
    builder.add_forest(
        sizes=sizes,
        output=output,
        feature=nodes.feature[:n_nodes],
        threshold=nodes.condition[:n_nodes],
        left=left,
        right=right,
        flags=nodes.default_left[:n_nodes] * MISSING_LEFT + other,
        value=value,
        category_set=_category_sets(trees, sizes, builder),
        swap=categorical & (left >= 0),
    )
    return builder.finish()


def _require_neighbours(sizes: IntArray, left: IntArray, right: IntArray) -> None:
    """Refuse children that do not lie side by side.

    XGBoost always places them so. Its older versions rely on it and never look at the right child,
    newer ones do look, so any other file would mean different things to them.
    """
    bad = np.flatnonzero((left >= 0) & (right != left + 1))
    if bad.size:
        tree = int(np.searchsorted(np.cumsum(sizes), bad[0], side="right"))
        node = int(bad[0] - sizes[:tree].sum())
        raise BrokenModelFile(
            f"Tree {tree}, node {node}: the right child must follow the left one."
            f" Got {left[bad[0]]} and {right[bad[0]]}. The file was not written by XGBoost."
        )


def _outputs(document: XGBoostDocument, n_trees: int, n_outputs: int) -> IntArray:
    info = joined([document.model.tree_info[:n_trees]], np.int64, "'tree_info'")
    if info.size and (info.min() < 0 or info.max() >= n_outputs):
        raise BrokenModelFile(
            f"'tree_info' must name outputs below {n_outputs}. Got {info.min()} to {info.max()}."
            " The file is damaged."
        )
    outputs: IntArray = info
    return outputs


def _dart_values(leaf: FloatArray, weight: FloatArray, base: FloatArray | None) -> FloatArray:
    """What the leaves of dart trees add, every operation rounded to float32.

    On a DMatrix, weight times leaf. In place, XGBoost predicts with each tree as if it were alone,
    starting from the base score, and takes the base score off again before it applies the weight;
    that costs the leaf its last bits.
    """
    values = leaf.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        if base is not None:
            values = (values + base.astype(np.float32)) - base.astype(np.float32)
        return (values * weight.astype(np.float32)).astype(np.float64)


def _vector_values(
    trees: list[TreeRecord], left: IntArray, right: IntArray, width: int
) -> FloatArray:
    """Leaf values of trees with vector leaves: float64 (n_nodes, width)."""
    values = np.zeros((len(left), width))
    start = 0
    for number, tree in enumerate(trees):
        stop = start + len(tree.left_children)
        leaves = start + np.flatnonzero(left[start:stop] < 0)
        # Since 3.2: a table of leaves, whose row is kept in the place of the right child.
        name = "leaf_weights" if len(tree.leaf_weights) else "base_weights"
        where = f"Tree {number}: '{name}'"
        rows = as_float32(joined([getattr(tree, name)], np.float64, where), where)
        if name == "leaf_weights":
            index = right[leaves]
            n_rows = len(leaves)
        else:
            index = leaves - start
            n_rows = stop - start
        if len(rows) != n_rows * width:
            raise BrokenModelFile(
                f"Tree {number} must have {n_rows} times {width} leaf weights. The file is damaged."
            )
        if index.size and (index.min() < 0 or index.max() >= n_rows):
            raise BrokenModelFile(
                f"Tree {number}: leaves must have rows below {n_rows}. The file is damaged."
            )
        values[leaves] = rows.reshape(n_rows, width)[index]
        start = stop
    return values


def _category_sets(trees: list[TreeRecord], sizes: IntArray, builder: TreeBuilder) -> IntArray:
    """Number of each categorical node's set; -1 at all other nodes."""
    sets = np.full(int(sizes.sum()), -1, dtype=np.int64)
    start = 0
    for number, (tree, size) in enumerate(zip(trees, sizes.tolist(), strict=True)):
        if len(tree.categories_nodes):
            nodes, first, count, codes = (
                joined([getattr(tree, name)], np.int64, f"Tree {number}: '{name}'")
                for name in _CATEGORY_LISTS
            )
            is_sound = len(first) == len(count) == len(nodes) == len(np.unique(nodes))
            if is_sound:
                is_sound = nodes.min() >= 0 and nodes.max() < size and first.min() >= 0
                # Without overflow: both are below the length of the list before they are added.
                is_sound &= count.min() > 0 and max(first.max(), count.max()) <= len(codes)
                is_sound &= (first + count).max() <= len(codes)
            if not is_sound:
                raise BrokenModelFile(
                    f"Tree {number}: the lists of categories contradict each other."
                    " The file is damaged."
                )
            for node, begin, length in zip(
                nodes.tolist(), first.tolist(), count.tolist(), strict=True
            ):
                sets[start + node] = builder.add_category_set(codes[begin : begin + length])
        start += size
    return sets


def raw_categories(
    document: XGBoostDocument, n_features: int
) -> tuple[dict[int, tuple[Any, ...]], tuple[str, ...]]:
    """Raw values of data-frame categories in the order of their codes, and what to say of them."""
    encodings = document.model.cats.enc
    if len(encodings) not in (0, n_features):
        raise BrokenModelFile(
            f"'cats' must have one entry per feature ({n_features}). Got {len(encodings)}."
            " The file is damaged."
        )
    found: dict[int, tuple[Any, ...]] = {}
    garbled = []
    for feature, encoding in enumerate(encodings):
        if encoding.offsets:
            names = _strings(encoding.values, encoding.offsets, feature)
            if names is None:
                garbled.append(feature)
            found[feature] = names or ()
        elif encoding.values:
            found[feature] = tuple(encoding.values)
    if not garbled:
        return found, ()
    return found, (
        f"XGBoost garbles category names that are not ASCII, so those of feature"
        f" {', '.join(map(str, garbled))} are not known here: give codes instead of names.",
    )


def _strings(values: list[int], offsets: list[int], feature: int) -> tuple[str, ...] | None:
    """Names from XGBoost's list of bytes (as signed or unsigned numbers) and offsets.

    None where they are not plain ASCII: for data frames of pandas, XGBoost counts characters where
    it should count bytes, and nothing in the file tells whether it did.
    """
    rises = all(a <= b for a, b in pairwise(offsets))
    if offsets[0] != 0 or offsets[-1] != len(values) or not rises:
        raise BrokenModelFile(f"The categories of feature {feature} are damaged.")
    text = bytes(value % 256 for value in values)
    if not text.isascii():
        return None
    return tuple(text[begin:end].decode() for begin, end in pairwise(offsets))
