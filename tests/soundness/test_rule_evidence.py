"""Evidence within rules: accepted where it is genuine, and no lie of it is; planted bugs show."""

import dataclasses
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from tests.campaigns.forged_rules import campaign
from tests.oracle.rule_evidence import judged, judged_answers
from tests.random_domains import Case
from treeproof.checker import RunChecker
from treeproof.checker import rules as checked
from treeproof.engines import evidence
from treeproof.query import prices, rules
from treeproof.results.results import withdraw
from treeproof.results.run_file import row_records
from treeproof.search import boxes, relations

MOST_SEEDS = 400

Bug = Callable[[pytest.MonkeyPatch], None]


def test_no_lie_is_accepted_and_all_genuine_evidence_is() -> None:
    counts = campaign(1000, 60, per_record=4)
    assert counts["false"] == 0
    assert counts["genuine accepted"] > 80
    assert counts["forged rejected"] > 200


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_no_lie_of_many_is_accepted(block: int) -> None:
    assert campaign(2000 + 200 * block, 200)["false"] == 0


@pytest.mark.parametrize("arithmetic", ["float64", "real"])
@pytest.mark.parametrize("ball", [tp.L1, tp.L2, tp.LInf, tp.L0])
def test_rules_about_all_numbers_have_evidence(ball: Any, arithmetic: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((200, 4))
    y = X[:, 0] + X[:, 1] * X[:, 2] > 0.8
    model = tp.load(GradientBoostingClassifier(n_estimators=6, random_state=0).fit(X, y))
    rows = X[:5].copy()
    rows[:, 1] = 0.5 * rows[:, 0]
    texts = ["x[1] <= 0.9 * x[0]", "x[0] > 0.5 => x[2] + x[3] < 3"]
    domain = tp.Domain(rules=texts)
    results = tp.radius(
        model, rows, None, ball(domain=domain), arithmetic=arithmetic, evidence=True,
        node_limit=100,
    )  # fmt: skip
    checker = RunChecker(results.header, model.ensemble)
    for record in row_records(results):
        assert checker.check(record).status == "accepted"
        assert record["evidence"].startswith("E1:")
    if ball is not tp.L0:
        # Without the rules it is another, cheaper question.
        header = {**results.header, "question": {**results.header["question"]}}
        header["question"]["perturbation"] = {
            **header["question"]["perturbation"],
            "domain": {**header["question"]["perturbation"]["domain"], "rules": texts[1:]},
        }
        without = tp.radius(model, rows, None, ball(), arithmetic=arithmetic)
        for record, upper in zip(row_records(results), without.upper, strict=True):
            if record["lower"] > upper:
                assert RunChecker(header, model.ensemble).check(record).status == "rejected"


def test_an_own_value_outside_the_domain_may_stay() -> None:
    """Rows that break the ranges of a domain, or do not move, are not forced back into bounds."""
    X = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(X, [0, 1]))
    row = [[0.0, 5.0, 2.0]]
    domain = tp.Domain(ranges={1: (0, 1)}, allow_broken_rows=True, rules=["x[0] + x[1] <= 6"])
    for asked in (tp.L1(domain=domain), tp.L1(low=0.0, frozen=[2], domain=domain)):
        found = tp.radius(model, row, None, asked, arithmetic="real", evidence=True)
        assert float(found.upper[0]) == pytest.approx(0.5, rel=1e-6)
        assert found.exact.all()
        (record,) = row_records(found)
        assert RunChecker(found.header, model.ensemble).check(record).status == "accepted"
    frozen = tp.L1(high=1.0, frozen=[1, 2], domain=tp.Domain(rules=["x[0] <= x[1]"]))
    found = tp.radius(model, row, None, frozen, arithmetic="real", evidence=True)
    assert float(found.upper[0]) == pytest.approx(0.5, rel=1e-6)


