"""Batches of rows for compiled engines: the question as kernels take it, and what they found."""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import lie_in_set
from treeproof.engines.outcomes import broken_unchanged, mark_broken, write_witnesses
from treeproof.engines.priced import priced_batch, settle_costs
from treeproof.engines.spaces import axis_space, rank_space
from treeproof.kernels.core.cells import Batch
from treeproof.kernels.core.emulation import (
    AFFINE,
    DIVIDE,
    IDENTITY,
    NO_FINISH,
    RISING,
    SIGMOID,
    SOFTMAX,
    Conjunction,
    Forest,
    Semantics,
)
from treeproof.kernels.core.plain import turns
from treeproof.kernels.core.status import UNDECIDED
from treeproof.kernels.exact.row import Alternatives, Columns
from treeproof.model.ensemble import ZERO_BAND, Ensemble
from treeproof.prediction import in_slices, thread_count
from treeproof.query.query import Query
from treeproof.results.results import Results

CHUNK = 16
"""Rows of a compiled call, so that it can be interrupted soon."""
_REPLAYED_CELLS, _REPLAYED_ROWS = 1 << 15, 1024
"""Rows times trees that are worth a replay while rows are searched; most rows at once."""
Sides = tuple[NDArray[np.float64], NDArray[np.float64]]
_COUNTS = ("nodes", "sweeps", "points", "restrictions")

_FINISH = {"none": NO_FINISH, "divide": DIVIDE, "affine": AFFINE, "isolation": RISING}
_LINK = {
    "identity": IDENTITY,
    "softmax_float32": SOFTMAX,
    "softmax_float64": SOFTMAX,
    "sigmoid_float64": SIGMOID,
}
_LINK_UNIT = {"softmax_float32": 2.0**-23, "softmax_float64": 2.0**-52}


