"""Properties against an enumeration of all pairs of cells, on small models rich in ties."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import treeproof as tp
from tests.oracle import pairs
from tests.strategies import Sizes, random_rows, random_tree_ensemble
from treeproof.errors import UnsupportedQuery
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.model.sums import accumulator_grid
from treeproof.prediction import Model
from treeproof.query.pairs import ends_of
from treeproof.results.properties import PropertyResult
from treeproof.results.verdict import UnknownReason, Verdict

SIZES = Sizes(trees=4, depth=3, features=3, outputs=3)
LARGE = Sizes(trees=8, depth=3, features=3, outputs=3)
"""Enough trees that bounds alone do not decide."""
ROUNDING = (UnknownReason.ROUNDING, UnknownReason.NEAR_TIE)


def random_domain(rng: np.random.Generator, n_features: int) -> tp.Box:
    low = rng.choice([-np.inf, -0.25, 0.0, 0.1, 0.25], size=n_features)
    high = rng.choice([0.25, 0.3, 0.5, 0.8, 2.0, np.inf], size=n_features)
    return tp.Box(low, high)


def random_types(
    seed: int, ensemble: Ensemble, box: tp.Box
) -> tuple[tp.Box, dict[int, np.ndarray]]:
    """A box with a random `Domain`, every other time, and all values of the features it names."""
    rng = np.random.default_rng([seed, 1])
    if rng.random() < 0.5:
        return box, {}
    low, high = np.asarray(box.low), np.asarray(box.high)
    taken, options = {}, {"integer": [], "values": {}, "categorical": {}}
    for feature in range(ensemble.n_features):
        inside = np.unique(rng.choice([-0.25, 0.0, 0.1, 0.25, 0.3, 0.5, 0.8, 1.0, 2.0], 4))
        inside = inside[(inside >= low[feature]) & (inside <= high[feature])]
        whole = pairs.whole_values(ensemble, feature, low[feature], high[feature])
        if rng.random() < 0.4:
            continue
        if ensemble.is_categorical[feature]:
            taken[feature] = np.unique(rng.choice(3, 2)).astype(np.float64)
            options["categorical"][feature] = taken[feature].astype(int).tolist()
        elif rng.random() < 0.5 and len(inside):
            taken[feature] = inside
            options["values"][feature] = [*inside.tolist(), 77.0]  # which no box holds
            if high[feature] == np.inf:
                taken[feature] = np.append(inside, 77.0)
        elif len(whole):
            taken[feature] = whole
            options["integer"].append(feature)
    return tp.Box(low, high, domain=tp.Domain(**options)), taken


def check_verdict(result: PropertyResult, is_broken: bool, case: object) -> None:
    if result.verdict == Verdict.UNKNOWN:
        assert result.reason in ROUNDING, (case, result)
    else:
        assert (result.verdict == Verdict.FALSIFIED) == is_broken, (case, result, is_broken)


def check_bounds(ensemble: Ensemble, result: PropertyResult, truth: Any, case: object) -> None:
    assert result.lower <= truth <= result.upper, (case, result, truth)
    assert result.exact, (case, result)
    scale = np.abs(ensemble.trees.leaf_value).max() * ensemble.n_trees + 1.0
    assert result.upper - result.lower <= 1e-5 * scale, (case, result, truth)
    grid = accumulator_grid(ensemble)
    if grid > 0.0 and ensemble.aggregation.finish == "none":
        low, high = ends_of(truth)
        assert result.lower == low, (case, result, truth)
        # Bounds are computed in doubles, which cannot tell values apart on the finest of grids.
        assert result.upper == high or grid < 2.0**-48 * scale, (case, result, truth)


def check_range(model: Model, domain: tp.Box, scores: np.ndarray, options: dict, seed: int) -> None:
    """The range of a score."""
    bounds = tp.score_range(model, domain, **options)
    assert bounds.minimum.lower <= scores.min() <= bounds.minimum.upper, (seed, bounds)
    assert bounds.maximum.lower <= scores.max() <= bounds.maximum.upper, (seed, bounds)


def check_case(seed: int) -> None:
    """One random model and domain, and every property that it can have."""
    rng = np.random.default_rng(seed)
    ensemble = random_tree_ensemble(rng, LARGE if seed % 3 == 0 else SIZES)
    n_features = ensemble.n_features
    if ensemble.is_categorical.any():
        domain = tp.Box(np.full(n_features, 0.0), np.full(n_features, 2.0))
    else:
        domain = random_domain(rng, n_features)
    missing = [f for f in range(n_features) if rng.random() < 0.15]
    low, high = np.asarray(domain.low), np.asarray(domain.high)
    domain, taken = random_types(seed, ensemble, domain)
    grid = pairs.grid_of(ensemble, low, high, missing, taken)
    if ensemble.aggregation.finish == "isolation":
        scores = grid.scores[:, 0].astype(np.float64)
        check_range(Model(ensemble), domain, scores, {"missing": missing}, seed)
        return
    model, output = Model(ensemble), int(rng.integers(ensemble.n_outputs))
    label = ensemble.classes[output] if ensemble.n_outputs > 1 else None
    size = 1 if n_features == 1 or rng.random() < 0.6 else 2
    changed = sorted(rng.choice(n_features, size=size, replace=False).tolist())
    free = pairs.allowed(grid, changed)
    truth = pairs.largest_difference(grid, output, changed, free)
    options = {"missing": missing}

    result = tp.largest_change(model, changed, domain, label=label, **options)
    check_bounds(ensemble, result, truth, (seed, "largest_change"))

    delta = float(rng.choice([0.0, 0.25, 0.5, 1.0, max(truth, 0.0), max(truth - 0.1, 0.0)]))
    result = tp.prove(model, tp.Stable(changed, delta, label), domain, **options)
    check_verdict(result, truth > delta, (seed, "Stable", delta))

    scores = grid.scores[:, output].astype(np.float64)
    check_range(model, domain, scores, options | {"label": label}, seed)
    level = float(rng.choice(scores))
    result = tp.prove(model, tp.ScoreRange(high=level, label=label), domain, **options)
    check_verdict(result, bool(scores.max() > level), (seed, "ScoreRange", level))

    numbers = [f for f in changed if not ensemble.is_categorical[f]]
    if numbers:
        rising = pairs.allowed(grid, numbers, "rising")
        direction, sign = (("increasing", -1.0), ("decreasing", 1.0))[int(rng.integers(2))]
        truth = pairs.largest_difference(grid, output, numbers, rising, sign)
        result = tp.prove(model, tp.Monotone(numbers, direction, 0.0, label), domain, **options)  # type: ignore[arg-type]
        check_verdict(result, truth > 0.0, (seed, "Monotone", direction))
        check_bounds(ensemble, result, truth, (seed, "Monotone", direction))
    if len(free) <= 400 and not ensemble.is_categorical[changed].any():
        check_near(rng, ensemble, grid, changed, (output, label), domain, options, seed)
    check_labels(rng, ensemble, grid, changed, domain, options, seed)


def check_near(rng, ensemble, grid, changed, output, domain, options, seed) -> None:
    scale = np.zeros(ensemble.n_features)
    scale[changed] = rng.choice([0.1, 0.5, 1.0], size=len(changed))
    eps = float(rng.choice([0.1, 0.2, 0.25, 0.5]))
    widths = [Fraction(eps) * Fraction(float(unit)) for unit in scale]
    near = pairs.allowed(grid, changed, "near", widths)
    truth = pairs.largest_difference(grid, output[0], changed, near)
    factor = float(rng.choice([0.0, 1.0, 4.0, max(truth, 0.0) / eps]))
    claim = tp.SmallNeighbourhood(eps, factor, scale, output[1])
    result = tp.prove(Model(ensemble), claim, domain, **options)
    check_verdict(result, truth > factor * eps, (seed, "SmallNeighbourhood", truth, factor * eps))
    assert result.lower <= truth, (seed, result, truth)


def check_labels(rng, ensemble, grid, changed, domain, options, seed) -> None:
    model = Model(ensemble)
    if ensemble.decision.kind == "score":
        with pytest.raises(UnsupportedQuery):
            tp.prove(model, tp.Fair(changed), domain)
        return
    result = tp.prove(model, tp.Fair(changed), domain, **options)
    check_verdict(result, pairs.differs(grid, changed), (seed, "Fair"))
    if result.verdict == Verdict.FALSIFIED:
        assert result.labels is not None
        assert result.labels[0] != result.labels[1]
    if ensemble.decision.kind != "threshold":
        return
    margin, cut = float(rng.choice([0.1, 0.25, 0.5])), ensemble.decision.cut
    scores = grid.scores[:, 0].astype(np.float64)
    low, high, is_zero = scores <= cut - margin, scores >= cut + margin, grid.labels == 0
    result = tp.prove(model, tp.Fair(changed, margin=margin), domain, **options)
    check_verdict(result, pairs.crosses(grid, changed, low, high), (seed, "Fair margin", margin))
    result = tp.prove(model, tp.HighConfidence(changed, margin=margin), domain, **options)
    is_broken = pairs.crosses(grid, changed, high, is_zero)
    is_broken |= pairs.crosses(grid, changed, low, ~is_zero)
    check_verdict(result, is_broken, (seed, "HighConfidence", margin))
    groups = [changed, [f for f in range(ensemble.n_features) if f not in changed] or changed]
    result = tp.prove(model, tp.Redundant(groups, margin=margin), domain, **options)
    is_broken |= pairs.crosses(grid, groups[1], high, is_zero)
    is_broken |= pairs.crosses(grid, groups[1], low, ~is_zero)
    check_verdict(result, is_broken, (seed, "Redundant", margin))


@pytest.mark.parametrize("block", range(4))
def test_answers_equal_the_enumeration_of_all_pairs(block: int) -> None:
    for seed in range(60 * block, 60 * (block + 1)):
        check_case(seed)


def check_rows(seed: int) -> None:
    """Around rows: each answer is that of the box around the row."""
    rng = np.random.default_rng(seed)
    ensemble = random_tree_ensemble(rng, SIZES)
    if ensemble.aggregation.finish == "isolation":
        return
    rows = np.nan_to_num(random_rows(rng, ensemble, 3))
    if ensemble.is_categorical.any():
        rows[:, ensemble.is_categorical] = rng.integers(0, 3, (3, ensemble.is_categorical.sum()))
    changed = [int(rng.integers(ensemble.n_features))]
    if ensemble.is_categorical[changed[0]]:
        return
    eps = float(rng.choice([0.1, 0.25, 0.5]))
    results = tp.largest_change(Model(ensemble), changed, tp.LInf(eps), rows)
    for row, result in zip(rows, results, strict=True):
        low = -np.array([_down(-value, eps) for value in row])
        high = np.array([_down(value, eps) for value in row])
        stays = ensemble.is_categorical.copy()
        low[stays], high[stays] = row[stays], row[stays]
        grid = pairs.grid_of(ensemble, low, high)
        free = pairs.allowed(grid, changed)
        truth = max(
            pairs.largest_difference(grid, output, changed, free)
            for output in range(ensemble.n_outputs)
        )
        check_bounds(ensemble, result, truth, (seed, row))


def check_rounding(seed: int) -> tuple[Verdict, bool]:
    """Sums that differ by no more than rounding, or by nothing: whatever is said must be so."""
    rng = np.random.default_rng([seed, 3])
    builder = TreeBuilder(leaf_width=1)
    tenths = rng.integers(0, 4, size=(int(rng.integers(2, 5)), 2))
    tenths[-1, 1] += max(tenths[:, 0].sum() - tenths[:, 1].sum(), 0)  # in real numbers it rises
    for left, right in tenths.tolist():
        if rng.random() < 0.5:
            _add_stump(builder, 1, *(rng.choice([0.0, 0.7, 1.3, 100.1], size=2).tolist()))
        _add_stump(builder, 0, left / 10, right / 10 + float(rng.choice([0.0, 1e-6, 3e-6])))
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=2,
        n_outputs=1,
        input_precision="float64",
        aggregation=Aggregation(precision="float32", start=(0.0,)),
        decision=Decision(kind="score"),
        provenance=Provenance(library="test"),
    )
    score = evaluate.margins(ensemble, np.array([[a, b] for a in (0.0, 1.0) for b in (0.0, 1.0)]))
    truth = float((score[:2] - score[2:]).max())
    result = tp.prove(Model(ensemble), tp.Monotone(0), tp.Box([0.0, 0.0], [1.0, 1.0]))
    check_verdict(result, truth > 0.0, (seed, "Monotone"))
    assert result.lower <= max(truth, 0.0) <= result.upper, (seed, result, truth)
    return result.verdict, truth > 0.0


def _add_stump(builder: TreeBuilder, feature: int, left: float, right: float) -> None:
    values = np.array([[0.0], [left], [right]], dtype=np.float32).astype(np.float64)
    builder.add_tree(
        feature=[feature, -1, -1], threshold=[0.5, 0.0, 0.0], left=[1, -1, -1], right=[2, -1, -1],
        value=values, flags=[0] * 3, output=0, category_set=[-1] * 3,
    )  # fmt: skip


def test_rounding_is_never_forgotten_where_sums_tie() -> None:
    found = {check_rounding(seed) for seed in range(300)}
    # Nothing but rounding breaks the property here, and that is left open.
    assert found == {(Verdict.VERIFIED, False), (Verdict.UNKNOWN, False), (Verdict.UNKNOWN, True)}


def _down(value: float, eps: float) -> float:
    from treeproof.query.rounding import round_down

    return round_down(Fraction(float(value)) + Fraction(eps))


def test_answers_around_rows_equal_the_enumeration() -> None:
    for seed in range(60):
        check_rows(seed)
