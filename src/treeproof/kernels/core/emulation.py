"""The library's own arithmetic at one point given in cells: sums, links, labels."""

from typing import Any, NamedTuple

import numpy as np

from treeproof.kernels.core.arithmetic import exp
from treeproof.kernels.core.cells import FIXED, NEXT, NOTHING, TESTED, Space, sends_left
from treeproof.kernels.core.compiler import ONE, noalloc_kernel
from treeproof.kernels.core.softmax import IS_KNOWN, softmax_label
from treeproof.kernels.core.trees import is_left

HOLDS, BROKEN, AMBIGUOUS = 0, 1, 2
"""The claim holds at the point, is broken there, or only the link's rounding could tell."""

NO_FINISH, DIVIDE, AFFINE, RISING = 0, 1, 2, 3
IDENTITY, SOFTMAX, SIGMOID = 0, 1, 2
LABEL_CHANGES, LABEL_IS_TARGET, NEED_IS_MET = 0, 1, 2
NO, YES, MAYBE = 0, 1, 2
UNSURE = 2
SINGLE = 2.0**-40
"""Units above this are those of a softmax in float32."""

EXP_BELOW, EXP_ABOVE = 1.0 - 2.0**-51, 1.0 + 2.0**-51
"""Any exp that is right to a few units in the last place lies between these parts of ours."""


class Semantics(NamedTuple):
    """How sums are formed and judged."""

    is_input_single: bool  # rows are float32 (otherwise float64)
    is_single: bool  # sums are rounded to float32 (otherwise float64)
    start: np.ndarray  # (n_outputs,) float64
    finish: int  # NO_FINISH, DIVIDE, AFFINE; RISING for one output only
    divisor: float
    scale: float
    bias: np.ndarray  # (n_outputs,) float64
    link: int  # IDENTITY, SOFTMAX or SIGMOID of margin / link_divisor
    link_divisor: float
    link_scale: float
    link_unit: float  # a softmax may merge margins within a few such units
    judgement: int  # LABEL_CHANGES, LABEL_IS_TARGET, NEED_IS_MET
    zero_band: float


class Forest(NamedTuple):
    """A model as kernels see it."""

    trees: Any  # the ensemble's own TreeArrays
    space: Space
    semantics: Semantics


class Conjunction(NamedTuple):
    """Conditions that a violation meets all at once."""

    coefficient: np.ndarray  # (n_conditions, n_outputs) float64
    need: np.ndarray  # (n_conditions,) float64
    link_slack: np.ndarray  # (n_conditions,) float64


class Claim(NamedTuple):
    """One constraint of one row, as engines see it."""

    coefficient: np.ndarray  # (n_outputs,) float64
    need: float  # smallest gain that breaks the claim
    unit: float  # rounding unit of the library's sums; 0 when they are exact
    link_slack: float
    label: int  # class index of the judgement; -1 where unused
    conditions: Conjunction  # of which the constraint is the sum


@noalloc_kernel
def add(left, right, is_single):
    """One addition in the library's precision."""
    if is_single:
        # Sound: the float64 sum of two float32 numbers, rounded to float32, is the correctly
        # rounded float32 sum, since float64 has more than 2 * 24 + 2 bits.
        return np.float64(np.float32(left + right))
    return left + right


@noalloc_kernel
def accumulate_cells(forest, row, cells, total):
    """Sum the leaves at a point given by its atoms, in tree order and the library's precision.

    row    float64 (n_features,)  values of fixed axes
    cells  int32   (n_axes,)      atom of every other axis, or FIXED
    total  float64 (n_outputs,)   out; float32 sums are held exactly
    """
    trees, space, semantics = forest.trees, forest.space, forest.semantics
    nodes = space.nodes
    for output in range(len(semantics.start)):
        total[output] = semantics.start[output]
    for tree in range(len(trees.tree_output)):
        node = np.uint64(trees.root[tree])
        while nodes[node, TESTED] != NOTHING:
            atom = cells[nodes[node, TESTED]]
            if atom == FIXED:
                goes_left = is_left(trees, node, row[trees.feature[node]], semantics.zero_band)
            else:
                goes_left = sends_left(space, node, atom)
            node = node + ONE if goes_left else np.uint64(nodes[node, NEXT])
        leaf = nodes[node, NEXT]
        output = trees.tree_output[tree]
        if output >= 0:
            total[output] = add(total[output], trees.leaf_value[leaf, 0], semantics.is_single)
        else:
            for other in range(len(semantics.start)):
                value = trees.leaf_value[leaf, other]
                total[other] = add(total[other], value, semantics.is_single)


@noalloc_kernel
def finished(total, output, semantics):
    """Margin of one output, in the library's precision."""
    value = total[output]
    if semantics.finish == DIVIDE:
        value = value / semantics.divisor
    elif semantics.finish == AFFINE:
        value = semantics.scale * value + semantics.bias[output]
    return np.float64(np.float32(value)) if semantics.is_single else value


@noalloc_kernel
def divided(margin, semantics):
    """What the link is applied to."""
    if semantics.link_divisor == 1.0:
        return margin
    margin = margin / semantics.link_divisor
    return np.float64(np.float32(margin)) if semantics.is_single else margin