class BatchSearch:
    """A compiled search over the rows of a query, which fills one table of results.

    Verdicts about balls may be sought in these, near violations first, rather than in their boxes.
    Kernels write bounds, witnesses and times straight into the table. Witnesses are then replayed
    by the plain model, and those that it does not confirm are taken out again.

    Attributes
    ----------
    results : Results
        The table; what it says of searched rows holds after `finish`.
    skip : bool (n_rows,)
        Rows that break the claim as they are: they are not searched.
    confirmed : bool (n_rows,)
        Rows with a witness that lies in the set and that the plain model confirms.
    columns : Columns
        What kernels write: parts of the table, how each row ended, and what only engines read.
    """

    def __init__(self, query: Query, *, asks_radius: bool, in_balls: bool = False) -> None:
        n_rows, n_features = query.rows.shape
        self._query, self._asks_radius = query, asks_radius
        self.skip = broken_unchanged(query)
        self.confirmed = np.zeros(n_rows, dtype=bool)
        self.results = table = Results.empty(n_rows, n_features)
        self.columns = Columns(
            status=np.zeros(n_rows, dtype=np.int64),
            lower=table.lower,
            upper=table.upper,
            is_open=np.zeros(n_rows, dtype=bool),
            witness=table.witness,
            seconds=table.seconds,
            counts=np.zeros((n_rows, len(_COUNTS)), dtype=np.int64),
            eq6_radius=np.zeros(n_rows),
        )
        self._waiting: deque[slice] = deque()
        self._forest, self._alternatives = forest_of(query), single_constraints(query)
        self._in_balls = asks_radius or in_balls
        self._sides: Sides = (query.reach.low, query.reach.high)
        if not self._in_balls:
            radius = query.reach.radius
            self._sides = query.reach.box(query.rows, 0.0 if radius is None else radius)

    def run(
        self,
        kernel: Callable[..., None],
        option: Any,
        limits: Any,
        rows: range | None = None,
        n_jobs: int = 1,
        skip: NDArray[np.bool_] | None = None,
    ) -> None:
        """Search rows, in threads if asked to; answers must not depend on how rows are cut.

        The step of `rows` is the number of rows of a compiled call. Rows that were searched before
        go on from what their columns say; `skip` tells which others do not.

        The kernel takes the model, what could break the claims, rows, whether these have balls or
        boxes (with prices, whether the cheapest violation is wanted), its own option and limits,
        and its columns.
        """
        chunks = range(0, len(self._query), CHUNK) if rows is None else rows
        if skip is not None:
            self._replay()  # before witnesses change
        left_out = self.skip if skip is None else skip

        def search(part: slice) -> None:
            for turn in turns(kernel, part):
                search_turn(turn)

        def search_turn(part: slice) -> None:
            if left_out[part].all():
                return
            query, pricing = self._query, self._query.pricing
            batch: Any = (
                batch_of(query, self._sides, left_out, part, takes_any=not self._asks_radius)
                if pricing is None
                else priced_batch(query, pricing, left_out, part, asks_radius=self._asks_radius)
            )
            columns = self.part_of(part)
            # Prices tell whether any violation within the budget will do.
            is_ball = self._in_balls if pricing is None else self._asks_radius
            kernel(self._forest, self._alternatives, batch, is_ball, option, limits, columns)
            self._waiting.append(part)
            self._tell(part, left_out[part])
            # Plain arrays need the interpreter's lock now and then, so two threads that replay wait
            # for each other; one that replays while others search does not.
            if len(self._waiting) * chunks.step * self._query.ensemble.n_trees >= _REPLAYED_CELLS:
                self._replay()

        in_slices(chunks, thread_count(n_jobs), search)

    def _tell(self, part: slice, left_out: NDArray[np.bool_]) -> None:
        """Count the rows of a slice that no other turn goes on with."""
        if self._query.on_answered is not None:
            is_open = self.columns.status[part] == UNDECIDED
            self._query.on_answered(int((~left_out & ~is_open).sum()))

    def part_of(self, part: slice) -> Columns:
        """The columns of a slice of the rows; what is written there is written in all."""
        return Columns(*(column[part] for column in self.columns))

    def finish(self) -> Results:
        """Replay what is left, and take out what was not confirmed; verdicts are for the engine."""
        self._replay()
        table, columns = self.results, self.columns
        refuted = np.isfinite(table.upper) & ~self.confirmed
        table.upper[refuted] = np.inf
        table.witness[refuted] = np.nan
        table.attained[:] = self.confirmed & ~columns.is_open
        if self._query.pricing is not None and self._asks_radius:
            settle_costs(self._query.pricing, table, self.confirmed)
        for number, name in enumerate(_COUNTS):
            table.statistics[name] = columns.counts[:, number]
        if self.skip.any():
            mark_broken(self._query, table, np.flatnonzero(self.skip))
        return table

    def _replay(self) -> None:
        """Confirm the witnesses of the slices that were searched."""
        parts = [np.zeros(0, dtype=np.int64)]
        while self._waiting:
            with contextlib.suppress(IndexError):  # another thread was faster
                part = self._waiting.popleft()
                parts.append(np.arange(part.start, part.stop))
        rows, query = np.concatenate(parts), self._query
        rows = rows[~self.skip[rows] & np.isfinite(self.columns.upper[rows])]
        for first in range(0, len(rows), _REPLAYED_ROWS):
            some = rows[first : first + _REPLAYED_ROWS]
            points = self.results.witness[some]
            ball = (self.columns.upper[some], self.columns.is_open[some])
            inside = lie_in_set(query, some, points, *(ball if self._asks_radius else ()))
            broken, labels = query.replay(points, some)
            self.confirmed[some] = sure = inside & broken
            write_witnesses(query, self.results, some[sure], points[sure], labels[sure])


def forest_of(query: Query) -> Forest:
    """The model as kernels take it, over the axes of the question."""
    plain, pricing = forest_over_cells(query), query.pricing
    return (
        plain if pricing is None else plain._replace(space=axis_space(query.ensemble, pricing.axes))
    )


