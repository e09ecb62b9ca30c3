"""All engines on the same questions: complete ones agree with enumeration, bounds hold.

A case is a random model in which ties are common on purpose, with one or two rows and a random
question. The slow run holds thousands of cases; the default one is a sample of other seeds.
"""

import json

import numpy as np
import pytest

import treeproof as tp
from tests.contract import engine_checks
from tests.oracle import brute_force
from tests.paper_data import paper_data
from tests.strategies import SMALL, Sizes, random_case
from treeproof import attack, combination, hard_label, lp, milp, multilevel, smt
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.loaders import load_ensemble
from treeproof.paper.cliques import CliqueEngine
from treeproof.prediction import Model
from treeproof.search.radius import find_radius

COMPLETE = (ExactEngine(), CliqueEngine(), milp(), milp("whole"), smt())
BELOW = (lp(), lp("distance"), combination(), combination(20), multilevel())
ABOVE = (attack(5), hard_label(200))

SIZES = (SMALL, Sizes(trees=7, depth=2, features=2, outputs=3, rows=1))
BUDGET = Budget(time_limit_s=60.0)
"""A search that does not end becomes a failure; these models take milliseconds."""


def check_sets(rng: np.random.Generator, ask: str, sizes: Sizes) -> None:
    query = random_case(rng, sizes, ask=ask).query
    for engine in (*COMPLETE, *BELOW, *ABOVE):
        outcomes = engine.verify(query, BUDGET)
        for row in range(len(query)):
            engine_checks.check_verdict(engine, query, row, outcomes)


def check_radii(rng: np.random.Generator, sizes: Sizes) -> None:
    query = random_case(rng, sizes, ask="radius").query
    for engine in (*COMPLETE, *BELOW, *ABOVE):
        outcomes = find_radius(engine, query, BUDGET)
        for row in range(len(query)):
            engine_checks.check_radius(engine, query, row, outcomes)
            if engine in BELOW and not outcomes.exact[row]:
                assert outcomes.lower[row] <= brute_force.radius(query, row).value


def check_cases(seed: int, ask: str, n_cases: int) -> None:
    for number in range(n_cases):
        # One generator per case, so that a failure names a case that can be run alone.
        rng = np.random.default_rng([seed, number])
        sizes = SIZES[number % len(SIZES)]
        try:
            check_radii(rng, sizes) if ask == "radius" else check_sets(rng, ask, sizes)
        except AssertionError as error:
            raise AssertionError(f"seed [{seed}, {number}], {ask}: {error}") from error


@pytest.mark.parametrize("ask", ["ball", "box", "radius"])
def test_engines_agree(ask):
    check_cases(601, ask, 70)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(610, 615))
@pytest.mark.parametrize("ask", ["ball", "box", "radius"])
def test_engines_agree_on_thousands(seed, ask):
    check_cases(seed, ask, 300)


@pytest.mark.paper_data
@pytest.mark.parametrize(
    ("name", "n_rows"),
    [
        ("paper_breast_cancer_unrobust", 50),
        ("paper_breast_cancer_robust", 50),
        ("paper_diabetes_unrobust", 50),
        ("paper_diabetes_robust", 50),
        pytest.param("paper_ijcnn_unrobust", 55, marks=pytest.mark.slow),
        pytest.param("paper_ijcnn_robust", 55, marks=pytest.mark.slow),
        pytest.param("paper_webspam_unrobust", 10, marks=pytest.mark.slow),
        pytest.param("paper_webspam_robust", 6, marks=pytest.mark.slow),
        pytest.param("paper_higgs_robust50", 10, marks=pytest.mark.slow),
        pytest.param("paper_covtype_unrobust", 5, marks=pytest.mark.slow),
    ],
)
def test_integer_programs_confirm_exact_radii_of_the_papers_models(name, n_rows):
    root = paper_data()
    (entry,) = [
        e for e in json.loads((root / "models/models.json").read_text()) if e["name"] == name
    ]
    with np.load(root / "data" / f"{entry['dataset']}.npz", allow_pickle=False) as arrays:
        part = "attack500" if "X_attack500" in arrays.files else "test"
        X, y = arrays[f"X_{part}"][:n_rows], arrays[f"y_{part}"][:n_rows].astype(np.int64)
    if entry["feature_start"]:
        X = np.hstack([np.zeros((len(X), entry["feature_start"]), dtype=X.dtype), X])
    model = Model(load_ensemble(root / "models" / f"{name}.json", self_test=False))
    exact = tp.radius(model, X, y, time_limit_s=60.0, arithmetic="real")
    found = tp.radius(model, X, y, engine="milp", time_limit_s=60.0, arithmetic="real")
    assert exact.exact.all()
    np.testing.assert_array_equal(found.lower[found.exact], exact.lower[found.exact])
    np.testing.assert_array_equal(found.upper[found.exact], exact.upper[found.exact])
    assert np.all((found.lower <= exact.lower) & (exact.upper <= found.upper))
    assert found.exact.mean() >= 0.9
