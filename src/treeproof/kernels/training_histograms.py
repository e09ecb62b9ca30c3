"""Training rows in the form that split finding reads, and sums of gradients per bin.

Narrow features (few distinct values, or few bins) are stored row by row as bin numbers, without
each feature's most frequent bin: its sums are what is left of the node's. One-hot columns and
dark pixels so cost nothing. Wide features, only in exact training, are kept as sorted columns;
they have coarse bins as well, all of them stored, which tell where a column is worth a look.

    histogram  float64 (n_bins, 2), with wide features (n_bins, 3)
    histogram[bin, 0], histogram[bin, 1]    sums of gradients and hessians
    histogram[bin, 2]                       sum of absolute gradients
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.compiler import inner_kernel, kernel
from treeproof.kernels.training_splits import GRADIENT, HESSIAN, LOWER, UPPER


class TrainingTable(NamedTuple):
    """Rows to train on; constant while a model is fitted.

    Attributes
    ----------
    values : float32 (n_features, n_rows)
        Columns; NaN is missing.
    entry_start : int64 (n_rows + 1,)
        Where the entries of each row start.
    entries : uint32 (n_entries,)
        Bins of a row, by ascending feature, without the usual bins.
    bin_start : int64 (n_features + 1,)
        First bin of each feature; features without bins are constant.
    bin_lower, bin_upper : float32 (n_bins,)
        Smallest and largest value in each bin; NaN in a feature's bin of missing values, which
        is its last one.
    usual_bin : int64 (n_features,)
        The most frequent bin, left out of `entries`; -1 for wide and constant features.
    wide : int32 (n_features,)
        Row of `order` of each wide feature; -1 elsewhere.
    order : int32 (n_wide, n_rows)
        Rows by ascending value of each wide feature, missing values last.
    reach : float64 (n_features,)
        How far an attacker may move a value of each feature; 0 for natural training.
    monotone : int8 (n_features,)
        1, -1 or 0.
    """

    values: NDArray[np.float32]
    entry_start: NDArray[np.int64]
    entries: NDArray[np.uint32]
    bin_start: NDArray[np.int64]
    bin_lower: NDArray[np.float32]
    bin_upper: NDArray[np.float32]
    usual_bin: NDArray[np.int64]
    wide: NDArray[np.int32]
    order: NDArray[np.int32]
    reach: NDArray[np.float64]
    monotone: NDArray[np.int8]


@kernel
def count_entries(codes, usual, entry_start):
    """Number of entries of each row, summed up.

    codes        uint16 or uint32 (n_narrow, n_rows)   bin within its feature
    usual        int64  (n_narrow,)                    code left out
    entry_start  int64  (n_rows + 1,)                  out
    """
    entry_start[:] = 0
    for j in range(codes.shape[0]):
        for row in range(codes.shape[1]):
            if codes[j, row] != usual[j]:
                entry_start[row + 1] += 1
    for row in range(codes.shape[1]):
        entry_start[row + 1] += entry_start[row]


@kernel
def fill_entries(codes, usual, first_bin, entry_start, entries):
    """Write the bins of each row.

    first_bin    int64  (n_narrow,)     first bin of each narrow feature
    entry_start  int64  (n_rows + 1,)
    entries      uint32 (n_entries,)    out
    """
    n_rows = codes.shape[1]
    block = 4096  # columns are read in sequence while the entries of a block stay in the cache
    position = np.empty(block, dtype=np.int64)
    for first in range(0, n_rows, block):
        last = min(first + block, n_rows)
        for row in range(first, last):
            position[row - first] = entry_start[row]
        for j in range(codes.shape[0]):
            for row in range(first, last):
                if codes[j, row] != usual[j]:
                    entries[position[row - first]] = first_bin[j] + codes[j, row]
                    position[row - first] += 1


@inner_kernel
def add_rows_with_spread(entry_start, entries, gradients, rows, begin, end, histogram):
    """Do the same with the sums of absolute gradients."""
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    for i in range(np.uint64(begin), np.uint64(end)):
        row = np.uint64(rows[i])
        gradient = gradients[row, zero]
        hessian = gradients[row, one]
        spread = abs(gradient)
        first = np.uint64(entry_start[row])
        last = np.uint64(entry_start[row + one])
        for position in range(first, last):
            number = np.uint64(entries[position])
            histogram[number, zero] += gradient
            histogram[number, one] += hessian
            histogram[number, two] += spread


@kernel
def add_rows(entry_start, entries, gradients, rows, begin, end, histogram):
    """Add the gradients of ``rows[begin:end]`` to the bins that they have entries in.

    entry_start, entries               see TrainingTable
    gradients  float64 (n_rows, 2)
    rows       int32   (n,)
    histogram  float64 (n_bins, 2 or 3)     in/out
    """
    if histogram.shape[1] == 3:
        add_rows_with_spread(entry_start, entries, gradients, rows, begin, end, histogram)
        return
    # Unsigned numbers spare the test for negative indices, a third of the time of this loop.
    zero, one = np.uint64(0), np.uint64(1)
    for i in range(np.uint64(begin), np.uint64(end)):
        row = np.uint64(rows[i])
        gradient = gradients[row, zero]
        hessian = gradients[row, one]
        first = np.uint64(entry_start[row])
        last = np.uint64(entry_start[row + one])
        for position in range(first, last):
            number = np.uint64(entries[position])
            histogram[number, zero] += gradient
            histogram[number, one] += hessian


@inner_kernel
def complete(histogram, first, last, usual, gradient, hessian):
    """Write the sums of the usual bin of a feature: what the other bins leave of the node's.

    histogram          float64 (n_bins, 2)    in/out
    first, last        int                    bins of the feature: first <= bin < last
    gradient, hessian  float                  sums over the node
    """
    for number in range(np.uint64(first), np.uint64(last)):
        gradient -= histogram[number, np.uint64(0)]
        hessian -= histogram[number, np.uint64(1)]
    histogram[usual, 0] = gradient
    histogram[usual, 1] = hessian


@inner_kernel
def subtract(histogram, part, first, last):
    """Take one child's bins from the parent's, which leaves the other child's."""
    for number in range(np.uint64(first), np.uint64(last)):
        for column in range(np.uint64(histogram.shape[1])):
            histogram[number, column] -= part[number, column]


