"""The public functions: each checks its arguments, calls one layer below, and returns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.prediction import Model
from treeproof.query.arithmetic import Arithmetic
from treeproof.query.domain import Domain
from treeproof.query.goals import Goal
from treeproof.query.paper_protocol import PaperProtocol
from treeproof.query.perturbations import (
    All,
    Ball,
    Box,
    LInf,
    PerFeature,
    as_perturbation,
    is_priced,
    refuse_as_labels,
)
from treeproof.results.columns import source_of
from treeproof.results.results import Results

if TYPE_CHECKING:
    from treeproof.engines.base import Engine
    from treeproof.query.domain import Features
    from treeproof.query.properties import Property
    from treeproof.query.query import Query
    from treeproof.results.features import FeatureResults
    from treeproof.results.reasons import Reasons
    from treeproof.search.progress import Progress
    from treeproof.search.proving import Inquiry
    from treeproof.search.question import PreparedQuestion


def load(
    source: Any,
    *,
    decision_threshold: float | None = None,
    self_test: bool = True,
    base_score: float | None = None,
    n_classes: int | None = None,
    n_features: int | None = None,
    rounds: Literal["best", "all"] | None = None,
    classes: Sequence[Any] | None = None,
    input_precision: Literal["float32", "float64"] | None = None,
    tie: Literal["lower", "upper"] | None = None,
    missing: Literal["nan", "zero", "none"] | None = None,
) -> Model:
    """Load a model exactly as it is deployed, or refuse it.

    Parameters
    ----------
    source : model object, str or path
        A trained model of XGBoost, LightGBM, CatBoost or scikit-learn, a scikit-learn pipeline or
        wrapper around one, or a model file.
    decision_threshold : float, optional
        Probability from which (inclusive) a binary classifier says class 1; by default the
        library's own rule.
    self_test : bool
        Compare margins and labels with the source library, on rows made to tell small differences
        apart, whenever that library can be imported.
    base_score : float, optional
        Margin to start from, for XGBoost text dumps.
    n_classes : int, optional
        Number of classes, for XGBoost text dumps: 1 for a score, 2 (the default) for one margin, k
        for k margins whose trees take turns.
    n_features : int, optional
        Number of columns of a row, for XGBoost text dumps and ONNX models that do not state it; by
        default up to the last one used.
    rounds : {"best", "all"}, optional
        Rounds of an XGBoost model that stopped early: up to the best, as XGB* estimators predict,
        or all, as a Booster does; by default as the object, or who saved the file (`ModelWarning`).
    classes : sequence, optional
        Names of the classes, in the order of the model's own, where labels were encoded before
        training: the ``classes_`` of a LabelEncoder.
    input_precision : {"float32", "float64"}, optional
        Precision of comparisons, for treelite checkpoints.
    tie : {"lower", "upper"}, optional
        Which class a tie goes to, for treelite checkpoints.
    missing : {"nan", "zero", "none"}, optional
        What counts as missing, for treelite checkpoints.

    Returns
    -------
    Model
        The exact meaning of the source model, with compiled prediction.

    Raises
    ------
    UnsupportedModel
        The model cannot be represented exactly.
    BrokenModelFile
        The file is damaged or of no known kind.
    SelfTestFailed
        The source library gives another answer on some row.
    """
    from treeproof.loaders import load_ensemble
    from treeproof.loaders.base import LoadOptions

    given = LoadOptions(
        decision_threshold=decision_threshold, base_score=base_score, n_classes=n_classes,
        n_features=n_features, rounds=rounds, classes=classes, input_precision=input_precision,
        tie=tie, missing=missing,
    )  # fmt: skip
    return Model(load_ensemble(source, options=given, self_test=self_test))


def verify(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: float | Ball | Box | None = None,
    *,
    engine: str | Engine = "exact",
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    evidence: bool = False,
    n_jobs: int = 1,
    progress: Progress = False,
) -> Results:
    """Decide for every row whether the claim holds everywhere in a set around it.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    X : array-like or data frame of shape (n_rows, n_features)
        Rows.
    y : array-like of shape (n_rows,), optional
        Labels that the rows should have, as the model's library reports them; by default the
        model's own labels.
    perturbation : float, LInf, L1, L2, L0, Cost, All or Box
        How a row may change, with a radius or budget; a number is the radius of a plain LInf.
    engine : str or engine
        Name of an engine, or one with options such as ``multilevel(T=2, L=1)``.
    goal : KeepsLabel, AvoidsTarget, ScoreWithin or ScoreChange, optional
        What must hold; by default the label is kept.
    arithmetic : {"float64", "real"}
        What rows are: doubles, which the deployed model rounds to its own input precision first, or
        real numbers compared with its thresholds, as in the literature. For models that take
        doubles as they are, both are the same.
    attacker_class : label, optional
        Only rows of this class are attacked; all others stay as they are.
    time_limit_s, node_limit, memory_limit_mb : float, int, float
        Limits per row; a row that needs more is 'unknown'.
    evidence : bool
        Prove every answer once more, on record, for ``treeproof check``; limits hold for each.
    n_jobs : int
        Threads over rows; -1 for all cores.
    progress : bool or callable
        Show a bar of the rows that are answered, by tqdm where it is installed, or call a function
        with their number and that of all rows.

    Returns
    -------
    Results
        Verdict, bounds and witness of every row.
    """
    refuse_as_labels(y)
    question = prepare(
        "verify", model, perturbation, engine=engine, goal=goal, arithmetic=arithmetic,
        attacker_class=attacker_class, time_limit_s=time_limit_s, node_limit=node_limit,
        memory_limit_mb=memory_limit_mb, evidence=evidence,
    )  # fmt: skip
    found = question.ask(X, y, n_jobs=n_jobs, progress=progress)
    found.source = source_of(X)
    return found


def radius(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: Ball | None = None,
    *,
    engine: str | Engine = "exact",
    search: PaperProtocol | None = None,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    evidence: bool = False,
    n_jobs: int = 1,
    progress: Progress = False,
) -> Results:
    """Find the minimal perturbation of every row, or its cheapest change.

    Parameters
    ----------
    model, X, y
        See `verify`; a row that the model already gets wrong has radius 0.
    perturbation : LInf, L1, L2, L0 or Cost, optional
        What changes cost and which there are: scales or prices, directions, frozen features,
        bounds, domain; without a radius or budget. By default a plain LInf.
    engine : str or engine
        Name of an engine, or one with options. Bounding engines give lower bounds.
    search : PaperProtocol, optional
        Search as the paper does, in ten steps, instead of exactly.
    goal, arithmetic, attacker_class
        See `verify`.
    time_limit_s, node_limit, memory_limit_mb : float, int, float
        Limits per row; they count over all radii that are tried for it.
    evidence, n_jobs, progress
        See `verify`.

    Returns
    -------
    Results
        Lower and upper bound of every row; equal, and `exact`, where the search was closed.
    """
    refuse_as_labels(y)
    question = prepare(
        "radius", model, perturbation, engine=engine, search=search, goal=goal,
        arithmetic=arithmetic, attacker_class=attacker_class, time_limit_s=time_limit_s,
        node_limit=node_limit, memory_limit_mb=memory_limit_mb, evidence=evidence,
    )  # fmt: skip
    found = question.ask(X, y, n_jobs=n_jobs, progress=progress)
    found.source = source_of(X)
    return found


def prepare(
    kind: Literal["verify", "radius"],
    model: Any,
    perturbation: float | Ball | Box | None = None,
    *,
    engine: str | Engine = "exact",
    search: PaperProtocol | None = None,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    evidence: bool = False,
) -> PreparedQuestion:
    """Prepare a question that is asked again and again: in a service, a loop or a notebook.

    Model, perturbation and options are resolved once; the answers are those of `verify` and
    `radius`, bit for bit.

    Parameters
    ----------
    kind : {"verify", "radius"}
        Which of the two is asked for.
    model, perturbation
        See `verify` and `radius`.
    engine, search, goal, arithmetic, attacker_class
        See `verify` and `radius`.
    time_limit_s, node_limit, memory_limit_mb, evidence
        See `verify` and `radius`.

    Returns
    -------
    PreparedQuestion
        Its method `ask` takes rows, one or many.

    Examples
    --------
    >>> import treeproof as tp
    >>> question = tp.prepare("radius", "model.treeproof")  # doctest: +SKIP
    >>> question.ask(X[:1], y[:1]).lower  # doctest: +SKIP
    """
    from treeproof.search.question import Question, prepared

    asked: Any = perturbation if kind == "radius" else as_perturbation(perturbation)
    if kind == "radius":
        asked = _without_radius(cast("Ball | None", asked), "LInf(scale=...)", "treeproof.verify")
    elif kind != "verify":
        raise InvalidInput(f"'kind' must be 'verify' or 'radius'. Got {kind!r}.")
    elif asked is None:
        raise InvalidInput("'perturbation' must say how rows may change, such as 0.1.")
    elif isinstance(asked, Ball) and asked.eps is None:
        name = type(asked).__name__
        raise InvalidInput(
            f"To verify, {name} must have a radius, such as {name}(0.1). Got none."
            " Ask treeproof.radius for the radius itself."
        )
    if search is not None and (kind == "verify" or not isinstance(search, PaperProtocol)):
        raise InvalidInput(
            "'search' must be a PaperProtocol(), for radii, or left out."
            f" Got {search!r} to {'verify' if kind == 'verify' else 'find radii'}."
        )
    if search is not None and is_priced(asked):
        raise UnsupportedQuery("The paper's search is about plain LInf balls. Leave out 'search'.")
    question = Question(
        kind=kind, perturbation=asked, engine=engine, search=search, goal=goal,
        arithmetic=arithmetic, attacker_class=attacker_class, time_limit_s=time_limit_s,
        node_limit=node_limit, memory_limit_mb=memory_limit_mb, evidence=evidence,
    )  # fmt: skip
    return prepared(question, loaded(model))


def recourse(
    model: Any,
    X: Any,
    wanted: Any,
    perturbation: Ball,
    *,
    n_ways: int = 1,
    step: Mapping[Any, float] | None = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
    progress: Progress = False,
) -> Results:
    """Find the cheapest ways to the wanted decision, for every row that does not get it.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    X : array-like or data frame of shape (n_rows, n_features)
        Rows; those that the model decides as wanted are left out.
    wanted : object
        The class that a way must lead to.
    perturbation : LInf, L1, L2, L0 or Cost
        What people can change, and what that costs them. A radius or budget says what they can
        afford; dearer ways are given all the same, and counted apart.
    n_ways : int
        Give so many different ways to each row, if they exist: each next one is the cheapest that
        leaves some feature of each earlier one as it is.
    step : dict, optional
        Steps of features, by name or number: values that change become multiples of them, such as
        ``{"amount": 100, "rate": 0.25}``. The cheapest ways in such numbers are found, not the
        cheapest ways rounded.
    time_limit_s, node_limit, memory_limit_mb
        Limits for each question about a row, see `verify`.
    n_jobs, progress
        See `verify`.

    Returns
    -------
    Results
        One answer for each way, the first of a row with `way` 1. ``lower`` and ``upper`` bound the
        least cost; a row without any way has one answer, with an infinite cost.
    """
    from treeproof.search.question import Question
    from treeproof.search.recourse import Wishes, find_recourse

    if not isinstance(perturbation, Ball) or isinstance(perturbation, All):
        raise InvalidInput(
            "'perturbation' must say what changes cost: an LInf, L1, L2, L0 or Cost."
            f" Got {perturbation!r}."
        )
    question = Question(
        kind="radius",
        perturbation=perturbation,
        time_limit_s=time_limit_s,
        node_limit=node_limit,
        memory_limit_mb=memory_limit_mb,
    )
    wishes = Wishes(wanted=wanted, n_ways=n_ways, step=step or {})
    found = find_recourse(loaded(model), X, question, wishes, n_jobs=n_jobs, progress=progress)
    source = source_of(X)
    found.source = None if source is None else source.take(found.row)
    return found


def unimportant_features(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: float | Ball | Box | None = None,
    *,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    n_jobs: int = 1,
    progress: Progress = False,
) -> FeatureResults:
    """Find the features that, moved alone, provably cannot change the answer.

    Parameters
    ----------
    model, X, y
        See `verify`.
    perturbation : float, LInf, L1, L2, L0, Cost or Box, optional
        How far the one feature may move: within a radius or budget, or anywhere in a box; by
        default anywhere at all. A group of a domain is one feature.
    goal, arithmetic, n_jobs, progress
        See `verify`.

    Returns
    -------
    FeatureResults
        `unimportant` for every row and feature; exact. Categories and missing values stay.
    """
    from treeproof.search.features import scan_features

    given = as_perturbation(perturbation)
    if isinstance(given, Ball) and given.eps is None:
        name = type(given).__name__
        raise InvalidInput(
            f"{name} must have a radius here, such as {name}(0.1). Got none."
            " Ask treeproof.feature_radius for the radius itself."
        )
    moves = Box(-math.inf, math.inf) if given is None else given
    query = _query(model, X, y, moves, n_jobs, goal=goal, arithmetic=arithmetic)
    question = {"kind": "unimportant_features"}
    return scan_features(query, question, n_jobs=n_jobs, progress=progress)


def feature_radius(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: Ball | None = None,
    *,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    n_jobs: int = 1,
    progress: Progress = False,
) -> FeatureResults:
    """Find for every row and feature the smallest movement of that feature alone that matters.

    Parameters
    ----------
    model, X, y
        See `verify`.
    perturbation : LInf, L1, L2, L0 or Cost, optional
        Scales or prices, directions, bounds and domain; without a radius or budget.
    goal, arithmetic, n_jobs, progress
        See `verify`.

    Returns
    -------
    FeatureResults
        `radius` for every row and feature; exact, infinite where the feature alone cannot matter.
    """
    from treeproof.search.features import scan_features

    ball = _without_radius(perturbation, "LInf(low=0, high=1)")
    query = _query(model, X, y, ball, n_jobs, goal=goal, arithmetic=arithmetic)
    return scan_features(query, {"kind": "feature_radius"}, n_jobs=n_jobs, progress=progress)


def anchor_features(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: float | LInf | Box | None = None,
    *,
    engine: str | Engine = "exact",
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    n_jobs: int = 1,
    progress: Progress = False,
) -> Reasons:
    """Find a small set of features that, once fixed, provably fixes the answer.

    This is the paper's name for `reasons`, which finds more.

    Parameters
    ----------
    model, X, y
        See `verify`.
    perturbation : float, LInf or Box, optional
        How the other features may move; by default anywhere at all.
    engine : str or engine
        Engine that proves sets; complete ones also prove that no feature can be left out.
    goal, arithmetic
        See `verify`.
    time_limit_s, node_limit : float, int
        Limits per row; when one is reached, the set is still sufficient, but perhaps not minimal.
    n_jobs, progress
        See `verify`.

    Returns
    -------
    Reasons
        A sufficient set for every row, minimal by inclusion where `minimal` says so. Categories and
        missing values never move; `kept` lists them.
    """
    from treeproof.engines.base import Budget
    from treeproof.engines.exact import ExactEngine
    from treeproof.engines.registry import engine_named, require_support
    from treeproof.query.description import describe
    from treeproof.search.anchors import find_anchors
    from treeproof.search.reasons import Wanted, find_reasons

    moves = as_perturbation(perturbation)
    if isinstance(moves, LInf) and moves.eps is None:
        raise InvalidInput("LInf must have a radius here, such as LInf(0.1). Got none.")
    chosen = engine_named(engine)
    budget = Budget(time_limit_s=time_limit_s, node_limit=node_limit)
    query = _query_around(model, X, y, moves, n_jobs, goal=goal, arithmetic=arithmetic)
    require_support(chosen, query)
    wanted = Wanted.of(query.ensemble)
    if isinstance(chosen, ExactEngine) and query.pricing is None:
        found = find_reasons(query, wanted, budget, n_jobs=n_jobs, progress=progress)
    else:
        found = find_anchors(chosen, query, wanted, budget, n_jobs=n_jobs, progress=progress)
    found.question |= {"kind": "anchor_features", "engine": describe(chosen)}
    return found


def reasons(
    model: Any,
    X: Any,
    y: Any = None,
    domain: float | Domain | LInf | Box | None = None,
    *,
    minimum: bool = False,
    intervals: bool = False,
    n_sets: int = 1,
    n_changes: int = 0,
    weights: PerFeature | None = None,
    always: int | str | Sequence[int | str] = (),
    never: int | str | Sequence[int | str] = (),
    groups: Sequence[Sequence[int | str]] = (),
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    evidence: bool = False,
    n_jobs: int = 1,
    progress: Progress = False,
) -> Reasons:
    """Find why the model answers as it does: which features suffice, and what would change it.

    A set of features suffices when the answer provably stays whatever all other features are,
    within the domain. A set of features is a change when other values of them alone break the
    claim. Every sufficient set and every change have a feature in common.

    Parameters
    ----------
    model, X, y
        See `verify`.
    domain : float, Domain, Box or LInf, optional
        Which values features can have; by default all numbers. Rows must lie in it. In a `Domain`,
        or a Box with one, a group of columns is one feature, and categories and missing values
        change as it says.
    minimum : bool
        Find sets of minimum size, or weight, rather than sets of which no feature can be left out.
        With a time limit, the best set found, and a lower bound.
    intervals : bool
        Find how far the features of the set may still move, all at once: intervals of which no end
        can be moved further out.
    n_sets : int
        Find so many different sets, if they exist.
    n_changes : int
        Find so many different changes, if they exist, each with a row that shows it.
    weights : dict, Series or array-like, optional
        Whole numbers from 1 on, one for each feature; features of larger weight are left out first,
        and `minimum` is that of the sum.
    always, never : int, str or sequence of them
        Features that sets must and must not use; without `n_changes`.
    groups : sequence of sequences of int or str
        Features that are one, such as the columns of a category or a patch of an image; kept or
        left open together, and counted once.
    goal, arithmetic
        See `verify`.
    time_limit_s, node_limit, memory_limit_mb : float, int, float
        Limits per row; with any of them sets are still sufficient.
    evidence : bool
        Prove every set once more, on record, for ``treeproof check``.
    n_jobs, progress
        See `verify`.

    Returns
    -------
    Reasons
        Sets, intervals and changes of every row, and what is proved about them. Categories and
        missing values move only as a `Domain` says; `kept` lists those that do not.
    """
    from treeproof.engines.base import asked_budget
    from treeproof.engines.exact import ExactEngine
    from treeproof.search.anchors import find_anchors
    from treeproof.search.reasons import Wanted, find_reasons

    moves = as_perturbation(domain)
    if isinstance(moves, LInf) and moves.eps is None:
        raise InvalidInput("LInf must have a radius here, such as LInf(0.1). Got none.")
    if evidence and isinstance(moves, LInf):
        raise InvalidInput("'evidence' needs a domain that is a Box, or none. Got an LInf.")
    if isinstance(moves, Domain):
        moves = Box(-math.inf, math.inf, moves)
    query = _query_around(model, X, y, moves, n_jobs, goal=goal, arithmetic=arithmetic)
    wanted = Wanted.of(
        query.ensemble, minimum=minimum, intervals=intervals, n_sets=n_sets, n_changes=n_changes,
        weights=weights, always=always, never=never, groups=groups,
    )  # fmt: skip
    budget = asked_budget(time_limit_s, node_limit, memory_limit_mb)
    shared: dict[str, Any] = {"n_jobs": n_jobs, "evidence": evidence, "progress": progress}
    if query.pricing is not None:
        return find_anchors(ExactEngine(), query, wanted, budget, **shared)
    return find_reasons(query, wanted, budget, **shared)


def prove(
    model: Any,
    claim: Property,
    domain: float | Box | LInf,
    X: Any = None,
    *,
    data: Any = None,
    missing: Features = (),
    time_limit_s: float = 60.0,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
    evidence: bool = False,
    progress: Progress = False,
) -> Any:
    """Decide whether a property holds for every input of a domain, or of the set around each row.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    claim : Stable, Fair, Monotone, HighConfidence, Redundant, SmallNeighbourhood or ScoreRange
        The property.
    domain : Box, LInf or float
        The inputs: a `Box`; with rows, also an `LInf` with a radius, or that radius. Inputs are
        doubles, which the deployed model rounds to its own precision. Features that hold
        categories take the codes that the model knows, within the box; around rows they stay as
        they are, unless they are what the property changes.
    X : array-like or data frame of shape (n_rows, n_features), optional
        Rows around which the domain is; missing values stay missing.
    data : array-like or data frame of shape (n_rows, n_features), optional
        For `Fair`: rows whose decisions are counted for each value of the protected features, as
        `groups` of the answer. They are counts, and part of no proof.
    missing : str, int or sequence of them
        Features that may be missing, too.
    time_limit_s, node_limit, memory_limit_mb : float, int, float
        Limits for each question that the property consists of; what needs more is 'unknown'.
    n_jobs : int
        Threads over rows; -1 for all cores.
    evidence : bool
        Prove the answer once more, on record, for ``treeproof check``.
    progress : bool or callable
        See `verify`; what is counted are the questions that the property consists of, each about
        the domain or about every row. Those that need not be asked in the end count as answered.

    Returns
    -------
    PropertyResult, or a list of them with one for each row
        Verdict, both bounds of the quantity that the property is about, and a pair of rows.
    """
    from treeproof.search.proving import count_groups, prove_property

    inquiry = _inquiry(
        domain,
        X,
        missing,
        (time_limit_s, node_limit, memory_limit_mb),
        n_jobs=n_jobs,
        evidence=evidence,
        progress=progress,
    )
    model = loaded(model)
    groups = () if data is None else count_groups(model, claim, inquiry, data)
    results = prove_property(model.ensemble, claim, inquiry)
    results = [dataclasses.replace(result, groups=groups) for result in results]
    return results[0] if X is None else results


def largest_change(
    model: Any,
    features: Features,
    domain: float | Box | LInf,
    X: Any = None,
    *,
    label: object = None,
    missing: Features = (),
    time_limit_s: float = 60.0,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
    evidence: bool = False,
    progress: Progress = False,
) -> Any:
    """Find how far some features alone can move the score.

    Parameters
    ----------
    model
        See `prove`.
    features : str, int or sequence of them
        Features that change; all others are the same in both rows of a pair.
    domain, X
        See `prove`.
    label : object, optional
        Class whose margin is meant, for several classes; by default any of them.
    missing, time_limit_s, node_limit, memory_limit_mb, n_jobs, evidence, progress
        See `prove`.

    Returns
    -------
    PropertyResult, or a list of them with one for each row
        `lower` and `upper` bound the largest change; `witness` is the pair that has `lower`.
    """
    from treeproof.search.proving import find_largest_change

    inquiry = _inquiry(
        domain,
        X,
        missing,
        (time_limit_s, node_limit, memory_limit_mb),
        n_jobs=n_jobs,
        evidence=evidence,
        progress=progress,
    )
    results = find_largest_change(loaded(model).ensemble, features, label, inquiry)
    return results[0] if X is None else results


def score_range(
    model: Any,
    domain: float | Box | LInf,
    X: Any = None,
    *,
    label: object = None,
    missing: Features = (),
    time_limit_s: float = 60.0,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
    evidence: bool = False,
    progress: Progress = False,
) -> Any:
    """Find the smallest and the largest score that inputs of a domain can have.

    Parameters
    ----------
    model, domain, X
        See `prove`.
    label : object, optional
        Class whose margin is meant, for several classes.
    missing, time_limit_s, node_limit, memory_limit_mb, n_jobs, evidence, progress
        See `prove`.

    Returns
    -------
    ScoreBounds, or a list of them with one for each row
        ``minimum`` and ``maximum``, each with both bounds and the input that reaches it.
    """
    from treeproof.search.proving import find_score_range

    inquiry = _inquiry(
        domain,
        X,
        missing,
        (time_limit_s, node_limit, memory_limit_mb),
        n_jobs=n_jobs,
        evidence=evidence,
        progress=progress,
    )
    bounds = find_score_range(loaded(model).ensemble, label, inquiry)
    return bounds[0] if X is None else bounds


def diff(
    first: Any,
    second: Any,
    domain: float | Box | LInf,
    X: Any = None,
    *,
    delta: float | None = None,
    labels: bool | None = None,
    gap: float = 0.0,
    missing: Features = (),
    time_limit_s: float = 60.0,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
    evidence: bool = False,
    progress: Progress = False,
) -> Any:
    """Decide whether two models are the same for every input, or find where they differ most.

    Parameters
    ----------
    first, second : Model, model object or path
        Two models of the same columns and classes, of whatever libraries: loaded models, or
        anything that `load` takes. Columns are matched by name where both models have names.
    domain, X
        See `prove`.
    delta : float, optional
        Scores that differ by no more are the same. Sums of floats are rounded, so two libraries
        rarely agree to the last digit; by default 1e-4, or the largest rounding of both models'
        sums where that is more, up to 0.01.
    labels : bool, optional
        Whether every row must get the same label, however near the decision it is. By default that
        is asked only where it does not follow, up to `delta`, from scores.
    gap : float
        Part of the largest difference by which it may be missed, such as 0.01.
    missing, time_limit_s, node_limit, memory_limit_mb, n_jobs, evidence, progress
        See `prove`; limits are for all questions together.

    Returns
    -------
    DiffResult, or a list of them with one for each row
        `verdict` is 'verified' for models that are proved to be the same; `lower` and `upper` bound
        the largest difference of a score, and `witness` is the row that has `lower`.
    """
    from treeproof.search.comparing import Sameness, compare

    sameness = Sameness(delta=delta, labels=labels, share=gap)
    inquiry = _inquiry(
        domain,
        X,
        missing,
        (time_limit_s, node_limit, memory_limit_mb),
        n_jobs=n_jobs,
        evidence=evidence,
        progress=progress,
    )
    models = loaded(first).ensemble, loaded(second).ensemble
    results = compare(*models, sameness, inquiry)
    return results[0] if X is None else results


def _inquiry(
    domain: float | Box | LInf,
    X: Any,
    missing: Features,
    limits: tuple[float, int, float],
    **options: Any,
) -> Inquiry:
    from treeproof.engines.base import asked_budget
    from treeproof.search.proving import Inquiry

    budget = asked_budget(*limits)
    return Inquiry(domain=as_perturbation(domain), X=X, missing=missing, budget=budget, **options)


def loaded(model: Any) -> Model:
    """Return a loaded model, or load anything that `load` takes."""
    return model if isinstance(model, Model) else load(model)


def _without_radius(perturbation: Ball | None, example: str, verify: str = "") -> Ball:
    ball = LInf() if perturbation is None else perturbation
    if not isinstance(ball, Ball) or ball.eps is not None:
        remedy = f" Ask {verify} whether the claim holds within it." if verify else ""
        raise InvalidInput(
            "A radius is searched with an LInf, L1, L2, L0 or Cost without a limit, such as"
            f" {example}. Got {perturbation!r}.{remedy}"
        )
    return ball


def _query_around(
    model: Any, X: Any, y: Any, domain: LInf | Box | None, n_jobs: int, **options: Any
) -> Query:
    """A question about sets that keep values of the row, which must lie in its domain."""
    from treeproof.query.build import refuse_outside

    moves = Box(-math.inf, math.inf) if domain is None else domain
    if isinstance(moves, Ball) and is_priced(moves):
        raise UnsupportedQuery(
            "Reasons are found in a plain LInf, a Box or a Domain, without costs or relative units."
            f" Got {moves!r}."
        )
    query = _query(model, X, y, moves, n_jobs, **options)
    refuse_outside(query.deployed or query.ensemble, query.rows, moves)
    return query


def _query(
    model: Any, X: Any, y: Any, perturbation: Ball | Box, n_jobs: int, **options: Any
) -> Query:
    from treeproof.prediction import accumulators
    from treeproof.query.build import build_query

    sums = partial(accumulators, n_jobs=n_jobs)
    return build_query(loaded(model).ensemble, X, y, perturbation, sums=sums, **options)
