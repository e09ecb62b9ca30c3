"""Evidence of answers about costs and within rules, beside the truth by enumeration."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import treeproof as tp
from tests.oracle import domains, priced_answers
from tests.random_domains import Case, random_case
from treeproof.checker import RunChecker
from treeproof.prediction import Model
from treeproof.results.run_file import row_records


@dataclass
class Judged:
    """A record with what the checker says of it, and what is false in it."""

    case: Case
    header: dict[str, Any]
    record: dict[str, Any]
    status: str
    reason: str
    wrong: str


def ruled_case(seed: int) -> tuple[Case, Any] | None:
    """A random case whose domain has rules, and its arithmetic; None where it is not so."""
    rng = np.random.default_rng([22, 7, seed])
    case = random_case(rng, is_wide=True)
    arithmetic = "real" if rng.random() < 0.3 else "float64"
    case = priced_answers._within_rules(rng, case, arithmetic)
    domain = case.perturbation.domain
    if domain is None or not domain.rules or truths_of(case, arithmetic) is None:
        return None
    return case, arithmetic


def truths_of(case: Case, arithmetic: str) -> list[domains.Cheapest] | None:
    """The least cost of a violation of every row; None where there are too many points."""
    query = priced_answers._query(case, case.perturbation, arithmetic)
    words = domains.Words(case.perturbation, query.ensemble)
    for row in range(len(query)):
        options = domains.distinct_options(query, words, row)
        if domains.n_points(options) > priced_answers.MOST_POINTS:
            return None
    return [domains.cheapest(query, case.perturbation, row) for row in range(len(query))]


def questions_of(case: Case, arithmetic: str) -> Iterator[Case]:
    """The case, and the same at budgets at, beside and around a least cost."""
    yield case
    truths = truths_of(case, arithmetic)
    query = priced_answers._query(case, case.perturbation, arithmetic)
    if truths is not None and query.reach.is_ball:
        name = "budget" if isinstance(case.perturbation, tp.Cost) else "eps"
        for budget in priced_answers._budgets(query, truths):
            ball: Any = case.perturbation
            changed = dataclasses.replace(ball, **{name: budget})
            yield dataclasses.replace(case, perturbation=changed)


def judged(seed: int) -> Iterator[Judged]:
    """Answers with evidence to the questions of a random case with rules, checked anew."""
    found = ruled_case(seed)
    if found is not None:
        yield from judged_answers(*found)


def judged_answers(of: Case, arithmetic: Any) -> Iterator[Judged]:
    """Answers with evidence to the questions of a case, checked anew."""
    for case in questions_of(of, arithmetic):
        limit = getattr(case.perturbation, "budget", getattr(case.perturbation, "eps", None))
        is_verdict = limit is not None or isinstance(case.perturbation, tp.Box)
        ask: Any = tp.verify if is_verdict else tp.radius
        results = ask(
            Model(case.ensemble), case.rows, None, case.perturbation,
            goal=case.goal, evidence=True, arithmetic=arithmetic,
        )  # fmt: skip
        records = list(row_records(results))
        checks = RunChecker(results.header, case.ensemble).check_all(records)
        for record, check in zip(records, checks, strict=True):
            wrong = falsehood(case, arithmetic, record)
            yield Judged(case, results.header, record, check.status, check.reason, wrong)


def falsehood(case: Case, arithmetic: str, record: dict[str, Any]) -> str:
    """What is false in a record about a row of a case; empty where all is true."""
    query = priced_answers._query(case, case.perturbation, arithmetic)
    row, pricing = record["row"], query.pricing
    assert pricing is not None
    truth = domains.cheapest(query, case.perturbation, row)
    cost, power = truth.cost, 2 if pricing.is_square else 1
    if query.already_broken[row] and query.reach.is_ball:
        cost = Fraction(0)
    if record["witness"] is not None:
        point = np.array([np.nan if v is None else float(v) for v in record["witness"]])
        if not np.array_equal(point, query.rows[row], equal_nan=True) or not query.reach.is_ball:
            said = domains.breaks_domain(case.perturbation, query.ensemble, query.rows, row, point)
            if said is not None:
                return f"witness: {said}"
    limit = pricing.limit
    if limit is not None or not query.reach.is_ball:
        is_broken = cost is not None
        if query.reach.is_ball and cost is not None and limit is not None:
            is_broken = cost < limit or (cost == limit and not truth.is_open)
        settled = record["verdict"] != "unknown"
        return "verdict" if settled and (record["verdict"] == "falsified") != is_broken else ""
    lower, upper = float(record["lower"]), float(record["upper"])
    if upper == 0.0 and (record["verdict"] == "falsified") != bool(query.already_broken[row]):
        return "verdict: a row that breaks the claim as it stands is falsified, and no other one"
    if cost is None:
        return "" if np.isinf(upper) else "upper: there is no violation"
    if np.isinf(lower) or Fraction(lower) ** power > cost:
        beyond = float(np.nextafter(pricing.rounded_down(cost), np.inf))
        if pricing.total == "sum" or lower > beyond:
            return f"lower: {lower} and {float(cost)}"
    if np.isfinite(upper) and Fraction(float(np.nextafter(upper, np.inf))) ** power <= cost:
        return f"upper: {upper} and {float(cost)}"
    return ""
