"""Every engine of the registry passes the same checks."""

import numpy as np
import pytest

from tests.contract import engine_checks
from treeproof import attack, combination, hard_label, lp, milp
from treeproof.engines.registry import ENGINES, engine_named

NAMES = list(ENGINES)

WITH_OPTIONS = {
    "attack": attack(10),
    "hard_label": hard_label(600),
}
"""Options that keep the checks short; the answers may be weaker but must be as sound."""

MORE = {
    "combination, splits": combination(10_000),
    "lp of distances": lp("distance"),
    "milp, whole model": milp("whole"),
}
"""Engines of the registry with options that change what they do."""


@pytest.fixture(params=[*NAMES, *MORE])
def engine(request):
    if request.param in MORE:
        return MORE[request.param]
    return WITH_OPTIONS.get(request.param) or engine_named(request.param)


def test_the_registry_builds_what_it_lists():
    for name in NAMES:
        assert engine_named(name).name == name


@pytest.mark.parametrize("ask", ["ball", "box"])
def test_verdicts_agree_with_the_oracle(engine, ask):
    engine_checks.check_verdicts(engine, np.random.default_rng(1), ask, 60)


def test_radii_agree_with_the_oracle(engine):
    engine_checks.check_radii(engine, np.random.default_rng(2), 40)


def test_the_paper_protocol_stays_below_the_radius(engine):
    engine_checks.check_protocol(engine, np.random.default_rng(3), 15)


def test_larger_sets_are_harder(engine):
    engine_checks.check_larger_sets_are_harder(engine, np.random.default_rng(4), 20)


def test_answers_do_not_depend_on_threads_or_repetition(engine):
    engine_checks.check_determinism(engine, np.random.default_rng(5))


def test_small_budgets_never_give_wrong_answers(engine):
    engine_checks.check_budgets(engine, np.random.default_rng(6), 8)


def test_refusals_are_sentences(engine):
    engine_checks.check_refusals(engine, np.random.default_rng(7))
