"""Random choices that depend on nothing but a seed and what is chosen from."""

import numpy as np

from treeproof.kernels.compiler import inner_kernel, kernel


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
