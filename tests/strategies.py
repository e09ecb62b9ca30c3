"""Random ensembles, rows and questions in which ties are common on purpose.

`random_case` is a plain seeded generator, fast enough for tens of thousands of cases;
`cases()` wraps it for hypothesis, which then shrinks the seed and the sizes.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    ZERO_IS_MISSING,
    Aggregation,
    Decision,
    Ensemble,
    Provenance,
)
from treeproof.query.goals import AvoidsTarget, Goal, KeepsLabel, ScoreChange, ScoreWithin
from treeproof.query.perturbations import Box, LInf
from treeproof.query.query import Query, resolve_query

FloatArray = NDArray[np.float64]

THRESHOLDS = (0.25, 0.5, 0.75, 0.1, 0.3)
"""A tiny grid, so that trees share thresholds and rows lie on them; two are not dyadic."""

LEAF_GRIDS: tuple[tuple[float, ...], ...] = (
    (-1.0, -0.5, 0.0, 0.5, 1.0),
    (-0.25, 0.0, 0.25),
    (-0.3, -0.2, -0.1, 0.1, 0.2, 0.3),
    (-1.0, 1.0, 1e7, -1e7, 0.1),
    (-2.0, 0.0, 4.0, 6.0),
)
"""Equal values, zero sums, sums that round, and sums that lose small terms."""


@dataclass(frozen=True)
class Sizes:
    """Upper limits of a random case; every limit is reached often."""

    trees: int = 4
    depth: int = 3
    features: int = 3
    outputs: int = 4
    rows: int = 2


SMALL = Sizes()


@dataclass(frozen=True)
class Case:
    """A question with everything it was made of."""

    query: Query
    goal: Goal
    perturbation: LInf | Box

    @property
    def ensemble(self) -> Ensemble:
        """The model of the question."""
        return self.query.ensemble


def random_tree_ensemble(
    rng: np.random.Generator,
    sizes: Sizes = SMALL,
    *,
    plain: bool = False,
    kind: Literal["threshold", "argmax", "score"] | None = None,
) -> Ensemble:
    """A small tie-rich ensemble; `plain` leaves out categories and zero bands."""
    n_features = int(rng.integers(1, sizes.features + 1))
    precision: Any = rng.choice(["float32", "float64"])
    sums: Any = rng.choice(["float32", "float64"])
    kind = kind or str(rng.choice(["threshold", "threshold", "argmax", "score"]))  # type: ignore[assignment]
    n_outputs = int(rng.integers(2, sizes.outputs + 1)) if kind == "argmax" else 1
    vector = n_outputs > 1 and bool(rng.random() < 0.4)
    builder = TreeBuilder(leaf_width=n_outputs if vector else 1)
    grid = np.array(LEAF_GRIDS[int(rng.choice(len(LEAF_GRIDS), p=[0.35, 0.25, 0.25, 0.1, 0.05]))])
    if sums == "float32":
        grid = grid.astype(np.float32).astype(np.float64)
    cuts = np.array(THRESHOLDS[: int(rng.integers(1, len(THRESHOLDS) + 1))])
    if precision == "float32":
        cuts = cuts.astype(np.float32).astype(np.float64)
    categorical = np.zeros(n_features, bool) if plain else rng.random(n_features) < 0.1
    zero_band = not plain and precision == "float64" and bool(rng.random() < 0.2)
    if zero_band:
        cuts = np.append(cuts, [0.0, -0.25])
    n_trees = int(rng.integers(1, sizes.trees + 1))
    for tree in range(n_trees):
        output = -1 if vector else tree % n_outputs
        _add_tree(rng, builder, output, sizes.depth, cuts, grid, categorical, zero_band)
    aggregation = _aggregation(rng, sums, n_outputs, grid, kind == "argmax")
    return Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=n_outputs,
        input_precision=precision,
        aggregation=aggregation,
        decision=_decision(rng, str(kind), aggregation),
        classes=() if kind == "score" else tuple(range(max(n_outputs, 2))),
        provenance=Provenance(library="random"),
    )


def random_rows(rng: np.random.Generator, ensemble: Ensemble, n_rows: int) -> FloatArray:
    """Rows on thresholds, one float below them, between them, and missing."""
    cuts = np.array(THRESHOLDS)
    real: Any = np.dtype(ensemble.input_precision).type
    below = np.nextafter(cuts.astype(real), real(-np.inf)).astype(np.float64)
    pool = np.concatenate([cuts, below, [0.0, 0.2, 0.4, 0.6, 1.0, 2.0, -0.25]])
    if rng.random() < 0.2:
        pool = np.append(pool, [np.nan, np.nan])
    return evaluate.cast_rows(ensemble, rng.choice(pool, size=(n_rows, ensemble.n_features)))


def random_ball(rng: np.random.Generator, n_features: int, *, eps: float | None) -> LInf:
    """An L∞ ball, half of the time with scales, one-sided moves, frozen features and a domain."""
    if rng.random() < 0.5:
        return LInf(eps)
    options: dict[str, Any] = {}
    if rng.random() < 0.5:
        options["scale"] = rng.choice([0.0, 0.1, 0.5, 1.0, 2.0, 3.0], size=n_features)
    if rng.random() < 0.3:
        options["below"] = rng.choice([0.0, 0.5, 1.0], size=n_features)
    if rng.random() < 0.3:
        options["above"] = rng.choice([0.0, 0.5, 1.0], size=n_features)
    if rng.random() < 0.3:
        options["frozen"] = [int(rng.integers(n_features))]
    if rng.random() < 0.3:
        options["low"] = rng.choice([-np.inf, 0.0, 0.1, 0.25], size=n_features)
        options["high"] = rng.choice([np.inf, 1.0, 0.75, 0.5], size=n_features)
    return LInf(eps, **options)


def random_box(rng: np.random.Generator, rows: FloatArray) -> Box:
    """A box per row or for all rows, with infinite and degenerate sides."""
    shape = rows.shape if rng.random() < 0.5 else rows.shape[1:]
    sides = rng.choice([-np.inf, -0.25, 0.0, 0.1, 0.25, 0.3, 0.5, 0.55, np.inf], size=(2, *shape))
    return Box(sides.min(axis=0), sides.max(axis=0))


def random_goal(rng: np.random.Generator, ensemble: Ensemble) -> Goal:
    """A goal that the model can have; labels are mostly asked to be kept."""
    if ensemble.decision.kind == "score" or (ensemble.n_outputs == 1 and rng.random() < 0.1):
        if rng.random() < 0.5:
            return ScoreChange(float(rng.choice([0.0, 0.1, 0.25, 0.5, 1.0])))
        low, high = np.sort(rng.choice([-np.inf, -0.5, -0.1, 0.0, 0.3, 0.5, np.inf], size=2))
        return ScoreWithin(float(low), float(high))
    if rng.random() < 0.25:
        return AvoidsTarget(ensemble.classes[int(rng.integers(ensemble.n_classes))])
    return KeepsLabel()


def random_case(
    rng: np.random.Generator,
    sizes: Sizes = SMALL,
    *,
    ask: Literal["ball", "box", "radius"] = "ball",
    plain: bool = False,
    kind: Literal["threshold", "argmax", "score"] | None = None,
    own_labels: bool = False,
) -> Case:
    """A random question; `own_labels` asks about the labels that the model gives itself."""
    ensemble = random_tree_ensemble(rng, sizes, plain=plain, kind=kind)
    rows = random_rows(rng, ensemble, int(rng.integers(1, sizes.rows + 1)))
    goal = random_goal(rng, ensemble)
    # A stream of its own, so that what else is drawn does not depend on it.
    (other,) = rng.spawn(1)
    is_stretched = bool(other.random() < 0.35)
    units = np.ones(ensemble.n_features)
    if is_stretched:
        ensemble, rows, units = stretched(other, ensemble, rows)
        goal = goal_on_scores(other, ensemble, goal)
    perturbation: LInf | Box
    if ask == "box":
        perturbation = random_box(rng, rows)
        if is_stretched:
            perturbation = stretched_box(other, ensemble, rows)
    else:
        # Differences of grid values: radii at which a threshold is exactly reached.
        eps = float(rng.choice([0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0]))
        perturbation = random_ball(rng, ensemble.n_features, eps=None if ask == "radius" else eps)
        if is_stretched:
            perturbation = stretched_ball(other, perturbation, units)
    labels = None
    if ensemble.decision.kind != "score" and not own_labels and rng.random() < 0.3:
        labels = rng.integers(ensemble.n_classes, size=len(rows))
    accumulators = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, rows))
    if other.random() < 0.5:
        ensemble = ensemble.for_reals()
    query = resolve_query(ensemble, rows, accumulators, labels, perturbation, goal=goal)
    return Case(query=query, goal=goal, perturbation=perturbation)


STRETCHES: tuple[tuple[float, float, float], ...] = (
    (0.0, 1.0, 1.0),
    (0.0, 1e-30, 1e-30),
    (0.0, 1e30, 1e30),
    (1.0, 1e-12, 1e-12),
    (-1e7, 1.0, 1.0),
    (0.0, 2.0**-1070, 2.0**-149),
    (0.0, 1e300, 1e37),
    (1.7e18, 1024.0, 2.0**40),
    (2.0**53, 4.0, 2.0**31),
)
"""Columns of other magnitudes: offset, unit of doubles, unit of float32 rows."""


def stretched(
    rng: np.random.Generator, ensemble: Ensemble, rows: FloatArray
) -> tuple[Ensemble, FloatArray, FloatArray]:
    """The same trees over columns of very different magnitudes; some rows infinite or huge.

    Rounding may let thresholds and rows meet, which is welcome.
    """
    is_single = ensemble.input_precision == "float32"
    chosen = np.array(STRETCHES)[rng.integers(len(STRETCHES), size=ensemble.n_features)]
    trees = ensemble.trees
    banded = trees.feature[(trees.feature >= 0) & ((trees.flags & ZERO_IS_MISSING) > 0)]
    chosen[banded] = STRETCHES[0]
    offset, unit = chosen[:, 0], chosen[:, 2 if is_single else 1]
    inner = (trees.feature >= 0) & ((trees.flags & CATEGORICAL) == 0)
    threshold = trees.threshold.copy()
    threshold[inner] = offset[trees.feature[inner]] + threshold[inner] * unit[trees.feature[inner]]
    if is_single:
        threshold = threshold.astype(np.float32).astype(np.float64)
    ensemble = replace(ensemble, trees=trees._replace(threshold=threshold))
    rows = offset + rows * unit
    odd = rng.random(rows.shape) < 0.06
    rows[odd] = rng.choice([np.inf, -np.inf, 1e300, -1e300, -0.0, 1e39], size=rows.shape)[odd]
    return ensemble, evaluate.cast_rows(ensemble, rows), unit


def stretched_ball(rng: np.random.Generator, ball: LInf, units: FloatArray) -> LInf:
    """Rates beside the magnitudes of the columns, or not; radii of the order of some column."""
    options: dict[str, Any] = {"frozen": ball.frozen, "below": ball.below, "above": ball.above}
    scale = np.ones(len(units)) if ball.scale is None else np.array(ball.scale)
    if rng.random() < 0.6:
        factors = rng.choice([1.0, 0.1, 3.0, 1e-3, 7.0], size=len(units))
        options["scale"] = np.clip(scale * units * factors, 1e-45, 1e45) * (scale > 0.0)
    eps = ball.eps
    if eps is not None and "scale" not in options:
        eps *= float(rng.choice(units))
    return LInf(eps, **options)


def stretched_box(rng: np.random.Generator, ensemble: Ensemble, rows: FloatArray) -> Box:
    """Sides on thresholds and rows, beside them, and infinite."""
    trees = ensemble.trees
    sides = np.empty((2, *rows.shape))
    for feature in range(ensemble.n_features):
        cuts = trees.threshold[(trees.feature == feature) & ((trees.flags & CATEGORICAL) == 0)]
        own = rows[:, feature][np.isfinite(rows[:, feature])]
        pool = np.concatenate([cuts, own, [-np.inf, np.inf]])
        pool = np.concatenate([pool, np.nextafter(pool, -np.inf), np.nextafter(pool, np.inf)])
        sides[..., feature] = rng.choice(pool[~np.isnan(pool)], size=(2, len(rows)))
    return Box(sides.min(axis=0), sides.max(axis=0))


def goal_on_scores(rng: np.random.Generator, ensemble: Ensemble, goal: Goal) -> Goal:
    """Score bounds at scores that the model reaches, and one float beside them."""
    if not isinstance(goal, ScoreWithin):
        return goal
    leaves = np.array([rng.choice(ensemble.n_leaves, size=ensemble.n_trees) for _ in range(4)])
    score = evaluate.finish(ensemble, evaluate.accumulate(ensemble, leaves))[:, 0].astype(float)
    pool = np.concatenate([score, np.nextafter(score, -np.inf), np.nextafter(score, np.inf)])
    low, high = np.sort(rng.choice([*pool, 0.0, -np.inf, np.inf], size=2))
    return ScoreWithin(float(low), float(high))


@st.composite
def cases(draw: st.DrawFn, **options: Any) -> Case:
    """Hypothesis strategy: a small case from a drawn seed and drawn sizes."""
    sizes = Sizes(
        trees=draw(st.integers(1, 4), label="trees"),
        depth=draw(st.integers(0, 3), label="depth"),
        features=draw(st.integers(1, 3), label="features"),
        outputs=draw(st.integers(2, 4), label="outputs"),
        rows=1,
    )
    seed = draw(st.integers(0, 2**32 - 1), label="seed")
    return random_case(np.random.default_rng(seed), sizes, **options)


def _add_tree(
    rng: np.random.Generator,
    builder: TreeBuilder,
    output: int,
    depth_limit: int,
    cuts: FloatArray,
    grid: FloatArray,
    categorical: NDArray[np.bool_],
    zero_band: bool,
) -> None:
    """Add a random tree; splits may repeat on a path, which leaves empty cells."""
    names = ("feature", "threshold", "left", "right", "flags", "value", "category_set")
    nodes: dict[str, list[Any]] = {name: [] for name in names}
    stop = float(rng.choice([0.0, 0.2, 0.5]))

    def grow(depth: int) -> int:
        node = len(nodes["feature"])
        for name in names:
            nodes[name].append(-1 if name in ("left", "right", "category_set") else 0)
        # The same draws as of `choice`, which takes longer.
        nodes["value"][node] = grid[rng.integers(len(grid), size=builder.leaf_width)]
        if depth == depth_limit or rng.random() < stop:
            return node
        feature = int(rng.integers(len(categorical)))
        nodes["feature"][node] = feature
        nodes["threshold"][node] = float(cuts[rng.integers(len(cuts))])
        flags = MISSING_LEFT if rng.random() < 0.5 else 0
        if categorical[feature]:
            flags |= CATEGORICAL
            nodes["category_set"][node] = builder.add_category_set(
                np.flatnonzero(rng.random(3) < 0.5).tolist()
            )
        elif zero_band and rng.random() < 0.6:
            flags |= ZERO_IS_MISSING
        nodes["flags"][node] = flags
        nodes["left"][node] = grow(depth + 1)
        nodes["right"][node] = grow(depth + 1)
        return node

    grow(0)
    builder.add_tree(output=output, **nodes)


def _aggregation(
    rng: np.random.Generator, sums: Any, n_outputs: int, grid: FloatArray, argmax: bool
) -> Aggregation:
    real: Any = np.dtype(sums).type
    start = tuple(float(real(v)) for v in rng.choice([0.0, 0.0, 0.5, 0.1, grid[0]], n_outputs))
    finish = str(rng.choice(["none", "none", "none", "divide", "affine", "isolation"]))
    if finish == "isolation" and (argmax or sums == "float32" or np.abs(grid).max() > 100.0):
        finish = "none"  # sums of path lengths, which are small
    bias: tuple[float, ...] = ()
    if finish == "affine":
        bias = tuple(float(real(v)) for v in rng.choice([0.0, 0.0, 0.1, -0.5], n_outputs))
    elif finish == "isolation":
        bias = (-0.5,)
    return Aggregation(
        precision=sums,
        start=start,
        finish=finish,  # type: ignore[arg-type]
        divisor=float(rng.choice([1.0, 3.0, 4.0])),
        scale=float(real(rng.choice([1.0, 0.5, 0.1]))),
        bias=bias,
    )


def _decision(rng: np.random.Generator, kind: str, aggregation: Aggregation) -> Decision:
    if kind == "threshold":
        real: Any = np.dtype(aggregation.precision).type
        tiny = float(np.nextafter(real(0.0), real(1.0)))
        cut = float(real(rng.choice([0.0, tiny, 8.940697e-08, 0.1, -0.25])))
        return Decision(kind="threshold", cut=cut)
    if kind == "argmax":
        links = ["identity", "softmax_float32", "softmax_float64", "sigmoid_float64"]
        link: Any = rng.choice(links, p=[0.5, 0.2, 0.2, 0.1])
        divisor = float(rng.choice([1.0, 1.0, 1.0, 3.0]))
        scale = float(rng.choice([1.0, 50.0])) if link == "sigmoid_float64" else 1.0
        return Decision(kind="argmax", link=link, link_divisor=divisor, link_scale=scale)
    return Decision(kind="score")
