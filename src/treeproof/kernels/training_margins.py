"""Margins of rows that did not take part in growing a tree, and probabilities from margins."""

import math

import numpy as np

from treeproof.kernels.compiler import kernel


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
