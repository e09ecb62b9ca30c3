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

_CELLS = 1 << 15
"""Rows times trees that are walked at once."""


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
    # Some trees at a time: enough to amortise the cost of array operations, few enough to stay in
    # the processor's cache.
    step = max(1, _CELLS // max(len(values), 1))
    for first in range(0, ensemble.n_trees, step):
        node = np.tile(trees.root[first : min(first + step, ensemble.n_trees)], (len(values), 1))
        row, column = np.nonzero(trees.feature[node] >= 0)
        while len(row):
            here = node[row, column]
            left = _goes_left(ensemble, here, values[row, trees.feature[here]])
            node[row, column] = after = np.where(left, trees.left[here], trees.right[here])
            inner = trees.feature[after] >= 0
            row, column = row[inner], column[inner]
        reached[:, first : first + step] = trees.leaf[node]
    return reached


def _goes_left(ensemble: Ensemble, nodes: IntArray, values: FloatArray) -> NDArray[np.bool_]:
    trees = ensemble.trees
    flags = trees.flags[nodes]
    missing = np.isnan(values)
    left = values < trees.threshold[nodes]
    if (flags > MISSING_LEFT).any():
        missing |= ((flags & ZERO_IS_MISSING) > 0) & (np.abs(values) <= ZERO_BAND)
        categorical = (flags & CATEGORICAL) > 0
        left[categorical] = _in_category_sets(ensemble, nodes[categorical], values[categorical])
    return np.where(missing, (flags & MISSING_LEFT) > 0, left)


def _in_category_sets(ensemble: Ensemble, nodes: IntArray, values: FloatArray) -> NDArray[np.bool_]:
    """Whether the category sets of nodes contain values, each truncated to an integer."""
    trees = ensemble.trees
    flags, number = trees.flags[nodes], trees.category_set[nodes]
    start, stop = trees.set_offset[number], trees.set_offset[number + 1]
    inside = (values > -1.0) & (values < 32.0 * (stop - start))
    inside &= ((flags & NONNEGATIVE_CATEGORY) == 0) | (values >= 0.0)
    inside &= ((flags & WHOLE_CATEGORY) == 0) | (values == np.floor(values))
    # Sound: what is not inside is replaced before the conversion, so no huge value is cast; an
    # empty set has no word, and its values are not inside for want of one.
    inside &= stop > start
    code = np.where(inside, values, 0.0).astype(np.int64)
    result = np.zeros(len(nodes), dtype=bool)
    words = trees.set_words[(start + code // 32)[inside]]
    result[inside] = (words >> (code[inside] % 32).astype(np.uint32)) & np.uint32(1) == 1
    return result


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
