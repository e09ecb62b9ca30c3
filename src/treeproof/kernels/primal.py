"""Points of a `Problem`: values, coordinate ascent, and moving a witness closer."""

import numpy as np

from treeproof.kernels.compiler import borrowing_kernel, kernel
from treeproof.kernels.problem import (
    CELL_START,
    ENTRY_START,
    FACTOR,
    FEATURE,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
    SLOT,
)


@borrowing_kernel
def value_at(problem, state, point):
    """Value of a point inside the state's box."""
    pairs = problem.pairs
    segments = problem.segments
    entries = problem.entries
    factors = problem.factors
    value = problem.base
    for slot in range(problem.n_slots):
        value += problem.unary[point[slot]]
    for factor in range(problem.n_factors):
        first_pair = factors[factor, PAIR_START]
        width = factors[factor + 1, PAIR_START] - first_pair
        first_leaf = factors[factor, LEAF_START]
        for count in range(first_leaf, first_leaf + state.n_alive[factor]):
            leaf = state.alive[count]
            row = factors[factor, ENTRY_START] + (leaf - first_leaf) * width
            is_inside = True
            for step in range(width):
                start = pairs[first_pair + step, SEGMENT_START]
                cell = point[pairs[first_pair + step, SLOT]]
                if (
                    cell < segments[start + entries[row + step, LOW], LOW]
                    or cell > segments[start + entries[row + step, HIGH], HIGH]
                ):
                    is_inside = False
                    break
            if is_inside:
                value += problem.leaf_gain[leaf]
                break
    return value


@borrowing_kernel
def slot_values(problem, state, point, slot, values):
    """Part of the value that depends on one slot, for each of its cells, others as in `point`."""
    slots = problem.slots
    pairs = problem.pairs
    segments = problem.segments
    entries = problem.entries
    factors = problem.factors
    low = state.box[slot, LOW]
    high = state.box[slot, HIGH]
    for cell in range(low, high + 1):
        values[cell] = problem.unary[cell]
    for index in range(slots[slot, PAIR_START], slots[slot + 1, PAIR_START]):
        own = problem.slot_pair[index]
        factor = pairs[own, FACTOR]
        first_pair = factors[factor, PAIR_START]
        width = factors[factor + 1, PAIR_START] - first_pair
        first_leaf = factors[factor, LEAF_START]
        own_start = pairs[own, SEGMENT_START]
        for count in range(first_leaf, first_leaf + state.n_alive[factor]):
            leaf = state.alive[count]
            row = factors[factor, ENTRY_START] + (leaf - first_leaf) * width
            is_inside = True
            for step in range(width):
                if first_pair + step == own:
                    continue
                start = pairs[first_pair + step, SEGMENT_START]
                cell = point[pairs[first_pair + step, SLOT]]
                if (
                    cell < segments[start + entries[row + step, LOW], LOW]
                    or cell > segments[start + entries[row + step, HIGH], HIGH]
                ):
                    is_inside = False
                    break
            if is_inside:
                entry = row + own - first_pair
                first = max(segments[own_start + entries[entry, LOW], LOW], low)
                last = min(segments[own_start + entries[entry, HIGH], HIGH], high)
                for cell in range(first, last + 1):
                    values[cell] += problem.leaf_gain[leaf]


@borrowing_kernel
def ascend(problem, state, distance, point, value, need, rounds, values):
    """Improve a point slot by slot inside the box until it reaches `need`; returns its value."""
    for _ in range(rounds):
        is_better = False
        for slot in range(problem.n_slots):
            low = state.box[slot, LOW]
            high = state.box[slot, HIGH]
            if low == high:
                continue
            slot_values(problem, state, point, slot, values)
            here = point[slot]
            best = here
            for cell in range(low, high + 1):
                if values[cell] > values[best] or (
                    values[cell] == values[best] and distance[cell] < distance[best]
                ):
                    best = cell
            if best != here:
                is_better = is_better or values[best] > values[here]
                value += values[best] - values[here]
                point[slot] = best
                if value >= need:
                    return value
        if not is_better:
            break
    return value


