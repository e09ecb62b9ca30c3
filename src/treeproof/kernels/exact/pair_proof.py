"""Proofs about pairs written down: what a box of pairs gains, or that no pair passes two needs."""

import numpy as np

from treeproof.kernels.core.cells import CellBox
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import kernel
from treeproof.kernels.core.status import UNDECIDED
from treeproof.kernels.exact.conditions import weigh
from treeproof.kernels.exact.dual import new_state
from treeproof.kernels.exact.pair_judge import VALUE
from treeproof.kernels.exact.pairs import pair_leaves
from treeproof.kernels.exact.problem import BASE, GROSS
from treeproof.kernels.exact.proof import (
    PairProof,
    new_recorder,
    new_tape,
    record_objective,
    record_problem,
)
from treeproof.kernels.exact.property import (
    TOO_LARGE,
    build_pair,
    new_pair_judge,
    pair_slack,
    with_all_trees,
)
from treeproof.kernels.exact.search import Budget

SLACKS = 1.0
"""Boxes with two needs are closed with so much more room than rounding takes, in parts of it: what
the checker allows for rounding may be a little more."""


@kernel
def record_pair(forest, aim, low, high, bound, limits, unit_exponent):
    """Record the proof of a statement about one box.

    bound          float64  of values: what they stay below
    limits         PairLimits
    unit_exponent  int      multipliers are multiples of 2**unit_exponent

    Returns a status, the bytes, and whether these are about trees of all outputs.
    """
    clock = np.empty(2, dtype=np.int64)
    budget = Budget(limits.nodes, limits.memory_bytes, seconds_now(clock) + limits.time_s)
    box = CellBox(low, high)
    slack = pair_slack(forest, aim, box)
    is_value = aim.mode == VALUE
    # Of values that exceed 0, boxes in which nothing is gained say nothing.
    may_gain_nothing = is_value and forest.copies.is_difference and forest.is_alike and bound <= 0.0
    # Ends: the trees of all outputs are added once.
    while True:
        has_all_trees = forest.has_all_trees
        leaves, fits = pair_leaves(
            forest.first, forest.copies, box, aim.first, aim.second, limits.leaves, has_all_trees
        )
        tape = new_tape(4096)
        if not fits:
            return TOO_LARGE, tape.data[:0].copy(), has_all_trees
        problem = build_pair(forest, aim, box, leaves, slack)
        # What the checker rounds up, and what is computed in doubles here, leaves its verdict as it
        # is.
        room = 4.0 * (len(forest.first.trees.tree_output) + 8) * 2.0**unit_exponent
        room += (1e-6 if is_value else SLACKS) * (slack[0] + slack[1])
        floor = bound - room - 2.0**-40 * problem.terms[GROSS] if is_value else 0.0
        terms = problem.conditions.terms
        for number in range(0 if is_value else len(terms)):
            terms[number, BASE] += room + 2.0**-40 * terms[number, GROSS]
        if not is_value:
            weigh(problem, problem.conditions.weight)
        judge = new_pair_judge(forest, aim, box, leaves, low, problem)
        status, tape = record_problem(
            problem, new_state(problem), record_objective(problem),
            new_recorder(problem, np.int64(len(low)), unit_exponent), None,
            PairProof(judge, box, may_gain_nothing, not is_value and has_all_trees), tape, floor,
            budget,
        )  # fmt: skip
        if status != UNDECIDED or has_all_trees or is_value:
            return status, tape.data[: tape.used[0]].copy(), has_all_trees
        forest = with_all_trees(forest)
