"""From what a user passes to a `Query`, with a description for run files."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, listed_values, nearest
from treeproof.model import evaluate
from treeproof.model.domain import accept_float64_rows, accept_real_rows
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.inspection import plain_value
from treeproof.model.rows import label_numbers, numeric_rows
from treeproof.query.arithmetic import Arithmetic, checked_arithmetic
from treeproof.query.description import describe
from treeproof.query.goals import Goal, KeepsLabel
from treeproof.query.perturbations import (
    Ball,
    Box,
    Reach,
    ball_reach,
    in_order,
    is_priced,
    refuse_as_labels,
    require_perturbation,
    resolve,
    warn_of_categories,
    with_limit,
)
from treeproof.query.query import Query, categorical_features, plain_sums, resolve_query

Sums = Callable[[Ensemble, FloatArray], NDArray[np.floating]]
"""Adds up the leaf values of rows in the library's order and precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedQuery:
    """What of a question is the same for all rows, checked and in numbers.

    Attributes
    ----------
    deployed, ensemble : Ensemble
        The model as it was loaded, and over the rows of the question's arithmetic.
    perturbation : Ball or Box
        In the order of the model's features.
    reach : Reach or None
        Of balls, whose bounds are one row for all.
    goal : Goal or None
    attacked : int or None
        Number of the attacked class; None for all.
    words : dict
        The question in words, but for the labels.
    """

    deployed: Ensemble
    ensemble: Ensemble
    perturbation: Ball | Box
    reach: Reach | None
    goal: Goal | None
    attacked: int | None
    words: dict[str, Any]

    def of(
        self,
        X: Any,
        y: Any,
        *,
        sums: Sums = plain_sums,
        numbers: NDArray[np.int64] | None = None,
    ) -> Query:
        """Check rows and labels, and resolve the question about them; see `build_query`."""
        deployed, ensemble = self.deployed, self.ensemble
        matrix = numeric_rows(deployed, X, allow_empty=False)
        labels = None
        refuse_as_labels(y)
        if y is not None:
            if deployed.decision.kind == "score":
                raise InvalidInput(
                    "A model that gives scores has no labels, so 'y' must be left out."
                    " Ask with goal=ScoreWithin(low, high) or goal=ScoreChange(delta)."
                )
            labels = label_numbers(deployed, y, n_rows=len(matrix))
        rows = evaluate.cast_rows(ensemble, matrix)
        codes = categorical_features(ensemble)
        if codes.any():
            # Sound: codes of categories never move, so what the model rounds them to is all there
            # is.
            rows = np.where(codes, evaluate.cast_rows(deployed, matrix), rows)
        query = resolve_query(
            ensemble,
            rows,
            sums(ensemble, rows),
            labels,
            self.perturbation,
            goal=self.goal,
            reach=None if self.reach is None else self.reach.for_all(len(rows)),
            description=self.words | {"labels": "the model's own" if y is None else "given"},
            deployed=deployed,
        )
        is_attacked = None
        if self.attacked is not None:
            is_attacked = query.labels == self.attacked
            query = _only_attacked(query, ~is_attacked)
        if self.reach is not None:
            refuse_outside(deployed, matrix, self.perturbation, self.reach, numbers, is_attacked)
        pricing = query.pricing
        if pricing is not None:
            pricing.refuse_broken_rows(np.arange(len(rows)) if numbers is None else numbers)
            said = query.description["perturbation"]
            query.description["perturbation"] = said | pricing.words(said)
        return query


def prepare_query(
    ensemble: Ensemble,
    perturbation: Ball | Box,
    *,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
) -> PreparedQuery:
    """Check what is asked, and resolve what does not depend on rows."""
    require_perturbation(perturbation)
    if goal is not None and not isinstance(goal, Goal):
        raise InvalidInput(
            "'goal' must be a KeepsLabel, AvoidsTarget, ScoreWithin or ScoreChange, with its"
            f" options, such as AvoidsTarget(0). Got {goal!r}."
        )
    if not is_priced(perturbation):
        warn_of_categories(perturbation, ensemble.feature_names, categorical_features(ensemble))
    perturbation = in_order(perturbation, ensemble.feature_names, ensemble.n_features)
    accept = {"float64": accept_float64_rows, "real": accept_real_rows}
    accepted = accept[checked_arithmetic(arithmetic)](ensemble)
    reach = None
    if not isinstance(perturbation, Box):
        reach = ball_reach(perturbation, ensemble.n_features, ensemble.feature_names)
        reach = dataclasses.replace(reach, holds_reals=accepted.over_reals)
    return PreparedQuery(
        deployed=ensemble,
        ensemble=accepted,
        perturbation=perturbation,
        reach=reach,
        goal=goal,
        attacked=None if attacker_class is None else _class_number(ensemble, attacker_class),
        words={
            "perturbation": describe(perturbation),
            "goal": describe(goal or KeepsLabel()),
            "arithmetic": arithmetic,
            "attacker_class": plain_value(attacker_class),
        },
    )


