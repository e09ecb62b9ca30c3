"""From a perturbation and a domain to the `Pricing` of a question."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from treeproof.errors import InvalidInput
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.query.axes import NUMERIC, Axes, axes_of
from treeproof.query.domain import codes_of, column_types
from treeproof.query.names import feature_number
from treeproof.query.perturbations import (
    L2,
    All,
    Ball,
    Box,
    Cost,
    LInf,
    Part,
    Reach,
    resolve,
    tariff_of,
)
from treeproof.query.prices import Pricing, choice_table


def pricing_of(
    perturbation: Ball | Box, ensemble: Ensemble, rows: FloatArray, reach: Reach
) -> Pricing:
    """Return what changes of rows cost, and which are allowed."""
    if isinstance(perturbation, All):
        owns = [resolve(part, rows, ensemble.feature_names) for part in perturbation.parts]
        first, *others = (
            _pricing_of(part, ensemble, rows, own.within(reach))
            for part, own in zip(perturbation.parts, owns, strict=True)
        )
        return replace(first, others=tuple(others))
    return _pricing_of(perturbation, ensemble, rows, reach)


def _pricing_of(
    perturbation: Part | Box, ensemble: Ensemble, rows: FloatArray, reach: Reach
) -> Pricing:
    types = column_types(perturbation.domain, ensemble)
    axes = axes_of(ensemble, types, rows)
    tariff = tariff_of(perturbation, reach, ensemble.feature_names)
    listed = {}
    if isinstance(perturbation, Cost):
        listed = _listed_prices(perturbation.table, ensemble, axes)
    is_box = isinstance(perturbation, Box)
    return Pricing(
        ensemble=ensemble,
        axes=axes,
        types=types,
        rows=rows,
        total="max" if isinstance(perturbation, LInf | Box) else "sum",
        is_square=isinstance(perturbation, L2),
        is_box=is_box,
        budget=0.0 if is_box else cast("float | None", reach.radius),
        low=_tightened(np.maximum, evaluate.cast_bounds(ensemble, reach.low), types.low),
        high=_tightened(np.minimum, evaluate.cast_bounds(ensemble, reach.high), types.high),
        tariff=tariff,
        is_relative=bool(getattr(perturbation, "relative", False)),
        tables={
            number: choice_table(tariff, axes, types, number, listed.get(number, {}), is_box=is_box)
            for number, axis in enumerate(axes.axes)
            if axis.kind != NUMERIC
        },
        listed=listed,
        stays=np.zeros((len(rows), axes.n_axes), dtype=bool),
        leaves=np.zeros(rows.shape, dtype=bool),
    )


def _tightened(tighter: Any, bounds: FloatArray, own: FloatArray) -> FloatArray:
    """Bounds of rows and of the domain; without the latter no table is written out."""
    if np.isinf(own).all():
        return bounds
    table: FloatArray = tighter(bounds, own)
    return table


def _listed_prices(
    table: Any, ensemble: Ensemble, axes: Axes
) -> dict[int, dict[tuple[int, int], float]]:
    """Prices of a cost table, by axis and by atoms before and after."""
    rule = "'table' of Cost must be {feature: {before: {after: price >= 0}}}"
    if not isinstance(table, Mapping):
        raise InvalidInput(f"{rule}. Got {table!r}.")
    found: dict[int, dict[tuple[int, int], float]] = {}
    for feature, changes in table.items():
        number = int(
            axes.axis_of[feature_number(feature, ensemble.n_features, ensemble.feature_names)]
        )
        if axes.axes[number].kind == NUMERIC:
            raise InvalidInput(
                f"'table' of Cost must be about categories or groups of the domain. Got"
                f" {feature!r}; name it in 'categorical' or 'one_hot' of its Domain."
            )
        if not isinstance(changes, Mapping) or not all(
            isinstance(after, Mapping) for after in changes.values()
        ):
            raise InvalidInput(f"{rule}. Got {changes!r} for {feature!r}.")
        prices = found.setdefault(number, {})
        for before, after_all in changes.items():
            for after, price in after_all.items():
                pair = tuple(_atom_named(item, ensemble, axes, number) for item in (before, after))
                if not (isinstance(price, int | float) and price >= 0.0):
                    raise InvalidInput(f"{rule}. Got the price {price!r} for {feature!r}.")
                prices[pair[0], pair[1]] = float(price)
    return found


def _atom_named(item: Any, ensemble: Ensemble, axes: Axes, number: int) -> int:
    """The atom of a category, or of a column of a group."""
    axis = axes.axes[number]
    values = np.zeros((1, len(axis.columns)))
    if axis.is_group:
        column = feature_number(item, ensemble.n_features, ensemble.feature_names)
        if column not in axis.columns:
            raise InvalidInput(f"'table' of Cost must name columns of one group. Got {item!r}.")
        values[0, axis.columns.index(column)] = 1.0
    else:
        values[0, 0] = codes_of([item], ensemble, axis.columns[0])[0]
    atom = int(axes.atom_of(number, values)[0])
    if atom < 0:
        raise InvalidInput(f"'table' of Cost must name categories of the domain. Got {item!r}.")
    return atom
