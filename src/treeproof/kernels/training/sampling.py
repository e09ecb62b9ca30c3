"""Random choices that do not depend on the order of rows, of features or of growth."""

import numpy as np

from treeproof.kernels.core.compiler import kernel, noalloc_kernel


@noalloc_kernel
def random_bits(seed, number):
    """64 bits from two uint64 numbers (the finishing steps of SplitMix64)."""
    bits = seed + number * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@noalloc_kernel
def draw_features(n_drawn, seed, features, keys, drawn):
    """Mark the features that may split a node: those with the smallest random keys.

    seed      uint64          of the node
    features  int32  (n,)
    keys      uint64 (n,)     scratch
    drawn     uint8  (n,)     out
    """
    n_features = len(features)
    if n_drawn >= n_features:
        for j in range(n_features):
            drawn[j] = 1
        return
    for j in range(n_features):
        keys[j] = random_bits(seed, np.uint64(features[j]))
    # Bit by bit, the largest number with fewer than `n_drawn` keys below it: the last key drawn.
    last = np.uint64(0)
    for place in range(64):
        candidate = last | (np.uint64(1) << np.uint64(63 - place))
        n_below = 0
        for j in range(n_features):
            n_below += np.int64(keys[j] < candidate)
        if n_below < n_drawn:
            last = candidate
    for j in range(n_features):
        drawn[j] = np.uint8(keys[j] <= last)


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
            hashes[row] = random_bits(hashes[row], np.uint64(bits[feature, row]))
