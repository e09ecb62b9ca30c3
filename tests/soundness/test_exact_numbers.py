"""Numbers that lie where roundings and ties decide, against the truth in fractions."""

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import HistGradientBoostingClassifier

import treeproof as tp
from treeproof.checker.runs import RunChecker
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.prediction import Model
from treeproof.results.run_file import row_records

NORMS: dict[str, Any] = {"LInf": tp.LInf, "L1": tp.L1, "L2": tp.L2, "L0": tp.L0, "Cost": tp.Cost}
BALLS = ["LInf", "L1", "L2", "Cost"]
ENGINES = ["exact", "milp"]


def step(low: list[list[float]], high: list[list[float]]) -> Any:
    """A model that tells some rows from others by one threshold."""
    X, y = np.array(low * 20 + high * 20), [0] * (20 * len(low)) + [1] * (20 * len(high))
    return HistGradientBoostingClassifier(max_iter=1, max_leaf_nodes=2, min_samples_leaf=1).fit(
        X, y
    )


def between() -> Any:
    """A model that answers 1 from 1 on and below 3."""
    X, y = np.array([[0.0], [2.0], [4.0]] * 4), np.array([0, 1, 0] * 4)
    return xgb.XGBClassifier(
        n_estimators=1, max_depth=2, tree_method="exact", min_child_weight=0, reg_lambda=0, n_jobs=1
    ).fit(X, y)


def statuses(results: tp.Results, model: tp.Model) -> list[str]:
    """What the checker says of the rows."""
    checker = RunChecker(results.header, model.ensemble)
    return [check.status for check in checker.check_all(list(row_records(results)))]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("norm", BALLS)
def test_of_changes_that_tie_the_one_that_attains_the_cost_counts(norm: str, engine: str) -> None:
    """Up to 3 costs 1, and below 1 costs as good as 1: the ball of radius 1 holds the first."""
    model = tp.load(between())
    for domain in (None, tp.Domain()):
        ball = NORMS[norm](domain=domain)
        found = tp.radius(model, [[2.0]], None, ball, arithmetic="real", engine=engine)
        assert (found.upper[0], found.attained[0]) == (1.0, True)
        assert found.witness.tolist() == [[3.0]]
        assert found.verified_error(1.0) == 1.0
        name = "budget" if norm == "Cost" else "eps"
        asked = dataclasses.replace(ball, **{name: 1.0})
        verdict = tp.verify(model, [[2.0]], None, asked, arithmetic="real", engine=engine).verdict
        assert verdict.tolist() == ["falsified"]


@pytest.mark.parametrize("norm", BALLS)
def test_evidence_proves_that_a_radius_is_not_attained(norm: str) -> None:
    """Only what is proved at the radius itself may count there."""
    model = tp.load(between())
    for row, high in (([2.0], 2.5), ([2.25], np.inf)):
        ball = NORMS[norm](high=high, domain=tp.Domain())
        found = tp.radius(model, [row], None, ball, arithmetic="real", evidence=True)
        assert statuses(found, model) == ["accepted"]
        is_certified = found.verified_error(float(found.lower[0])) == 0.0
        assert is_certified == (not found.attained[0])
        if found.attained[0]:
            forged = dataclasses.replace(found, attained=np.array([False]))
            assert statuses(forged, model) == ["rejected"]


@pytest.mark.parametrize("norm", BALLS)
def test_a_tie_cannot_be_denied(norm: str) -> None:
    """The record of a tie with the witness that only approaches the radius is no proof."""
    model = tp.load(between())
    ball = NORMS[norm](domain=tp.Domain())
    found = tp.radius(model, [[2.0]], None, ball, arithmetic="real", evidence=True)
    below = float(np.nextafter(np.float32(1.0), np.float32(0.0)))
    distance = math.nextafter(2.0 - below, 0.0) if 2.0 - below < 1.0 else 2.0 - below
    forged = dataclasses.replace(
        found,
        attained=np.array([False]),
        witness=np.array([[below]]),
        witness_distance=np.array([distance]),
    )
    assert statuses(forged, model) == ["rejected"]