def test_numbers_between_obey_as_a_witness_does() -> None:
    """A threshold that breaks what a value just below it obeys is not approached."""
    X = np.array([[0.0, 0.0], [1.0, 0.0]])
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(X, [0, 1]))
    row = [[1.0, 0.0]]
    below = float(tp.radius(model, row, None, tp.L1()).witness[0, 0])
    cut = math.nextafter(below, 1.0)
    single = float(tp.radius(model, row, None, tp.L1(), arithmetic="real").witness[0, 0])
    # The model rounds rows to float32: real numbers of that precision approach its next one.
    real = float(np.nextafter(np.float32(single), np.float32(1.0)))
    asked: list[tuple[Any, str, float, float, bool]] = [
        ("real", "x[0] <= 2", single, 1.0 - real, False),
        ("real", f"x[0] <= 0.75 => x[0] < {Decimal(real)}", single, 1.0 - single, True),
        # The last double is attained in both cases.
        ("float64", "x[0] <= 2", below, 1.0 - below, True),
        ("float64", f"x[0] <= 0.75 => x[0] < {Decimal(cut)}", below, 1.0 - below, True),
    ]
    for arithmetic, text, nearest, least, is_attained in asked:
        ball = tp.L1(domain=tp.Domain(rules=[text]))
        found = tp.radius(model, row, None, ball, arithmetic=arithmetic, evidence=True)
        assert found.witness[0, 0] == nearest
        assert found.upper.tolist() == [least]
        assert found.attained.tolist() == [is_attained]
        (record,) = row_records(found)
        assert RunChecker(found.header, model.ensemble).check(record).status == "accepted"


def part_lost_in_a_split(patch: pytest.MonkeyPatch) -> None:
    """The upper half of a box is forgotten."""
    plain = boxes.BoxSearch._halves

    def planted(self: Any, *given: Any) -> Any:
        found = plain(self, *given)
        return found._replace(children=[found.children[0], None])

    patch.setattr(boxes.BoxSearch, "_halves", planted)


def comparison_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Of an implication, rows that do not meet its first part are forgotten."""
    plain = boxes.BoxSearch.split_at

    def planted(self: Any, part: Any, *given: Any) -> Any:
        found = plain(self, part, *given)
        if part.split is None or part.split.rule is None:
            return found
        children = [None, *part.split.children[1:]]
        part.split = part.split._replace(children=children)
        return [child for child in children if child is not None]

    patch.setattr(boxes.BoxSearch, "split_at", planted)


def strict_for_all(patch: pytest.MonkeyPatch) -> None:
    """Comparisons that may be equal are taken for strict ones."""
    plain = boxes.Steps.floor
    patch.setattr(boxes.Steps, "floor", lambda self, side, is_strict=False: plain(
        self, side, is_strict=True))  # fmt: skip


def rule_ignored(patch: pytest.MonkeyPatch) -> None:
    """Rules always hold."""
    patch.setattr(rules.Rule, "holds", lambda self, row: True)


def own_value_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Values that do not change are not allowed where they are."""
    plain = prices._cell_prices

    def planted(part: Any, home: Any) -> Any:
        cost, *rest = plain(part, home)
        return np.where(
            (cost == 0.0) & (part.rows[:, part.axes.cells.feature] > 0.0), 1.0, cost
        ), *rest

    patch.setattr(prices, "_cell_prices", planted)


def gap_in_a_split(patch: pytest.MonkeyPatch) -> None:
    """The least value of the upper half of a box is forgotten."""
    plain = boxes.BoxSearch._halves

    def planted(self: Any, part: Any, feature: int, middle: float) -> Any:
        found = plain(self, part, feature, middle)
        steps, child = self.steps[feature], found.children[1]
        if steps is None or child is None:
            return found
        above = steps.ceil(found.above, is_strict=True)
        child.low[feature] = max(child.low[feature], above)
        is_empty = not child.low[feature] <= child.high[feature] < math.inf
        above = above if math.isfinite(above) else 1e6
        return found._replace(
            children=[found.children[0], None if is_empty else child], above=above
        )

    patch.setattr(boxes.BoxSearch, "_halves", planted)


def never_equal(patch: pytest.MonkeyPatch) -> None:
    """A comparison that may be equal cannot be."""
    plain = boxes._is_possible

    def planted(comparison: Any, low: Any, high: Any) -> bool:
        return plain(dataclasses.replace(comparison, is_strict=True), low, high)

    patch.setattr(boxes, "_is_possible", planted)


