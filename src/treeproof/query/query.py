"""`Query`: a model, rows, how they may change, and what must not happen; all in numbers.

Engines never look at goals, links or libraries. They see *constraints*: a constraint is a linear
form of the accumulated outputs, ``gain = coefficient · accumulator``, with the smallest value
(`need`) at which it holds. A row is falsified iff some point of its box satisfies all constraints
of one of its *alternatives* and the model's own arithmetic confirms it. Rows that share the same
alternatives form a *group* (for classifiers: one group per label).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble, FloatArray, cached_per_ensemble
from treeproof.query.constraints import Alternatives, alternatives_of, breaks_claim
from treeproof.query.goals import Goal
from treeproof.query.perturbations import Ball, Box, Reach, is_priced, resolve
from treeproof.query.prices import Pricing
from treeproof.query.pricing import pricing_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question about many rows.

    Attributes
    ----------
    ensemble : Ensemble
        The model in the domain of the question.
    rows : float64 (n_rows, n_features)
        Rows in the model's input precision.
    labels : int64 (n_rows,)
        Class index that each row should have; -1 for scores.
    reach : Reach
        How far each row may move.
    alternatives : Alternatives
        The ways to break the claim, by group.
    group : int64 (n_rows,)
        Group of each row.
    already_broken : bool (n_rows,)
        Rows whose unchanged values break the claim (radius 0, falsified).
    description : dict
        The question in words, for run files and reports.
    deployed : Ensemble or None
        The model as it was loaded, where `ensemble` stands for it in another domain.
    predicted : int64 (n_rows,) or None
        Class index that the model gives each unchanged row; None for scores.
    pricing : Pricing or None
        What changes cost and which are allowed, where the question has costs, relative units or a
        domain; its axes and atoms are what is searched then, and of the reach only the radius says
        something. None for plain L∞ balls and boxes.
    first_guess : tuple of float, or None
        Where a search for radii looks first, as the engine's `first_guess` gave it, so that the
        answer about a row does not depend on the others; None lets later rows learn from earlier
        ones.
    on_answered : callable or None
        Told how many more rows are answered, while others are not; from any thread.
    """

    ensemble: Ensemble
    rows: FloatArray
    labels: NDArray[np.int64]
    reach: Reach
    alternatives: Alternatives
    group: NDArray[np.int64]
    already_broken: NDArray[np.bool_]
    description: dict[str, Any] = field(default_factory=dict)
    deployed: Ensemble | None = None
    predicted: NDArray[np.int64] | None = None
    pricing: Pricing | None = None
    first_guess: tuple[float, float] | None = None
    on_answered: Callable[[int], None] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, selection: slice | NDArray[np.int64]) -> "Query":
        """Return the same question about a selection of the rows."""
        return replace(
            self,
            rows=self.rows[selection],
            labels=self.labels[selection],
            reach=self.reach.take(selection),
            group=self.group[selection],
            already_broken=self.already_broken[selection],
            predicted=None if self.predicted is None else self.predicted[selection],
            pricing=None if self.pricing is None else self.pricing.take(selection),
        )

    def radius_of(self, rows: Any, otherwise: float) -> float | FloatArray:
        """The radius of rows; another number where the radius is what is asked for."""
        radius = self.reach.radius
        if isinstance(radius, np.ndarray):
            return radius[rows]
        return otherwise if radius is None else radius

    def without_target(self) -> "Query":
        """Ask whether the rows keep the labels that the model gives them, and nothing else."""
        labels = self.labels if self.predicted is None else self.predicted
        sums = np.zeros((len(self), self.ensemble.n_outputs))
        alternatives, group = alternatives_of(self.ensemble, None, labels, sums)
        return replace(
            self,
            labels=labels,
            alternatives=alternatives,
            group=group,
            already_broken=np.zeros(len(self), dtype=bool),
            on_answered=None,
        )

    def replay(
        self, points: FloatArray, rows: slice | NDArray[np.int64] = slice(None)
    ) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Whether each point breaks the claim about its row, and the label that the model gives it.

        This is the replay that stands behind every falsified verdict, in the model's own
        arithmetic: plain NumPy, no kernels. Labels of scores are None.
        """
        sums = plain_sums(self.ensemble, np.atleast_2d(points))
        broken = breaks_claim(self.ensemble, self.alternatives, self.group[rows], sums)
        numbers = np.full(len(broken), -1)
        if self.predicted is not None:
            numbers = evaluate.label_indices(self.ensemble, evaluate.finish(self.ensemble, sums))
        return broken, self.class_labels(numbers)

    def is_broken_by(
        self, points: FloatArray, rows: slice | NDArray[np.int64] = slice(None)
    ) -> NDArray[np.bool_]:
        """Whether each point breaks the claim about its row; see `replay`."""
        return self.replay(points, rows)[0]

    def class_labels(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Labels of class indices; None for those of scores, which are negative."""
        classes = np.full(self.ensemble.n_classes + 1, None, dtype=object)
        classes[:-1] = self.ensemble.classes
        return classes[np.maximum(numbers, -1)]

    def words(self) -> dict[str, Any]:
        """The question in words, for results that have no header for their model."""
        precision = (self.deployed or self.ensemble).input_precision
        return self.description | {"input_precision": precision}

    def never_moved(self) -> NDArray[np.bool_]:
        """Entries (n_rows, n_features) that keep their value, though the model looks at them.

        These are codes of categories and missing values, unless a domain lets them change; nothing
        is proved about other values of them.
        """
        is_used = np.zeros(self.ensemble.n_features, dtype=bool)
        is_used[self.ensemble.trees.feature[self.ensemble.trees.feature >= 0]] = True
        never = (np.isnan(self.rows) | categorical_features(self.ensemble)) & is_used
        if self.pricing is not None:
            types = self.pricing.types
            changes = np.where(np.isnan(self.rows), types.may_fill, types.may_miss)
            changes[:, list(types.may_become)] |= ~np.isnan(self.rows[:, list(types.may_become)])
            never &= ~changes
        return never


