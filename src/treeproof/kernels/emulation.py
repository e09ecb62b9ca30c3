"""The library's own arithmetic at one point given in cells: sums, links, labels."""

import math
from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import ONE, borrowing_kernel
from treeproof.kernels.prediction import is_left
from treeproof.kernels.rank_space import CUT, FIXED, FLAGS, NEXT, NOTHING, TESTED

HOLDS, BROKEN, AMBIGUOUS = 0, 1, 2
"""The claim holds at the point, is broken there, or only the link's rounding could tell."""

NO_FINISH, DIVIDE, AFFINE, RISING = 0, 1, 2, 3
IDENTITY, SOFTMAX, SIGMOID = 0, 1, 2
LABEL_CHANGES, LABEL_IS_TARGET, NEED_IS_MET = 0, 1, 2


class Semantics(NamedTuple):
    """How sums are formed and judged.

    is_single   bool                 sums are rounded to float32 (otherwise float64)
    start       float64 (n_outputs,)
    finish      int                  NO_FINISH, DIVIDE, AFFINE; RISING for one output only
    divisor     float64
    scale       float64
    bias        float64 (n_outputs,)
    link        int                  IDENTITY, SOFTMAX or SIGMOID of margin / link_divisor
    link_divisor, link_scale  float64
    judgement   int                  LABEL_CHANGES, LABEL_IS_TARGET, NEED_IS_MET
    zero_band   float64
    """

    is_single: bool
    start: np.ndarray
    finish: int
    divisor: float
    scale: float
    bias: np.ndarray
    link: int
    link_divisor: float
    link_scale: float
    judgement: int
    zero_band: float


class Claim(NamedTuple):
    """One constraint of one row, as engines see it.

    coefficient  float64 (n_outputs,)
    need         float64   smallest gain that breaks the claim
    unit         float64   rounding unit of the library's sums; 0 when they are exact
    link_slack   float64
    label        int       class index of the judgement; -1 where unused
    """

    coefficient: np.ndarray
    need: float
    unit: float
    link_slack: float
    label: int


@borrowing_kernel
def add(left, right, is_single):
    """One addition in the library's precision."""
    if is_single:
        # Sound: the float64 sum of two float32 numbers, rounded to float32, is the correctly
        # rounded float32 sum, since float64 has more than 2 * 24 + 2 bits.
        return np.float64(np.float32(left + right))
    return left + right


@borrowing_kernel
def accumulate_cells(trees, space, semantics, row, cells, total):
    """Sum the leaves at a point given by its cells, in tree order and the library's precision.

    row    float64 (n_features,)  values of fixed features
    cells  int32   (n_features,)  cell of every other feature, or FIXED
    total  float64 (n_outputs,)   out; float32 sums are held exactly
    """
    nodes = space.nodes
    for output in range(len(total)):
        total[output] = semantics.start[output]
    for tree in range(len(trees.tree_output)):
        node = np.uint64(trees.root[tree])
        while nodes[node, TESTED] != NOTHING:
            feature = nodes[node, TESTED]
            cell = cells[feature]
            flags = nodes[node, FLAGS]
            if cell == FIXED:
                goes_left = is_left(trees, node, row[feature], semantics.zero_band)
            elif flags & 2 and space.zero_low[feature] <= cell <= space.zero_high[feature]:
                goes_left = flags & 1 == 1
            else:
                goes_left = cell <= nodes[node, CUT]
            node = node + ONE if goes_left else np.uint64(nodes[node, NEXT])
        leaf = nodes[node, NEXT]
        output = trees.tree_output[tree]
        if output >= 0:
            total[output] = add(total[output], trees.leaf_value[leaf, 0], semantics.is_single)
        else:
            for other in range(len(total)):
                value = trees.leaf_value[leaf, other]
                total[other] = add(total[other], value, semantics.is_single)


@borrowing_kernel
def finished(total, output, semantics):
    """Margin of one output, in the library's precision."""
    value = total[output]
    if semantics.finish == DIVIDE:
        value = value / semantics.divisor
    elif semantics.finish == AFFINE:
        value = semantics.scale * value + semantics.bias[output]
    return np.float64(np.float32(value)) if semantics.is_single else value


@borrowing_kernel
def linked(margin, semantics):
    """What labels are decided by; for a softmax the margin itself, which has the same order."""
    if semantics.link_divisor != 1.0:
        margin = margin / semantics.link_divisor
        if semantics.is_single:
            margin = np.float64(np.float32(margin))
    if semantics.link == SIGMOID:
        return 1.0 / (1.0 + math.exp(-semantics.link_scale * margin))
    return margin


@borrowing_kernel
def judge(trees, space, semantics, claim, row, cells, total):
    """Whether a point given in cells breaks a claim: HOLDS, BROKEN or AMBIGUOUS.

    total  float64 (n_outputs,)  scratch
    """
    accumulate_cells(trees, space, semantics, row, cells, total)
    if semantics.judgement == NEED_IS_MET:
        gain = 0.0
        for output in range(len(total)):
            gain += claim.coefficient[output] * total[output]
        return BROKEN if gain >= claim.need else HOLDS
    best = 0
    for output in range(len(total)):
        total[output] = linked(finished(total, output, semantics), semantics)
        if total[output] > total[best]:
            best = output
    if semantics.link == SOFTMAX:
        # A softmax keeps the order of margins, equal ones stay equal, and neighbours may merge,
        # which depends on all classes: there the kernel does not decide.
        for output in range(len(total)):
            if 0.0 < total[best] - total[output] <= claim.link_slack:
                return AMBIGUOUS
    if semantics.judgement == LABEL_IS_TARGET:
        return BROKEN if best == claim.label else HOLDS
    return BROKEN if best != claim.label else HOLDS
