"""Whether the sums of a model are exact, so that no order of its trees gives another one."""

import numpy as np

from treeproof.model.ensemble import Ensemble, FloatArray, cached_per_ensemble


@cached_per_ensemble
def accumulator_grid(ensemble: Ensemble) -> float:
    """Step g such that every accumulator is a multiple of g and is summed without rounding; else 0.

    Sound: if all leaf values and start values are multiples of g = 2**k, and the largest possible
    sum of absolute values stays below 2**p * g (p bits of precision), every partial sum is a
    multiple of g with at most p bits, hence exact, in whatever order the trees are added.
    """
    aggregation, step = ensemble.aggregation, grid_exponent(ensemble)
    total = largest_leaves(ensemble).max(axis=1).sum() + np.abs(aggregation.start).max()
    bits = 24 if aggregation.precision == "float32" else 53
    if not -1000 < step < 900 or total >= 2.0 ** (bits + step):
        return 0.0
    return 2.0**step


@cached_per_ensemble
def largest_margin(ensemble: Ensemble) -> float:
    """No partial sum and no margin is larger than this, whatever leaves are added; up to rounding.

    That of this function is less than a millionth: whoever uses it leaves room for more.
    """
    aggregation = ensemble.aggregation
    rates = {"divide": 1.0 / aggregation.divisor, "affine": aggregation.scale}
    rate = max(abs(rates.get(aggregation.finish, 1.0)), 1.0)
    with np.errstate(over="ignore"):
        total = largest_leaves(ensemble).max(axis=1).sum() + np.abs(aggregation.start).max()
        return float(total * rate + np.abs([0.0, *aggregation.bias]).max())


def may_overflow(ensemble: Ensemble) -> bool:
    """Whether some sum, or a margin that is made of it, may leave the range of finite numbers.

    Sound: the limit is a quarter of the largest number, so that no rounding matters.
    """
    largest = largest_margin(ensemble) / min(abs(ensemble.decision.link_divisor), 1.0)
    return not largest < 2.0 ** (126 if ensemble.aggregation.precision == "float32" else 1022)


@cached_per_ensemble
def largest_leaves(ensemble: Ensemble) -> FloatArray:
    """Largest absolute value among the leaves of each tree, (n_trees, leaf_width)."""
    trees = ensemble.trees
    # Leaves are numbered in the order of nodes, so that those of a tree follow each other.
    first = np.searchsorted(np.flatnonzero(trees.feature < 0), trees.root[:-1])
    largest: FloatArray = np.maximum.reduceat(np.abs(trees.leaf_value), first)
    return largest


@cached_per_ensemble
def grid_exponent(ensemble: Ensemble) -> int:
    """Largest e such that all leaf and start values are multiples of 2**e; 0 where all are 0."""
    parts = (ensemble.trees.leaf_value.ravel(), np.array(ensemble.aggregation.start))
    numbers = np.concatenate(parts).astype(ensemble.aggregation.precision).astype(np.float64)
    mantissa, exponent = np.frexp(np.abs(numbers[numbers != 0.0]))
    if not len(mantissa):
        return 0
    digits = (mantissa * 2.0**53).astype(np.int64)
    lowest = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    return int(np.min(exponent - 53 + lowest))


PROOF_BITS = 60
"""Bits of the largest sum of a proof."""
MOST_WEIGHT = 15
"""Largest weight of a class that a target must beat, in proofs."""


@cached_per_ensemble
def proof_exponent(ensemble: Ensemble) -> int:
    """Proofs count sums in multiples of 2 to this.

    Sound: no sum of leaf values, with whatever weights of outputs, then has more than PROOF_BITS
    bits: two outputs have the weights 1 and -1, and a target as much as all the others that it must
    beat together.
    """
    largest, n = largest_leaves(ensemble), ensemble.n_outputs
    totals = np.abs(np.broadcast_to(ensemble.aggregation.start, n)).astype(np.float64)
    most = max(float(largest.max(initial=0.0)), float(totals.max()))
    if not most > 0.0:
        return 0
    totals /= most
    for output in range(n):
        own = np.isin(ensemble.trees.tree_output, (-1, output))
        column = output if largest.shape[1] > 1 else 0
        totals[output] += (largest[own, column] / most).sum()
    weights = 2.0 * MOST_WEIGHT * n if n > 2 else 2.0
    return int(np.frexp(most)[1] + np.frexp(2.0 * totals.max() * weights)[1]) - PROOF_BITS