def forest_over_cells(query: Query) -> Forest:
    """The model as kernels take it, with an axis for each feature."""
    ensemble, judgement = query.ensemble, query.alternatives.judgement
    known = ensemble.worked_out.setdefault(forest_over_cells, {})
    if judgement not in known:
        semantics = semantics_of(ensemble, judgement)
        known[judgement] = Forest(ensemble.trees, rank_space(ensemble), semantics)
    forest: Forest = known[judgement]
    return forest


def batch_of(
    query: Query,
    sides: Sides,
    skip: NDArray[np.bool_],
    part: slice,
    *,
    takes_any: bool = True,
) -> Batch:
    """A slice of the rows as kernels take them; sides are the domain of balls, or the boxes.

    takes_any : any violation within the query's radius will do, otherwise the nearest is wanted

    Copies are writable and contiguous whatever the caller passed: one compiled signature.
    """
    # Bounds may be one row for all; only those of the slice are written out.
    low, high = (np.array(side[part], dtype=np.float64, order="C") for side in sides)
    rows, groups, reach = query.rows[part].copy(), query.group[part].copy(), query.reach
    within = np.full(len(rows), np.inf)
    if reach.radius is not None and takes_any:
        within[:] = query.radius_of(part, np.inf)
    return Batch(
        groups,
        rows,
        reach.down.copy(),
        reach.up.copy(),
        low,
        high,
        skip[part].copy(),
        within,
        takes_any,
    )


def semantics_of(ensemble: Ensemble, judgement: int) -> Semantics:
    """How sums are formed and judged, as kernels take it."""
    aggregation = ensemble.aggregation
    bias = np.zeros(ensemble.n_outputs)
    bias[: len(aggregation.bias)] = aggregation.bias
    return Semantics(
        is_input_single=ensemble.input_precision == "float32",
        is_single=aggregation.precision == "float32",
        start=np.array(aggregation.start, dtype=np.float64),
        finish=_FINISH[aggregation.finish],
        divisor=float(aggregation.divisor),
        scale=float(aggregation.scale),
        bias=bias,
        link=_LINK[ensemble.decision.link],
        link_divisor=float(ensemble.decision.link_divisor),
        link_scale=float(ensemble.decision.link_scale),
        link_unit=_LINK_UNIT.get(ensemble.decision.link, 0.0),
        judgement=judgement,
        zero_band=ZERO_BAND,
    )


def single_constraints(query: Query) -> Alternatives:
    """Every alternative as one constraint, beside the conditions that it is the sum of.

    Sound for a target that must beat all other classes at once: wherever all conditions hold, any
    weighted sum of them holds; and the search judges every remaining leaf tuple by the model's own
    label. All outputs keep a weight, so a tuple fixes the label.
    """
    table, known = query.alternatives, query.ensemble.worked_out
    before, made = known.get(single_constraints, (None, None))
    if before is not table:  # those of labels are the same for all questions
        made = _single_constraints(table)
        known[single_constraints] = (table, made)
    return cast("Alternatives", made)


def _single_constraints(table: Any) -> Alternatives:
    start = table.alternative_start[:-1]
    size = np.diff(table.alternative_start)
    coefficient, need, link_slack = table.coefficient, table.need, table.link_slack
    if len(start) and np.any(size > 1):
        # Sums rather than means: whole coefficients keep exact gains exact.
        coefficient, need, link_slack = (
            np.add.reduceat(column, start, axis=0) for column in (coefficient, need, link_slack)
        )
    return Alternatives(
        group_start=table.group_start,
        alternative_start=np.arange(len(start), dtype=np.int64),
        group_label=table.group_label,
        coefficient=np.ascontiguousarray(coefficient),
        need=np.ascontiguousarray(need),
        unit=table.unit[start],
        link_slack=np.ascontiguousarray(link_slack),
        condition_start=table.alternative_start,
        conditions=Conjunction(
            np.ascontiguousarray(table.coefficient), table.need, table.link_slack
        ),
    )
