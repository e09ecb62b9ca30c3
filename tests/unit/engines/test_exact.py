"""The exact engine on small models whose answers are known by hand."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from treeproof.engines import exact
from treeproof.engines.base import Budget
from treeproof.engines.batches import CHUNK
from treeproof.engines.exact import ExactEngine
from treeproof.kernels.core.status import MEMORY_LIMIT, PROVED, UNDECIDED
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import MISSING_LEFT, Aggregation, Decision, Ensemble, Provenance
from treeproof.prediction import Model
from treeproof.query.build import build_query


def stump(builder, feature, threshold, left, right, *, flags=0, output=0):
    """A tree with one split: `left` below the threshold, `right` from it on."""
    builder.add_tree(
        feature=[feature, 0, 0],
        threshold=[threshold, 0, 0],
        left=[1, -1, -1],
        right=[2, -1, -1],
        flags=[flags, 0, 0],
        value=[np.zeros_like(left), left, right],
        output=output,
    )


def model_of(builder, n_features, *, kind="threshold", n_outputs=1, precision="float64", **rest):
    return Model(
        Ensemble(
            trees=builder.finish(),
            n_features=n_features,
            n_outputs=n_outputs,
            input_precision=precision,
            aggregation=Aggregation(precision="float64", start=(0.0,) * n_outputs),
            decision=Decision(kind=kind, **rest),
            classes=() if kind == "score" else tuple(range(max(n_outputs, 2))),
            provenance=Provenance(library="test"),
        )
    )


def one_stump(**options):
    """Class 1 from x0 >= 0.5 on."""
    builder = TreeBuilder()
    stump(builder, 0, 0.5, -1.0, 1.0)
    return model_of(builder, 1, **options)


def both_needed(precision="float64"):
    """Class 1 where x0 >= 0.5 and x1 >= 0.25: two trees of gain 1 against a cut of 1.5."""
    builder = TreeBuilder()
    stump(builder, 0, 0.5, 0.0, 1.0)
    stump(builder, 1, 0.25, 0.0, 1.0)
    return model_of(builder, 2, cut=1.5, precision=precision)


def contradicting(cut):
    """One tree gives 1 where x0 < 0.5 <= x1, the other where x1 < 0.5 <= x0; both -1 elsewhere."""
    builder = TreeBuilder()
    for gains in ((-1.0, 1.0, -1.0, -1.0), (-1.0, -1.0, 1.0, -1.0)):
        builder.add_tree(
            feature=[0, 1, 0, 0, 1, 0, 0],
            threshold=[0.5, 0.5, 0, 0, 0.5, 0, 0],
            left=[1, 2, -1, -1, 5, -1, -1],
            right=[4, 3, -1, -1, 6, -1, -1],
            flags=[0] * 7,
            value=[0, 0, *gains[:2], 0, *gains[2:]],
            output=0,
        )
    return model_of(builder, 2, cut=cut)


def three_classes():
    """Class 0 by default; class 1 from x0 >= 0.5 on, class 2 beats both from x0 >= 0.75 on."""
    builder = TreeBuilder()
    stump(builder, 0, 0.5, 1.0, 1.0, output=0)
    stump(builder, 0, 0.5, 0.0, 2.0, output=1)
    stump(builder, 0, 0.75, 0.0, 3.0, output=2)
    return model_of(builder, 1, kind="argmax", n_outputs=3)


def scores():
    """0 below 0.25, 1 from there on, 2 from x1 >= 0.75 on in addition."""
    builder = TreeBuilder()
    stump(builder, 0, 0.25, 0.0, 1.0)
    stump(builder, 1, 0.75, 0.0, 2.0)
    return model_of(builder, 2, kind="score")


def radius_of(model, row, perturbation=None, **options):
    """Lower bound, attained, and the witness; the search must have been closed."""
    found = tp.radius(model, [row], perturbation=perturbation, engine="exact", **options)
    assert found.exact[0]
    assert found.lower[0] == found.upper[0]
    return found.lower[0], bool(found.attained[0]), found.witness[0]


def to_below(value, threshold):
    """Exact distance from a value down to the last double below a threshold, if it is a double."""
    distance = Fraction(value) - Fraction(float(np.nextafter(threshold, -np.inf)))
    assert Fraction(float(distance)) == distance
    return float(distance)


def verdict_of(model, row, perturbation, **options):
    found = tp.verify(model, [row], perturbation=perturbation, engine="exact", **options)
    return str(found.verdict[0])


def test_upwards_a_threshold_is_attained():
    value, attained, witness = radius_of(one_stump(), [0.25])
    assert (value, attained, witness[0]) == (0.25, True, 0.5)
    assert verdict_of(one_stump(), [0.25], tp.LInf(0.25)) == "falsified"
    assert verdict_of(one_stump(), [0.25], tp.LInf(np.nextafter(0.25, 0.0))) == "verified"


def test_downwards_a_threshold_is_only_approached_by_real_numbers():
    real = {"arithmetic": "real"}
    value, attained, witness = radius_of(one_stump(), [0.75], **real)
    assert (value, attained) == (0.25, False)
    assert witness[0] == np.nextafter(0.5, 0.0)
    assert verdict_of(one_stump(), [0.75], tp.LInf(0.25), **real) == "verified"
    assert verdict_of(one_stump(), [0.75], tp.LInf(np.nextafter(0.25, 1.0)), **real) == "falsified"


def test_downwards_the_last_double_below_a_threshold_is_attained():
    value, attained, witness = radius_of(one_stump(), [0.75])
    assert (value, attained) == (to_below(0.75, 0.5), True)
    assert witness[0] == np.nextafter(0.5, 0.0)
    assert verdict_of(one_stump(), [0.75], tp.LInf(np.nextafter(value, 0.0))) == "verified"
    assert verdict_of(one_stump(), [0.75], tp.LInf(value)) == "falsified"


def test_a_row_on_a_threshold_has_a_real_radius_of_zero_that_is_not_attained():
    value, attained, _ = radius_of(one_stump(), [0.5], arithmetic="real")
    assert (value, attained) == (0.0, False)
    assert verdict_of(one_stump(), [0.5], tp.LInf(0.0), arithmetic="real") == "verified"
    # The ball of the smallest double holds a real number below 0.5, although no float64.
    assert verdict_of(one_stump(), [0.5], tp.LInf(5e-324), arithmetic="real") == "falsified"


def test_a_row_on_a_threshold_is_one_double_away_from_the_last_one_below_it():
    value, attained, _ = radius_of(one_stump(), [0.5])
    assert (value, attained) == (to_below(0.5, 0.5), True)
    for near in (0.0, 5e-324, np.nextafter(value, 0.0)):
        assert verdict_of(one_stump(), [0.5], tp.LInf(near)) == "verified"
    assert verdict_of(one_stump(), [0.5], tp.LInf(value)) == "falsified"


def test_a_wrong_label_has_radius_zero_that_is_attained():
    found = tp.radius(one_stump(), [[0.25]], [1], engine="exact")
    assert (found.lower[0], found.upper[0]) == (0.0, 0.0)
    assert found.attained[0]
    assert found.verdict[0] == "falsified"


def test_the_larger_of_two_needed_moves_counts():
    value, attained, witness = radius_of(both_needed(), [0.125, 0.125])
    assert (value, attained) == (0.375, True)
    np.testing.assert_array_equal(witness, [0.5, 0.25])


def test_trees_that_contradict_each_other_are_no_violation():
    # The best leaves sum to 2, but no point reaches both: the largest sum is 0.
    assert radius_of(contradicting(1.0), [0.25, 0.125])[0] == np.inf
    assert verdict_of(contradicting(1.0), [0.25, 0.125], tp.LInf(9.0)) == "verified"
    value, attained, witness = radius_of(contradicting(0.0), [0.25, 0.125])
    assert (value, attained) == (0.25, True)
    assert witness[0] == 0.5


def test_one_sided_moves_frozen_features_and_scales():
    model, row = both_needed(), [0.125, 0.125]
    assert radius_of(model, row, tp.LInf(above=[1.0, 0.0]))[0] == np.inf
    assert radius_of(model, row, tp.LInf(below=0.0))[:2] == (0.375, True)
    assert radius_of(model, row, tp.LInf(frozen=[0]))[0] == np.inf
    assert radius_of(model, row, tp.LInf(scale=[3.0, 0.5]))[:2] == (0.25, True)
    assert radius_of(model, [0.5, 0.125], tp.LInf(frozen=[0]))[:2] == (0.125, True)


def test_a_radius_that_is_no_double_is_rounded_down_and_not_attained():
    # 0.375 / 3 is a double, 0.25 / 3 is not.
    value, attained, _ = radius_of(one_stump(), [0.25], tp.LInf(scale=[3.0]))
    assert not attained
    assert Fraction(value) * 3 < Fraction(1, 4) < Fraction(np.nextafter(value, 1.0)) * 3
    assert radius_of(one_stump(), [0.125], tp.LInf(scale=[3.0]))[:2] == (0.125, True)


def test_the_domain_cuts_the_ball_off():
    model, row = both_needed(), [0.125, 0.125]
    assert radius_of(model, row, tp.LInf(high=[0.49, 1.0]))[0] == np.inf
    assert radius_of(model, row, tp.LInf(high=[0.5, 0.25]))[:2] == (0.375, True)
    # Domains are closed: below 0.5 there must be room.
    assert radius_of(one_stump(), [0.75], tp.LInf(low=[0.5]))[0] == np.inf
    assert verdict_of(one_stump(), [0.75], tp.LInf(9.0, low=[0.5])) == "verified"


def test_what_nothing_breaks_has_an_infinite_radius_and_no_witness():
    builder = TreeBuilder()
    stump(builder, 0, 0.5, 1.0, 2.0)
    value, attained, witness = radius_of(model_of(builder, 1), [0.0])
    assert value == np.inf
    assert not attained
    assert np.isnan(witness).all()


def test_boxes_may_have_infinite_sides():
    model = both_needed()
    whole = tp.Box([-np.inf, -np.inf], [np.inf, np.inf])
    assert verdict_of(model, [0.0, 0.0], whole) == "falsified"
    half = tp.Box([-np.inf, -np.inf], [np.inf, np.nextafter(0.25, 0.0)])
    assert verdict_of(model, [0.0, 0.0], half) == "verified"
    corner = tp.verify(
        model, [[0.0, 0.0]], perturbation=tp.Box([0.5, 0.25], [np.inf, np.inf]), engine="exact"
    )
    assert corner.verdict[0] == "falsified"
    assert np.all(corner.witness[0] >= [0.5, 0.25])
    assert np.isnan(corner.lower[0])


def test_missing_values_stay_missing():
    builder = TreeBuilder()
    stump(builder, 0, 0.5, -1.0, 1.0, flags=MISSING_LEFT)
    stump(builder, 1, 0.5, -0.5, 1.5)
    model = model_of(builder, 2)
    value, attained, witness = radius_of(model, [np.nan, 0.25])
    assert (value, attained) == (0.25, True)
    assert np.isnan(witness[0])
    assert witness[1] == 0.5
    assert radius_of(model, [np.nan, np.nan])[0] == np.inf


def test_the_nearest_of_several_classes_counts():
    model = three_classes()
    assert model.predict([[0.25], [0.5], [0.75]]).tolist() == [0, 1, 2]
    assert radius_of(model, [0.25])[:2] == (0.25, True)
    # Upwards; the last double downwards is farther.
    assert radius_of(model, [0.625])[:2] == (0.125, True)
    assert radius_of(model, [1.0])[:2] == (to_below(1.0, 0.75), True)
    assert radius_of(model, [0.625], arithmetic="real")[:2] == (0.125, True)
    assert radius_of(model, [1.0], arithmetic="real")[:2] == (0.25, False)


def test_a_target_must_win_against_every_class():
    # From 0.5 on class 1 beats class 0, from 0.75 on class 2 beats both: beating the true class
    # is not enough.
    model = three_classes()
    assert radius_of(model, [0.25], goal=tp.AvoidsTarget(2))[:2] == (0.5, True)
    for arithmetic, expected in (
        ("float64", (to_below(1.0, 0.75), True)),
        ("real", (0.25, False)),
    ):
        value, attained, witness = radius_of(
            model, [1.0], goal=tp.AvoidsTarget(1), arithmetic=arithmetic
        )
        assert (value, attained) == expected
        assert model.predict([witness])[0] == 1


def test_the_untargeted_radius_bounds_a_targeted_one(monkeypatch):
    # Nothing is found about the target itself.
    take_turns = exact._take_turns

    def leave_open(search, query, *rest):
        if len(query.alternatives.need) == len(query.alternatives.alternative_start) - 1:
            take_turns(search, query, *rest)

    X, y = load_iris(return_X_y=True)
    model = tp.load(RandomForestClassifier(9, random_state=0).fit(X, y))
    plain = tp.radius(model, X)
    truth = tp.radius(model, X, goal=tp.AvoidsTarget(1))
    monkeypatch.setattr(exact, "TARGET_PATIENCE", 0)
    monkeypatch.setattr(exact, "_take_turns", leave_open)
    found = tp.radius(model, X, goal=tp.AvoidsTarget(1))
    is_asked = model.predict(X) != 1
    assert np.array_equal(found.lower[is_asked], plain.upper[is_asked])
    assert np.all(found.lower <= truth.upper)
    assert np.any(found.lower[is_asked] < truth.upper[is_asked])
    assert not np.any(found.exact[is_asked])


def columns_of_one():
    return SimpleNamespace(
        status=np.array([UNDECIDED]), lower=np.array([1.0]), upper=np.array([np.inf])
    )


def test_the_dual_search_waits_while_cliques_raise_the_bound_of_a_forest(monkeypatch):
    columns = columns_of_one()
    factors = iter([1.1, 1.1, 1.0, 1.1, 1.1, 1.0, 1.1, 1.1, 1.0])
    asked = []

    def run(kernel, guess, limits, *, n_jobs, skip):
        asked.append("cliques" if kernel is exact.solve_by_cliques else "dual")
        columns.lower *= next(factors)
        if len(asked) == 9:
            columns.status[0] = PROVED

    monkeypatch.setattr(exact, "_has_conditions", lambda query: False)
    search = SimpleNamespace(columns=columns, skip=np.array([False]), run=run)
    limits = exact.Limits(np.inf, 10**9, np.inf, 0)
    exact._take_turns(search, None, exact.FirstGuess(0.0, 1.0), limits, 1)
    # One turn of the dual after cliques stall; another one since it raised the bound itself.
    expected = ["cliques", "cliques", "cliques", "dual", "cliques", "dual", "cliques", "cliques"]
    assert asked == [*expected, "cliques"]


@pytest.mark.parametrize("finds_witness", [True, False])
def test_cliques_that_memory_ended_go_on_once_less_is_left(finds_witness, monkeypatch):
    columns = columns_of_one()
    asked = []

    def run(kernel, guess, limits, *, n_jobs, skip):
        asked.append(kernel is exact.solve_by_cliques)
        if asked[-1]:
            columns.status[0] = MEMORY_LIMIT if columns.upper[0] == np.inf else PROVED
        elif finds_witness:
            columns.status[0], columns.upper[0] = UNDECIDED, 1.0
        else:
            columns.status[0] = MEMORY_LIMIT

    monkeypatch.setattr(exact, "_has_conditions", lambda query: False)
    search = SimpleNamespace(columns=columns, skip=np.array([False]), run=run)
    limits = exact.Limits(np.inf, 10**9, np.inf, 0)
    exact._take_turns(search, None, exact.FirstGuess(0.0, 1.0), limits, 1)
    assert asked == ([True, False, True] if finds_witness else [True, False])


def test_an_exact_tie_goes_to_the_first_class():
    builder = TreeBuilder()
    stump(builder, 0, 0.5, 1.0, 1.0, output=0)
    stump(builder, 0, 0.5, 0.0, 1.0, output=1)
    model = model_of(builder, 1, kind="argmax", n_outputs=2)
    assert radius_of(model, [0.25])[0] == np.inf


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (tp.ScoreWithin(-0.5, 0.5), (0.25, True)),
        (tp.ScoreWithin(-0.5, 1.5), (0.5, True)),
        (tp.ScoreWithin(0.0, 3.0), (np.inf, False)),
        (tp.ScoreChange(0.5), (0.25, True)),
        (tp.ScoreChange(1.0), (0.5, True)),
        (tp.ScoreChange(3.0), (np.inf, False)),
    ],
)
def test_scores_that_leave_an_interval(goal, expected):
    assert radius_of(scores(), [0.0, 0.25], goal=goal)[:2] == expected


def test_sums_are_judged_as_the_library_rounds_them():
    # The real sum of both doubles lies below their rounded sum, which is what the model compares.
    builder = TreeBuilder()
    stump(builder, 0, 0.5, 0.0, 0.1)
    stump(builder, 1, 0.5, 0.0, 0.2)
    assert Fraction(0.1) + Fraction(0.2) < Fraction(0.1 + 0.2)
    reached = model_of(builder, 2, cut=0.1 + 0.2)
    assert radius_of(reached, [0.25, 0.25])[:2] == (0.25, True)
    builder = TreeBuilder()
    stump(builder, 0, 0.5, 0.0, 0.1)
    stump(builder, 1, 0.5, 0.0, 0.2)
    missed = model_of(builder, 2, cut=float(np.nextafter(0.1 + 0.2, 1.0)))
    assert radius_of(missed, [0.25, 0.25])[0] == np.inf


def test_a_near_miss_where_nothing_can_move_is_decided_at_once():
    # Within the slack of the sums below the cut, in a box that no split divides.
    builder = TreeBuilder()
    stump(builder, 0, 0.5, 0.0, 0.1)
    stump(builder, 1, 0.5, 0.0, 0.2)
    missed = model_of(builder, 2, cut=float(np.nextafter(0.1 + 0.2, 1.0)))
    assert verdict_of(missed, [0.75, 0.75], tp.Box(0.7, 0.8), time_limit_s=10.0) == "verified"


def test_the_smallest_steps_are_found():
    tiny = 5e-324
    builder = TreeBuilder()
    stump(builder, 0, tiny, -1.0, 1.0)
    stump(builder, 1, 3 * tiny, -1.0, 1.0)
    model = model_of(builder, 2, cut=1.5)
    assert radius_of(model, [0.0, 0.0], time_limit_s=10.0)[:2] == (3 * tiny, True)
    # Below the first threshold lies 0, the last double; real numbers lie nearer.
    assert radius_of(model, [tiny, 5 * tiny], time_limit_s=10.0)[:2] == (tiny, True)
    real = radius_of(model, [tiny, 5 * tiny], time_limit_s=10.0, arithmetic="real")
    assert real[:2] == (0.0, False)


def test_leaves_near_the_end_of_the_double_range_are_added():
    builder = TreeBuilder()
    stump(builder, 0, 0.5, 0.0, 2.0**1000)
    assert radius_of(model_of(builder, 1, cut=1.0), [0.25])[:2] == (0.25, True)


def test_float64_rows_are_rounded_before_a_float32_model_compares_them():
    builder = TreeBuilder()
    stump(builder, 0, float(np.float32(0.1)), -1.0, 1.0)
    model = model_of(builder, 1, precision="float32")
    real = radius_of(model, [0.0], arithmetic="real")
    rounded = radius_of(model, [0.0])
    assert real[:2] == (float(np.float32(0.1)), True)
    # Half a float32 step earlier the value already rounds up to the threshold.
    assert 0.0 < real[0] - rounded[0] < 1e-8
    assert np.float32(rounded[2][0]) == np.float32(0.1)


def crossing_trees(seed=3, n_trees=40, n_features=6):
    """A model that takes some branching: trees of depth 2 on shared features."""
    rng = np.random.default_rng(seed)
    builder = TreeBuilder()
    for _ in range(n_trees):
        builder.add_tree(
            feature=[*rng.integers(n_features, size=2), 0, 0, rng.integers(n_features), 0, 0],
            threshold=[*rng.integers(1, 16, size=2) / 16, 0, 0, rng.integers(1, 16) / 16, 0, 0],
            left=[1, 2, -1, -1, 5, -1, -1],
            right=[4, 3, -1, -1, 6, -1, -1],
            flags=[0] * 7,
            value=[0, 0, *rng.normal(size=2), 0, *rng.normal(size=2)],
            output=0,
        )
    rows = rng.random((3 * CHUNK + 5, n_features))
    return model_of(builder, n_features), rows


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"node_limit": 1}, "node limit"),
        ({"time_limit_s": 1e-9}, "time limit"),
    ],
)
def test_limits_leave_valid_bounds(budget, reason):
    model, rows = crossing_trees()
    free = tp.radius(model, rows, engine="exact")
    limited = tp.radius(model, rows, engine="exact", **budget)
    assert free.exact.all()
    unknown = limited.verdict == "unknown"
    assert unknown.any()
    assert set(limited.reason[unknown].tolist()) == {reason}
    assert not limited.exact[unknown].any()
    assert np.all(limited.lower <= free.lower)
    assert np.all(free.lower <= limited.upper)
    assert np.mean(limited.lower[unknown] > 0.0) > 0.5  # best leaves alone prove something
    settled = ~unknown
    np.testing.assert_array_equal(limited.lower[settled], free.lower[settled])
    shown = np.isfinite(limited.upper)
    assert np.all(model.predict(limited.witness[shown]) != model.predict(rows[shown]))


def test_threads_do_not_change_anything():
    model, rows = crossing_trees(5)
    one = tp.radius(model, rows, engine="exact", n_jobs=1)
    two = tp.radius(model, rows, engine="exact", n_jobs=2)
    for name in ("lower", "upper", "exact", "attained", "witness", "witness_distance"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    for name, counted in one.statistics.items():
        np.testing.assert_array_equal(counted, two.statistics[name], name)
    ball = tp.LInf(float(np.median(one.lower)))
    first = tp.verify(model, rows, perturbation=ball, engine="exact", n_jobs=1)
    second = tp.verify(model, rows, perturbation=ball, engine="exact", n_jobs=2)
    assert first.verdict.tolist() == second.verdict.tolist()
    np.testing.assert_array_equal(first.witness, second.witness)
    assert set(first.verdict.tolist()) == {"verified", "falsified"}


def test_a_row_does_not_depend_on_its_neighbours():
    model, rows = crossing_trees(7)
    together = tp.radius(model, rows[:40], engine="exact")
    for row in range(0, 40, 7):
        alone = tp.radius(model, rows[row : row + 1], engine="exact")
        assert alone.lower[0] == together.lower[row]
        assert alone.attained[0] == together.attained[row]


def test_verdicts_at_a_radius_agree_with_the_radius():
    model, rows = crossing_trees(9)
    found = tp.radius(model, rows, engine="exact")
    eps = float(np.median(found.lower))
    verdict = tp.verify(model, rows, perturbation=tp.LInf(eps), engine="exact").verdict
    broken = (found.lower < eps) | ((found.lower == eps) & found.attained)
    assert ((verdict == "falsified") == broken).all()
    assert ((verdict == "verified") == ~broken).all()


def test_counts_are_told_per_row():
    model, rows = crossing_trees()
    found = tp.radius(model, rows, engine="exact")
    assert {"nodes", "sweeps", "points", "restrictions"} <= set(found.statistics)
    assert np.all(found.statistics["restrictions"] >= 1)
    assert np.all(found.seconds > 0.0)


def test_nothing_is_refused():
    model, rows = crossing_trees()
    query = build_query(model.ensemble, rows[:2], None, tp.LInf())
    assert ExactEngine().refusal(query) is None
    assert ExactEngine().radius(query, Budget()).exact.all()


@pytest.mark.parametrize("far", [np.inf, -np.inf])
@pytest.mark.parametrize("feature", [0, 1])
def test_no_ball_takes_an_infinite_value_to_a_threshold(far, feature):
    rng = np.random.default_rng(feature)
    builder = TreeBuilder()
    for threshold in rng.normal(size=12):
        stump(builder, int(rng.integers(2)), threshold, *rng.normal(size=2))
    model = model_of(builder, 2)
    rows = rng.normal(size=(8, 2))
    rows[:, feature] = far
    found = tp.radius(model, rows, engine="exact", time_limit_s=20.0)
    frozen = tp.radius(model, rows, perturbation=tp.LInf(frozen=[feature]), engine="exact")
    assert found.exact.all()
    np.testing.assert_array_equal(found.upper, frozen.upper)
