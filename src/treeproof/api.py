"""The public functions: each checks its arguments, calls one layer below, and returns."""

import math
from typing import TYPE_CHECKING, Any, Literal

from treeproof.errors import InvalidInput
from treeproof.prediction import Model
from treeproof.query.arithmetic import Arithmetic, takes_domain
from treeproof.query.goals import Goal
from treeproof.query.perturbations import Box, LInf
from treeproof.results.results import Results

if TYPE_CHECKING:
    from treeproof.engines.base import Engine
    from treeproof.query.paper_protocol import PaperProtocol
    from treeproof.results.features import AnchorResults, FeatureResults


def load(
    source: Any,
    *,
    decision_threshold: float | None = None,
    self_test: bool = True,
    base_score: float | None = None,
    input_precision: Literal["float32", "float64"] | None = None,
    tie: Literal["lower", "upper"] | None = None,
    missing: Literal["nan", "zero", "none"] | None = None,
    n_classes: int | None = None,
    n_features: int | None = None,
    rounds: Literal["best", "all"] | None = None,
) -> Model:
    """Load a model exactly as it is deployed, or refuse it.

    Parameters
    ----------
    source : model object, str or path
        A trained model of XGBoost, LightGBM, CatBoost or scikit-learn, or a model file.
    decision_threshold : float, optional
        Probability from which (inclusive) a binary classifier says class 1; by default the
        library's own rule.
    self_test : bool
        Compare margins and labels with the source library, on rows made to tell small differences
        apart, whenever that library can be imported.
    base_score : float, optional
        Margin to start from, only for files that do not carry it (XGBoost text dumps).
    input_precision : {"float32", "float64"}, optional
        Precision of comparisons, only for treelite checkpoints, which do not carry it.
    tie : {"lower", "upper"}, optional
        Which class a tie goes to, only for treelite checkpoints.
    missing : {"nan", "zero", "none"}, optional
        What counts as missing, only for treelite checkpoints.
    n_classes : int, optional
        Number of classes, only for XGBoost text dumps: 1 for a score, 2 (the default) for one
        margin, k for k margins whose trees take turns.
    n_features : int, optional
        Number of columns of a row, only for XGBoost text dumps; by default up to the last one used.
    rounds : {"best", "all"}, optional
        Rounds of an XGBoost model that stopped early: up to the best, as XGB* estimators predict,
        or all, as a Booster does; by default as the object, or who saved the file (`ModelWarning`).

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

    options = LoadOptions(
        decision_threshold=decision_threshold,
        base_score=base_score,
        input_precision=input_precision,
        tie=tie,
        missing=missing,
        n_classes=n_classes,
        n_features=n_features,
        rounds=rounds,
    )
    return Model(load_ensemble(source, options=options, self_test=self_test))


@takes_domain
def verify(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: LInf | Box | None = None,
    *,
    engine: "str | Engine" = "exact",
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
    evidence: bool = False,
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
    perturbation : LInf or Box
        How a row may change.
    engine : str or engine
        Name of an engine, or one with options such as ``multilevel(T=2, L=1)``.
    goal : KeepsLabel, AvoidsTarget, ScoreWithin or ScoreChange, optional
        What must hold; by default the label is kept.
    arithmetic : {"float64", "real"}
        What rows are: doubles, which the deployed model rounds to its own input precision first,
        or real numbers compared with its thresholds, as in the literature. For models that take
        doubles as they are, both are the same.
    attacker_class : optional
        Only rows of this class are attacked; all others stay as they are.
    time_limit_s, node_limit, memory_limit_mb
        Limits per row; a row that needs more is 'unknown'.
    n_jobs : int
        Threads over rows; -1 for all cores.
    evidence : bool
        Prove every answer once more, on record, for ``treeproof check``; limits hold for each.

    Returns
    -------
    Results
        Verdict, bounds and witness of every row.
    """
    from treeproof.search.question import Question

    question = Question(
        kind="verify",
        perturbation=perturbation,  # type: ignore[arg-type] # the question refuses None
        engine=engine,
        goal=goal,
        arithmetic=arithmetic,
        attacker_class=attacker_class,
        time_limit_s=time_limit_s,
        node_limit=node_limit,
        memory_limit_mb=memory_limit_mb,
        evidence=evidence,
    )
    return question.answer(_loaded(model), X, y, n_jobs=n_jobs)


@takes_domain
def radius(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: LInf | None = None,
    *,
    engine: "str | Engine" = "exact",
    search: "PaperProtocol | None" = None,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    n_jobs: int = 1,
    evidence: bool = False,
) -> Results:
    """Find the minimal perturbation of every row.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    X : array-like or data frame of shape (n_rows, n_features)
        Rows.
    y : array-like of shape (n_rows,), optional
        Labels that the rows should have; by default the model's own. A row that the model already
        gets wrong has radius 0.
    perturbation : LInf, optional
        Scales, directions, frozen features and domain bounds; without a radius.
    engine : str or engine
        Name of an engine, or one with options. Bounding engines give lower bounds.
    search : PaperProtocol, optional
        Search as the paper does, in ten steps, instead of exactly.
    goal, arithmetic, attacker_class, time_limit_s, node_limit, memory_limit_mb, n_jobs, evidence
        See `verify`; limits count over all radii that are tried for a row.

    Returns
    -------
    Results
        Lower and upper bound of every row; equal, and `exact`, where the search was closed.
    """
    from treeproof.search.question import Question

    question = Question(
        kind="radius",
        perturbation=LInf() if perturbation is None else perturbation,
        engine=engine,
        search=search,
        goal=goal,
        arithmetic=arithmetic,
        attacker_class=attacker_class,
        time_limit_s=time_limit_s,
        node_limit=node_limit,
        memory_limit_mb=memory_limit_mb,
        evidence=evidence,
    )
    return question.answer(_loaded(model), X, y, n_jobs=n_jobs)


