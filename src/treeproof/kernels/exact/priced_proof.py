"""Proofs about costs written down: the leaves and atoms within a limit, and the claim's objective.

What a checker computes exactly is computed in doubles here: limits are a little larger than what is
claimed, and floors a little lower, so that the checker never drops less than was dropped here.
"""

import numpy as np

from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel
from treeproof.kernels.core.leaves import best_sum, restrict_to, summation_slack
from treeproof.kernels.core.status import (
    PROVED,
)
from treeproof.kernels.exact.cost_weight import set_cost_weight
from treeproof.kernels.exact.dual import new_state
from treeproof.kernels.exact.objective import (
    Measure,
    set_limit,
)
from treeproof.kernels.exact.priced_leaves import (
    PriceList,
    keep_affordable,
    leaf_costs,
)
from treeproof.kernels.exact.priced_rows import (
    first_weight,
    lower_dear_leaves,
    priced_judge,
    priced_objective,
)
from treeproof.kernels.exact.primal import new_found
from treeproof.kernels.exact.problem import build_problem
from treeproof.kernels.exact.proof import (
    DEAR,
    PLAIN,
    ROOM,
    new_recorder,
    new_tape,
    put,
    record_problem,
    rounding_room,
    with_bytes,
)
from treeproof.kernels.exact.row import claim_of
from treeproof.kernels.exact.search import Budget

MARGIN = 2.0**-43
"""By what part a limit is larger here than what is claimed."""


@inner_kernel
def put_kept(atoms, kept, tape):
    """Append which atoms are kept: a bit for each, those of every axis in whole bytes."""
    for axis in range(len(kept.bottom)):
        first = atoms.atom_start[axis]
        last = atoms.atom_start[axis + 1]
        tape = with_bytes(tape, (last - first + 7) // 8)
        for start in range(first, last, 8):
            bits = 0
            for atom in range(start, min(start + 8, last)):
                if kept.rank[atom + 1] > kept.rank[atom]:
                    bits |= 1 << (atom - start)
            put(tape, bits, 1)
    return tape


@inner_kernel
def record_priced_way(forest, claim, atoms, prices, tape, limits, deadline):
    """Record the proof that an alternative does not happen within the prices' limit."""
    kept = keep_affordable(atoms, prices, prices.measure.within)
    if np.isinf(kept.total):  # nothing at all is within the limit
        tape = with_bytes(tape, 1)
        put(tape, DEAR, 1)
        return PROVED, tape
    start = forest.semantics.start
    leaves = restrict_to(forest, prices.row, kept, claim.coefficient, np.inf)
    base = 0.0
    for output in range(len(start)):
        base += claim.coefficient[output] * start[output]
    slack = summation_slack(
        forest.trees, claim.coefficient, start, claim.unit, leaves.leaf_start, leaves.leaf_row
    )
    if not prices.measure.is_max:
        lower_dear_leaves(
            leaves, leaf_costs(leaves, kept, prices.measure.is_max), prices.measure.within
        )
    total, gross = best_sum(leaves)
    room = ROOM * (slack + 2.0**-22 * (gross + abs(base)))
    room += rounding_room(forest, claim.coefficient, limits.least_exponent)
    floor = claim.need - slack - claim.link_slack - room
    if base + total < floor:
        tape = with_bytes(tape, 1)
        put(tape, PLAIN, 1)
        return PROVED, tape
    problem = build_problem(base, leaves, kept.box)
    found = new_found(len(kept.bottom))
    objective = priced_objective(problem, claim, prices, kept, floor, found)
    if not prices.measure.is_max:
        set_limit(problem, objective, prices.measure.within, np.inf)
    recorder = new_recorder(problem, len(kept.bottom), limits.least_exponent)
    state = new_state(problem)
    recorder.weight[0] = 0.0
    if prices.measure.is_max:
        recorder.weight[0] = state.weight[0]
    else:
        price = first_weight(problem, state, objective)
        state.weight[0] = 0.0
        set_cost_weight(problem, state, objective, price)
    budget = Budget(limits.nodes, limits.memory_bytes, deadline)
    judge_of = priced_judge(forest, claim, prices, kept, found)
    return record_problem(problem, state, objective, recorder, judge_of, None, tape, floor, budget)


@kernel
def record_priced(forest, alternatives, batch, limits, status, seconds):
    """Record proofs for every row of a `PricedBatch` but those to skip.

    status     int64   (n_rows,)             out: PROVED or the limit that was reached
    seconds    float64 (n_rows,)             out

    Returns
    -------
    data  uint8  all records, one after another: kept atoms, then each alternative
    ends  int64 (n_rows,)  where each row's record ends
    """
    clock = np.empty(2, dtype=np.int64)
    ends = np.zeros(len(batch.rows), dtype=np.int64)
    tape = new_tape(4096)
    for number in range(len(batch.rows)):
        if not batch.skip[number]:
            began = seconds_now(clock)
            limit = batch.limit[number]
            if not batch.is_max:
                limit *= 1.0 + MARGIN
            measure = Measure(
                batch.is_max, batch.is_max, limit, batch.is_limit_exact, batch.grid[number],
                np.full(1, True),
            )  # fmt: skip
            prices = PriceList(
                batch.rows[number], batch.cost[number], batch.is_open[number],
                batch.is_exact[number], batch.value[number], measure, batch.other[number],
                batch.other_limit,
            )  # fmt: skip
            tape = put_kept(batch.atoms, keep_affordable(batch.atoms, prices, limit), tape)
            group = batch.groups[number]
            for way in range(alternatives.group_start[group], alternatives.group_start[group + 1]):
                claim = claim_of(alternatives, group, way)
                status[number], tape = record_priced_way(
                    forest, claim, batch.atoms, prices, tape, limits, began + limits.time_s
                )  # fmt: skip
                if status[number] != PROVED:
                    break
            seconds[number] += seconds_now(clock) - began
        ends[number] = tape.used[0]
    return tape.data[: tape.used[0]].copy(), ends
