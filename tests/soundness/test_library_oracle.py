"""Answers about trained models against their own libraries: their dumps, predict, and fractions.

`python -m tests.campaigns.library_oracle` asks half a million such questions; here is a sample, the
faults that only such an oracle could see, and the test that the oracle itself is able to see them.
"""

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from threadpoolctl import ThreadpoolController

import treeproof as tp
from tests.campaigns import checks
from tests.campaigns.asking import Asker, Tally
from tests.campaigns.checks import Asked
from tests.campaigns.library_oracle import LIBRARIES, ask_about, run
from tests.campaigns.questions import Claim, Moves, aligned_rows, arithmetic_option
from tests.oracle.library_models import (
    Deployed,
    histogram_cuts,
    sklearn_cuts,
    smallest_double_cast_to,
)
from tests.oracle.library_truth import Ball, Reached, Table, exact_rates, round_down, round_up

FloatArray = np.ndarray

in_both_arithmetics = pytest.mark.parametrize("arithmetic", ["float64", "real"])


@pytest.fixture(autouse=True)
def one_thread():
    # Starting threads costs these models far more than what the threads do.
    with ThreadpoolController().limit(limits=1):
        yield


def assert_no_mismatch(tally: Tally) -> None:
    assert not tally.mismatches, "\n".join(map(str, tally.mismatches[:5]))


@cache
def sample(library: str) -> Tally:
    """A few hundred questions about models of a library."""
    tally = Tally()
    for number in range(5):
        ask_about(1_000, number, library, tally, n_series=1, n_rows=6, engines=False)
    return tally


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_sample_agrees_with_the_library(library):
    assert_no_mismatch(sample(library))
    assert sample(library).n_questions >= 300


