"""Properties over one-hot groups against an enumeration of all pairs of rows."""

import itertools
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

import treeproof as tp
from tests.oracle import pairs
from tests.soundness.test_properties import check_bounds, check_verdict
from tests.strategies import Sizes, random_tree_ensemble
from tests.unit.checker.test_properties import where
from treeproof.checker.properties import check_property
from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble
from treeproof.model.folded import choices_of, fold, fold_rows, unfold_rows
from treeproof.prediction import Model
from treeproof.results.verdict import Verdict

SIZES = Sizes(trees=5, depth=3, features=5, outputs=3)


def random_groups(
    rng: np.random.Generator, ensemble: Ensemble
) -> list[tuple[tuple[int, ...], bool]]:
    """Up to two groups of number columns."""
    columns = rng.permutation(np.flatnonzero(~ensemble.is_categorical)).tolist()
    groups = []
    while len(columns) >= 2 and len(groups) < 2:
        size = int(rng.integers(2, min(3, len(columns)) + 1))
        groups.append((tuple(columns[:size]), bool(rng.random() < 0.6)))
        columns = columns[size:]
    return groups


def all_rows(ensemble: Ensemble, groups, low, high) -> np.ndarray:
    """Both ends of every cell of plain columns, and every choice of every group."""
    parts = []
    for group in groups:
        columns = list(group[0])
        parts.append(
            [
                dict(zip(columns, choice, strict=True))
                for choice in choices_of(group).tolist()
                if (choice >= low[columns]).all() and (choice <= high[columns]).all()
            ]
        )
    grouped = {column for columns, _ in groups for column in columns}
    for feature in sorted(set(range(ensemble.n_features)) - grouped):
        values = pairs.values_of(ensemble, feature, float(low[feature]), float(high[feature]))
        parts.append([{feature: value} for value in values.tolist()])
    rows = [
        {k: v for part in parts_ for k, v in part.items()} for parts_ in itertools.product(*parts)
    ]
    return np.array([[row[f] for f in range(ensemble.n_features)] for row in rows])


def pairs_of(rows: np.ndarray, changed: list[int]) -> list[tuple[int, int]]:
    """Numbers of rows that agree in all other columns."""
    alike = defaultdict(list)
    others = [f for f in range(rows.shape[1]) if f not in changed]
    for number, row in enumerate(rows):
        alike[tuple(row[others])].append(number)
    return [pair for numbers in alike.values() for pair in itertools.product(numbers, repeat=2)]


def lies_in(witness: np.ndarray, groups) -> bool:
    return bool(np.array_equal(unfold_rows(fold_rows(witness, groups), groups), witness))


def check_groups(seed: int) -> None:
    """One random model with groups of columns, and the properties that it can have."""
    rng = np.random.default_rng([seed, 7])
    ensemble = random_tree_ensemble(rng, SIZES)
    groups = random_groups(rng, ensemble)
    if ensemble.aggregation.finish == "isolation" or not groups:
        return
    n = ensemble.n_features
    low, high = np.zeros(n), rng.choice([1.0, 1.0, 1.0, 0.4], size=n)
    for columns, exactly in groups:
        if exactly and (high[list(columns)] < 1.0).all():
            high[columns[0]] = 1.0
    high[ensemble.is_categorical] = 2.0
    options = {
        name: [list(columns) for columns, exactly in groups if exactly == (name == "one_hot")]
        for name in ("one_hot", "at_most_one")
    }
    box = tp.Box(low, high, domain=tp.Domain(**options))
    rows = all_rows(ensemble, groups, low, high)
    scores = evaluate.margins(ensemble, rows)
    model, output = Model(ensemble), int(rng.integers(ensemble.n_outputs))
    label = ensemble.classes[output] if ensemble.n_outputs > 1 else None
    own = scores[:, output].astype(np.float64)
    bounds = tp.score_range(model, box, label=label)
    assert bounds.minimum.lower <= own.min() <= bounds.minimum.upper, (seed, bounds)
    assert bounds.maximum.lower <= own.max() <= bounds.maximum.upper, (seed, bounds)
    grouped = {column for columns, _ in groups for column in columns}
    plain = [f for f in range(n) if f not in grouped]
    changed = list(groups[0][0]) if rng.random() < 0.6 or not plain else []
    changed = sorted([*changed, *(f for f in plain if not changed or rng.random() < 0.3)])
    together = pairs_of(rows, changed)
    truth = max(Fraction(own[other]) - Fraction(own[one]) for one, other in together)
    result = tp.largest_change(model, changed, box, label=label, evidence=seed % 4 == 0)
    check_bounds(ensemble, result, truth, (seed, groups, "largest_change"))
    assert result.witness is None or lies_in(result.witness, groups), (seed, result)
    if result.evidence is not None:
        assert (
            check_property(ensemble, result.evidence, where(result)).evidence.verdict
            == result.verdict
        )
    delta = float(rng.choice([0.0, 0.5, max(truth, 0.0)]))
    result = tp.prove(model, tp.Stable(changed, delta, label), box)
    check_verdict(result, truth > delta, (seed, groups, "Stable", delta))
    numbers = [f for f in plain if not ensemble.is_categorical[f]]
    if numbers:
        rising = [(a, b) for a, b in pairs_of(rows, numbers[:1])
                  if rows[b, numbers[0]] >= rows[a, numbers[0]]]  # fmt: skip
        truth = max(Fraction(own[one]) - Fraction(own[other]) for one, other in rising)
        result = tp.prove(model, tp.Monotone(numbers[0], label=label), box)
        check_bounds(ensemble, result, truth, (seed, groups, "Monotone"))
        check_verdict(result, truth > 0.0, (seed, groups, "Monotone"))
    if ensemble.decision.kind != "score":
        labels = evaluate.label_indices(ensemble, scores)
        is_unfair = any(labels[one] != labels[other] for one, other in together)
        result = tp.prove(model, tp.Fair(changed), box, evidence=seed % 4 == 1)
        check_verdict(result, is_unfair, (seed, groups, "Fair"))
        if result.verdict == Verdict.FALSIFIED:
            assert lies_in(result.witness, groups), (seed, result)


