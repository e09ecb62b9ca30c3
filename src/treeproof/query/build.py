"""From what a user passes to a `Query`, with a description for run files."""

import dataclasses
from collections.abc import Callable
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


def build_query(
    ensemble: Ensemble,
    X: Any,
    y: Any,
    perturbation: Ball | Box,
    *,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    sums: Sums = plain_sums,
    numbers: NDArray[np.int64] | None = None,
) -> Query:
    """Check rows, labels and options, and resolve the question into numbers.

    The options are those of `treeproof.verify`; `sums` may be the compiled equal of the default,
    and `numbers` are those of the rows in their data, for what is said of them.
    """
    require_perturbation(perturbation)
    refuse_as_labels(y)
    if goal is not None and not isinstance(goal, Goal):
        raise InvalidInput(
            "'goal' must be a KeepsLabel, AvoidsTarget, ScoreWithin or ScoreChange, with its"
            f" options, such as AvoidsTarget(0). Got {goal!r}."
        )
    if not is_priced(perturbation):
        warn_of_categories(perturbation, ensemble.feature_names, categorical_features(ensemble))
    perturbation = in_order(perturbation, ensemble.feature_names, ensemble.n_features)
    arithmetic = checked_arithmetic(arithmetic)
    matrix = numeric_rows(ensemble, X, allow_empty=False)
    labels = None
    if y is not None:
        if ensemble.decision.kind == "score":
            raise InvalidInput(
                "A model that gives scores has no labels, so 'y' must be left out."
                " Ask with goal=ScoreWithin(low, high) or goal=ScoreChange(delta)."
            )
        labels = label_numbers(ensemble, y, n_rows=len(matrix))
    deployed = ensemble
    accept = accept_float64_rows if arithmetic == "float64" else accept_real_rows
    ensemble = accept(deployed)
    rows = evaluate.cast_rows(ensemble, matrix)
    codes = categorical_features(ensemble)
    if codes.any():
        # Sound: codes of categories never move, so what the model rounds them to is all there is.
        rows = np.where(codes, evaluate.cast_rows(deployed, matrix), rows)
    query = resolve_query(ensemble, rows, sums(ensemble, rows), labels, perturbation, goal=goal)
    attacked = np.ones(len(rows), dtype=bool)
    if attacker_class is not None:
        query = _only_attacked(query, attacker_class)
        attacked = query.labels == ensemble.classes.index(attacker_class)
    if not isinstance(perturbation, Box):
        refuse_outside(deployed, matrix, perturbation, numbers, attacked)
    if query.pricing is not None:
        query.pricing.refuse_broken_rows(np.arange(len(rows)) if numbers is None else numbers)
    said = describe(perturbation)
    if query.pricing is not None:
        said |= query.pricing.words(said)
    words = {
        "perturbation": said,
        "goal": describe(goal or KeepsLabel()),
        "arithmetic": arithmetic,
        "attacker_class": plain_value(attacker_class),
        "labels": "the model's own" if y is None else "given",
    }
    return dataclasses.replace(query, description=words, deployed=deployed)


def _only_attacked(query: Query, attacker_class: Any) -> Query:
    """Rows of every other class cannot move: their bounds shrink to the row itself."""
    if attacker_class not in query.ensemble.classes:
        classes = query.ensemble.classes
        raise InvalidInput(
            f"'attacker_class' must be one of the classes {listed_values(classes)}."
            f" Got {attacker_class!r}.{nearest(attacker_class, classes)}"
        )
    stays = query.labels != query.ensemble.classes.index(attacker_class)
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
    numbers: NDArray[np.int64] | None = None,
    attacked: NDArray[np.bool_] | None = None,
) -> None:
    """Refuse rows whose own values lie outside the bounds of a perturbation.

    Bounds say which values there are, so a proof around such a row would be about a set that does
    not hold the row itself. What only the rounding to the input precision parts is inside, and
    features that do not move may have any value. `numbers` are those of the rows in their data; of
    rows that are not `attacked` nothing is asked.
    """
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
    name = repr(ensemble.feature_names[feature]) if ensemble.feature_names else f"feature {feature}"
    n_more = int(outside.any(axis=1).sum()) - 1
    raise InvalidInput(
        f"Row {row if numbers is None else numbers[row]} must lie within 'low' and 'high' of"
        f" {type(perturbation).__name__}. Its {name} is {float(rows[row, feature])}, outside"
        f" {float(reach.low[row, feature])} to {float(reach.high[row, feature])}"
        + (f"; so are {n_more} more rows" if n_more else "")
        + ". Leave such rows out, or widen the bounds."
    )
