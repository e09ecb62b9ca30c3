"""Bugs planted into domains and prices: comparison with enumeration must notice every one."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.oracle.priced_answers import compare
from treeproof.query import axes as axes_module
from treeproof.query import prices as prices_module
from treeproof.query.prices import Prices, Pricing

MOST_CASES = 400
"""Cases within which a bug must be noticed."""


def is_noticed() -> bool:
    """Whether some case is found to be wrong."""
    for seed in range(MOST_CASES):
        try:
            compare(seed)
        except AssertionError:
            return True
    return False


def group_with_two_ones(patch: pytest.MonkeyPatch) -> None:
    """A group of columns may have two ones."""
    plain = axes_module._group_axis

    def wrong(columns: tuple[int, ...], exactly: bool, rows: Any) -> Any:
        axis = plain(columns, exactly, rows)
        two = np.zeros((1, len(columns)))
        two[0, :2] = 1.0
        own = axis.choices[axis.n_known :]
        own = own[~(own == two).all(axis=1)]
        known = np.vstack([axis.choices[: axis.n_known], two])
        return axis._replace(choices=np.vstack([known, own]), n_known=len(known))

    patch.setattr(axes_module, "_group_axis", wrong)


def skipped_integer(patch: pytest.MonkeyPatch) -> None:
    """The first integer of every cell is left out."""
    plain = prices_module._allowed_cells

    def wrong(part: Any, feature: int) -> Any:
        cells = plain(part, feature)
        if not part.types.integer[feature]:
            return cells
        first = cells.first + 1.0
        return cells._replace(first=first, is_any=cells.is_any & (first <= cells.last))

    patch.setattr(prices_module, "_allowed_cells", wrong)


def changed_prices(factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    """Prices that are wrong by a part."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        plain = Pricing.prices

        def wrong(self: Pricing, selection: Any = slice(None)) -> Prices:
            found = plain(self, selection)
            return dataclasses.replace(found, cost=found.cost * factor)

        patch.setattr(Pricing, "prices", wrong)

    return plant


def forgotten_missing(patch: pytest.MonkeyPatch) -> None:
    """Values never go missing."""
    plain = Pricing.prices

    def wrong(self: Pricing, selection: Any = slice(None)) -> Prices:
        found = plain(self, selection)
        for number in range(self.axes.n_axes):
            atom = self.axes.missing_atom(number)
            if atom >= 0:
                place = int(self.axes.atom_start[number]) + atom
                found.cost[found.home[:, number] != atom, place] = np.inf
        return found

    patch.setattr(Pricing, "prices", wrong)


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a group with two ones": group_with_two_ones,
    "an integer skipped": skipped_integer,
    "prices rounded down": changed_prices(1.0 - 2.0**-20),
    "prices rounded up": changed_prices(1.0 + 2.0**-20),
    "values never missing": forgotten_missing,
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    assert is_noticed(), bug
