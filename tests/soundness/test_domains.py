"""Costs and domains against enumeration in fractions; `python -m` counts as many as it is told."""

import dataclasses
import math
import sys
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.oracle import domains
from tests.oracle.brute_force import judge
from tests.random_domains import Case, random_case
from treeproof.engines.base import Budget, Engine
from treeproof.engines.baselines.milp import MilpEngine
from treeproof.engines.exact import ExactEngine
from treeproof.query.build import build_query
from treeproof.query.perturbations import Box, Cost
from treeproof.query.query import Query
from treeproof.results.results import Results

MOST_POINTS = 4000
"""Combinations of a row that are worth an enumeration."""
NEAR = Fraction(1, 2**40)
"""What costs with roundings may be apart and count as equal, relatively."""


def question(case: Case, arithmetic: Any, budget: float | None = None) -> Query:
    perturbation: Any = case.perturbation
    if budget is not None:
        name = "budget" if isinstance(perturbation, Cost) else "eps"
        perturbation = dataclasses.replace(perturbation, **{name: budget})
    return build_query(case.ensemble, case.rows, None, perturbation, arithmetic=arithmetic)


def size(query: Query, case: Case, row: int) -> int:
    words = domains.Words(case.perturbation, query.ensemble)
    options = domains.options_of_row(words, query.rows, row)
    return domains.n_points([domains.undominated(query, choices) for choices in options])


def check_seed(seed: int, engine: Engine, counts: Counter[str]) -> None:
    """Compare everything about a random case with the truth."""
    rng = np.random.default_rng([22, seed])
    case = random_case(rng)
    arithmetic = "real" if rng.random() < 0.3 else "float64"
    query = question(case, arithmetic)
    rows = [row for row in range(len(query)) if size(query, case, row) <= MOST_POINTS]
    if not rows:
        return
    part = np.array(rows)
    case = dataclasses.replace(case, rows=case.rows[part], perturbation=_taken(case, part))
    query = question(case, arithmetic)
    truths = [domains.cheapest(query, case.perturbation, row) for row in range(len(query))]
    limits = Budget(time_limit_s=60.0)
    if isinstance(case.perturbation, Box):
        found = engine.verify(query, limits)
        for row, truth in enumerate(truths):
            _check_verdict(query, case, found, row, truth.cost is not None, counts)
        return
    found = engine.radius(query, limits)  # type: ignore[attr-defined]
    for row, truth in enumerate(truths):
        _check_least(query, case, found, row, truth, counts)
    budget = _budget(rng, query, truths)
    asked = question(case, arithmetic, budget)
    found = engine.verify(asked, limits)
    limit = Fraction(budget) ** (2 if query.pricing.is_square else 1)  # type: ignore[union-attr]
    for row, truth in enumerate(truths):
        is_broken = truth.cost is not None and (truth.cost, truth.is_open) <= (limit, False)
        _check_verdict(asked, case, found, row, is_broken, counts)


def _taken(case: Case, part: Any) -> Any:
    if not isinstance(case.perturbation, Box):
        return case.perturbation
    box = case.perturbation
    return Box(np.asarray(box.low)[part], np.asarray(box.high)[part], box.domain)


def _budget(rng: np.random.Generator, query: Query, truths: list[domains.Cheapest]) -> float:
    """A budget at the cost of one of the rows, or beside it."""
    pricing = query.pricing
    assert pricing is not None
    costs = [pricing.rounded_up(truth.cost) for truth in truths if truth.cost is not None]
    at = float(rng.choice(costs)) if costs else 1.0
    way = rng.random()
    if way < 0.4:
        return at
    if way < 0.6:
        return max(0.0, math.nextafter(at, 0.0))
    return at * float(rng.choice([0.5, 0.999, 1.001, 2.0]))


def _check_least(
    query: Query, case: Case, found: Results, row: int, truth: domains.Cheapest, counts: Any
) -> None:
    pricing = query.pricing
    assert pricing is not None
    counts["least"] += 1
    where = f"{type(case.perturbation).__name__}, row {row}: {truth}"
    power = 2 if pricing.is_square else 1
    if truth.cost is None:
        assert math.isinf(found.upper[row]), where
    else:
        lower = found.lower[row]
        # Sound at any moment: no violation costs less than the lower bound.
        assert math.isfinite(lower), where
        assert Fraction(float(lower)) ** power <= truth.cost, (where, lower)
    if math.isfinite(found.upper[row]):
        assert truth.cost is not None, where
        _check_witness(query, case, row, found.witness[row])
        least = pricing.least_cost(row, found.witness[row])
        assert least >= truth.cost, where
        assert pricing.rounded_down(least) == found.upper[row], (where, found.upper[row])
        if found.attained[row]:
            assert pricing.exact_cost(row, found.witness[row]) == least, where
        if found.exact[row]:
            assert least <= truth.cost * (1 + NEAR), (where, float(least))
            is_exact = bool(pricing.prices([row]).is_exact.all())
            if is_exact and least == truth.cost and not pricing.is_square:
                is_double = Fraction(float(found.upper[row])) == least
                assert found.attained[row] == (is_double and not truth.is_open), where
    counts["open"] += not found.exact[row]


def _check_verdict(
    query: Query, case: Case, found: Results, row: int, is_broken: bool, counts: Any
) -> None:
    counts["verdicts"] += 1
    where = f"{case.perturbation}, row {row}"
    verdict = str(found.verdict[row])
    counts["unknown"] += verdict == "unknown"
    if verdict == "verified":
        assert not is_broken, where
    if verdict == "falsified":
        assert is_broken, where
        _check_witness(query, case, row, found.witness[row])


def _check_witness(query: Query, case: Case, row: int, point: Any) -> None:
    assert query.pricing is not None
    assert judge(query, row, point[np.newaxis])[0]
    said = domains.breaks_domain(case.perturbation, query.ensemble, query.rows, row, point)
    assert said is None, said
    assert query.pricing.broken_rule(row, point) is None


@pytest.mark.parametrize("seed", range(60))
def test_exact_agrees_with_enumeration(seed: int) -> None:
    counts: Counter[str] = Counter()
    check_seed(seed, ExactEngine(), counts)
    assert counts["open"] + counts["unknown"] == 0


@pytest.mark.parametrize("seed", range(1000, 1025))
def test_milp_agrees_with_enumeration(seed: int) -> None:
    counts: Counter[str] = Counter()
    check_seed(seed, MilpEngine(), counts)
    assert counts["open"] + counts["unknown"] == 0


@pytest.mark.slow
def test_exact_agrees_with_enumeration_often() -> None:
    counts = campaign(range(10_000, 16_000), ExactEngine())
    assert counts["least"] + counts["verdicts"] >= 20_000
    assert counts["mismatch"] == 0
    assert counts["open"] + counts["unknown"] == 0


def campaign(seeds: range, engine: Engine) -> Counter[str]:
    """Check many seeds, say which do not agree, and count."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            check_seed(seed, engine, counts)
        except AssertionError as error:
            counts["mismatch"] += 1
            print(f"seed {seed}: {str(error).splitlines()[0]}", flush=True)
    return counts


if __name__ == "__main__":
    engines: dict[str, Any] = {"exact": ExactEngine, "milp": MilpEngine}
    print(campaign(range(int(sys.argv[2]), int(sys.argv[3])), engines[sys.argv[1]]()))
