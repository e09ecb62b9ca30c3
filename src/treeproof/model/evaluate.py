"""The plain slow meaning of an `Ensemble`, in NumPy only.

Everything compiled is tested against these functions, and the checker and the self-test use them.
"""

from typing import NamedTuple

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
    cached_per_ensemble,
)
from treeproof.model.links import argmax_labels

_CELLS = 1 << 15
"""Rows times trees that are walked at once."""

_TREES = 256
"""Trees whose values are summed at once."""

_STEPS = 4
"""Steps between two looks at who has arrived."""


def cast_rows(ensemble: Ensemble, rows: NDArray[np.floating]) -> FloatArray:
    """Round rows to the model's input precision, as float64 numbers.

    Values beyond the largest float32 become infinite, as in the libraries that cast.
    """
    values = np.asarray(rows, dtype=np.float64)
    if ensemble.input_precision == "float32":
        with np.errstate(over="ignore"):
            values = values.astype(np.float32).astype(np.float64)
    return values


def cast_bounds(ensemble: Ensemble, bounds: FloatArray) -> FloatArray:
    """Bounds of rows in the model's input precision.

    Sound: thresholds are numbers of that precision, so that of real numbers within bounds some are
    below a threshold, or at it, iff some are with each bound rounded down.
    """
    cast = cast_rows(ensemble, bounds)
    if not ensemble.over_reals:
        return cast
    real = np.dtype(ensemble.input_precision).type
    with np.errstate(over="ignore"):  # below the lowest number is minus infinity
        below = np.nextafter(cast.astype(real), real(-np.inf)).astype(np.float64)
    return np.where(cast > bounds, below, cast)


class _Layout(NamedTuple):
    """Nodes for walking many rows at once: node n has two places, 2 n and 2 n + 1.

    A leaf leads to itself, so that rows which arrive early may take the steps of the others.
    """

    feature: NDArray[np.intp]  # (2 * n_nodes,), 0 at a leaf
    threshold: FloatArray
    missing_right: NDArray[np.bool_]
    after: NDArray[np.intp]  # first place of the left child, then of the right one
    has_other_tests: bool  # for categories, or for zero as missing


@cached_per_ensemble
def _layout(ensemble: Ensemble) -> _Layout:
    trees = ensemble.trees
    is_leaf = trees.feature < 0
    itself = np.arange(len(is_leaf))
    children = [np.where(is_leaf, itself, child) for child in (trees.left, trees.right)]
    return _Layout(
        feature=np.repeat(np.where(is_leaf, 0, trees.feature).astype(np.intp), 2),
        threshold=np.repeat(trees.threshold, 2),
        missing_right=np.repeat((trees.flags & MISSING_LEFT) == 0, 2),
        after=(2 * np.stack(children, axis=1)).astype(np.intp).ravel(),
        has_other_tests=bool((trees.flags > MISSING_LEFT).any()),
    )


def leaf_rows(ensemble: Ensemble, rows: FloatArray) -> IntArray:
    """Leaf (row of ``leaf_value``) that each row reaches in each tree: int32 (n_rows, n_trees)."""
    values = np.ascontiguousarray(cast_rows(ensemble, rows))
    has_missing = bool(np.isnan(values).any())
    reached = np.empty((len(values), ensemble.n_trees), dtype=np.int32)
    # Some trees at a time: enough to amortise the cost of array operations, few enough to stay in
    # the processor's cache.
    step = max(1, _CELLS // max(len(values), 1))
    for first in range(0, ensemble.n_trees, step):
        root = ensemble.trees.root[first : min(first + step, ensemble.n_trees)]
        reached[:, first : first + step] = _walk(ensemble, values, root, has_missing)
    return reached


def _walk(ensemble: Ensemble, values: FloatArray, root: IntArray, has_missing: bool) -> IntArray:
    """Leaf that each row reaches from each root."""
    layout = _layout(ensemble)
    cells = values.ravel()
    place = np.tile(2 * root.astype(np.intp), len(values))
    row_start = np.repeat(np.arange(len(values)) * values.shape[1], len(root))
    last, walking = place, np.arange(len(place))
    while len(walking):
        for _ in range(_STEPS):
            value = cells.take(row_start + layout.feature.take(place))
            if layout.has_other_tests:
                right = ~goes_left(ensemble, place >> 1, value)
            else:
                right = value >= layout.threshold.take(place)
                if has_missing:
                    right |= np.isnan(value) & layout.missing_right.take(place)
            place = layout.after.take(place + right)
        if len(place) == len(last):
            last = place
        else:
            last[walking] = place
        inner = layout.after.take(place) != place
        walking, place, row_start = walking[inner], place[inner], row_start[inner]
    return ensemble.trees.leaf.take(last >> 1).reshape(len(values), len(root))


def goes_left(ensemble: Ensemble, nodes: NDArray[np.intp], values: FloatArray) -> NDArray[np.bool_]:
    """Whether inner nodes send values, one for each, to their left child."""
    trees = ensemble.trees
    flags = trees.flags[nodes]
    missing = np.isnan(values)
    left = values < trees.threshold[nodes]
    missing |= ((flags & ZERO_IS_MISSING) > 0) & (np.abs(values) <= ZERO_BAND)
    categorical = (flags & CATEGORICAL) > 0
    left[categorical] = _in_category_sets(ensemble, nodes[categorical], values[categorical])
    return np.where(missing, (flags & MISSING_LEFT) > 0, left)


def _in_category_sets(
    ensemble: Ensemble, nodes: NDArray[np.intp], values: FloatArray
) -> NDArray[np.bool_]:
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
    total = np.tile(np.array(aggregation.start, dtype=dtype)[:, np.newaxis], (1, len(leaves)))
    values = trees.leaf_value.T.astype(dtype)
    for output, part in enumerate(total):
        column = values[output if len(values) > 1 else 0]
        added = np.flatnonzero((trees.tree_output == output) | (trees.tree_output < 0))
        for first in range(0, len(added), _TREES):
            leaf = leaves.T[added[first : first + _TREES]]
            # Accumulating adds one by one, in order; a sum would pair its terms as it likes.
            part[:] = np.add.accumulate(np.vstack([part, column.take(leaf)]), axis=0)[-1]
    return np.ascontiguousarray(total.T)


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
