"""The plain slow meaning of an `Ensemble`, in NumPy only.

Everything compiled is tested against these functions, and the checker and the self-test use them.
"""

import numpy as np
from numpy.typing import NDArray

from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    WHOLE_CATEGORY,
    ZERO_BAND,
    ZERO_IS_MISSING,
    Ensemble,
    FloatArray,
    IntArray,
)
from treeproof.model.links import argmax_labels


def cast_rows(ensemble: Ensemble, rows: NDArray[np.floating]) -> FloatArray:
    """Round rows to the model's input precision, as float64 numbers.

    Values beyond the largest float32 become infinite, as in the libraries that cast.
    """
    values = np.asarray(rows, dtype=np.float64)
    if ensemble.input_precision == "float32":
        with np.errstate(over="ignore"):
            values = values.astype(np.float32).astype(np.float64)
    return values


def leaf_rows(ensemble: Ensemble, rows: FloatArray) -> IntArray:
    """Leaf (row of ``leaf_value``) that each row reaches in each tree: int32 (n_rows, n_trees)."""
    trees = ensemble.trees
    values = cast_rows(ensemble, rows)
    reached = np.empty((len(values), ensemble.n_trees), dtype=np.int32)
    numbers = np.arange(len(values))
    for tree in range(ensemble.n_trees):
        node = np.full(len(values), trees.root[tree], dtype=np.int64)
        active = trees.feature[node] >= 0
        while active.any():
            here = node[active]
            value = values[numbers[active], trees.feature[here]]
            node[active] = np.where(
                _goes_left(ensemble, here, value), trees.left[here], trees.right[here]
            )
            active = trees.feature[node] >= 0
        reached[:, tree] = trees.leaf[node]
    return reached


def _goes_left(
    ensemble: Ensemble, nodes: NDArray[np.int64], values: FloatArray
) -> NDArray[np.bool_]:
    trees = ensemble.trees
    flags = trees.flags[nodes]
    missing = np.isnan(values)
    missing |= ((flags & ZERO_IS_MISSING) > 0) & (np.abs(values) <= ZERO_BAND)
    with np.errstate(invalid="ignore"):
        left = values < trees.threshold[nodes]
    categorical = (flags & CATEGORICAL) > 0
    if categorical.any():
        left[categorical] = [
            is_category(int(trees.flags[node]), value)
            and in_category_set(ensemble, int(trees.category_set[node]), value)
            for node, value in zip(nodes[categorical], values[categorical], strict=True)
        ]
    return np.where(missing, (flags & MISSING_LEFT) > 0, left)


def is_category(flags: int, value: float) -> bool:
    """Whether a node with these flags takes a value for a category at all."""
    if flags & NONNEGATIVE_CATEGORY and value < 0.0:
        return False
    return not flags & WHOLE_CATEGORY or float(value).is_integer()


def in_category_set(ensemble: Ensemble, number: int, value: float) -> bool:
    """Whether a category value, truncated to an integer, is in a set; never for negatives."""
    trees = ensemble.trees
    start, stop = int(trees.set_offset[number]), int(trees.set_offset[number + 1])
    if start == stop or not np.isfinite(value):
        return False
    if value <= -1.0 or value >= 32.0 * (stop - start):
        return False
    code = int(value)
    return bool(int(trees.set_words[start + code // 32]) >> (code % 32) & 1)


def accumulate(ensemble: Ensemble, leaves: IntArray) -> NDArray[np.floating]:
    """Sum leaf values in tree order and the library's precision: (n_rows, n_outputs)."""
    trees, aggregation = ensemble.trees, ensemble.aggregation
    dtype = np.dtype(aggregation.precision)
    total = np.tile(np.array(aggregation.start, dtype=dtype), (len(leaves), 1))
    for tree in range(ensemble.n_trees):
        value = trees.leaf_value[leaves[:, tree]].astype(dtype)
        output = int(trees.tree_output[tree])
        if output >= 0:
            total[:, output] += value[:, 0]
        else:
            total += value
    return total


def finish(ensemble: Ensemble, total: NDArray[np.floating]) -> NDArray[np.floating]:
    """Turn accumulators into margins, keeping the precision of the sum."""
    aggregation = ensemble.aggregation
    if aggregation.finish == "divide":
        return total / total.dtype.type(aggregation.divisor)
    if aggregation.finish == "affine":
        # In double even for float32 sums: treelite adds a double bias and rounds once.
        wide = aggregation.scale * total.astype(np.float64) + np.array(aggregation.bias)
        return wide.astype(total.dtype)
    if aggregation.finish == "isolation":
        return -np.power(2.0, -total / aggregation.divisor) - aggregation.bias[0]
    return total


def margins(ensemble: Ensemble, rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Margins of each row, (n_rows, n_outputs), in the precision of the library's sum."""
    return finish(ensemble, accumulate(ensemble, leaf_rows(ensemble, np.asarray(rows, np.float64))))


def label_indices(ensemble: Ensemble, scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Class index of each row of margins, by the model's own decision and tie rule."""
    decision = ensemble.decision
    if decision.kind == "threshold":
        return (scores[:, 0] >= decision.cut).astype(np.int64)
    if decision.kind == "argmax":
        return argmax_labels(
            scores, decision.link, divisor=decision.link_divisor, scale=decision.link_scale
        )
    raise ValueError("A model that gives scores has no labels.")
