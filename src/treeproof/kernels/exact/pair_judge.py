"""Pairs of rows: whether one is what is sought, and which cells of both copies go together."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import (
    AMBIGUOUS,
    BROKEN,
    HOLDS,
    NO,
    YES,
    accumulate_cells,
    divided,
    finished,
    tie_slack,
    wins,
)
from treeproof.kernels.exact.frontier import write_box
from treeproof.kernels.exact.pairs import PairForest, gains_nothing
from treeproof.kernels.exact.primal import POINTS, locate, meets_conditions
from treeproof.kernels.exact.problem import FEATURE, GROSS, HIGH, LOW

VALUE, BOTH, LABELS = 0, 1, 2
"""What is sought: the largest value; a pair that passes both needs; two labels that differ."""


class Aim(NamedTuple):
    """What is sought.

    mode           int
    first, second  float64 (n_outputs,)  weights of the sums of both rows in their gains
    offset         float64               VALUE: what the gain is before any tree, rounded up
    need           float64 (2,)          BOTH, LABELS: least gain of the first and the second row
    label          int64   (2,)          LABELS: class that goes with the need of each row
    slack          float64 (2,)          rounding that each gain may hide beside that of sums
    unit           float64 (2,)          rounding unit of each row's sums; 0 when exact
    gap            float64               VALUE: how near to the optimum is near enough
    share          float64               VALUE: the same, as a part of the best value known
    limit          float64               VALUE: the value that is claimed not to be exceeded
    ends_when      int                   VALUE: OPTIMAL; BELOW: or the limit is; DECIDED: or passed
    ends           float64 (3,)          VALUE: what is below the first is of no interest, and more
                                         than the second one decides; the third is 1 where all that
                                         is not below the first is; written by `solve_pair`
    """

    mode: int
    first: np.ndarray
    second: np.ndarray
    offset: float
    need: np.ndarray
    label: np.ndarray
    slack: np.ndarray
    unit: np.ndarray
    gap: float
    share: float
    limit: float
    ends_when: int
    ends: np.ndarray


class PairJudge(NamedTuple):
    """What decides whether a pair of rows is what is sought.

    forest         PairForest
    aim            Aim
    nearest        int32   (n_columns,)  cells that a point takes where nothing else is asked for
    leaves         PairLeaves            of the problem
    link           int64   (n, 3)        slots of both copies of related features, and the feature
    cells          int32   (n_columns,)  scratch
    second         int32   (n_features,) scratch: cells of the second row
    total          float64 (2, n_outputs)  scratch
    row            float64 (0,)            of which nothing is fixed
    """

    forest: PairForest
    aim: Aim
    nearest: np.ndarray
    leaves: NamedTuple
    link: np.ndarray
    cells: np.ndarray
    second: np.ndarray
    total: np.ndarray
    row: np.ndarray


@noalloc_kernel
def gain_of_sums(weights, total):
    """Gain of the sums of one row."""
    gain = 0.0
    for output in range(len(weights)):
        gain += weights[output] * total[output]
    return gain


@noalloc_kernel
def has_label(judge, row, semantics, label):
    """Whether a row, whose sums are in ``judge.total``, has a label: YES, NO or MAYBE."""
    aim, total = judge.aim, judge.total[row]
    if len(semantics.start) == 1:
        # One sum, two classes: its need is what decides for the class of the question.
        weights = aim.second if row == 1 else aim.first
        is_met = gain_of_sums(weights, total) >= aim.need[row]
        return YES if is_met == (label == aim.label[row]) else NO
    return wins(total, label, tie_slack(total, semantics), semantics)


@noalloc_kernel
def finish_row(total, semantics):
    """Turn the sums of several outputs into what the link is applied to, in place."""
    if len(semantics.start) > 1:
        for output in range(len(semantics.start)):
            total[output] = divided(finished(total, output, semantics), semantics)


@noalloc_kernel
def judge_pair(judge):
    """Whether the rows in ``judge.cells`` are what is sought (BROKEN), or not, or AMBIGUOUS.

    In the library's own arithmetic, rounding included.
    """
    aim, total = judge.aim, judge.total
    first, second = judge.forest.first, judge.forest.second
    accumulate_cells(first, judge.row, judge.cells, total[0])
    for feature in range(len(judge.forest.copies.column)):
        judge.second[feature] = judge.cells[judge.forest.copies.column[feature]]
    accumulate_cells(second, judge.row, judge.second, total[1])
    if aim.mode == BOTH:
        one, other = gain_of_sums(aim.first, total[0]), gain_of_sums(aim.second, total[1])
        return BROKEN if one >= aim.need[0] and other >= aim.need[1] else HOLDS
    finish_row(total[0], first.semantics)
    finish_row(total[1], second.semantics)
    answer = HOLDS
    for label in range(max(total.shape[1], 2)):
        one = has_label(judge, 0, first.semantics, label)
        other = has_label(judge, 1, second.semantics, label)
        if (one == YES and other == NO) or (one == NO and other == YES):
            return BROKEN
        if one != other:
            answer = AMBIGUOUS
    return answer


@noalloc_kernel
def write_cells(judge, problem, point):
    """Cells of all columns at a point; False when related columns do not go together."""
    cells, nearest, column = judge.cells, judge.nearest, judge.forest.copies.column
    copy_into(cells, nearest)
    for slot in range(problem.n_slots):
        at = problem.slots[slot, FEATURE]
        low = problem.cells[point[slot], LOW]
        cells[at] = min(max(nearest[at], low), problem.cells[point[slot], HIGH])
    for number in range(len(judge.link)):
        feature = judge.link[number, 2]
        start = judge.forest.copies.relation_start[feature] + cells[feature]
        other = cells[column[feature]]
        if (
            not judge.forest.copies.relation[start, LOW]
            <= other
            <= judge.forest.copies.relation[start, HIGH]
        ):
            return False
    return True


@noalloc_kernel
def relate(judge, problem, state):
    """Drop end cells of each copy that go with no cell of the other; False when none is left."""
    link, copies = judge.link, judge.forest.copies
    box, cells, relation = state.box, problem.cells, copies.relation
    for number in range(len(link)):
        one, other = link[number, 0], link[number, 1]
        start = copies.relation_start[link[number, 2]]
        least = relation[start + cells[box[one, LOW], LOW], LOW]
        most = relation[start + cells[box[one, HIGH], HIGH], HIGH]
        while box[other, LOW] <= box[other, HIGH] and cells[box[other, LOW], HIGH] < least:
            box[other, LOW] += 1
        while box[other, LOW] <= box[other, HIGH] and cells[box[other, HIGH], LOW] > most:
            box[other, HIGH] -= 1
        if box[other, LOW] > box[other, HIGH]:
            return False
        least = cells[box[other, LOW], LOW]
        most = cells[box[other, HIGH], HIGH]
        while (
            box[one, LOW] <= box[one, HIGH]
            and relation[start + cells[box[one, LOW], HIGH], HIGH] < least
        ):
            box[one, LOW] += 1
        while (
            box[one, LOW] <= box[one, HIGH]
            and relation[start + cells[box[one, HIGH], LOW], LOW] > most
        ):
            box[one, HIGH] -= 1
        if box[one, LOW] > box[one, HIGH]:
            return False
    return True


@noalloc_kernel
def split_relation(judge, problem, state):
    """Where to split related columns of which not all cells go together; slot -1 if all do.

    A staircase tells cells apart only where its steps begin.
    """
    link, copies = judge.link, judge.forest.copies
    box, cells, relation = state.box, problem.cells, copies.relation
    for number in range(len(link)):
        one, other = link[number, 0], link[number, 1]
        start = copies.relation_start[link[number, 2]]
        if (
            relation[start + cells[box[one, LOW], LOW], HIGH] >= cells[box[other, HIGH], HIGH]
            and relation[start + cells[box[one, HIGH], HIGH], LOW] <= cells[box[other, LOW], LOW]
        ):
            continue
        slot = one if box[one, LOW] < box[one, HIGH] else other
        if box[slot, LOW] < box[slot, HIGH]:
            return slot, np.int64((box[slot, LOW] + box[slot, HIGH]) // 2)
    return np.int64(-1), np.int64(0)


@noalloc_kernel
def judge_rows(judge, problem, state, objective, is_last):
    """Judge the pair of rows at the point; what is sought becomes the witness.

    is_last  bool  whether each tree that the needs weigh has one pair of leaves left in the box

    Sound: of a last pair, the point is one of many, since trees of other classes may tell the box
    apart; it stands for all of them only where no tree is left out or a need is not met.
    """
    found, table = objective.found, problem.conditions
    found.counts[POINTS] += 1
    if not write_cells(judge, problem, objective.point):
        return np.int64(HOLDS)
    verdict = np.int64(judge_pair(judge))
    if verdict == BROKEN:
        found.upper[0] = 0.0
        copy_into(found.witness, judge.cells)
    if verdict == HOLDS and is_last and not judge.forest.has_all_trees:
        locate(problem, objective.gains, state, objective.point, objective.holders)
        meets_conditions(problem, objective.point, objective.holders, objective.n_conditions)
        verdict = np.int64(AMBIGUOUS)
        for number in range(len(table.value)):
            # Sound: by more than all rounding.
            if table.value[number] < -(2.0**-40) * table.terms[number, GROSS]:
                verdict = np.int64(HOLDS)
    return verdict


@inner_kernel
def is_worthless(problem, state, judge, box):
    """Whether no pair of leaves that meets the state's box gains anything; see `settle_tie`."""
    row = np.empty(2 * len(box.low), dtype=np.int32)
    write_box(problem, state, box, row)
    return gains_nothing(judge.leaves, row[: len(box.low)], row[len(box.low) :])
