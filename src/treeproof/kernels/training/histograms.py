"""Rows as bins, and sums of gradients over the bins of a node."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.arrays import record_type
from treeproof.kernels.core.compiler import at_once_by, kernel, noalloc_kernel
from treeproof.kernels.training.splits import GRADIENT, HESSIAN, LOWER, UPPER

FEATURE = record_type(
    [
        ("first_bin", np.int64),  # its bins are first_bin <= bin < end_bin; none if it is constant
        ("end_bin", np.int64),
        ("usual_bin", np.int64),  # the most frequent one, left out of `entries`; -1 if none is
        ("place", np.int64),  # its row of `order` if the feature is kept sorted, else -1
        ("monotone", np.int64),  # 1 or -1 where margins must not fall or rise with it, else 0
        ("reach", np.float64),  # how far an attacker may move a value; 0 for natural training
    ]
)
"""What is known of a feature while a model is fitted."""


class TrainingTable(NamedTuple):
    """Rows to train on; constant while a model is fitted."""

    values: NDArray[np.float32]  # (n_features, n_rows) columns; NaN is missing
    features: NDArray[np.void]  # (n_features,) FEATURE
    entry_start: NDArray[np.int64]  # (n_rows + 1,) where the entries of each row start
    entries: NDArray[np.uint32]  # bins of a row, by ascending feature, without the usual ones
    bin_lower: NDArray[np.float32]  # (n_bins,) smallest and largest value in each bin; NaN in a
    bin_upper: NDArray[np.float32]  # feature's bin of missing values, which is its last one
    order: NDArray[np.int32]  # (n_sorted, n_rows) rows by ascending value, missing values last


@kernel
def fill_entries(codes, usual, first_bin, position, entries):
    """Write the bins of each row.

    codes      uint32 (n_binned, n_rows)   bin within its feature
    usual      int64  (n_binned,)          code left out
    first_bin  int64  (n_binned,)
    position   int64  (n_rows,)            where the entries of each row start; moved to their end
    entries    uint32 (n_entries,)         out
    """
    n_rows = codes.shape[1]
    block = 4096  # columns are read in sequence while the entries of a block stay in the cache
    for first in range(0, n_rows, block):
        for j in range(codes.shape[0]):
            for row in range(first, min(first + block, n_rows)):
                if codes[j, row] != usual[j]:
                    entries[position[row]] = first_bin[j] + codes[j, row]
                    position[row] += 1


def _add_rows_at_once(table, gradients, rows, begin, end, histogram):
    rows = rows[begin:end]
    first, count = table.entry_start[rows], np.diff(table.entry_start)[rows]
    step = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    number = table.entries[np.repeat(first, count) + step]
    for column in range(histogram.shape[1]):
        gradient = np.abs(gradients[rows, 0]) if column == 2 else gradients[rows, column]
        sums = np.bincount(number, np.repeat(gradient, count), len(histogram))
        histogram[:, column] += sums


@at_once_by(_add_rows_at_once)
def add_rows(table, gradients, rows, begin, end, histogram):
    """Add the gradients of ``rows[begin:end]`` to the bins that they have entries in.

    gradients  float64 (n_rows, 2)
    rows       int32   (n,)
    histogram  float64 (n_bins, 2 or 3)     in/out; a third column sums absolute gradients
    """
    entry_start, entries = table.entry_start, table.entries
    # Unsigned numbers spare the test for negative indices, a third of the time of this loop.
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    with_spread = histogram.shape[1] == 3
    for i in range(np.uint64(begin), np.uint64(end)):
        row = np.uint64(rows[i])
        gradient = gradients[row, zero]
        hessian = gradients[row, one]
        first = np.uint64(entry_start[row])
        last = np.uint64(entry_start[row + one])
        if with_spread:
            for position in range(first, last):
                number = np.uint64(entries[position])
                histogram[number, zero] += gradient
                histogram[number, one] += hessian
                histogram[number, two] += abs(gradient)
        else:
            for position in range(first, last):
                number = np.uint64(entries[position])
                histogram[number, zero] += gradient
                histogram[number, one] += hessian


@kernel
def add_rows_in_thread(table, gradients, rows, begin, end, histogram):
    """`add_rows`, for Python."""
    add_rows(table, gradients, rows, begin, end, histogram)


def _complete_at_once(histogram, feature, gradient, hessian):
    sums = histogram[feature.first_bin : feature.end_bin, :2].sum(axis=0)
    histogram[feature.usual_bin, :2] = gradient - sums[0], hessian - sums[1]


@at_once_by(_complete_at_once)
def complete(histogram, feature, gradient, hessian):
    """Write the sums of the usual bin of a feature: what the other bins leave of the node's.

    histogram          float64 (n_bins, 2)    in/out
    feature            FEATURE
    gradient, hessian  float                  sums over the node
    """
    for number in range(np.uint64(feature.first_bin), np.uint64(feature.end_bin)):
        gradient -= histogram[number, np.uint64(0)]
        hessian -= histogram[number, np.uint64(1)]
    histogram[feature.usual_bin, 0] = gradient
    histogram[feature.usual_bin, 1] = hessian


def _subtract_at_once(histogram, part, feature):
    bins = slice(feature.first_bin, feature.end_bin)
    histogram[bins] -= part[bins]


@at_once_by(_subtract_at_once)
def subtract(histogram, part, feature):
    """Take one child's bins of a feature from the parent's, which leaves the other child's."""
    for number in range(np.uint64(feature.first_bin), np.uint64(feature.end_bin)):
        for column in range(np.uint64(histogram.shape[1])):
            histogram[number, column] -= part[number, column]