@noalloc_kernel
def tie_slack(margins, semantics):
    """Gap from which on a softmax keeps two of these margins apart.

    Sound: it merges two margins only if their exponentials, and the quotients by the sum of all,
    round together, which needs a gap below a few units of what is subtracted and rounded.
    """
    largest = 1.0
    for output in range(len(margins)):
        largest = max(largest, abs(margins[output]))
    return 8.0 * semantics.link_unit * largest


@noalloc_kernel
def lead(mine, other, slack, semantics):
    """Sign of what the link makes of two margins: 1 if mine comes first, 0 if they are equal.

    A link keeps the order of margins, and equal ones stay equal; but it may round neighbours to
    the same number. Where only that could tell, the answer is UNSURE; of a softmax it depends on
    all classes, of a sigmoid on the last digits of exp.
    """
    if mine == other:
        return 0
    if semantics.link == SOFTMAX and abs(mine - other) <= slack:
        return UNSURE
    if semantics.link == SIGMOID:
        # Sound: sums and quotients of doubles keep the order of what they are formed from.
        far = exp(-semantics.link_scale * min(mine, other))
        near = exp(-semantics.link_scale * max(mine, other))
        if 1.0 / (1.0 + EXP_ABOVE * near) <= 1.0 / (1.0 + EXP_BELOW * far):
            is_equal = 1.0 / (1.0 + EXP_BELOW * near) == 1.0 / (1.0 + EXP_ABOVE * far)
            return 0 if is_equal else UNSURE
    return 1 if mine > other else -1


@noalloc_kernel
def wins(margins, label, slack, semantics):
    """Whether a label is the first one with the largest linked margin: YES, NO or MAYBE.

    margins  float64 (n_outputs,)   finished and divided
    slack    float64                see `tie_slack`

    Only the label's own pairs matter: which of two others comes first does not. A pair that a link
    might round together is lost to an earlier class that is ahead and won against a later one that
    is behind, whatever the link rounds: then a tie gives the same answer. Otherwise a softmax is
    computed.
    """
    answer = YES
    for other in range(len(margins)):
        if other == label:
            continue
        ahead = lead(margins[label], margins[other], slack, semantics)
        if ahead == UNSURE:
            if semantics.link == SOFTMAX and (margins[label] > margins[other]) == (other > label):
                ahead = 1 if other > label else -1
            else:
                answer = MAYBE
                continue
        if ahead == -1 or (ahead == 0 and other < label):
            return NO
    if answer == MAYBE and semantics.link == SOFTMAX and IS_KNOWN:
        is_single = semantics.link_unit > SINGLE
        return YES if softmax_label(margins, is_single) == label else NO
    return answer


@noalloc_kernel
def rests_on_other_classes(forest, claim, margins, slack):
    """Whether the label keeps ahead of a claim's other class only by what a softmax rounds to.

    Sound: quotients by the sum over all classes may round together or not, as that sum is. Trees of
    classes that the claim does not weigh are not searched, so they may differ in a box in which the
    margins of its two classes do not.
    """
    is_near = False
    for other in range(len(margins)):
        if other == claim.label or claim.coefficient[other] == 0.0:
            continue
        gap = margins[claim.label] - margins[other]
        is_near |= 0.0 < abs(gap) <= slack and (gap > 0.0) != (other > claim.label)
    if is_near:
        for output in forest.trees.tree_output:
            if output >= 0 and claim.coefficient[output] == 0.0:
                return True
    return False


@noalloc_kernel
def verdict_at(forest, claim, row, cells, total):
    """Whether a point given in cells breaks a claim: HOLDS, BROKEN or AMBIGUOUS.

    It is said of all points at which every tree, of whatever class, has the leaf of this one.

    total  float64 (n_outputs,)  out: sums, or margins where labels are compared
    """
    accumulate_cells(forest, row, cells, total)
    semantics = forest.semantics
    if semantics.judgement == NEED_IS_MET:
        gain = 0.0
        for output in range(len(total)):
            gain += claim.coefficient[output] * total[output]
        return BROKEN if gain >= claim.need else HOLDS
    for output in range(len(total)):
        total[output] = finished(total, output, semantics)
        total[output] = divided(total[output], semantics)
    answer = wins(total, claim.label, tie_slack(total, semantics), semantics)
    if answer == MAYBE:
        return AMBIGUOUS
    return BROKEN if (answer == YES) == (semantics.judgement == LABEL_IS_TARGET) else HOLDS


@noalloc_kernel
def judge(forest, claim, row, cells, total):
    """As `verdict_at`; HOLDS is said of all points at which the trees that the claim weighs agree.

    AMBIGUOUS where that could not be said; BROKEN is said of this point alone.
    """
    verdict = verdict_at(forest, claim, row, cells, total)
    if verdict == HOLDS and forest.semantics.link == SOFTMAX:
        slack = tie_slack(total, forest.semantics)
        if rests_on_other_classes(forest, claim, total, slack):
            return AMBIGUOUS
    return verdict
