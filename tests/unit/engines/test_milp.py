"""The integer programs: what the solver says is used with care, and tolerances decide nothing."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier

import treeproof as tp
from tests.oracle import brute_force
from tests.strategies import Sizes, random_case
from tests.unit.checker.test_nodes import model as model_of
from tests.unit.checker.test_nodes import stump
from treeproof.comparisons import milp as engine
from treeproof.comparisons import programs as module
from treeproof.comparisons.milp import MilpEngine
from treeproof.comparisons.programs import (
    Answer,
    Program,
    ProgramSearch,
    _answer,
    encode,
    safe_bound,
    solve,
)
from treeproof.engines.base import Budget
from treeproof.engines.restricted import Restricted, restricted_to
from treeproof.model.ensemble import Decision
from treeproof.query.build import build_query
from treeproof.results.verdict import UnknownReason, Verdict


@pytest.fixture(scope="module")
def boosted():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X / X.max(axis=0)).astype(np.float32)
    return tp.load(XGBClassifier(n_estimators=10, max_depth=3).fit(X, y)), X[:12]


@pytest.mark.parametrize("form", ["restricted", "whole"])
def test_radii_of_a_boosted_model_are_those_of_the_exact_engine(boosted, form):
    model, X = boosted
    exact = tp.radius(model, X)
    found = tp.radius(model, X, engine=tp.milp(form))
    assert found.exact.all()
    np.testing.assert_array_equal(found.upper, exact.upper)
    np.testing.assert_array_equal(found.attained, exact.attained)
    assert np.all(model.predict(found.witness) != model.predict(X))


def test_several_classes_and_boxes():
    X, y = load_iris(return_X_y=True)
    model = tp.load(RandomForestClassifier(n_estimators=7, max_depth=4, random_state=1).fit(X, y))
    rows = X[::10]
    np.testing.assert_array_equal(
        tp.radius(model, rows, engine="milp").upper, tp.radius(model, rows).upper
    )
    box = tp.Box(rows - 0.4, rows + 0.3)
    by_milp = tp.verify(model, rows, perturbation=box, engine="milp").verdict
    assert by_milp.tolist() == tp.verify(model, rows, perturbation=box).verdict.tolist()
    assert set(by_milp) == {"verified", "falsified"}


def test_no_time_gives_unknown_and_bounds_that_hold(boosted):
    model, X = boosted
    truth = tp.radius(model, X).upper
    found = tp.radius(model, X, engine="milp", time_limit_s=1e-6)
    assert np.all(found.verdict == "unknown")
    assert np.all(found.reason == "time limit")
    assert np.all((found.lower <= truth) & (truth <= found.upper))


def test_both_bounds_close_in_with_every_program():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X / X.max(axis=0)).astype(np.float32)
    model = tp.load(XGBClassifier(n_estimators=40, max_depth=4).fit(X, y))
    rows = X[2:10]
    truth = tp.radius(model, rows).upper
    found = [tp.radius(model, rows, engine="milp", node_limit=n) for n in range(1, 9)]
    lower, upper = (
        np.array([getattr(each, side) for each in found]) for side in ("lower", "upper")
    )
    assert np.all((lower <= truth) & (truth <= upper))
    assert np.all(lower[1:] >= lower[:-1])
    assert np.all(upper[1:] <= upper[:-1])
    np.testing.assert_array_equal(lower[-1], upper[-1])
    # Also between the first witness of a row and its last, not only before and after.
    assert np.any((upper[:-1] < np.inf) & (lower[:-1] < lower[1:]) & (lower[1:] < truth))


def test_bounds_after_any_number_of_programs_hold_on_models_with_ties(monkeypatch):
    """With balls that begin at the row, grow too far and are halved to the end."""
    monkeypatch.setattr(engine, "_first_open", lambda *_: 0)
    monkeypatch.setattr(engine, "_GROWTH", 1e3)
    monkeypatch.setattr(engine, "_NARROW", 1.0)
    rng = np.random.default_rng(17)
    n_between = 0
    for _ in range(300):
        query = random_case(rng, Sizes(rows=1, trees=6, depth=4), ask="radius").query
        truth = brute_force.radius(query, 0).value
        before = -np.inf
        for node_limit in range(1, 7):
            found = MilpEngine().radius(query, Budget(node_limit=node_limit))
            lower, upper = found.lower[0], found.upper[0]
            assert before <= lower <= truth <= upper
            assert not found.exact[0] or lower == upper
            n_between += bool(before < lower < upper < np.inf)
            before = lower
    assert n_between > 10


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(-math.inf), UnknownReason.SOLVER_FAILED),
        (Answer(-math.inf, is_out_of_time=True), UnknownReason.TIME_LIMIT),
    ],
)
def test_a_failed_solver_is_never_a_proof(boosted, monkeypatch, answer, reason):
    model, X = boosted
    monkeypatch.setattr(module, "solve", lambda *_, **__: answer)
    radius = float(tp.radius(model, X).upper.min())
    query = build_query(model.ensemble, X, None, tp.LInf(2 * radius))
    found = MilpEngine().verify(query, Budget())
    assert Verdict.FALSIFIED not in found.verdict
    # What the sums of the best leaves settle needs no program; the others stay open.
    assert set(found.reason[found.verdict == Verdict.UNKNOWN]) == {reason}
    assert (found.verdict == Verdict.UNKNOWN).any()


def test_a_bound_within_the_tolerance_proves_nothing(boosted, monkeypatch):
    model, X = boosted

    def nearly(program, **_):
        return Answer(0.9 * program.margin)

    monkeypatch.setattr(module, "solve", nearly)
    query = build_query(model.ensemble, X, None, tp.LInf(1.0))
    assert set(MilpEngine().verify(query, Budget()).verdict) == {Verdict.UNKNOWN}


def test_a_lying_solver_cannot_falsify(boosted, monkeypatch):
    model, X = boosted
    safe = 0.5 * float(tp.radius(model, X).upper.min())

    def lies(program, **_):
        return Answer(-1.0, np.full(len(program.cost), 1.0))

    monkeypatch.setattr(module, "solve", lies)
    monkeypatch.setattr(Restricted, "is_excluded_by_eq6", lambda self: False)
    query = build_query(model.ensemble, X, None, tp.LInf(safe))
    found = MilpEngine().verify(query, Budget(node_limit=20))
    assert set(found.verdict) == {Verdict.UNKNOWN}


def test_only_known_endings_count():
    from highspy import HighsModelStatus

    class Solver:
        def __init__(self, status):
            self.status = status

        def getModelStatus(self):  # noqa: N802 - HiGHS's name
            return self.status

        def getInfo(self):  # noqa: N802
            class Info:
                primal_solution_status = 2
                mip_dual_bound = 5.0
                objective_function_value = 5.0

            return Info()

        def getSolution(self):  # noqa: N802
            class Solution:
                col_value = (0.5,)
                dual_valid = False

            return Solution()

    program = Program()
    program.add_columns(1)
    names = [n for n in dir(HighsModelStatus) if n.startswith("k")]
    useful = {"kOptimal", "kTimeLimit", "kObjectiveTarget", "kSolutionLimit", "kIterationLimit"}
    assert len(names) > 10
    for name in names:
        answer = _answer(Solver(getattr(HighsModelStatus, name)), program, False)
        if name in useful:
            assert answer.bound == 5.0
        elif name == "kInfeasible":
            assert answer == Answer(math.inf)
        else:
            assert answer == Answer(-math.inf), name


def test_the_program_and_enumeration_have_the_same_maximum():
    """The largest margin of the program is the largest over all points, up to the tolerance."""
    rng = np.random.default_rng(4)
    compared = 0
    for _ in range(60):
        query = random_case(rng, Sizes(rows=1), ask="ball").query
        groups = query.alternatives.of_group(int(query.group[0]))
        if not groups or len(groups[0]) > 1:
            continue
        search = ProgramSearch(query, 0, None, None)
        levels = search.all_levels()
        box = search.box_below(levels[-1], inclusive=True) if levels else (search.home,) * 2
        restricted = restricted_to(query, 0, groups[0], box)
        if not np.isfinite(restricted.floor).all():
            continue
        encoding = encode(restricted)
        encoding.ask_margin()
        answer = solve(encoding.program, time_limit_s=60.0)
        values = []
        for cells in np.ndindex(*(box[1] - box[0] + 1)):
            leaves = restricted.leaves_at((box[0] + np.array(cells)).astype(np.int32))
            total = restricted.base[0] + restricted.leaves.gain[0, leaves].sum()
            values.append((total - restricted.floor[0]) / restricted.scale[0])
        assert -answer.bound == pytest.approx(max(values), abs=1e-7)
        compared += 1
    assert compared > 20


def test_bounds_from_any_multipliers_hold():
    rng = np.random.default_rng(7)
    for _ in range(200):
        program = Program()
        program.add_columns(4, low=-1.0, high=1.0)
        program.cost = rng.normal(size=4).tolist()
        inside = rng.uniform(-1.0, 1.0, size=4)
        for _ in range(3):
            weights = rng.normal(size=4)
            program.add_row([0, 1, 2, 3], weights.tolist(), float(weights @ inside) - 0.1, np.inf)
        cost = float(np.array(program.cost) @ inside)
        assert safe_bound(program, rng.normal(size=3)) <= cost
        best = solve(program, time_limit_s=10.0, relaxed=True)
        assert safe_bound(program, best.row_multiplier) == pytest.approx(best.bound, abs=1e-6)


def test_large_multipliers_that_cancel_cost_no_more_than_their_rounding():
    """Interior points leave multipliers whose sum is a million times the bound."""
    rng = np.random.default_rng(8)
    program = Program()
    program.add_columns(1500)
    program.cost = rng.normal(size=1500).tolist()
    multiplier = []
    for _ in range(1000):
        columns = rng.choice(1500, size=4, replace=False).tolist()
        weights = rng.normal(size=4).tolist()
        for sign in (1.0, -1.0):
            program.add_row(columns, [sign * weight for weight in weights], -4.0, 4.0)
            multiplier.append(1e4 + rng.normal())
    exact = sum(
        Fraction(y) * Fraction(program.row_low[row] if y > 0.0 else program.row_high[row])
        for row, y in enumerate(multiplier)
    )
    reduced = [Fraction(cost) for cost in program.cost]
    for row, y in enumerate(multiplier):
        for entry in range(program.start[row], program.start[row + 1]):
            reduced[program.index[entry]] -= Fraction(y) * Fraction(program.value[entry])
    exact += sum(min(each, Fraction(0)) for each in reduced)  # columns are between 0 and 1
    found = safe_bound(program, np.array(multiplier))
    assert found <= exact
    assert exact - Fraction(found) < Fraction(1, 10**5)


def test_the_missing_solver_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "highspy", None)
    for name in ("milp", "lp"):
        with pytest.raises(tp.BackendMissing, match=r"pip install .*\[milp\]'"):
            tp.radius(None, None, engine=name)


def test_unknown_forms_are_refused():
    with pytest.raises(tp.InvalidInput, match="'form' of milp"):
        MilpEngine(form="other")  # type: ignore[arg-type]


def test_ties_are_settled_by_the_model_itself():
    """Where sums are rounded, leaf combinations within the tolerance are replayed one by one."""
    rng = np.random.default_rng(11)
    excluded = 0
    for _ in range(150):
        query = random_case(rng, Sizes(rows=1, trees=5), ask="ball").query
        found = MilpEngine().verify(query, Budget())
        excluded += int(found.statistics["excluded"][0])
        is_broken = brute_force.violation(query, 0) is not None
        assert found.verdict[0] is (Verdict.FALSIFIED if is_broken else Verdict.VERIFIED) or (
            found.reason[0] is UnknownReason.NEAR_TIE
        )
    assert excluded > 0


def test_rows_that_cannot_move_need_no_program(boosted):
    model, X = boosted
    ball = tp.LInf(frozen=tuple(range(X.shape[1])))
    found = tp.radius(model, X, perturbation=ball, engine="milp")
    assert np.all(found.upper == np.inf)
    assert found.exact.all()
    assert dataclasses.astuple(MilpEngine()) == ("restricted",)


def test_distances_beyond_all_doubles_make_steps_that_are_numbers():
    """In units of the best one known, they are infinite, and infinity minus itself is no step."""
    stumps = [stump(0, -1.0, 1.0) | {"threshold": [cut, 0.0, 0.0]}
              for cut in (1.7e308, 1.75e308, -1.7e308, -1.75e308)]  # fmt: skip
    decision = Decision(kind="threshold", cut=1.0)
    ensemble = dataclasses.replace(model_of(*stumps), decision=decision, classes=(0, 1))
    query = build_query(ensemble, np.zeros((1, 4)), None, tp.LInf())
    search = ProgramSearch(query, 0, None, None)
    box = search.box_below(search.all_levels()[-1], inclusive=True)
    groups = query.alternatives.of_group(int(query.group[0]))
    encoding = encode(restricted_to(query, 0, groups[0], box))
    n_rows = len(encoding.program.row_low)
    encoding.ask_distance(search.levels, search.home, 1e-300, 0.0)
    assert len(encoding.program.row_low) == n_rows + 2
    assert np.isfinite(encoding.program.row_low[n_rows:]).all()
    assert np.isfinite(encoding.program.value).all()