@inner_kernel
def group_bins(bin_lower, bin_upper, histogram, first, last, groups):
    """Gather the bins ``first <= bin < last`` of a feature that are not empty.

    bin_lower, bin_upper             see TrainingTable
    histogram  float64 (n_bins, 2)   of the node, complete
    groups     float64 (6, n + 2)    out, see training_splits

    Returns
    -------
    n_groups, and the sums over missing values.
    """
    missing_gradient = missing_hessian = 0.0
    if np.isnan(bin_lower[last - 1]):
        last -= 1
        missing_gradient, missing_hessian = histogram[last, 0], histogram[last, 1]
    zero, one = np.uint64(0), np.uint64(1)
    lower, upper = groups[LOWER], groups[UPPER]
    gradient_sums, hessian_sums = groups[GRADIENT], groups[HESSIAN]
    n_groups = zero
    gradient = hessian = 0.0
    gradient_sums[0] = hessian_sums[0] = 0.0
    for number in range(np.uint64(first), np.uint64(last)):
        here = histogram[number, one]
        gradient += histogram[number, zero]
        hessian += here
        # Without a branch: an empty bin is overwritten by the next one.
        lower[n_groups] = bin_lower[number]
        upper[n_groups] = bin_upper[number]
        gradient_sums[n_groups + one] = gradient
        hessian_sums[n_groups + one] = hessian
        n_groups += np.uint64(here > 0.0)
    return np.int64(n_groups), missing_gradient, missing_hessian
