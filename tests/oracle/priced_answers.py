"""Compares answers about costs and domains with the truth by enumeration."""

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np

from tests.oracle import domains
from tests.random_domains import Case, obeys, random_case, random_rules
from treeproof.engines.attack import AttackEngine
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.query.build import build_query
from treeproof.query.domain import Domain
from treeproof.query.perturbations import Cost
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.relations import answer_within_rules

MOST_POINTS = 30_000
BUDGET = Budget(time_limit_s=60.0)
EXACT = ExactEngine()


class WithinRules:
    """The exact engine, asked part by part where a domain has rules."""

    def radius(self, query: Query, budget: Budget) -> Results:
        return answer_within_rules(EXACT, query, budget, asks_radius=True)

    def verify(self, query: Query, budget: Budget) -> Results:
        return answer_within_rules(EXACT, query, budget, asks_radius=False)


def compare(seed: int, engine: Any = EXACT, *, with_rules: bool = False) -> int:
    """Ask about a random case in every way; returns how many answers were compared."""
    rng = np.random.default_rng([22, 2, seed])
    case = random_case(rng, is_wide=True)
    arithmetic = "real" if rng.random() < 0.3 else "float64"
    if with_rules:
        case = _within_rules(rng, case, arithmetic)
    query = _query(case, case.perturbation, arithmetic)
    words = domains.Words(case.perturbation, query.ensemble)
    for row in range(len(query)):
        if domains.n_points(domains.distinct_options(query, words, row)) > MOST_POINTS:
            return 0
    truths = [domains.cheapest(query, case.perturbation, row) for row in range(len(query))]
    if not query.reach.is_ball:
        return _compare_verdicts(engine, case, query, truths)
    count = _compare_radii(engine, case, query, truths)
    for budget in _budgets(query, truths):
        name = "budget" if isinstance(case.perturbation, Cost) else "eps"
        perturbation = dataclasses.replace(case.perturbation, **{name: budget})
        asked = _query(case, perturbation, arithmetic)
        count += _compare_verdicts(engine, case, asked, truths)
    return count


def _query(case: Case, perturbation: Any, arithmetic: Any) -> Query:
    return build_query(
        case.ensemble, case.rows, None, perturbation, goal=case.goal, arithmetic=arithmetic
    )


def _within_rules(rng: np.random.Generator, case: Case, arithmetic: Any) -> Case:
    """The case with rules, if possible such that forbid what is cheapest without them."""
    rules = random_rules(rng, case, 40)
    query = _query(case, case.perturbation, arithmetic)
    found = (EXACT.radius if query.reach.is_ball else EXACT.verify)(query, BUDGET)
    witnesses = found.witness[~np.isnan(found.witness).all(axis=1)]
    forbidding = [text for text in rules if not all(obeys(text, point) for point in witnesses)]
    chosen = (forbidding or rules)[: int(rng.integers(1, 4))]
    domain = dataclasses.replace(case.perturbation.domain or Domain(), rules=chosen)
    perturbation = dataclasses.replace(case.perturbation, domain=domain)
    return dataclasses.replace(case, perturbation=perturbation)


def _budgets(query: Query, truths: list[domains.Cheapest]) -> list[float]:
    """Budgets at, beside and around a least cost."""
    assert query.pricing is not None
    known = [truth.cost for truth in truths if truth.cost is not None]
    if not known:
        return [1.0]
    cost = float(known[0]) ** (0.5 if query.pricing.is_square else 1.0)
    beside = [float(np.nextafter(cost, side)) for side in (0.0, np.inf)]
    return [cost, *beside, 0.7 * cost, 1.3 * cost]


def _compare_radii(engine: Any, case: Case, query: Query, truths: list[domains.Cheapest]) -> int:
    pricing = query.pricing
    assert pricing is not None
    results = engine.radius(query, BUDGET)
    attacked = results if pricing.types.rules else AttackEngine().radius(query, BUDGET)
    power = 2 if pricing.is_square else 1
    count = 0
    for row, truth in enumerate(truths):
        if not results.exact[row]:
            assert results.reason[row] == UnknownReason.NEAR_TIE
            continue
        count += 1
        if query.already_broken[row]:
            assert results.upper[row] == 0.0
            continue
        if truth.cost is None:
            assert results.lower[row] == results.upper[row] == np.inf
            assert not np.isfinite(attacked.upper[row])
            continue
        point = results.witness[row]
        said = domains.breaks_domain(case.perturbation, query.ensemble, query.rows, row, point)
        assert said is None, said
        assert pricing.broken_rule(row, point) is None
        _assert_certified_at_lower(results, row, truth, power)
        least = pricing.least_cost(row, point)
        # Sums that underflow are told apart by no double.
        is_near = least <= truth.cost * (1 + Fraction(1, 2**39))
        assert truth.cost <= least
        assert is_near or pricing.rounded_down(truth.cost) == results.upper[row]
        if pricing.total == "sum":
            assert Fraction(float(results.lower[row])) ** power <= truth.cost
        else:
            # As for balls: "beyond r" and "at the double after r" are two names of one answer.
            assert results.lower[row] <= np.nextafter(pricing.rounded_down(truth.cost), np.inf)
        # The largest double that is not above the least cost.
        upper = float(results.upper[row])
        assert Fraction(upper) ** power <= least < Fraction(np.nextafter(upper, np.inf)) ** power
        assert results.lower[row] >= results.upper[row] * (1.0 - 2.0**-40)
        if np.isfinite(attacked.upper[row]):
            own = pricing.least_cost(row, attacked.witness[row])
            assert own >= truth.cost
            assert pricing.broken_rule(row, attacked.witness[row]) is None
        assert pricing.types.rules or attacked.lower[row] == 0.0
    return count


def _assert_certified_at_lower(
    results: Results, row: int, truth: domains.Cheapest, power: int
) -> None:
    """An exact radius that is not attained is proved at its lower bound itself."""
    assert truth.cost is not None
    if results.attained[row]:
        upper = Fraction(float(results.upper[row])) ** power
        assert truth.cost < upper or (truth.cost == upper and not truth.is_open)
    else:
        lower = Fraction(float(results.lower[row])) ** power
        assert truth.cost > lower or (truth.cost == lower and truth.is_open)


def _compare_verdicts(engine: Any, case: Case, query: Query, truths: list[domains.Cheapest]) -> int:
    pricing = query.pricing
    assert pricing is not None
    results, limit = engine.verify(query, BUDGET), pricing.limit
    count = 0
    for row, truth in enumerate(truths):
        if results.verdict[row] == Verdict.UNKNOWN:
            assert results.reason[row] in (UnknownReason.NEAR_TIE, UnknownReason.COST_TIE)
            continue
        count += 1
        is_broken = truth.cost is not None
        if query.reach.is_ball and truth.cost is not None and limit is not None:
            is_broken = truth.cost < limit or (truth.cost == limit and not truth.is_open)
        is_broken |= bool(query.already_broken[row] and query.reach.is_ball)
        assert (results.verdict[row] == Verdict.FALSIFIED) == is_broken
        if is_broken and not query.already_broken[row]:
            point = results.witness[row]
            said = domains.breaks_domain(case.perturbation, query.ensemble, query.rows, row, point)
            assert said is None, said
    return count
