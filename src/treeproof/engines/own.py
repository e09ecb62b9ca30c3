"""Engines of others: a class that decides one set around one row, and is asked like any engine."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, for_each_row
from treeproof.engines.instance import lie_in_set
from treeproof.engines.outcomes import (
    is_broken_unchanged,
    mark_broken,
    mark_unknown,
    mark_verified,
    mark_witnessed,
    record_witness,
)
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.query.query import Query, categorical_features
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason


@dataclass(frozen=True, slots=True)
class RowSet:
    """One row, a box around it, and what must not happen in it.

    Attributes
    ----------
    model : Ensemble
        The model: `trees` has its arrays, with ``x < threshold`` as the one test.
    row : float64 (n_features,)
        The row, in the numbers that the model compares.
    label : object
        The label that the row must keep, or None for a claim about scores.
    low, high : float64 (n_features,)
        Ends of the box, both in it; NaN where a value is missing, and equal where it stays.
    breaks : callable
        Whether rows, (n, n_features), break the claim: the model's own arithmetic.
    deadline : float
        When the time of the row is over, as `time.perf_counter` counts.
    """

    model: Ensemble
    row: FloatArray
    label: Any
    low: FloatArray
    high: FloatArray
    breaks: Callable[[FloatArray], NDArray[np.bool_]]
    deadline: float


class OwnEngine:
    """Base of an engine of your own, for `verify` and `radius` and for comparisons with others.

    Give it a `name` and the method `decide`, and pass an object of it as ``engine=``, or make it
    known to all by the entry point ``treeproof.engines`` of your package. Radii are searched by
    asking about boxes of several sizes. Witnesses are replayed by the model itself; that a set
    holds no violation is taken on the engine's word, unless evidence is asked for.

    Examples
    --------
    >>> import numpy as np
    >>> import treeproof as tp
    >>> class Corners(tp.OwnEngine):
    ...     name = "corners"
    ...
    ...     def decide(self, asked):
    ...         corners = np.array([asked.low, asked.high])
    ...         broken = asked.breaks(corners)
    ...         return corners[broken][0] if broken.any() else None
    """

    name: ClassVar[str] = "own"
    is_complete: ClassVar[bool] = False

    def decide(self, asked: RowSet) -> bool | FloatArray | None:
        """Decide one set.

        Parameters
        ----------
        asked : RowSet
            The row, its box and the claim.

        Returns
        -------
        bool, float64 (n_features,) or None
            True where no row of the box breaks the claim, a row that breaks it, or None where the
            engine does not know.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method 'decide'.")

    def refusal(self, query: Query) -> str | None:
        """Return a sentence saying why a question cannot be answered, or None.

        Parameters
        ----------
        query : Query
            The question.

        Returns
        -------
        str or None
            A sentence, for example about models with categories.
        """
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Ask `decide` about every row that the model does not get wrong already.

        Parameters
        ----------
        query : Query
            The question.
        budget : Budget
            Limits per row.
        n_jobs : int
            Threads over rows; -1 for all cores.

        Returns
        -------
        Results
            Verdicts and witnesses.
        """
        low, high = (np.array(side) for side in query.reach.box(query.rows, _radius(query)))
        stays = np.broadcast_to(categorical_features(query.ensemble), query.rows.shape)
        low[stays] = high[stays] = query.rows[stays]

        def solve(row: int, results: Results) -> None:
            if is_broken_unchanged(query, row):
                mark_broken(query, results, row)
                return
            part = slice(row, row + 1)
            label = query.class_labels(query.labels[part])[0]
            asked = RowSet(
                query.ensemble, query.rows[row], label, low[row], high[row],
                lambda points: query.take(np.full(len(points), row)).is_broken_by(points),
                time.perf_counter() + budget.time_limit_s,
            )  # fmt: skip
            self._write(query, results, row, self.decide(asked))

        return for_each_row(query, n_jobs, solve)

    def _write(self, query: Query, results: Results, row: int, answer: Any) -> None:
        if answer is True:
            mark_verified(query, results, row)
            return
        if answer is None or answer is False:
            mark_unknown(query, results, row, UnknownReason.LOOSE_BOUND)
            return
        point = np.asarray(answer, dtype=np.float64)
        rule = (
            f"A witness of the engine '{self.name}' must be a row of {query.rows.shape[1]} values"
        )
        if point.shape != query.rows[row].shape:
            raise InvalidInput(f"{rule}. Got one of the shape {point.shape} for row {row}.")
        if not record_witness(query, results, row, point):
            raise InvalidInput(
                f"{rule} that breaks the claim. Got one for row {row} that does not."
            )
        if not lie_in_set(query, np.array([row]), point[np.newaxis])[0]:
            raise InvalidInput(f"{rule} in the box of its row. Got one outside for row {row}.")
        mark_witnessed(query, results, row)


def _radius(query: Query) -> float:
    return 0.0 if query.reach.radius is None else float(query.reach.radius)
