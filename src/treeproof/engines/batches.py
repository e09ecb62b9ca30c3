"""Batches of rows for compiled engines: the question as kernels take it, and what they found."""

import contextlib
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import distances, lie_in_set, rank_space
from treeproof.engines.settling import is_broken_unchanged, settle_broken
from treeproof.kernels.core.cells import Batch
from treeproof.kernels.core.emulation import (
    AFFINE,
    DIVIDE,
    IDENTITY,
    NO_FINISH,
    RISING,
    SIGMOID,
    SOFTMAX,
    Forest,
    Semantics,
)
from treeproof.kernels.exact.row import Alternatives, Columns
from treeproof.model.ensemble import ZERO_BAND, Ensemble
from treeproof.prediction import in_slices, thread_count
from treeproof.query.query import Query
from treeproof.results.outcomes import Outcomes

CHUNK = 16
"""Most rows of a compiled call, so that it can be interrupted soon."""
_REPLAYED_CELLS, _REPLAYED_ROWS = 1 << 15, 1024
"""Rows times trees that are worth a replay while rows are searched; most rows at once."""

Sides = tuple[NDArray[np.float64], NDArray[np.float64]]

_FINISH = {"none": NO_FINISH, "divide": DIVIDE, "affine": AFFINE, "isolation": RISING}
_LINK = {
    "identity": IDENTITY,
    "softmax_float32": SOFTMAX,
    "softmax_float64": SOFTMAX,
    "sigmoid_float64": SIGMOID,
}
_LINK_UNIT = {"softmax_float32": 2.0**-23, "softmax_float64": 2.0**-52}


def in_batches(n_rows: int, n_jobs: int, run: Callable[[slice], None], first: int = 0) -> None:
    """Run chunks of rows, in threads if asked to; results must not depend on the chunks."""
    in_slices(range(first, n_rows, CHUNK), thread_count(n_jobs), run)


def forest_of(query: Query) -> Forest:
    """The model as kernels take it."""
    ensemble = query.ensemble
    semantics = semantics_of(ensemble, query.alternatives.judgement)
    return Forest(ensemble.trees, rank_space(ensemble), semantics)


def batch_of(query: Query, sides: Sides, skip: NDArray[np.bool_]) -> Batch:
    """The rows as kernels take them; sides are the domain of balls, or the boxes.

    Copies are writable and contiguous whatever the caller passed: one compiled signature.
    """
    low, high = (np.array(side, dtype=np.float64, order="C") for side in sides)
    return Batch(
        query.group.copy(),
        query.rows.copy(),
        query.reach.down.copy(),
        query.reach.up.copy(),
        low,
        high,
        skip.copy(),
    )


def part_of_batch(batch: Batch, part: slice) -> Batch:
    """A slice of the rows."""
    return Batch(
        batch.groups[part],
        batch.rows[part],
        batch.down,
        batch.up,
        batch.low[part],
        batch.high[part],
        batch.skip[part],
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
    """Every alternative as one constraint.

    Sound for a target that must beat all other classes at once: wherever all constraints hold,
    their sum holds; and the search judges every remaining leaf tuple by the model's own
    label. All outputs keep a weight, so a tuple fixes the label.
    """
    table = query.alternatives
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
    )


def empty_columns(query: Query) -> Columns:
    """Columns for all rows, with nothing known."""
    n_rows, n_features = query.rows.shape
    return Columns(
        status=np.zeros(n_rows, dtype=np.int64),
        lower=np.zeros(n_rows),
        upper=np.full(n_rows, np.inf),
        is_open=np.zeros(n_rows, dtype=bool),
        witness=np.full((n_rows, n_features), np.nan),
        seconds=np.zeros(n_rows),
        counts=np.zeros((n_rows, 4), dtype=np.int64),
        eq6_radius=np.zeros(n_rows),
    )


def part_of(columns: Columns, part: slice) -> Columns:
    """The columns of a slice of the rows; what is written there is written in all."""
    return Columns(*(column[part] for column in columns))


def broken_rows(query: Query) -> NDArray[np.bool_]:
    """Rows whose claim is broken as they stand, inside the set that is asked about."""
    if query.reach.is_ball:
        return query.already_broken
    return np.array([is_broken_unchanged(query, row) for row in range(len(query))], dtype=bool)


class Replays:
    """Replays witnesses with the plain model; falsified is said only of those it confirms.

    Parameters
    ----------
    query, columns, skip
        The question, what is found about it, and which rows were not searched.
    asks_radius : bool
        Whether a witness must lie at the distance found rather than in the query's own set.
    """

    def __init__(
        self, query: Query, columns: Columns, skip: NDArray[np.bool_], *, asks_radius: bool
    ) -> None:
        self._query = query
        self._asks_radius = asks_radius
        self._columns = columns
        self._skip = skip
        self._waiting: deque[slice] = deque()
        self._is_confirmed = np.zeros(len(query), dtype=bool)

    def after(self, run: Callable[[slice], None]) -> Callable[[slice], None]:
        """A run over slices of rows, with replays in between.

        Plain arrays need the interpreter's lock now and then, so two threads that replay wait for
        each other; one that replays while others search does not.
        """

        def searched(part: slice) -> None:
            run(part)
            self._waiting.append(part)
            n_cells = len(self._waiting) * CHUNK * self._query.ensemble.n_trees
            if n_cells >= _REPLAYED_CELLS:
                self._replay(self._taken())

        return searched

    def finished(self) -> NDArray[np.bool_]:
        """Whether each row has a witness that the plain model confirms, when all are searched."""
        self._replay(self._taken())
        return self._is_confirmed

    def _taken(self) -> list[slice]:
        parts = []
        while self._waiting:
            with contextlib.suppress(IndexError):  # another thread was faster
                parts.append(self._waiting.popleft())
        return parts

    def _replay(self, parts: list[slice]) -> None:
        searched = [np.arange(part.start, part.stop) for part in parts]
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *searched])
        rows = rows[~self._skip[rows] & np.isfinite(self._columns.upper[rows])]
        for first in range(0, len(rows), _REPLAYED_ROWS):
            some = rows[first : first + _REPLAYED_ROWS]
            witness = self._columns.witness[some]
            ball = (self._columns.upper[some], self._columns.is_open[some])
            is_inside = lie_in_set(
                self._query, some, witness, *(ball if self._asks_radius else (None, None))
            )
            self._is_confirmed[some] = is_inside & self._query.is_broken_by(witness, some)


def common_outcomes(
    query: Query, columns: Columns, skip: NDArray[np.bool_], is_confirmed: NDArray[np.bool_]
) -> Outcomes:
    """Columns common to both questions: witnesses that the plain model confirms, counts, times."""
    outcomes = Outcomes.empty(len(query), query.rows.shape[1])
    outcomes.seconds[:] = columns.seconds
    for number, name in enumerate(("nodes", "sweeps", "points", "restrictions")):
        outcomes.statistics[name] = columns.counts[:, number]
    settle_broken(query, outcomes, np.flatnonzero(skip))
    found = np.flatnonzero(is_confirmed)
    outcomes.witness[found] = columns.witness[found]
    outcomes.witness_distance[found] = distances(query, found, columns.witness[found])
    return outcomes
