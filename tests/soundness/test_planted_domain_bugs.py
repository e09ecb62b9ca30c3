"""Bugs planted in what changes cost and which are allowed: the comparison must catch each."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.oracle.priced_answers import WithinRules, compare
from treeproof.errors import TreeproofError
from treeproof.query import axes, prices, rules

MOST_SEEDS = 400


def two_ones(patch: pytest.MonkeyPatch) -> None:
    """A group may have two ones."""
    plain = axes._group_axis

    def planted(columns: Any, exactly: Any, rows: Any) -> Any:
        found = plain(columns, exactly, rows)
        both = np.zeros((1, len(columns)))
        both[0, :2] = 1.0
        choices = np.vstack([both, found.choices])
        return found._replace(choices=choices, n_known=found.n_known + 1)

    patch.setattr(axes, "_group_axis", planted)


def integer_skipped(patch: pytest.MonkeyPatch) -> None:
    """The first integer of a cell is passed over."""
    plain = prices._allowed_cells

    def planted(part: Any) -> Any:
        found = plain(part)
        first = found.first + part.types.integer[part.axes.cells.feature]
        return found._replace(first=first, is_any=found.is_any & (first <= found.last))

    patch.setattr(prices, "_allowed_cells", planted)


def integers_are_numbers(patch: pytest.MonkeyPatch) -> None:
    """Integers move as any other number."""
    plain = prices._allowed_cells

    def planted(part: Any) -> Any:
        numbers = replace(part.types, integer=np.zeros_like(part.types.integer))
        return plain(replace(part, types=numbers))

    patch.setattr(prices, "_allowed_cells", planted)


def price_rounded_up(patch: pytest.MonkeyPatch) -> None:
    """A price is above the cost that it bounds from below."""
    plain = prices.quotient_rounded_down

    def planted(larger: Any, smaller: Any, *factors: Any) -> Any:
        quotient, is_exact = plain(larger, smaller, *factors)
        return quotient * (1.0 + 2.0**-30), is_exact

    patch.setattr(prices, "quotient_rounded_down", planted)


def cost_rounded_down(patch: pytest.MonkeyPatch) -> None:
    """What a witness costs is said to be less."""
    plain = prices.Pricing.rounded_down
    patch.setattr(prices.Pricing, "rounded_down", lambda self, exact: plain(self, exact) * 0.999)


def charge_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The fixed charge of a change is not added."""
    patch.setattr(prices, "sum_rounded_down", lambda a, b, is_exact: (a, is_exact))


def charge_of_no_distance_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A move to just below the row's own value costs nothing, not even its fixed charge."""
    plain = prices.Pricing._axis_cost

    def planted(self: prices.Pricing, row: int, number: int, point: Any) -> Any:
        columns = list(self.axes.axes[number].columns)
        if np.array_equal(self.rows[row, columns], point[columns], equal_nan=True):
            return Fraction(0)
        return plain(self, row, number, point)

    patch.setattr(prices.Pricing, "_axis_cost", planted)


def direction_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Moves down cost what moves up cost."""
    plain = prices._move_costs

    def planted(part: Any, own: Any, target: Any, is_up: Any) -> Any:
        return plain(part, own, target, np.ones_like(is_up))

    patch.setattr(prices, "_move_costs", planted)


def transition_allowed(patch: pytest.MonkeyPatch) -> None:
    """Every category may become every other."""
    patch.setattr(
        prices,
        "_allowed_changes",
        lambda axes, types, number: np.ones((len(axes.axes[number].choices),) * 2, dtype=bool),
    )


def rule_ignored(patch: pytest.MonkeyPatch) -> None:
    """Rules always hold."""
    patch.setattr(rules.Rule, "holds", lambda self, row: True)


def scale_prices(patch: pytest.MonkeyPatch, factor: float) -> None:
    plain = prices.Pricing.prices

    def planted(self: prices.Pricing, selection: Any = slice(None)) -> prices.Prices:
        found = plain(self, selection)
        return replace(found, cost=found.cost * factor)

    patch.setattr(prices.Pricing, "prices", planted)


def prices_too_low(patch: pytest.MonkeyPatch) -> None:
    """All prices are below what changes cost."""
    scale_prices(patch, 1.0 - 2.0**-20)


def prices_too_high(patch: pytest.MonkeyPatch) -> None:
    """All prices are above what changes cost."""
    scale_prices(patch, 1.0 + 2.0**-20)


def never_missing(patch: pytest.MonkeyPatch) -> None:
    """Values never go missing."""
    plain = prices.Pricing.prices

    def planted(self: prices.Pricing, selection: Any = slice(None)) -> prices.Prices:
        found = plain(self, selection)
        for number in range(self.axes.n_axes):
            atom = self.axes.missing_atom(number)
            if atom >= 0:
                place = int(self.axes.atom_start[number]) + atom
                found.cost[found.home[:, number] != atom, place] = np.inf
        return found

    patch.setattr(prices.Pricing, "prices", planted)


BUGS: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    two_ones: 213,
    integer_skipped: 30,
    integers_are_numbers: 6,
    price_rounded_up: 1,
    prices_too_low: 1,
    prices_too_high: 1,
    never_missing: 53,
    cost_rounded_down: 1,
    charge_forgotten: 12,
    charge_of_no_distance_forgotten: 91,
    direction_forgotten: 29,
    transition_allowed: 26,
    rule_ignored: 14,
}
"""Each with a seed that is known to catch it, so that few have to be tried."""


@pytest.mark.parametrize("plant", BUGS)
def test_planted_bugs_are_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(is_caught(seed) for seed in (BUGS[plant], *range(MOST_SEEDS)))


def is_caught(seed: int) -> bool:
    try:
        compare(seed, WithinRules(), with_rules=True)
    except (AssertionError, TreeproofError):
        return True
    return False