def test_the_sample_holds_every_kind_of_question():
    asked = [key for library in LIBRARIES for key in sample(library).counts]
    _, kinds, goals, moves = map(set, zip(*asked, strict=True))
    assert goals == {"KeepsLabel", "AvoidsTarget", "ScoreWithin", "ScoreChange"}
    assert kinds >= {"radius", "ball", "box", "feature radius", "unimportant", "anchors"}
    words = {word for name in moves for word in name.replace("+", " ").split()}
    assert words == {"LInf", "Box", "plain", "scale", "rates", "frozen", "bounds"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_questions_agree_with_the_libraries(seed):
    assert_no_mismatch(run(5_000, 3_000 + seed))


def deployed(model: Any, n_features: int, **more: Any) -> Deployed:
    """A scikit-learn model by hand."""
    is_histogram = hasattr(model, "_predictors")
    if is_histogram:
        cuts = histogram_cuts(model, n_features, [])
        score: Callable[[Any], Any] = partial(model._raw_predict, n_threads=1)
    else:
        cuts = sklearn_cuts([model.tree_], [np.arange(n_features)], n_features)
        score = getattr(model, "predict_proba", model.predict)
    classes = tuple(model.classes_.tolist()) if hasattr(model, "classes_") else ()
    return Deployed(
        library="sklearn",
        kind=type(model).__name__,
        source=model,
        precision=np.float64 if is_histogram else np.float32,
        cuts=cuts,
        score=score,
        label=model.predict if classes else None,
        classes=classes,
        **more,
    )


def claim_of(table: Table, rows: FloatArray, goal: Any) -> Claim:
    """The claim of a goal about rows, by the library's answers."""
    place = table.flat(table.states(rows))
    classes = table.model.classes
    shape = (len(rows), len(table.labels))
    if isinstance(goal, tp.AvoidsTarget):
        broken = np.broadcast_to(table.labels == classes.index(goal.target), shape)
    elif isinstance(goal, tp.ScoreWithin):
        score = table.scores[:, 0]
        broken = np.broadcast_to((score < goal.low) | (score > goal.high), shape)
    elif isinstance(goal, tp.ScoreChange):
        own = table.scores[place, 0]
        moved = [[abs(Fraction(b) - Fraction(a)) for b in table.scores[:, 0]] for a in own]
        broken = np.array(moved) > Fraction(goal.delta)
    else:
        broken = table.labels != table.labels[place][:, np.newaxis]
    return Claim(type(goal).__name__, goal, broken)


def asked_about(
    model: Deployed, rows: Any, goal: Any = None, arithmetic: str = "real", **options: Any
) -> Asked:
    """A question about rows within a ball of scales and rates of one's own."""
    given = np.asarray(rows, dtype=np.float64)
    table = Table(model, arithmetic)
    rows = table.cast(given)
    scale = np.ones(model.n_features) * options.get("scale", 1.0)
    down, up = (exact_rates(scale, options.get(side, 1.0)) for side in ("below", "above"))
    free = np.full(model.n_features, np.inf)
    moves = Moves("LInf", options, Ball(down, up, -free, free))
    claim = claim_of(table, rows, goal)
    still = np.zeros(len(rows), dtype=bool)
    asked = Asked(
        table, rows, given, claim, {"goal": goal, **arithmetic_option(arithmetic)}, still, moves
    )
    asked.reached = Reached(table, rows, moves.ball, still.tolist())
    asked.levels = asked.reached.nearest(claim.broken)
    return asked


def mismatches(asked: Asked) -> list[str]:
    """What the library says against treeproof's radii."""
    tally = Tally()
    asker = Asker(np.random.default_rng(0), 0, asked.table.model, tally)
    asker._radius(asked)
    asker._ball(asked, 1.0)
    return [str(mismatch) for mismatch in tally.mismatches]


def nanoseconds() -> tuple[Any, FloatArray]:
    """Columns of very different size: nanoseconds since 1970 beside halves and whole numbers."""
    start, random, n = 1.7e18, np.random.default_rng(17), 300
    ticks, halves, whole = random.integers(0, 6, (3, n)).astype(np.float64)
    rows = np.column_stack([start + 256.0 * ticks, halves / 2.0, whole])
    score = np.column_stack([ticks, halves, whole]) @ random.normal(size=3)
    score += random.normal(size=n)
    model = HistGradientBoostingClassifier(
        max_iter=5, max_depth=3, min_samples_leaf=2, learning_rate=0.3
    )
    return model.fit(rows, (score > np.median(score)).astype(int)), rows


@in_both_arithmetics
def test_columns_of_very_different_size(arithmetic):
    model, rows = nanoseconds()
    assert mismatches(asked_about(deployed(model, 3), rows, arithmetic=arithmetic)) == []


@in_both_arithmetics
def test_the_oracle_tells_doubles_from_real_numbers(arithmetic):
    # From 1.7e18 the next number below a threshold is 256 away, or as near as one likes.
    rows = 1.7e18 + 256.0 * np.arange(100)[:, np.newaxis]
    model = HistGradientBoostingClassifier(max_iter=1, min_samples_leaf=1, max_leaf_nodes=2)
    model.fit(rows, (np.arange(100) >= 49).astype(int))
    asked = asked_about(deployed(model, 1), [[1.7e18 + 256.0 * 60]], arithmetic=arithmetic)
    (level,) = asked.levels
    assert level == ((256 * 11, True) if arithmetic == "real" else (256 * 12, False))
    eps = 256.0 * 11.5
    for told in ("float64", "real"):
        found = tp.radius(model, asked.given, **arithmetic_option(told))
        assert (list(checks.radius_problems(asked, found)) == []) == (told == arithmetic), told
        options = asked.options | arithmetic_option(told)
        found = tp.verify(model, asked.given, perturbation=tp.LInf(eps), **options)
        problems = list(checks.ball_problems(asked, eps, found))
        assert (problems == []) == (told == arithmetic), told


@in_both_arithmetics
@pytest.mark.parametrize("seed", range(4))
def test_products_of_scales_and_multiples_are_exact(arithmetic, seed):
    random = np.random.default_rng(seed)
    model, rows = nanoseconds()
    sides = {side: float(random.choice([0.1, 0.7, 1 / 3, 3.0])) for side in ("below", "above")}
    asked = asked_about(
        deployed(model, 3),
        rows[:40],
        arithmetic=arithmetic,
        scale=random.choice([0.1, 0.3, 1 / 3, 7.0, 1e-3], size=3),
        **sides,
    )
    rounded = [float(rate) for rate in (*asked.moves.ball.down, *asked.moves.ball.up)]
    assert rounded != [*asked.moves.ball.down, *asked.moves.ball.up]
    assert mismatches(asked) == []


@pytest.mark.parametrize("n_classes", [4, 7, 10, 12])
def test_exact_ties_of_many_classes(n_classes):
    classes = list(range(n_classes))
    rows = [[0.0]] * (n_classes + 1) + [[1.0]] * n_classes
    tree = DecisionTreeClassifier(max_depth=1).fit(rows, [*classes, 1, *classes])
    asked = asked_about(deployed(tree, 1), [[0.0], [0.6], [1.0]], tp.AvoidsTarget(0))
    assert mismatches(asked) == []


@pytest.mark.parametrize(
    "goal",
    [
        tp.ScoreWithin(-np.inf, 0.0),
        tp.ScoreWithin(0.0, np.inf),
        tp.ScoreWithin(5e-324, 6.0),
        tp.ScoreWithin(-2.0, -5e-324),
        tp.ScoreWithin(np.nextafter(-2.0, 0.0), np.nextafter(4.0, 0.0)),
        tp.ScoreChange(2.0),
        tp.ScoreChange(np.nextafter(2.0, 0.0)),
    ],
)
def test_scores_on_a_grid_and_bounds_beside_them(goal):
    tree = DecisionTreeRegressor().fit([[0], [1], [2], [3]], [-2, 0, 4, 6])
    asked = asked_about(deployed(tree, 1), [[0.0], [1.0], [2.0], [3.0]], goal)
    assert mismatches(asked) == []


def test_a_score_that_moves_by_more_than_a_rounded_sum_tells():
    # 0.1 + 0.2 is rounded up, so the score moves by more than 0.2 though it equals the sum.
    tree = DecisionTreeRegressor().fit([[0], [1]], [0.1, 0.1 + 0.2])
    asked = asked_about(deployed(tree, 1), [[0.0]], tp.ScoreChange(0.2))
    assert asked.levels[0] is not None
    assert mismatches(asked) == []


@in_both_arithmetics
@pytest.mark.parametrize("seed", range(6))
def test_rates_whose_products_cancel(seed, arithmetic):
    # The thresholds are tiny, so row - radius * rate is all but zero wherever one is reached, and
    # the distances of three features lie within a float of each other.
    random, units = np.random.default_rng(seed), np.array([1e-20, 1e-25, 1e-30])
    steps = random.integers(-2, 3, (200, 3))
    target = random.integers(3, size=125)[(steps + 2) @ [1, 5, 25]]
    model = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=1, max_depth=3)
    known = deployed(model.fit(steps * units, target), 3)
    scale, free = random.uniform(0.1, 3.0, size=3), np.full(3, np.inf)
    ball = Ball(exact_rates(scale, 1.0), exact_rates(scale, 1.0), -free, free)
    start = np.zeros((60, 3))
    rows = aligned_rows(random, Table(known, arithmetic), ball, start, random.uniform(0.1, 3.0))
    assert mismatches(asked_about(known, rows, arithmetic=arithmetic, scale=scale)) == []


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_infinite_values_never_move(n_classes):
    random = np.random.default_rng(3)
    rows = random.integers(0, 4, (200, 3)).astype(np.float64)
    target = (rows.sum(axis=1) % n_classes).astype(int)
    model = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2).fit(rows, target)
    values = np.array([np.inf, -np.inf, 1e300, 0.5, 2.0])
    far = random.choice(values, size=(30, 3))
    for target in range(n_classes):
        assert mismatches(asked_about(deployed(model, 3), far, tp.AvoidsTarget(target))) == []