def dear_where_values_leave(patch: pytest.MonkeyPatch) -> None:
    """Parts without the row's own values are taken for too dear."""
    plain = relations.RuleSearch._is_affordable

    def planted(self: Any, part: Any) -> bool:
        own = self.query.rows[0]
        return plain(self, part) and not ((own < part.low) | (own > part.high)).any()

    patch.setattr(relations.RuleSearch, "_is_affordable", planted)


SEARCH_BUGS: list[Bug] = [
    part_lost_in_a_split,
    comparison_forgotten,
    strict_for_all,
    rule_ignored,
    own_value_forgotten,
    gap_in_a_split,
    never_equal,
    dear_where_values_leave,
]


@pytest.mark.parametrize("plant", SEARCH_BUGS)
def test_the_checker_withdraws_answers_of_a_broken_search(
    plant: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    # In tests, an answer that must be withdrawn is an error.
    with pytest.raises(AssertionError, match="the checker does not accept its evidence"):
        _ask_until_withdrawn()


def _ask_until_withdrawn() -> None:
    for seed in range(MOST_SEEDS):
        for found in judged(seed):
            assert not (found.status == "accepted" and found.wrong), "a lie is accepted"


def gaps_allowed(patch: pytest.MonkeyPatch) -> None:
    """Values between two halves may be left out."""
    patch.setattr(checked.Values, "beyond", lambda self, end, up: math.inf if up else -math.inf)


def choices_are_empty(patch: pytest.MonkeyPatch) -> None:
    """Where a comparison was chosen, no row is left."""
    plain = checked.RuledProof.cut
    patch.setattr(checked.RuledProof, "cut", lambda self, box, chosen: None if chosen else plain(
        self, box, chosen))  # fmt: skip


def leaves_anywhere(patch: pytest.MonkeyPatch) -> None:
    """The box of a leaf need not hold what is left."""
    plain = checked.RuledProof._leaf
    patch.setattr(checked.RuledProof, "_leaf", lambda self, reader, box, place: plain(
        self, reader, None, place))  # fmt: skip


def all_is_strict(patch: pytest.MonkeyPatch) -> None:
    """A comparison that may be equal cannot be."""
    patch.setattr(checked.Comparison, "is_possible", lambda self, box: self.least(box) < 0)


def all_is_dear(patch: pytest.MonkeyPatch) -> None:
    """Every box costs too much."""
    patch.setattr(checked.RuledProof, "_is_dear", lambda self, box: True)


def witness_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A witness obeys every rule."""
    patch.setattr(checked.Rule, "holds_between", lambda self, row, other: True)


def two_ways() -> Case:
    """A row with two ways to the other class: a near one that a rule makes dear, and a farther one.

    The cheapest violation does not meet the first part of the rule.
    """
    X = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.6]])
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(X, [0, 1, 1]))
    domain = tp.Domain(rules=["x[0] >= 0.375 => x[1] >= 0.875"])
    return Case(model.ensemble, X[:1], tp.L1(domain=domain), tp.KeepsLabel())


CHECKER_BUGS: list[tuple[Bug, Bug, int | None]] = [
    (gaps_allowed, gap_in_a_split, 162),
    (choices_are_empty, comparison_forgotten, None),
    (leaves_anywhere, strict_for_all, 9),
    (all_is_strict, never_equal, 9),
    (all_is_dear, dear_where_values_leave, 162),
    (witness_unchecked, rule_ignored, 2),
]
"""Each with a seed that is known to let a lie pass; None: the row with two ways does."""


@pytest.mark.parametrize(("blind", "plant", "known"), CHECKER_BUGS)
def test_a_checker_with_the_same_bug_as_the_search_lets_a_lie_pass(
    blind: Bug, plant: Bug, known: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the checker looks at is needed: without it a wrong answer is accepted."""
    plant(monkeypatch)
    blind(monkeypatch)
    monkeypatch.setattr(evidence, "withdraw", withdraw)
    if known is None:
        tried = [judged_answers(two_ways(), "float64")]
    else:
        tried = [judged(seed) for seed in (known, *range(MOST_SEEDS))]
    assert any(found.status == "accepted" and found.wrong for all_of in tried for found in all_of)
