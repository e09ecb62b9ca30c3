"""Gradients of the losses on a grid on which their sums are exact, margins and probabilities.

Trees are grown from sums of gradients and hessians. Rounded to multiples of a power of two that is
small against their total, at most 2**52 steps in all, every partial sum is exact in float64. So
sums do not depend on the order of rows, on threads or on how a histogram was derived, a
histogram minus that of one child is that of the other child, and an empty bin is exactly zero.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.arithmetic import exp, ldexp
from treeproof.kernels.core.compiler import kernel, noalloc_kernel
from treeproof.kernels.core.softmax import exponential

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
        probability = 1.0 / (1.0 + exp(-np.float64(margins[0, row])))
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


@noalloc_kernel
def grid_step(total):
    """Power of two such that numbers whose magnitudes sum to `total` take 2**52 steps at most."""
    if total <= 0.0:
        return 1.0
    _, exponent = math.frexp(total)
    return ldexp(1.0, max(exponent - GRID_BITS + 1, -1000))


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


class GrownTree(NamedTuple):
    """A finished tree; node 0 is its root, and children have larger numbers than their parent."""

    feature: NDArray[np.int32]  # (n_nodes,) as all of them; -1 at a leaf
    threshold: NDArray[np.float32]  # values below it go left; 0 at a leaf
    missing_left: NDArray[np.bool_]  # whether missing values go left
    left: NDArray[np.int32]  # children; -1 at a leaf
    right: NDArray[np.int32]
    value: NDArray[np.float32]  # what a leaf adds to the margin; 0 at an inner node
    gain: NDArray[np.float32]  # score of the split
    cover: NDArray[np.float32]  # sum of hessians


@kernel
def add_tree(tree, values, rows, margins):
    """Walk rows down one tree and add the leaves that they reach.

    values   float32 (n_features, n_rows)   columns
    rows     int32   (n,)                   which rows
    margins  float32 (n_rows,)              in/out
    """
    for row in rows:
        node = 0
        while tree.left[node] >= 0:
            value = values[tree.feature[node], row]
            goes_left = value < tree.threshold[node]
            if math.isnan(value):
                goes_left = tree.missing_left[node]
            node = tree.left[node] if goes_left else tree.right[node]
        margins[row] += tree.value[node]


@kernel
def sigmoid_probabilities(margins, probabilities):
    """Probability of class 1 as XGBoost computes it, all in float32.

    margins        float32 (n,)
    probabilities  float32 (n, 2)   out
    """
    one, tiny = np.float32(1.0), np.float32(1e-16)
    for row in range(len(margins)):
        exponent = min(-margins[row], np.float32(88.7))
        denominator = np.float32(exponential(exponent, True)) + one + tiny
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
        total = np.float64(0.0)
        for k in range(n_classes):
            probabilities[row, k] = exponential(margins[row, k] - largest, True)
            total += probabilities[row, k]
        for k in range(n_classes):
            probabilities[row, k] /= np.float32(total)