def _group_bins_at_once(table, feature, histogram, groups):
    bins = slice(feature.first_bin, feature.end_bin - has_missing_bin(table, feature))
    used = np.flatnonzero(histogram[bins, 1] > 0.0)
    groups[LOWER, : len(used)] = table.bin_lower[bins][used]
    groups[UPPER, : len(used)] = table.bin_upper[bins][used]
    for column, sums in enumerate((groups[GRADIENT], groups[HESSIAN])):
        sums[0] = 0.0
        sums[1 : len(used) + 1] = np.cumsum(histogram[bins, column])[used]
    return len(used)


@at_once_by(_group_bins_at_once)
def group_bins(table, feature, histogram, groups):
    """Gather the bins of a feature that are not empty, except that of missing values.

    feature    FEATURE
    histogram  float64 (n_bins, 2)   of the node, complete
    groups     float64 (6, n + 2)    out, see `splits`

    Returns the number of groups.
    """
    last = feature.end_bin - has_missing_bin(table, feature)
    zero, one = np.uint64(0), np.uint64(1)
    bin_lower, bin_upper = table.bin_lower, table.bin_upper
    lower, upper = groups[LOWER], groups[UPPER]
    gradient_sums, hessian_sums = groups[GRADIENT], groups[HESSIAN]
    n_groups = zero
    gradient = hessian = 0.0
    gradient_sums[0] = hessian_sums[0] = 0.0
    for number in range(np.uint64(feature.first_bin), np.uint64(last)):
        here = histogram[number, one]
        gradient += histogram[number, zero]
        hessian += here
        # Without a branch: an empty bin is overwritten by the next one.
        lower[n_groups] = bin_lower[number]
        upper[n_groups] = bin_upper[number]
        gradient_sums[n_groups + one] = gradient
        hessian_sums[n_groups + one] = hessian
        n_groups += np.uint64(here > 0.0)
    return np.int64(n_groups)


@noalloc_kernel
def has_missing_bin(table, feature):
    """1 if the last bin of a feature is that of missing values, else 0."""
    return np.int64(math.isnan(table.bin_lower[feature.end_bin - 1]))