FAR = 1.7e18
"""Here doubles lie 256 apart."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("norm", list(NORMS))
def test_a_step_of_one_counts_beside_a_column_of_far_doubles(norm: str, engine: str) -> None:
    """The other column lies on a threshold; below it no double is nearer than 256."""
    rng = np.random.default_rng(5)
    steps, part = rng.integers(0, 3, 300).astype(float), FAR + 256.0 * rng.integers(0, 6, 300)
    X = np.column_stack([steps, part])
    y = ((steps >= 1) ^ ((part > FAR + 600) & (rng.random(300) < 0.3))).astype(int)
    model = tp.load(
        HistGradientBoostingClassifier(
            max_iter=int(rng.integers(2, 6)), learning_rate=0.5, max_depth=3, min_samples_leaf=2
        ).fit(X, y)
    )
    row, flipped = [[1.0, 1.7000000000000003e18]], [[0.0, 1.7000000000000003e18]]
    assert model.predict(row) != model.predict(flipped)
    domain = tp.Domain(integer=[0])
    asked = NORMS[norm](1.0, domain=domain)
    assert tp.verify(model, row, None, asked, engine=engine).verdict.tolist() == ["falsified"]
    found = tp.radius(model, row, None, NORMS[norm](domain=domain), engine=engine)
    assert (found.lower[0], found.upper[0], found.attained[0]) == (1.0, 1.0, True)
    assert found.verified_error(1.0) == 1.0


@pytest.mark.parametrize("engine", [*ENGINES, "smt", "cliques", "single_tree", "lp", "attack"])
@pytest.mark.parametrize("norm", BALLS)
def test_a_ball_of_doubles_holds_doubles(norm: str, engine: str) -> None:
    """A row on a threshold where doubles are 256 apart: no ball below 256 holds another one."""
    if engine not in (*ENGINES, "attack") and norm != "LInf":
        pytest.skip("This engine answers for L∞.")
    fitted = step([[FAR], [FAR + 256.0]], [[FAR + 512.0], [FAR + 768.0]])
    model = tp.load(fitted)
    (threshold,) = model.ensemble.trees.threshold[model.ensemble.trees.feature == 0].tolist()
    row, other = [[threshold]], [[math.nextafter(threshold, 0.0)]]
    assert model.predict(row) != model.predict(other)
    apart = float(Fraction(threshold) - Fraction(other[0][0]))
    for eps in (0.0, 1.0, 100.0, math.nextafter(apart, 0.0), apart, 2.0 * apart):
        found = tp.verify(model, row, None, NORMS[norm](eps), engine=engine)
        if eps >= apart:
            assert found.verdict[0] in ("falsified", "unknown" if engine == "lp" else "")
            assert engine == "lp" or found.witness_distance[0] <= eps
        else:
            # A square that is no double is told from its neighbour by no sum of doubles.
            is_tie = norm == "L2" and eps == math.nextafter(apart, 0.0)
            is_open = engine == "attack" or (is_tie and "so near to the budget" in found.reason[0])
            assert found.verdict[0] == ("unknown" if is_open else "verified")
    found = tp.radius(model, row, None, NORMS[norm](), engine=engine)
    if engine in (*ENGINES, "smt"):
        assert (found.lower[0], found.upper[0], found.attained[0]) == (apart, apart, True)
    # Of real numbers some lie just below.
    real = tp.radius(model, row, None, NORMS[norm](), engine=engine, arithmetic="real")
    assert real.lower[0] == 0.0


@pytest.mark.parametrize("engine", [*ENGINES, "cliques", "smt"])
@pytest.mark.parametrize("is_below", [True, False])
def test_a_distance_is_told_from_one_just_before_it(is_below: bool, engine: str) -> None:
    """One column reaches 0 at 0.1 exactly, the other one its threshold by less than a double."""
    before = math.nextafter(0.1, 0.0)
    builder = TreeBuilder()
    gains = [3.0, 1.0] if is_below else [1.0, 3.0]
    for feature, threshold, left, right in (
        (0, 5e-324, gains[0], 0.0),
        (1, before, 0.0, gains[1]),
    ):
        builder.add_tree(
            feature=[feature, 0, 0], threshold=[threshold, 0, 0], left=[1, -1, -1],
            right=[2, -1, -1], flags=[0] * 3, value=[0.0, left, right], output=0,
        )  # fmt: skip
    model = Model(
        Ensemble(
            trees=builder.finish(),
            n_features=2,
            n_outputs=1,
            input_precision="float64",
            aggregation=Aggregation(precision="float64", start=(0.0,)),
            decision=Decision(kind="threshold", cut=2.5),
            classes=(0, 1),
            provenance=Provenance(library="test"),
        )
    )
    found = tp.radius(model, [[0.1, -1e-20]], engine=engine)
    answer = found.lower[0], found.upper[0], found.attained[0]
    assert answer == ((0.1, 0.1, True) if is_below else (before, before, False))


@pytest.mark.parametrize("norm", BALLS)
def test_far_doubles_have_evidence(norm: str) -> None:
    model = tp.load(step([[FAR], [FAR + 256.0]], [[FAR + 512.0], [FAR + 768.0]]))
    (threshold,) = model.ensemble.trees.threshold[model.ensemble.trees.feature == 0].tolist()
    rows = [[threshold], [threshold + 512.0], [threshold - 256.0]]
    found = tp.radius(model, rows, None, NORMS[norm](), evidence=True)
    assert statuses(found, model) == ["accepted"] * 3
    for eps in (100.0, 256.0, 600.0):
        found = tp.verify(model, rows, None, NORMS[norm](eps), evidence=True)
        assert statuses(found, model) == ["accepted"] * 3
        assert all((found.verdict == "verified") | (found.witness_distance <= eps))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", ["relative", "below"])
@pytest.mark.parametrize("norm", ["LInf", "L1"])
def test_units_that_are_no_doubles_are_not_rounded(norm: str, options: str, seed: int) -> None:
    """The least double that reaches a flip is falsified, the one before it is verified."""
    fitted = step([[1.0]], [[2.0]])
    model, rng = tp.load(fitted), np.random.default_rng(seed)
    (threshold,) = model.ensemble.trees.threshold[model.ensemble.trees.feature == 0].tolist()
    for number in range(40):
        x = round(float(rng.uniform(0.5, 1.49)), 3)
        scale, above = float(rng.choice([0.1, 0.2, 0.3, 0.05])), 1.0
        unit, given = Fraction(scale) * Fraction(x), {"scale": scale, "relative": True}
        if options == "below":
            above = float(rng.choice([0.1, 0.3, 0.7]))
            unit, given = Fraction(scale) * Fraction(above), {"scale": scale, "above": above}
        exact = (Fraction(threshold) - Fraction(x)) / unit
        eps = float(exact)
        eps = eps if Fraction(eps) >= exact else math.nextafter(eps, math.inf)
        for end, verdict in ((eps, "falsified"), (math.nextafter(eps, 0.0), "verified")):
            asked = NORMS[norm](end, **given)
            found = tp.verify(model, [[x]], None, asked, evidence=number < 5)
            assert found.verdict.tolist() == [verdict]
            if number < 5:  # proofs of sums leave some units of doubles for rounding
                assert statuses(found, model) in (["accepted"], ["unproved"])
        radius = tp.radius(model, [[x]], None, NORMS[norm](**given), evidence=number < 5)
        assert Fraction(float(radius.lower[0])) <= exact
        assert Fraction(float(radius.upper[0])) <= exact < Fraction(eps) or exact == eps
        if number < 5:
            assert statuses(radius, model) == ["accepted"]


@pytest.mark.parametrize("number", [round(0.1 * tenth, 1) for tenth in range(1, 10)])
def test_numbers_in_rules_are_those_of_rows(number: float) -> None:
    """A number in a rule is the double that it is everywhere else."""
    other = 2.0
    model = tp.load(step([[number]], [[other]]))
    values = {0: [number, other]}
    assert model.predict([[number]]) != model.predict([[other]])
    for rule in (f"x[0] >= {number}", f"{number} <= x[0]", f"x[0] - {number} >= 0"):
        domain = tp.Domain(values=values, rules=[rule])
        for row in (number, other):  # neither is refused
            for asked in (tp.L0(1, domain=domain), tp.Box(number, other, domain)):
                found = tp.verify(model, [[row]], None, asked, evidence=True)
                assert found.verdict.tolist() == ["falsified"]
                assert statuses(found, model) == ["accepted"]
        assert tp.prove(model, tp.Fair(0), tp.Box(number, other, domain)).verdict == "falsified"
    domain = tp.Domain(values=values, rules=[f"x[0] > {number}"])
    found = tp.verify(model, [[other]], None, tp.L0(1, domain=domain), evidence=True)
    assert found.verdict.tolist() == ["verified"]
    assert statuses(found, model) == ["accepted"]


def test_a_number_that_is_no_double_is_refused() -> None:
    model = tp.load(step([[1.0]], [[2.0]]))
    with pytest.raises(tp.InvalidInput, match="1e999 is too large a number"):
        tp.verify(model, [[1.0]], None, tp.L0(1, domain=tp.Domain(rules=["x[0] <= 1e999"])))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_move_where_it_does_not_matter_how_far(value: float, engine: str) -> None:
    model = tp.load(step([[0.0], [1.0]], [[2.0], [3.0]]))
    rows, free = [[value]], {"up": 0.0, "down": 0.0, "fixed": 1.0}
    for ball, given in ((tp.L0, {}), (tp.Cost, free)):
        for domain in (None, tp.Domain(values={0: [0.0, 3.0]}, allow_broken_rows=True)):
            found = tp.radius(model, rows, None, ball(**given, domain=domain), engine=engine)
            assert (found.lower[0], found.upper[0], found.attained[0]) == (1.0, 1.0, True)
            for budget, verdict in ((1.0, "falsified"), (0.5, "verified"), (np.inf, "falsified")):
                asked = ball(budget, **given, domain=domain)
                recorded = engine == "exact"
                found = tp.verify(model, rows, None, asked, engine=engine, evidence=recorded)
                assert found.verdict.tolist() == [verdict]
                if recorded:
                    assert statuses(found, model) == ["accepted"]
    # Where it matters, they stay as they are.
    for ball in (tp.L1(), tp.LInf(domain=tp.Domain()), tp.Cost(fixed=1.0)):
        assert tp.radius(model, rows, None, ball, engine=engine).upper.tolist() == [np.inf]


def test_any_change_counts_the_inverse_of_its_scale() -> None:
    """Three changes that count a third each are one, without rounding."""
    X = np.array([[0.0] * 3, [1.0] * 3] * 20)
    model = tp.load(between())
    assert tp.radius(model, [[2.0]], None, tp.L0(scale=4.0)).upper.tolist() == [0.25]
    codes = xgb.XGBClassifier(n_estimators=3, max_depth=1, n_jobs=1).fit(X, X[:, 0] > 0.5)
    model = tp.load(codes)
    for domain in (tp.Domain(integer=[0, 1, 2]), tp.Domain(categorical={0: [0, 1]})):
        for scale in (0.5, 3.0):
            found = tp.radius(model, X[:1], None, tp.L1(scale=scale, domain=domain))
            n_changes = int((found.witness[0] != X[0]).sum())
            assert found.upper[0] == float(Fraction(n_changes) / Fraction(scale))


@pytest.mark.parametrize("norm", ["LInf", "L1"])
def test_units_too_small_for_a_double_forbid_nothing(norm: str) -> None:
    model = step([[0.0]], [[1e-290]])
    units = {"scale": [1e-200], "below": 1e-200, "above": 1e-200}
    found = tp.radius(model, [[1e-290]], None, NORMS[norm](**units))
    assert found.exact[0]
    assert found.upper[0] == pytest.approx(5e109)
    ball = NORMS[norm](1e200, **units)
    assert tp.verify(model, [[1e-290]], None, ball).verdict[0] == "falsified"
