"""From what a user passes to a `Query`, with a description for run files."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.evidence import record_evidence, withdraw_unaccepted
from treeproof.engines.instance import rank_space
from treeproof.errors import InvalidInput
from treeproof.model import evaluate
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.inspection import plain_value
from treeproof.model.rows import label_numbers, numeric_rows
from treeproof.prediction import accumulators
from treeproof.query.arithmetic import Arithmetic, checked_arithmetic
from treeproof.query.goals import Goal, KeepsLabel
from treeproof.query.perturbations import Box, LInf, Reach
from treeproof.query.query import Query, build_query
from treeproof.results.outcomes import Outcomes
from treeproof.results.results import Results
from treeproof.results.run_file import header_record, plain


def ask(
    ensemble: Ensemble,
    X: Any,
    y: Any,
    perturbation: LInf | Box,
    *,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    n_jobs: int = 1,
) -> Query:
    """Check rows, labels and options, and resolve the question into numbers.

    Parameters
    ----------
    ensemble : Ensemble
        The model as loaded.
    X, y
        Rows, and the labels they should have; None for the model's own.
    perturbation, goal, arithmetic, attacker_class, n_jobs
        See `treeproof.verify`.
    """
    if not isinstance(perturbation, LInf | Box):
        raise InvalidInput(f"'perturbation' must be an LInf or a Box. Got {perturbation!r}.")
    perturbation = perturbation.in_order(ensemble.feature_names, ensemble.n_features)
    arithmetic = checked_arithmetic(arithmetic)
    matrix = numeric_rows(ensemble, X, allow_empty=False)
    if isinstance(perturbation, LInf):
        refuse_outside(ensemble, matrix, perturbation)
    labels = None
    if y is not None:
        if ensemble.decision.kind == "score":
            raise InvalidInput(
                "A model that gives scores has no labels, so 'y' must be left out."
                " Ask with goal=ScoreWithin(low, high) or goal=ScoreChange(delta)."
            )
        labels = label_numbers(ensemble, y, n_rows=len(matrix))
    deployed = ensemble
    if arithmetic == "float64":
        ensemble = accept_float64_rows(deployed)
    rows = evaluate.cast_rows(ensemble, matrix)
    codes = rank_space(ensemble).categorical
    if codes.any():
        # Sound: codes of categories never move, so what the model rounds them to is all there is.
        rows = np.where(codes, evaluate.cast_rows(deployed, matrix), rows)
    sums = accumulators(ensemble, rows, n_jobs)
    query = build_query(ensemble, rows, sums, labels, perturbation, goal=goal)
    if attacker_class is not None:
        query = _only_attacked(query, attacker_class)
    words = {
        "perturbation": describe(perturbation),
        "goal": describe(goal or KeepsLabel()),
        "arithmetic": arithmetic,
        "attacker_class": plain_value(attacker_class),
        "labels": "the model's own" if y is None else "given",
    }
    return dataclasses.replace(query, description=words, deployed=deployed)


def refuse_outside(
    ensemble: Ensemble,
    rows: FloatArray,
    perturbation: LInf | Box,
    numbers: NDArray[np.int64] | None = None,
) -> None:
    """Refuse rows whose own values lie outside the bounds of a perturbation.

    Bounds say which values there are, so a proof around such a row would be about a set that does
    not hold the row itself. What only the rounding to the input precision parts is inside, and
    features that do not move may have any value.

    Parameters
    ----------
    ensemble : Ensemble
        The model as loaded.
    rows : float64 (n_rows, n_features)
        Rows.
    perturbation : LInf or Box
        The bounds.
    numbers : int64 (n_rows,), optional
        Number of each row in its data; by default they are counted.
    """
    reach = perturbation.resolve(rows, ensemble.feature_names)
    shared = slice(0, 1 if reach.is_ball else None)  # balls have the same bounds for every row
    low, high = (evaluate.cast_rows(ensemble, side[shared]) for side in (reach.low, reach.high))
    if np.isneginf(low).all() and np.isposinf(high).all():
        return
    values = evaluate.cast_rows(ensemble, rows)
    moves = ((reach.down > 0.0) | (reach.up > 0.0)) & ~rank_space(ensemble).categorical
    outside = ((values < low) | (values > high)) & moves
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


def results_of(
    query: Query,
    outcomes: Outcomes,
    question: dict[str, Any],
    evidence: Budget | None = None,
    n_jobs: int = 1,
) -> Results:
    """Join outcomes with labels, the model's identity and the question.

    Parameters
    ----------
    query, outcomes, question
        What was asked, and what was found.
    evidence : Budget, optional
        Limits per row for recording evidence; without it there is none.
    n_jobs : int
        Threads over rows, for recording.
    """
    if evidence is not None:
        is_radius = question["kind"] == "radius"
        record_evidence(query, outcomes, evidence, asks_radius=is_radius, n_jobs=n_jobs)
    ensemble = query.ensemble
    # Runs are known by the model that is deployed, whatever the arithmetic of the question.
    deployed = query.deployed or ensemble
    provenance = deployed.provenance
    model = {
        "fingerprint": deployed.fingerprint,
        "library": provenance.library,
        "library_version": provenance.library_version,
        # Names of files may hold bytes that are no text, which JSON cannot hold as they are.
        "source": provenance.source.encode("utf-8", "backslashreplace").decode(),
        "file_sha256": provenance.file_sha256,
        "self_test": provenance.self_test,
        "notes": list(provenance.notes),
        "classes": [plain_value(label) for label in ensemble.classes],
        "n_trees": ensemble.n_trees,
        "n_features": ensemble.n_features,
        "feature_names": list(ensemble.feature_names),
        "input_precision": deployed.input_precision,
        "decision": ensemble.decision.kind,
    }
    header = header_record(model, question | query.description)
    results = Results.of(outcomes, class_labels(query), header)
    # A copy: rows that need no rounding may be the caller's own array.
    results.values = query.rows.copy()
    results.predicted = np.full(len(results), None, dtype=object)
    results.witness_label = results.predicted.copy()
    if query.predicted is not None:
        results.predicted = named(ensemble, query.predicted)
        has_witness = np.flatnonzero(~np.isnan(results.witness).all(axis=1))
        if len(has_witness):
            sums = accumulators(ensemble, results.witness[has_witness], n_jobs)
            labels = evaluate.label_indices(ensemble, evaluate.finish(ensemble, sums))
            results.witness_label[has_witness] = named(ensemble, labels)
    if evidence is not None:
        withdraw_unaccepted(results, deployed)
    return results


def named(ensemble: Ensemble, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Labels of class numbers; None for those of scores, which are negative."""
    classes = np.full(ensemble.n_classes + 1, None, dtype=object)
    classes[:-1] = ensemble.classes
    return classes[np.maximum(numbers, -1)]


