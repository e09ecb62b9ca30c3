"""Gradients of the losses, rounded to a grid on which their sums are exact.

Trees are grown from sums of gradients and hessians. Rounded to multiples of a power of two that is
small against their total, at most 2**52 steps in all, every partial sum is exact in float64. So
sums do not depend on the order of rows, on threads or on how a histogram was derived, a
histogram minus that of one child is that of the other child, and an empty bin is exactly zero.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.compiler import inner_kernel, kernel
from treeproof.kernels.training.splits import GRADIENT, HESSIAN, LOWER, UPPER

GRID_BITS = 52
HESSIAN_FLOOR = 1e-16


@kernel
def logistic_gradients(margins, targets, gradients):
    """Gradient and hessian of the logistic loss.

    margins    float32 (1, n)
    targets    int64   (n,)        0 or 1
    gradients  float64 (1, n, 2)   out
    """
    for row in range(len(targets)):
        probability = 1.0 / (1.0 + math.exp(-np.float64(margins[0, row])))
        gradients[0, row, 0] = probability - targets[row]
        gradients[0, row, 1] = max(probability * (1.0 - probability), HESSIAN_FLOOR)


@kernel
def softmax_gradients(margins, targets, gradients):
    """Gradient of the softmax loss and the diagonal bound of its hessian that XGBoost uses.

    margins    float32 (n_classes, n)
    targets    int64   (n,)                  class index
    gradients  float64 (n_classes, n, 2)     out
    """
    n_classes = margins.shape[0]
    for row in range(len(targets)):
        largest = margins[0, row]
        for k in range(1, n_classes):
            largest = max(largest, margins[k, row])
        total = 0.0
        for k in range(n_classes):
            gradients[k, row, 0] = math.exp(np.float64(margins[k, row] - largest))
            total += gradients[k, row, 0]
        for k in range(n_classes):
            probability = gradients[k, row, 0] / total
            gradients[k, row, 0] = probability
            gradients[k, row, 1] = max(2.0 * probability * (1.0 - probability), HESSIAN_FLOOR)
        gradients[targets[row], row, 0] -= 1.0


@inner_kernel
def grid_step(total):
    """Power of two such that numbers whose magnitudes sum to `total` take 2**52 steps at most."""
    if total <= 0.0:
        return 1.0
    _, exponent = math.frexp(total)
    return math.ldexp(1.0, max(exponent - GRID_BITS + 1, -1000))


@kernel
def round_to_grid(gradients, weights):
    """Multiply by weights and round to the grid, in place; hessians keep at least one step.

    A weight that is a whole number gives exactly what so many copies of the row would give.

    gradients  float64 (n, 2)    in/out
    weights    float64 (n,)      > 0
    """
    total_gradient = total_hessian = 0.0
    for row in range(len(weights)):
        total_gradient += weights[row] * abs(gradients[row, 0])
        total_hessian += weights[row] * gradients[row, 1]
    gradient_step = grid_step(total_gradient)
    hessian_step = grid_step(total_hessian)
    for row in range(len(weights)):
        steps = np.rint(np.rint(gradients[row, 0] / gradient_step) * weights[row])
        gradients[row, 0] = steps * gradient_step
        steps = np.rint(max(np.rint(gradients[row, 1] / hessian_step), 1.0) * weights[row])
        gradients[row, 1] = max(steps, 1.0) * hessian_step


@kernel
def add_tree(values, rows, feature, threshold, missing_left, left, right, leaf, margins):
    """Walk rows down one tree and add the leaves that they reach.

    values        float32 (n_features, n_rows)   columns
    rows          int32   (n,)                   which rows
    feature, left, right  int32   (n_nodes,)     -1 at leaves
    threshold     float32 (n_nodes,)
    missing_left  bool    (n_nodes,)
    leaf          float32 (n_nodes,)
    margins       float32 (n_rows,)              in/out
    """
    for row in rows:
        node = 0
        while left[node] >= 0:
            value = values[feature[node], row]
            goes_left = missing_left[node] if np.isnan(value) else value < threshold[node]
            node = left[node] if goes_left else right[node]
        margins[row] += leaf[node]


@kernel
def sigmoid_probabilities(margins, probabilities):
    """Probability of class 1 as XGBoost computes it, all in float32.

    margins        float32 (n,)
    probabilities  float32 (n, 2)   out
    """
    one, tiny = np.float32(1.0), np.float32(1e-16)
    for row in range(len(margins)):
        exponent = min(-margins[row], np.float32(88.7))
        denominator = np.float32(math.exp(exponent)) + one + tiny
        probabilities[row, 1] = one / denominator
        probabilities[row, 0] = one - probabilities[row, 1]


@kernel
def softmax_probabilities(margins, probabilities):
    """Probabilities of classes as XGBoost computes them: float32, summed in float64.

    margins        float32 (n, n_classes)
    probabilities  float32 (n, n_classes)   out
    """
    n_classes = margins.shape[1]
    for row in range(len(margins)):
        largest = margins[row, 0]
        for k in range(1, n_classes):
            largest = max(largest, margins[row, k])
        total = 0.0
        for k in range(n_classes):
            probabilities[row, k] = math.exp(margins[row, k] - largest)
            total += probabilities[row, k]
        for k in range(n_classes):
            probabilities[row, k] /= np.float32(total)


@inner_kernel
def random_bits(seed, number):
    """64 bits from two numbers (the finishing steps of SplitMix64)."""
    bits = np.uint64(seed) + np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@inner_kernel
def draw_features(features_per_node, seed, features, keys):
    """Draw a key per feature; those with keys up to the returned one may split the node.

    seed      uint64                 of the node
    features  int32  (n,)
    keys      uint64 (n_features,)   out
    """
    if features_per_node >= len(features):
        keys[:] = 0
        return np.uint64(0)
    for j in range(len(features)):
        keys[j] = random_bits(seed, features[j])
    return np.sort(keys[: len(features)])[features_per_node - 1]


@kernel
def hash_rows(bits, targets, hashes):
    """Numbers that are equal for equal rows, whatever their place in the table.

    bits     uint32 (n_features, n_rows)   the bits of the values
    targets  int64  (n_rows,)
    hashes   uint64 (n_rows,)              out
    """
    for row in range(len(targets)):
        hashes[row] = targets[row]
    for feature in range(bits.shape[0]):
        for row in range(len(targets)):
            hashes[row] = random_bits(hashes[row], bits[feature, row])


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