@takes_domain
def unimportant_features(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: LInf | Box | None = None,
    *,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    n_jobs: int = 1,
) -> "FeatureResults":
    """Find the features that, moved alone, provably cannot change the answer.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    X : array-like or data frame of shape (n_rows, n_features)
        Rows.
    y : array-like of shape (n_rows,), optional
        Labels that the rows should have; by default the model's own.
    perturbation : LInf or Box, optional
        How far the one feature may move: within a radius, or anywhere in a box; by default
        anywhere at all.
    goal, arithmetic, n_jobs
        See `verify`.

    Returns
    -------
    FeatureResults
        `unimportant` for every row and feature; exact. Categories and missing values stay.
    """
    from treeproof.search.asking import ask
    from treeproof.search.features import scan_features

    if isinstance(perturbation, LInf) and perturbation.eps is None:
        raise InvalidInput(
            "LInf must have a radius here, such as LInf(0.1). Got none."
            " Ask treeproof.feature_radius for the radius itself."
        )
    moves = Box(-math.inf, math.inf) if perturbation is None else perturbation
    query = ask(
        _loaded(model).ensemble, X, y, moves, goal=goal, arithmetic=arithmetic, n_jobs=n_jobs
    )
    return scan_features(query, {"kind": "unimportant_features"}, n_jobs=n_jobs)


@takes_domain
def feature_radius(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: LInf | None = None,
    *,
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    n_jobs: int = 1,
) -> "FeatureResults":
    """Find for every row and feature the smallest movement of that feature alone that matters.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    X : array-like or data frame of shape (n_rows, n_features)
        Rows.
    y : array-like of shape (n_rows,), optional
        Labels that the rows should have; by default the model's own.
    perturbation : LInf, optional
        Scales, directions and domain bounds; without a radius.
    goal, arithmetic, n_jobs
        See `verify`.

    Returns
    -------
    FeatureResults
        `radius` for every row and feature; exact, infinite where the feature alone cannot matter.
    """
    from treeproof.search.asking import ask
    from treeproof.search.features import scan_features

    ball = LInf() if perturbation is None else perturbation
    if not isinstance(ball, LInf) or ball.eps is not None:
        raise InvalidInput(
            "A radius is searched with an LInf without eps, such as LInf(low=0, high=1)."
            f" Got {perturbation!r}."
        )
    query = ask(
        _loaded(model).ensemble, X, y, ball, goal=goal, arithmetic=arithmetic, n_jobs=n_jobs
    )
    return scan_features(query, {"kind": "feature_radius"}, n_jobs=n_jobs)


@takes_domain
def anchor_features(
    model: Any,
    X: Any,
    y: Any = None,
    perturbation: LInf | Box | None = None,
    *,
    engine: "str | Engine" = "exact",
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    n_jobs: int = 1,
) -> "AnchorResults":
    """Find a small set of features that, once fixed, provably fixes the answer.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    X : array-like or data frame of shape (n_rows, n_features)
        Rows.
    y : array-like of shape (n_rows,), optional
        Labels that the rows should have; by default the model's own.
    perturbation : LInf or Box, optional
        How the other features may move; by default anywhere at all.
    engine : str or engine
        Who proves; complete engines also prove that no feature can be left out.
    goal, arithmetic, time_limit_s, node_limit, n_jobs
        See `verify`. When a limit is reached, the set is still sufficient, but perhaps not minimal.

    Returns
    -------
    AnchorResults
        A sufficient set for every row, minimal by inclusion where `minimal` says so. Categories and
        missing values never move; `kept` lists them.
    """
    from treeproof.engines.base import Budget
    from treeproof.engines.registry import engine_named, require_support
    from treeproof.search.anchors import find_anchors
    from treeproof.search.asking import ask, describe, refuse_outside

    if isinstance(perturbation, LInf) and perturbation.eps is None:
        raise InvalidInput("LInf must have a radius here, such as LInf(0.1). Got none.")
    chosen = engine_named(engine)
    moves = Box(-math.inf, math.inf) if perturbation is None else perturbation
    query = ask(
        _loaded(model).ensemble, X, y, moves, goal=goal, arithmetic=arithmetic, n_jobs=n_jobs
    )
    refuse_outside(query.deployed or query.ensemble, query.rows, moves)  # sets keep rows' values
    require_support(chosen, query)
    budget = Budget(time_limit_s=time_limit_s, node_limit=node_limit)
    question = {"kind": "anchor_features", "engine": describe(chosen)}
    return find_anchors(chosen, query, question, budget, n_jobs=n_jobs)


def _loaded(model: Any) -> Model:
    return model if isinstance(model, Model) else load(model)