def describe(thing: Any) -> dict[str, Any]:
    """Name a perturbation, goal, engine or search with its options, as plain data."""
    words: dict[str, Any] = {"name": getattr(thing, "name", None) or type(thing).__name__}
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        for field in dataclasses.fields(thing):
            value = getattr(thing, field.name)
            words[field.name] = nested_plain(_without_arrays(value))
    return words


def _without_arrays(value: Any) -> Any:
    # Columns of data frames are arrays to NumPy, but not to JSON.
    if not isinstance(value, list | tuple) and not hasattr(value, "__array__"):
        return value
    array = np.asarray(value)
    # Names and numbers side by side would all become text.
    return array.tolist() if array.dtype.kind in "biuf" else list(value)


def nested_plain(value: Any) -> Any:
    """Lists and dicts of numbers as JSON can hold them."""
    if isinstance(value, dict):
        return {name: nested_plain(item) for name, item in value.items()}
    return [nested_plain(item) for item in value] if isinstance(value, list) else plain(value)


def question_words(query: Query, question: dict[str, Any]) -> dict[str, Any]:
    """The question of results that have no header for their model."""
    precision = (query.deployed or query.ensemble).input_precision
    return question | query.description | {"input_precision": precision}


def never_moved(query: Query) -> NDArray[np.bool_]:
    """Entries that keep their value in every question, though the model looks at them.

    These are codes of categories and missing values; nothing is proved about other values of them.
    """
    is_used = np.zeros(query.ensemble.n_features, dtype=bool)
    is_used[query.ensemble.trees.feature[query.ensemble.trees.feature >= 0]] = True
    stays = np.isnan(query.rows) | rank_space(query.ensemble).categorical
    return np.asarray(stays & is_used)


def class_labels(query: Query) -> NDArray[Any]:
    """Label that each row should keep; None for scores."""
    return named(query.ensemble, query.labels)


def _only_attacked(query: Query, attacker_class: Any) -> Query:
    """Rows of every other class cannot move: their bounds shrink to the row itself."""
    if attacker_class not in query.ensemble.classes:
        raise InvalidInput(
            f"'attacker_class' must be one of the classes {list(query.ensemble.classes)}."
            f" Got {attacker_class!r}."
        )
    stays = query.labels != query.ensemble.classes.index(attacker_class)
    low, high = np.array(query.reach.low), np.array(query.reach.high)
    low[stays] = np.where(np.isnan(query.rows[stays]), -np.inf, query.rows[stays])
    high[stays] = np.where(np.isnan(query.rows[stays]), np.inf, query.rows[stays])
    reach: Reach = dataclasses.replace(query.reach, low=low, high=high)
    return dataclasses.replace(query, reach=reach)