def test_answers_over_groups_equal_the_enumeration_of_all_rows() -> None:
    for seed in range(150):
        check_groups(seed)


def test_a_folded_model_has_the_sums_of_the_model() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        ensemble = random_tree_ensemble(rng, SIZES)
        groups = random_groups(rng, ensemble)
        low = np.zeros(ensemble.n_features)
        rows = all_rows(ensemble, groups, low, np.where(ensemble.is_categorical, 2.0, 1.0))
        folded = fold_rows(rows, groups)
        assert np.array_equal(unfold_rows(folded, groups), rows)
        assert np.array_equal(
            evaluate.margins(ensemble, rows), evaluate.margins(fold(ensemble, groups), folded)
        )


@pytest.fixture(scope="module")
def model() -> Model:
    rng = np.random.default_rng(3)
    while True:
        ensemble = random_tree_ensemble(rng, SIZES)
        is_plain = ensemble.decision.kind == "threshold" and not ensemble.is_categorical.any()
        if is_plain and ensemble.n_features == 5:
            return Model(ensemble)


def domain(**options) -> tp.Box:
    return tp.Box([0.0] * 5, [1.0] * 5, domain=tp.Domain(one_hot=[[0, 1, 2]], **options))


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (tp.Fair(0), "Columns of a group change together"),
        (tp.Stable([0, 1, 3], 0.1), "Columns of a group change together"),
        (tp.Monotone([0, 1, 2]), "Columns of a group change together"),
    ],
)
def test_a_group_is_not_taken_apart(model: Model, claim, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        tp.prove(model, claim, domain())


def test_near_rows_keep_their_choice(model: Model) -> None:
    near = tp.prove(model, tp.SmallNeighbourhood(0.5, 1.0), domain())
    assert near.witness is None or np.array_equal(near.witness[0, :3], near.witness[1, :3])
    with pytest.raises(UnsupportedQuery, match="the same choice in every group"):
        tp.prove(model, tp.SmallNeighbourhood(1.0, 1.0), domain())


def test_around_rows_a_group_is_free_or_stays(model: Model) -> None:
    rows = np.array([[1.0, 0.0, 0.0, 0.3, 0.3], [0.0, 0.0, 1.0, 0.5, 0.1]])
    types = tp.Domain(one_hot=[[0, 1, 2]])
    stays = tp.score_range(model, tp.LInf(0.5, domain=types), rows)
    free = tp.score_range(model, tp.LInf(1.0, domain=types), rows)
    for row, narrow, wide in zip(rows, stays, free, strict=True):
        assert np.array_equal(narrow.maximum.witness[0, :3], row[:3])
        assert wide.maximum.upper >= narrow.maximum.lower
    with pytest.raises(UnsupportedQuery, match="must be free to"):
        tp.prove(model, tp.Fair([0, 1, 2]), tp.LInf(0.5, domain=types), rows)
    with pytest.raises(InvalidInput, match="exactly one column must be 1"):
        tp.score_range(model, tp.LInf(0.5, domain=types), np.zeros((1, 5)))
