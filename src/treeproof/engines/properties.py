"""Questions about pairs of rows, answered by the exact engine over difference trees."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.batches import semantics_of
from treeproof.engines.pair_cells import PairCells
from treeproof.kernels.core.emulation import Forest
from treeproof.kernels.core.plain import turns
from treeproof.kernels.core.status import (
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
)
from treeproof.kernels.exact.optimum import BELOW, DECIDED, OPTIMAL
from treeproof.kernels.exact.pair_judge import BOTH, LABELS, VALUE, Aim
from treeproof.kernels.exact.pairs import Copies, PairForest
from treeproof.kernels.exact.property import (
    TOO_LARGE,
    PairBatch,
    PairColumns,
    PairLimits,
    solve_pairs,
)
from treeproof.model.ensemble import FloatArray, IntArray
from treeproof.model.joined import PairModels
from treeproof.prediction import in_slices, thread_count
from treeproof.query.pairs import PairQuestion, Ranges, ends_of
from treeproof.query.rounding import round_up
from treeproof.results.verdict import UnknownReason, Verdict

MOST_LEAVES = 8_000_000
"""Leaves of all difference trees of a question."""
CLOSE_ENOUGH, WITH_PROOF, ROOM = 1e-12, 1e-7, 1e-8
"""Parts of the sums' magnitude: by which a value may miss the optimum, alone and where a proof is
recorded; by which the gain of each row may exceed its proved bound, so that a proof on record, with
rounded numbers, has room."""

_MODE = {"value": VALUE, "both": BOTH, "labels": LABELS}
_ENDS_WHEN = {"optimal": OPTIMAL, "below": BELOW, "decided": DECIDED}
_REASON = {
    NODE_LIMIT: UnknownReason.NODE_LIMIT,
    TIME_LIMIT: UnknownReason.TIME_LIMIT,
    MEMORY_LIMIT: UnknownReason.MEMORY_LIMIT,
    NEAR_TIE: UnknownReason.NEAR_TIE,
    TOO_LARGE: UnknownReason.TOO_LARGE,
    PROVED: UnknownReason.ROUNDING,
}


@dataclass(slots=True, kw_only=True)
class PairOutcome:
    """What was found about one box.

    Attributes
    ----------
    verdict, reason
        Whether what is sought does not exist ('verified'), does ('falsified'), or is not known.
    lower, upper : float
        Bounds of the largest value, of the deployed model; NaN for questions without one.
    exact : bool
        Whether the search was closed: the bounds differ by no more than rounding.
    witness : float64 (2, n_features) or None
        The pair that has the value `lower`, or that was sought; replayed. None where two equal rows
        have it.
    seconds, nodes, leaves : float, int, int
        Time, boxes searched, and leaves of all difference trees.
    proved : float
        What the value of sums stays below in real numbers, with room for a proof on record; `upper`
        follows from it.
    """

    verdict: Verdict
    reason: UnknownReason
    lower: float
    upper: float
    exact: bool
    witness: FloatArray | None
    seconds: float
    nodes: int
    leaves: int
    proved: float


def solve(
    models: PairModels,
    ranges: Ranges,
    question: PairQuestion,
    budget: Budget,
    *,
    n_jobs: int = 1,
    cells: PairCells | None = None,
    leaves_room: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> list[PairOutcome]:
    """Answer a question about every box; `cells` are worked out where none are given.

    Bounds leave room for a proof on record, with rounded numbers, unless none is wanted.
    Progress is told with the number of boxes just done.
    """
    if is_idle(models, question):
        if on_progress is not None:
            on_progress(len(ranges.low))
        return [_never_found() for _ in ranges.low]
    if cells is None:
        cells = PairCells(models.joint, ranges, question.changed)
    forest = forest_of(models, cells, question)
    scale = magnitude(models, question)
    gap = 0.5 * question.step or (WITH_PROOF if leaves_room else CLOSE_ENOUGH) * scale
    room = 0.0 if question.step or not leaves_room else ROOM * scale
    boxes = PairBatch(*boxes_of(cells, question))
    columns = search_boxes(
        forest,
        lambda _: aim_of(question, gap, room),
        boxes,
        limits_of(budget),
        at_once=16,
        n_jobs=n_jobs,
        on_progress=on_progress,
    )
    n_boxes = len(boxes.low)
    return [_outcome(models, cells, question, columns, box, room) for box in range(n_boxes)]


def search_boxes(
    forest: PairForest,
    aim_at: Callable[[int], Aim],
    boxes: PairBatch,
    limits: PairLimits,
    *,
    at_once: int,
    n_jobs: int = 1,
    on_progress: Callable[[int], None] | None = None,
) -> PairColumns:
    """Search boxes, some at once, with the aim of the first of them."""
    n_boxes, n_columns = boxes.low.shape
    columns = PairColumns(
        status=np.zeros(n_boxes, dtype=np.int64),
        value=np.zeros(n_boxes),
        upper=np.zeros(n_boxes),
        is_found=np.zeros(n_boxes, dtype=bool),
        cells=np.zeros((n_boxes, n_columns), dtype=np.int32),
        counts=np.zeros((n_boxes, 4), dtype=np.int64),
        slack=np.zeros(n_boxes),
        seconds=np.zeros(n_boxes),
    )

    def search(part: slice) -> None:
        aim = aim_at(part.start)
        for some in turns(solve_pairs, part):
            solve_pairs(
                forest,
                aim,
                PairBatch(*(side[some].copy() for side in boxes)),
                limits,
                PairColumns(*(column[some] for column in columns)),
            )
        if on_progress is not None:
            on_progress(part.stop - part.start)

    in_slices(range(0, n_boxes, at_once), thread_count(n_jobs), search)
    return columns


def is_idle(models: PairModels, question: PairQuestion) -> bool:
    """Whether two decisions are asked for, of rows that no tree tells apart.

    Sound: rows that agree in every feature that is tested reach the same leaves, so their sums are
    the same bits, and so are their decisions.
    """
    tested = models.joint.trees.feature
    return question.kind != "value" and not np.isin(question.changed, tested).any()


def _never_found() -> PairOutcome:
    """The answer about a pair that cannot exist, without a search."""
    return PairOutcome(
        verdict=Verdict.VERIFIED,
        reason=UnknownReason.NONE,
        lower=math.nan,
        upper=math.nan,
        exact=False,
        witness=None,
        seconds=0.0,
        nodes=0,
        leaves=0,
        proved=-math.inf,
    )


def boxes_of(cells: PairCells, question: PairQuestion) -> tuple[IntArray, IntArray, IntArray]:
    """First, last and nearest cells of all columns: features, then second copies."""
    changed = list(question.changed)
    second = cells.second_cells(changed)
    home = np.clip(cells.nearest[:, changed], *second)
    low, high, nearest = (
        np.ascontiguousarray(np.hstack([side, other]))
        for side, other in zip((cells.low, cells.high, cells.nearest), (*second, home), strict=True)
    )
    if question.relation == "models":
        for side in (low, high, nearest):
            side[:, changed[0]], side[:, -1] = 0, 1
    return low, high, nearest


def limits_of(budget: Budget) -> PairLimits:
    """A budget as kernels take it."""
    return PairLimits(
        time_s=float(budget.time_limit_s),
        nodes=int(budget.node_limit),
        memory_bytes=float(budget.memory_limit_mb) * 2.0**20,
        leaves=MOST_LEAVES,
    )


def forest_of(models: PairModels, cells: PairCells, question: PairQuestion) -> PairForest:
    """The models of both rows as kernels take them."""
    first, second = (
        Forest(models.joint.trees, cells.space, semantics_of(model, 0))
        for model in (models.first, models.second)
    )
    one, other = models.first.aggregation, models.second.aggregation
    return PairForest(
        first=first,
        second=second,
        copies=copies_of(cells, question),
        is_alike=one == other,
        # Of two classes among more, trees of others matter only where these two settle nothing.
        has_all_trees=question.kind != "value" and models.joint.n_outputs <= 2,
    )


def copies_of(cells: PairCells, question: PairQuestion) -> Copies:
    """Which features have a second copy, and how both are related."""
    ensemble = cells.ensemble
    trees, n_features = ensemble.trees, ensemble.n_features
    column = np.arange(n_features, dtype=np.int32)
    column[list(question.changed)] = n_features + np.arange(len(question.changed))
    is_below = np.isin(trees.feature, question.changed)
    for node in np.flatnonzero(trees.feature >= 0)[::-1]:  # children come after their parents
        is_below[node] |= is_below[node + 1] | is_below[trees.right[node]]
    start = np.zeros(n_features + 1, dtype=np.int64)
    relation: list[NDArray[np.int32]] = [np.zeros((0, 2), dtype=np.int32)]
    for feature in range(n_features):
        if question.relation in ("rising", "near") and feature in question.changed:
            relation.append(_relation(cells, feature, question))
        else:
            relation.append(relation[0])
        start[feature + 1] = start[feature] + len(relation[-1])
    return Copies(
        column=column,
        is_below=is_below,
        relation_start=start,
        relation=np.concatenate(relation),
        is_difference=question.kind == "value" and bool(question.changed),
    )


def _relation(cells: PairCells, feature: int, question: PairQuestion) -> NDArray[np.int32]:
    """For each cell of a feature of the first row, the cells that the second row may be in.

    Sound: in real numbers. Cells go together iff the smallest number of the upper one and the
    largest one of the lower one are near enough; what is missing goes with what is missing.
    """
    column = cells.columns[feature]
    n_numbers = len(column.cuts) + 1
    table = np.empty((len(column.values), 2), dtype=np.int32)
    table[:, 0] = table[:, 1] = np.arange(len(table))
    if question.relation == "rising":
        table[:n_numbers, 1] = n_numbers - 1
        return table
    width = question.widths[feature]
    ends = column.ends.tolist()
    starts = [Fraction(cut) for cut in column.cuts.tolist()]
    upper = 0
    for cell in range(n_numbers):
        upper = max(upper, cell)
        while upper < n_numbers - 1 and starts[upper] - Fraction(ends[cell]) <= width:
            upper += 1
        table[cell, 1] = upper
    lower = 0
    for cell in range(n_numbers):
        while table[lower, 1] < cell:
            lower += 1
        table[cell, 0] = lower
    return table


def aim_of(question: PairQuestion, gap: float, room: float) -> Aim:
    """A question as kernels take it; the room is added to the slack of each row."""
    return Aim(
        mode=_MODE[question.kind],
        first=np.array(question.first),
        second=np.array(question.second),
        offset=float(question.offset),
        need=np.array(question.need),
        label=np.array(question.labels, dtype=np.int64),
        slack=np.array(question.slack) + room,
        unit=np.array(question.unit),
        gap=float(gap),
        share=float(question.share),
        limit=float(question.limit / question.rate),
        ends_when=_ENDS_WHEN[question.ends_when],
        ends=np.zeros(3),
    )


def magnitude(models: PairModels, question: PairQuestion) -> float:
    """Sum over all trees of the largest value of a leaf, whatever its sign: a scale of values."""
    trees = models.joint.trees
    leaf_tree = np.searchsorted(trees.root, np.flatnonzero(trees.feature < 0), side="right") - 1
    largest = np.zeros(models.joint.n_trees)
    np.maximum.at(largest, leaf_tree, np.abs(trees.leaf_value).max(axis=1))
    weight = max(np.abs(question.first).max(), np.abs(question.second).max(), 1.0)
    return float(weight * largest.sum())


def _outcome(
    models: PairModels,
    cells: PairCells,
    question: PairQuestion,
    columns: PairColumns,
    box: int,
    room: float,
) -> PairOutcome:
    """Replay what was found about a box, and say what follows."""
    status = int(columns.status[box])
    witness = _witness(cells, question, columns.cells[box], box) if columns.is_found[box] else None
    sums = None if witness is None else models.sums(witness)
    outcome = PairOutcome(
        verdict=Verdict.UNKNOWN,
        reason=_REASON.get(status, UnknownReason.SOLVER_FAILED),
        lower=math.nan,
        upper=math.nan,
        exact=False,
        witness=witness,
        seconds=float(columns.seconds[box]),
        nodes=int(columns.counts[box, 0]),
        leaves=int(columns.counts[box, 3]),
        proved=float(columns.upper[box]) + (2.0 * room or 0.5 * question.step),
    )
    if question.kind == "value":
        value = _bound_value(models, question, columns, box, sums, outcome)
        is_sought, is_excluded = value > question.limit, outcome.upper <= question.limit
    else:
        is_sought = sums is not None and question.is_found(models, sums)
        is_excluded = status == PROVED
        if not is_sought:
            outcome.witness = None
    if is_sought:
        outcome.verdict, outcome.reason = Verdict.FALSIFIED, UnknownReason.NONE
    elif is_excluded:
        outcome.verdict, outcome.reason = Verdict.VERIFIED, UnknownReason.NONE
    return outcome


def _bound_value(
    models: PairModels,
    question: PairQuestion,
    columns: PairColumns,
    box: int,
    sums: Sequence[NDArray[np.floating]] | None,
    outcome: PairOutcome,
) -> Fraction | float:
    """Bounds of the deployed value: the replayed pair, and the proved bound with its slack.

    Returns the largest value that is known, which the lower bound may be rounded down from.
    """
    value: Fraction | float = 0.0 if question.changed else -math.inf
    if sums is not None:
        found = question.value_of(models, sums)
        if found > value:
            value = found
        else:
            outcome.witness = None
    lower, least_upper = ends_of(value)
    upper, slack = float(columns.upper[box]), float(columns.slack[box])
    if question.step > 0.0 and math.isfinite(upper):
        # Sound: all values are multiples of the step, so that the largest one is, too.
        number = math.floor(Fraction(upper) / Fraction(question.step))
        upper = round_up(number * Fraction(question.step))
    # Sound: each operation rounds by less than one float, and each is followed by one more.
    upper = float(np.nextafter(upper + slack, np.inf)) if slack else upper
    if question.rate != 1.0 and upper != 0.0:
        upper = float(np.nextafter(upper * question.rate, np.inf))
    outcome.lower, outcome.upper = lower, max(upper, least_upper)
    outcome.exact = int(columns.status[box]) == PROVED and not (
        question.ends_when != "optimal"
        and outcome.upper > least_upper + slack * question.rate * 2.0
    )
    return value


def _witness(
    cells: PairCells, question: PairQuestion, point: NDArray[np.int32], box: int
) -> FloatArray:
    """Two rows in the cells of a point; one twice where nothing is changed."""
    n_features = cells.ensemble.n_features
    first = np.array(
        [cells.value_in(box, feature, int(point[feature])) for feature in range(n_features)]
    )
    second = first.copy()
    for place, feature in enumerate(question.changed):
        one, other = int(point[feature]), int(point[n_features + place])
        if one == other and cells.ranges.second is None:
            continue
        value = cells.value_in(box, feature, other, is_second=True)
        if one == other:
            # The same number, where both rows may have it.
            low, high = cells.ends(box, feature, other, is_second=True)
            second[feature] = first[feature] if low <= first[feature] <= high else value
            continue
        second[feature] = value
        if question.relation == "near":
            # The nearest numbers of both cells.
            lower, upper = sorted((one, other))
            is_second = one > other
            pair = (
                cells.ends(box, feature, lower, is_second=is_second)[1],
                cells.ends(box, feature, upper, is_second=not is_second)[0],
            )
            first[feature], second[feature] = pair if one < other else pair[::-1]
    witness = np.stack([first, second])
    return witness[:, :-1] if question.relation == "models" else witness