@borrowing_kernel
def decode(problem, state, score, distance, point):
    """Point that takes the best-scored cell of every slot, the nearest among equals."""
    for slot in range(problem.n_slots):
        best = state.box[slot, LOW]
        for cell in range(best + 1, state.box[slot, HIGH] + 1):
            if score[cell] > score[best] or (
                score[cell] == score[best] and distance[cell] < distance[best]
            ):
                best = cell
        point[slot] = best


@borrowing_kernel
def clip_point(problem, state, point):
    """Move a point into the state's box."""
    for slot in range(problem.n_slots):
        point[slot] = min(max(point[slot], state.box[slot, LOW]), state.box[slot, HIGH])


@kernel
def cell_distances(problem, space, row, row_cell, down, up, domain_low, domain_high, is_ball):
    """Radius at which each cell of a problem is reached, rounded down; infinite if never.

    In a box that is no ball every cell is at distance 0.

    A cell above the row's is reached at its lower threshold T (attained), a cell below just beyond
    its upper threshold (approached). The open ball of a radius contains a point of the cell iff the
    exact distance is smaller.

    Returns
    -------
    distance   float64 (n_cells,)
    is_beyond  bool    (n_cells,)  the radius is only approached
    """
    distance = np.zeros(len(problem.cells), dtype=np.float64)
    is_beyond = np.zeros(len(problem.cells), dtype=np.bool_)
    if not is_ball:
        return distance, is_beyond
    for slot in range(problem.n_slots):
        feature = problem.slots[slot, FEATURE]
        cuts = space.cut_start[feature]
        for cell in range(problem.slots[slot, CELL_START], problem.slots[slot + 1, CELL_START]):
            if problem.cells[cell, LOW] > row_cell[feature]:
                threshold = space.cut[cuts + problem.cells[cell, LOW] - 1]
                if threshold > domain_high[feature]:
                    distance[cell] = np.inf
                else:
                    distance[cell], is_attained = quotient_down(
                        threshold, row[feature], up[feature]
                    )
                    is_beyond[cell] = not is_attained
            elif problem.cells[cell, HIGH] < row_cell[feature]:
                threshold = space.cut[cuts + problem.cells[cell, HIGH]]
                is_beyond[cell] = True
                if threshold <= domain_low[feature]:
                    distance[cell] = np.inf
                else:
                    distance[cell], _ = quotient_down(row[feature], threshold, down[feature])
    return distance, is_beyond


@borrowing_kernel
def quotient_down(larger, smaller, rate):
    """Largest double not above the exact (larger - smaller) / rate, and whether it is that number.

    For larger >= smaller; infinite for a rate of 0.
    """
    if rate == 0.0:
        return np.inf, True
    difference = larger - smaller
    if not np.isfinite(difference):
        return difference, True
    # TwoSum: the exact difference is difference + error.
    part = difference - larger
    error = (larger - (difference - part)) + (-smaller - part)
    quotient = difference / rate
    for _ in range(4):
        if compare_product(quotient, rate, difference, error) <= 0:
            break
        quotient = np.nextafter(quotient, -np.inf)
    for _ in range(4):
        above = np.nextafter(quotient, np.inf)
        if compare_product(above, rate, difference, error) > 0:
            break
        quotient = above
    return max(quotient, 0.0), compare_product(quotient, rate, difference, error) == 0


@borrowing_kernel
def compare_product(left, right, value, error):
    """Sign of left * right - (value + error), exactly, for |error| <= half a unit of value."""
    product = left * right
    # Dekker: the exact product is product + rounding.
    splitter = 134217729.0
    high_left = splitter * left
    high_left = high_left - (high_left - left)
    low_left = left - high_left
    high_right = splitter * right
    high_right = high_right - (high_right - right)
    low_right = right - high_right
    rounding = high_left * high_right - product
    rounding = ((rounding + high_left * low_right) + low_left * high_right) + low_left * low_right
    # Close doubles subtract exactly; far ones decide before the small parts matter.
    total = (product - value) + (rounding - error)
    if total > 0.0:
        return 1
    return -1 if total < 0.0 else 0