def build_query(
    ensemble: Ensemble,
    X: Any,
    y: Any,
    perturbation: Ball | Box,
    *,
    sums: Sums = plain_sums,
    numbers: NDArray[np.int64] | None = None,
    **options: Any,
) -> Query:
    """Check rows, labels and options, and resolve the question into numbers.

    The options are those of `prepare_query`; `sums` may be the compiled equal of the default, and
    `numbers` are those of the rows in their data, for what is said of them.
    """
    return prepare_query(ensemble, perturbation, **options).of(X, y, sums=sums, numbers=numbers)


def _class_number(ensemble: Ensemble, attacker_class: Any) -> int:
    if attacker_class not in ensemble.classes:
        classes = ensemble.classes
        raise InvalidInput(
            f"'attacker_class' must be one of the classes {listed_values(classes)}."
            f" Got {attacker_class!r}.{nearest(attacker_class, classes)}"
        )
    return ensemble.classes.index(attacker_class)


def _only_attacked(query: Query, stays: NDArray[np.bool_]) -> Query:
    """Rows of every other class cannot move: their bounds shrink to the row itself."""
    low, high = np.array(query.reach.low), np.array(query.reach.high)
    low[stays] = np.where(np.isnan(query.rows[stays]), -np.inf, query.rows[stays])
    high[stays] = np.where(np.isnan(query.rows[stays]), np.inf, query.rows[stays])
    pricing = query.pricing
    if pricing is not None:
        whole = np.repeat(stays[:, np.newaxis], pricing.axes.n_axes, axis=1)
        pricing = dataclasses.replace(pricing, stays=whole)
    reach = dataclasses.replace(query.reach, low=low, high=high)
    return dataclasses.replace(query, reach=reach, pricing=pricing)


def refuse_outside(
    ensemble: Ensemble,
    rows: FloatArray,
    perturbation: Ball | Box,
    reach: Reach | None = None,
    numbers: NDArray[np.int64] | None = None,
    attacked: NDArray[np.bool_] | None = None,
) -> None:
    """Refuse rows whose own values lie outside the bounds of a perturbation, or of its reach.

    Bounds say which values there are, so a proof around such a row would be about a set that does
    not hold the row itself. What only the rounding to the input precision parts is inside, and
    features that do not move may have any value. `numbers` are those of the rows in their data; of
    rows that are not `attacked` nothing is asked.
    """
    if reach is None:
        if not isinstance(perturbation, Box):
            perturbation = with_limit(perturbation, None)  # bounds hold at any radius
        reach = resolve(perturbation, rows, ensemble.feature_names)
    shared = slice(0, 1 if reach.is_ball else None)  # balls have the same bounds for every row
    low, high = (evaluate.cast_rows(ensemble, side[shared]) for side in (reach.low, reach.high))
    if np.isneginf(low).all() and np.isposinf(high).all():
        return
    values = evaluate.cast_rows(ensemble, rows)
    moves = ((reach.down > 0.0) | (reach.up > 0.0)) & ~categorical_features(ensemble)
    outside = ((values < low) | (values > high)) & moves
    if attacked is not None:
        outside &= attacked[:, np.newaxis]
    if not outside.any():
        return
    row, feature = np.argwhere(outside)[0]
    reach = reach.for_all(len(rows))
    name = repr(ensemble.feature_names[feature]) if ensemble.feature_names else f"feature {feature}"
    n_more = int(outside.any(axis=1).sum()) - 1
    raise InvalidInput(
        f"Row {row if numbers is None else numbers[row]} must lie within 'low' and 'high' of"
        f" {type(perturbation).__name__}. Its {name} is {float(rows[row, feature])}, outside"
        f" {float(reach.low[row, feature])} to {float(reach.high[row, feature])}"
        + (f"; so are {n_more} more rows" if n_more else "")
        + ". Leave such rows out, or widen the bounds."
    )