WRONG: dict[str, Callable[[Any], None]] = {
    "larger radius": lambda found: _set(
        found, lower=np.nextafter(1.0, 2), upper=np.nextafter(1, 2)
    ),
    "smaller radius": lambda found: _set(found, lower=0.25, upper=0.25),
    "another kind of radius": lambda found: _set(found, attained=~found.attained),
    "verdict": lambda found: _set(found, verdict=np.array(["falsified"])),
    "undecided": lambda found: _set(found, verdict=np.array(["unknown"])),
    "witness that breaks nothing": lambda found: _set(found, witness=np.zeros((1, 2))),
    "witness outside": lambda found: _set(found, witness=np.array([[1.0, 9.0]])),
    "distance of the witness": lambda found: _set(found, witness_distance=0.75),
    "no witness": lambda found: _set(found, witness=np.nan),
}


def _set(found: Any, **columns: Any) -> None:
    for name, value in columns.items():
        getattr(found, name)[:] = value


@pytest.mark.parametrize("wrong", list(WRONG))
def test_the_oracle_sees_wrong_answers(wrong):
    rows = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    tree = DecisionTreeClassifier().fit(rows, [0, 1, 0, 1])
    asked = asked_about(deployed(tree, 2), [[0.0, 0.0]])
    found = tp.radius(tree, asked.given, **asked.options)
    assert list(checks.radius_problems(asked, found)) == []
    found = dataclasses.replace(found, **{name: getattr(found, name).copy() for name in COLUMNS})
    WRONG[wrong](found)
    assert list(checks.radius_problems(asked, found)), wrong


COLUMNS = ("verdict", "lower", "upper", "attained", "witness", "witness_distance")


def test_fractions_are_rounded_outwards_by_at_most_one_float():
    random = np.random.default_rng(0)
    for value in [*random.random(50).tolist(), 0.0, 5e-324, 1e300]:
        exact = Fraction(value) + Fraction(int(random.integers(3)), 10**400)
        below, above = Fraction(round_down(exact)), Fraction(round_up(exact))
        assert below <= exact <= above
        assert above == below or float(above) == np.nextafter(float(below), np.inf)


def test_where_casts_to_float32_turn_over():
    random = np.random.default_rng(1)
    for cut in np.float32([0.1, -0.1, 0.0, 1e-45, 3e38, -3e38, *random.normal(size=20)]):
        first = smallest_double_cast_to(float(cut))
        assert np.float32(first) >= cut > np.float32(np.nextafter(first, -np.inf))


def test_real_numbers_beyond_the_largest_float_are_reached_at_exact_rates():
    """A threshold beyond the largest float, and a rate that no double holds: costs are exact."""
    tally = Tally()
    ask_about(20261121, 422, "catboost", tally)
    assert_no_mismatch(tally)
    assert tally.n_questions > 100
