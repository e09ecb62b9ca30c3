"""Two models against an enumeration of all cells of both, on small models rich in ties."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treeproof as tp
from tests.oracle import pairs
from tests.soundness.test_properties import ROUNDING, random_domain
from tests.strategies import Sizes, random_rows, random_tree_ensemble
from treeproof.model import evaluate
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance, TreeArrays
from treeproof.model.joined import join
from treeproof.prediction import Model
from treeproof.query.differences import score_questions
from treeproof.results.verdict import Verdict

SIZES = Sizes(trees=4, depth=3, features=3, outputs=3)
LARGE = Sizes(trees=8, depth=3, features=3, outputs=3)


def slightly_changed(rng: np.random.Generator, ensemble: Ensemble) -> Ensemble:
    """The same trees, some thresholds and leaves moved: as another library, or rounding, does."""
    trees = ensemble.trees
    real: Any = np.dtype(ensemble.input_precision).type
    threshold, value = trees.threshold.copy(), trees.leaf_value.copy()
    inner = (trees.feature >= 0) & (trees.category_set < 0)
    for node in np.flatnonzero(inner & (rng.random(len(inner)) < 0.3)):
        way = real(rng.choice([-np.inf, np.inf]))
        threshold[node] = float(np.nextafter(real(threshold[node]), way))
    moved = rng.random(value.shape) < 0.2
    value[moved] = np.roll(value.ravel(), 1).reshape(value.shape)[moved]
    arrays = trees._asdict() | {"threshold": threshold, "leaf_value": value}
    return replace(ensemble, trees=TreeArrays(**arrays))


def other_arithmetic(rng: np.random.Generator, ensemble: Ensemble) -> Ensemble:
    """The same trees with sums of doubles, another start and another way to finish."""
    n = ensemble.n_outputs
    options: list[dict[str, Any]] = [
        {},
        {"finish": "divide", "divisor": 3.0},
        {"finish": "affine", "scale": 0.5, "bias": tuple(rng.choice([0.0, 0.1, -0.25], size=n))},
    ]
    start = tuple(float(value) for value in rng.choice([0.0, 0.25, 0.1], size=n))
    chosen = options[int(rng.integers(len(options)))]
    return replace(ensemble, aggregation=Aggregation(precision="float64", start=start, **chosen))


def other_trees(rng: np.random.Generator, ensemble: Ensemble, sizes: Sizes) -> Ensemble | None:
    """Another model of the same features and classes; None where luck has none."""
    for _ in range(60):
        kind = ensemble.decision.kind if rng.random() < 0.7 else None
        found = random_tree_ensemble(rng, sizes, kind=kind)
        fits = found.n_features == ensemble.n_features and found.classes == ensemble.classes
        fits &= bool(found.classes) or found.n_outputs == ensemble.n_outputs
        fits &= np.array_equal(found.is_categorical, ensemble.is_categorical)
        if fits and found.aggregation.finish != "isolation":
            return found
    return None


def random_pair(rng: np.random.Generator, sizes: Sizes) -> tuple[Ensemble, Ensemble] | None:
    first = random_tree_ensemble(rng, sizes)
    if first.aggregation.finish == "isolation":
        return None
    way = rng.random()
    second: Ensemble | None
    if way < 0.45:
        second = slightly_changed(rng, first)
        if rng.random() < 0.4:
            second = other_arithmetic(rng, second)
    elif way < 0.55:
        second = other_arithmetic(rng, first)
    else:
        second = other_trees(rng, first, sizes)
    return None if second is None else (first, second)


def with_hidden_classes(rng: np.random.Generator) -> tuple[Ensemble, Ensemble]:
    """Two models of four classes that disagree only where two large classes are both out of it."""
    leaves = np.array(
        [
            [-0.39, 0.54, 5.19, -5.57, 6.31, -20.09],
            [0.47, -0.24, 5.58, -5.22, 7.74, -20.25],
        ]
    )
    leaves += rng.choice([0.01, 0.1, 0.5]) * rng.normal(size=leaves.shape)
    models = []
    for own in leaves:
        feature = np.array([-1, -1, 0, -1, -1, 1, -1, -1], dtype=np.int32)
        nothing = np.full(8, -1, dtype=np.int32)
        trees = TreeArrays(
            root=np.array([0, 1, 2, 5, 8], dtype=np.int32),
            feature=feature,
            threshold=np.where(feature < 0, 0.0, 0.5),
            left=np.array([-1, -1, 3, -1, -1, 6, -1, -1], dtype=np.int32),
            right=np.array([-1, -1, 4, -1, -1, 7, -1, -1], dtype=np.int32),
            flags=np.zeros(8, dtype=np.uint8),
            category_set=nothing,
            set_offset=np.zeros(1, dtype=np.int64),
            set_words=np.zeros(0, dtype=np.uint32),
            leaf=np.array([0, 1, -1, 2, 3, -1, 4, 5], dtype=np.int32),
            leaf_value=own[:, np.newaxis].copy(),
            leaf_source=np.arange(6, dtype=np.int32),
            tree_output=np.arange(4, dtype=np.int32),
        )
        models.append(
            Ensemble(
                trees=trees,
                n_features=2,
                n_outputs=4,
                input_precision="float64",
                aggregation=Aggregation(precision="float64", start=(0.0,) * 4),
                decision=Decision(kind="argmax"),
                classes=(0, 1, 2, 3),
                missing_allowed=False,
                infinite_allowed=True,
                provenance=Provenance(library="treeproof"),
            )
        )
    return models[0], models[1]


def points_of(models: Any, domain: tp.Box, missing: list[int]) -> np.ndarray:
    low, high = np.asarray(domain.low), np.asarray(domain.high)
    joint = models.joint
    grid = pairs.grid_of(joint, np.append(low, 0.0), np.append(high, 0.0), missing)
    return (
        np.array(np.meshgrid(*grid.values, indexing="ij")).reshape(joint.n_features, -1).T[:, :-1]
    )


def pair_of_case(rng: np.random.Generator, seed: int) -> tuple[Ensemble, Ensemble] | None:
    """The two models of a case; None where they cannot be compared."""
    pair = random_pair(rng, LARGE if seed % 3 == 0 else SIZES)
    return with_hidden_classes(rng) if seed % 20 == 7 else pair


def check_case(seed: int, **options: Any) -> tp.DiffResult | None:
    """One random pair of models and a domain: scores and labels."""
    rng = np.random.default_rng(seed)
    pair = pair_of_case(rng, seed)
    if pair is None:
        return None
    first, second = pair
    n_features = first.n_features
    domain = random_domain(rng, n_features)
    if seed % 20 == 7:
        domain = tp.Box([0.0, 0.0], [1.0, 1.0])
    if (first.is_categorical | second.is_categorical).any():
        domain = tp.Box(np.zeros(n_features), np.full(n_features, 2.0))
    may_miss = first.missing_allowed and second.missing_allowed
    missing = [f for f in range(n_features) if may_miss and rng.random() < 0.15]
    points = points_of(join(first, second), domain, missing)
    scores = [evaluate.margins(model, points) for model in pair]
    delta = float(rng.choice([0.0, 1e-6, 0.25, 1.0]))
    is_labelled = bool(first.classes)
    result = tp.diff(
        Model(first), Model(second), domain, missing=missing, delta=delta,
        labels=is_labelled, **options,
    )  # fmt: skip
    case = (seed, result)
    if result.scores is not None:
        wide = [score.astype(np.float64) for score in scores]
        truth = float(np.abs(wide[1] - wide[0]).max())
        assert result.lower <= truth <= result.upper, (case, truth)
        part = result.scores
        if part.verdict == Verdict.UNKNOWN:
            assert part.reason in ROUNDING, case
        else:
            assert (part.verdict == Verdict.FALSIFIED) == (truth > delta), (case, truth)
        size = sum(
            float(np.abs(model.trees.leaf_value).max() * model.n_trees) + 1.0 for model in pair
        )
        if part.verdict != Verdict.VERIFIED:
            assert result.upper - result.lower <= 1e-5 * size, (case, truth)
        asked = score_questions(join(first, second), ((0, 0),), delta)
        if asked[0].step > 0.0 and result.exact:
            assert result.lower == truth == result.upper, (case, truth)
        if result.witness is not None:
            both = [evaluate.margins(model, result.witness[None]) for model in pair]
            found = np.abs(both[1].astype(np.float64) - both[0].astype(np.float64)).max()
            assert found >= result.lower, case
    if is_labelled:
        assert result.labels is not None
        labels = [
            evaluate.label_indices(model, score) for model, score in zip(pair, scores, strict=True)
        ]
        differs = bool((labels[0] != labels[1]).any())
        if result.labels.verdict == Verdict.UNKNOWN:
            assert result.labels.reason in ROUNDING, case
        else:
            assert (result.labels.verdict == Verdict.FALSIFIED) == differs, (case, differs)
    return result


@pytest.mark.parametrize("block", range(2))
def test_answers_equal_the_enumeration_of_all_cells(block: int) -> None:
    results = [check_case(seed) for seed in range(120 * block, 120 * (block + 1))]
    verdicts = {result.verdict for result in results if result is not None}
    assert verdicts >= {Verdict.VERIFIED, Verdict.FALSIFIED}


@pytest.mark.slow
@pytest.mark.parametrize("block", range(50))
def test_answers_equal_the_enumeration_of_all_cells_at_length(block: int) -> None:
    for seed in range(1000 + 400 * block, 1000 + 400 * (block + 1)):
        check_case(seed)


def test_other_classes_count_where_two_do_not_settle_a_box() -> None:
    verdicts = set()
    for seed in range(7, 1000, 20):
        result = check_case(seed, evidence=True)
        assert result is not None
        assert result.labels is not None
        assert result.labels.evidence is not None
        verdicts.add(result.labels.verdict)
    assert len(verdicts) == 2


@pytest.mark.slow
def test_nearly_all_that_is_decided_has_evidence() -> None:
    results = [check_case(seed, evidence=True) for seed in range(600)]
    parts = [part for result in results if result is not None for part in result.parts]
    decided = [part for part in parts if part.verdict != Verdict.UNKNOWN]
    missing = sum(part.evidence is None for part in decided)
    assert missing * 200 < len(decided)


def check_rows(seed: int) -> None:
    """Around rows: each answer is that of the box around the row."""
    rng = np.random.default_rng(seed)
    pair = random_pair(rng, SIZES)
    if pair is None or (pair[0].is_categorical | pair[1].is_categorical).any():
        return
    rows = random_rows(rng, pair[0], 3)
    if np.isnan(rows).any():
        return
    eps = float(rng.choice([0.1, 0.25]))
    results = tp.diff(Model(pair[0]), Model(pair[1]), tp.LInf(eps), rows, delta=0.0)
    for number, result in enumerate(results):
        assert result.row == number
        if result.scores is None:
            continue
        alone = tp.diff(
            Model(pair[0]), Model(pair[1]), tp.LInf(eps), rows[number : number + 1], delta=0.0
        )[0]
        assert alone.verdict == result.verdict
        assert alone.upper == result.upper
        if result.witness is not None:
            assert (np.abs(result.witness - rows[number]) <= eps * (1 + 1e-12)).all()


def test_around_rows_the_answer_is_that_of_each_row() -> None:
    for seed in range(40):
        check_rows(seed)