@cached_per_ensemble
def categorical_features(ensemble: Ensemble) -> NDArray[np.bool_]:
    """Which features hold categories: `Ensemble.is_categorical`, computed once."""
    return ensemble.is_categorical


def plain_sums(ensemble: Ensemble, rows: FloatArray) -> NDArray[np.floating]:
    """Sums of leaf values by the plain meaning of the model: (n_rows, n_outputs)."""
    return evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, rows))


def resolve_query(
    ensemble: Ensemble,
    rows: FloatArray,
    accumulators: NDArray[np.floating],
    labels: NDArray[np.int64] | None,
    perturbation: Ball | Box,
    *,
    goal: Goal | None = None,
    reach: Reach | None = None,
    description: dict[str, Any] | None = None,
    deployed: Ensemble | None = None,
) -> Query:
    """Resolve a question about rows in the model's column order and input precision.

    `accumulators` are the model's sums on the rows, `labels` class indices that they should have;
    None for the model's own. For `reach`, if it is known, and the others see `Query`.
    """
    if len(rows) == 0:
        raise InvalidInput("There must be at least one row. Got an empty table.")
    predicted = None
    if ensemble.decision.kind == "score":
        labels = np.full(len(rows), -1, dtype=np.int64)
    else:
        predicted = evaluate.label_indices(ensemble, evaluate.finish(ensemble, accumulators))
        labels = predicted if labels is None else labels
    alternatives, group = alternatives_of(ensemble, goal, labels, accumulators)
    if reach is None:
        reach = resolve(perturbation, rows, ensemble.feature_names)
        reach = replace(reach, holds_reals=ensemble.over_reals)
    return Query(
        ensemble=ensemble,
        rows=rows,
        labels=labels,
        reach=reach,
        alternatives=alternatives,
        group=group,
        already_broken=breaks_claim(ensemble, alternatives, group, accumulators),
        predicted=predicted,
        pricing=pricing_of(perturbation, ensemble, rows, reach)
        if is_priced(perturbation)
        else None,
        description=description or {},
        deployed=deployed,
    )
