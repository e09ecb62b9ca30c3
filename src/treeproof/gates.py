"""Robustness as a number for model selection, and as a gate for tests."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from treeproof.api import verify
from treeproof.errors import InvalidInput
from treeproof.query.arithmetic import Arithmetic
from treeproof.query.goals import Goal
from treeproof.query.perturbations import Ball, Box, Cost, LInf, as_perturbation
from treeproof.results.curves import attacked_rows
from treeproof.results.numbers import share_down
from treeproof.results.results import Results

if TYPE_CHECKING:
    from treeproof.engines.base import Engine

_ROWS_NAMED = 5


def verified_accuracy_score(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    eps: float | Ball | Box,
    perturbation: LInf | None = None,
    engine: str | Engine = "exact",
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
) -> float:
    """Share of rows whose label is proved to stay right wherever features move by up to eps.

    With ``attacker_class`` it is a share of the rows of that class.

    For cross-validation and searches over models, `verified_accuracy_scorer` gives the same as a
    scorer of scikit-learn.

    Parameters
    ----------
    estimator : fitted estimator, Model or path
        Anything that `load` takes.
    X, y : array-like
        Rows and their labels.
    eps : float, LInf, L1, L2, L0, Cost or Box
        The radius, or how rows may change, as `verify` takes it.
    perturbation : LInf, optional
        Scales, directions, frozen features and domain bounds of a radius; without one itself.
    engine, goal, arithmetic, attacker_class, time_limit_s, node_limit, memory_limit_mb, n_jobs
        See `verify`.

    Returns
    -------
    float
        Never above the accuracy under the strongest attack; undecided rows count as not verified.
    """
    results = verify(
        estimator, X, y, _ball(eps, perturbation),
        engine=engine, goal=goal, arithmetic=arithmetic, attacker_class=attacker_class,
        time_limit_s=time_limit_s, node_limit=node_limit, memory_limit_mb=memory_limit_mb,
        n_jobs=n_jobs,
    )  # fmt: skip
    return _share_verified(results)


def verified_accuracy_scorer(
    *,
    eps: float | Ball | Box,
    perturbation: LInf | None = None,
    engine: str | Engine = "exact",
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
) -> Callable[[Any, Any, Any], float]:
    """Make a scorer of scikit-learn, for ``scoring`` of cross-validation and searches.

    What `sklearn.metrics.make_scorer` makes sees labels and predictions only; a proof needs the
    model, so this scorer is made here.

    Parameters
    ----------
    eps, perturbation, engine, goal, arithmetic, attacker_class
        See `verified_accuracy_score`.
    time_limit_s, node_limit, memory_limit_mb, n_jobs
        See `verified_accuracy_score`.

    Returns
    -------
    callable
        Called with an estimator, rows and labels, it gives their `verified_accuracy_score`; greater
        is better. It can be pickled, for searches with several processes.
    """
    # Searches turn errors into NaN scores, so what is wrong with the options is said here.
    _ball(eps, perturbation)
    return partial(
        verified_accuracy_score, eps=eps, perturbation=perturbation,
        engine=engine, goal=goal, arithmetic=arithmetic, attacker_class=attacker_class,
        time_limit_s=time_limit_s, node_limit=node_limit, memory_limit_mb=memory_limit_mb,
        n_jobs=n_jobs,
    )  # fmt: skip


def assert_robust(
    model: Any,
    X: Any,
    y: Any,
    eps: float | Ball | Box,
    *,
    at_least: float = 0.8,
    perturbation: LInf | None = None,
    engine: str | Engine = "exact",
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
    evidence: bool = False,
) -> Results:
    """Fail unless enough rows are proved to keep their label wherever features move by up to eps.

    Parameters
    ----------
    model, X, y, eps
        The estimator, rows, labels and radius of `verified_accuracy_score`.
    at_least : float
        Smallest share of verified rows that passes.
    perturbation, engine, goal, arithmetic, attacker_class
        See `verified_accuracy_score`.
    time_limit_s, node_limit, memory_limit_mb, n_jobs, evidence
        See `verify`.

    Returns
    -------
    Results
        The verdicts, where the gate is passed.

    Raises
    ------
    AssertionError
        Fewer rows are verified; the message says how many, and which fail.
    """
    if not 0.0 <= at_least <= 1.0:
        raise InvalidInput(f"'at_least' must be a share between 0 and 1. Got {at_least!r}.")
    asked = _ball(eps, perturbation)
    results = verify(
        model, X, y, asked, evidence=evidence,
        engine=engine, goal=goal, arithmetic=arithmetic, attacker_class=attacker_class,
        time_limit_s=time_limit_s, node_limit=node_limit, memory_limit_mb=memory_limit_mb,
        n_jobs=n_jobs,
    )  # fmt: skip
    answers = results
    results = results.take(attacked_rows(results))
    n, n_verified = len(results), int((results.verdict == "verified").sum())
    if n == 0:
        raise InvalidInput(
            f"A gate needs at least one row that is attacked. Got none of class {attacker_class!r}."
        )
    if n_verified < at_least * n:
        failing = results.row[results.verdict != "verified"]
        named = ", ".join(str(row) for row in failing[:_ROWS_NAMED])
        more = f" and {len(failing) - _ROWS_NAMED} more" if len(failing) > _ROWS_NAMED else ""
        n_unknown = int((results.verdict == "unknown").sum())
        rows = "attacked rows" if n < len(answers) else "rows"
        raise AssertionError(
            f"{n_verified} of {n} {rows} are verified{_within(asked)}"
            f" ({share_down(n_verified / n)}), but at least {100.0 * at_least:.6g} %"
            " must be."
            f" {n - n_verified - n_unknown} are falsified and {n_unknown} undecided:"
            f" rows {named}{more}."
        )
    return answers


def _share_verified(results: Results) -> float:
    """Share of the attacked rows that is verified; 0 where there is none."""
    verified = results.verdict[attacked_rows(results)] == "verified"
    return float(np.mean(verified)) if len(verified) else 0.0


def _ball(eps: float | Ball | Box, perturbation: LInf | None) -> Ball | Box:
    """What rows are verified within: a radius of an LInf, or a perturbation as it is."""
    given = as_perturbation(eps)
    if perturbation is None:
        return given
    if not isinstance(perturbation, LInf) or perturbation.eps is not None or given is eps:
        raise InvalidInput(
            "'perturbation' must be an LInf without eps, such as LInf(low=0, high=1): the radius is"
            f" given as 'eps'. Got {perturbation!r}, with {eps!r}."
        )
    return dataclasses.replace(perturbation, eps=given.eps)


def _within(asked: Ball | Box) -> str:
    """Within which changes rows were verified, in short."""
    limit = None if isinstance(asked, Box) else asked.eps
    if isinstance(limit, int | float):
        return f" {'at cost' if isinstance(asked, Cost) else 'at radius'} {limit:g}"
    return " in their box" if isinstance(asked, Box) else ""
