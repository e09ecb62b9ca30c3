"""From rows to the table that trees are grown on."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.training.histograms import FEATURE, TrainingTable, fill_entries

EXACT_BINS = 256
"""Exact training keeps a bin per distinct value up to this number, or a share of the rows."""

EXACT_ROWS_PER_BIN = 16

COARSE_BINS = 256
"""Bins of a column with more values, which tell exact training where to look."""


@dataclass(frozen=True, slots=True)
class _Column:
    """Bins of one feature, and whether they hold single values."""

    lower: NDArray[np.float32]
    upper: NDArray[np.float32]
    codes: NDArray[np.uint32]
    lossless: bool


def training_table(
    X: NDArray[np.float32],
    weights: NDArray[np.float64],
    *,
    tree_method: Literal["hist", "exact"],
    max_bin: int,
    reach: NDArray[np.float64],
    monotone: NDArray[np.int8],
) -> TrainingTable:
    """Sort and bin the columns of `X` (NaN is missing), once per fit.

    Columns with more than `max_bin` distinct values are binned by "hist", with `weights` for their
    quantiles, and kept sorted by "exact" where they have too many values for a bin each.
    """
    values = np.ascontiguousarray(X.T)
    n_features, n_rows = values.shape
    is_exact = tree_method == "exact"
    limit = max(EXACT_BINS, n_rows // EXACT_ROWS_PER_BIN) if is_exact else max_bin
    features = np.zeros(n_features, dtype=FEATURE)
    features["usual_bin"] = features["place"] = -1
    features["reach"], features["monotone"] = reach, monotone
    columns: list[_Column] = []
    usual: list[int] = []
    first_bins: list[int] = []
    order: list[NDArray[np.int32]] = []
    n_bins = 0
    for feature, line in zip(features, values, strict=True):
        column = _bin_column(
            line,
            weights,
            limit,
            n_bins=COARSE_BINS if is_exact else max_bin,
            by_width=bool(not is_exact and feature["reach"] > 0.0),
        )
        feature["first_bin"] = feature["end_bin"] = n_bins
        if len(column.lower) < 2:
            continue
        columns.append(column)
        first_bins.append(n_bins)
        if is_exact and not column.lossless:
            usual.append(-1)
            feature["place"] = len(order)
            order.append(np.argsort(line, kind="stable").astype(np.int32))
        else:
            usual.append(int(np.argmax(np.bincount(column.codes, minlength=len(column.lower)))))
            feature["usual_bin"] = n_bins + usual[-1]
        n_bins += len(column.lower)
        feature["end_bin"] = n_bins
    entry_start, entries = _entries([column.codes for column in columns], usual, first_bins, n_rows)
    nothing = np.empty(0, dtype=np.float32)
    return TrainingTable(
        values=values,
        features=features,
        entry_start=entry_start,
        entries=entries,
        bin_lower=np.concatenate([nothing, *(column.lower for column in columns)]),
        bin_upper=np.concatenate([nothing, *(column.upper for column in columns)]),
        order=np.array(order, dtype=np.int32).reshape(len(order), n_rows),
    )


def _bin_column(
    column: NDArray[np.float32],
    weights: NDArray[np.float64],
    limit: int,
    *,
    n_bins: int,
    by_width: bool,
) -> _Column:
    """Give every distinct value a bin, up to `limit` of them, else make `n_bins` of several."""
    ordered = np.sort(column)  # NaN last
    n_present = len(ordered) - int(np.count_nonzero(np.isnan(ordered)))
    present = ordered[:n_present]
    first = np.flatnonzero(np.concatenate([[True], present[1:] != present[:-1]])[:n_present])
    distinct = present[first]
    has_missing = n_present < len(column)
    upper = lower = distinct
    lossless = len(distinct) <= limit - has_missing
    if not lossless and len(distinct) > n_bins - has_missing:
        place = np.searchsorted(distinct, column)  # behind them all for missing values
        weight = np.bincount(place, weights, len(distinct) + 1).astype(np.float64)[:-1]
        shared_out = _mixed_bins if by_width else _quantile_bins
        last_of_bin = shared_out(distinct, weight, n_bins - has_missing)
        upper = distinct[last_of_bin]
        lower = distinct[np.concatenate([[0], last_of_bin[:-1] + 1])]
    codes = np.searchsorted(upper, column).astype(np.uint32)  # NaN sorts behind every number
    if has_missing:
        nothing = np.full(1, np.nan, dtype=np.float32)
        lower, upper = np.concatenate([lower, nothing]), np.concatenate([upper, nothing])
    return _Column(lower, upper, codes, lossless)


def _quantile_bins(
    _distinct: NDArray[np.float32], weight: NDArray[np.float64], n_bins: int
) -> NDArray[np.int64]:
    """Last value of each bin such that bins weigh about the same; heavy values stand alone."""
    heavy = np.zeros(len(weight), dtype=bool)
    share = weight.sum() / n_bins
    while True:
        # Each heavy value takes a bin of its own, the others share what is left.
        rest = n_bins - np.count_nonzero(heavy)
        share = weight[~heavy].sum() / max(rest, 1)
        more = ~heavy & (weight > share)
        if not more.any() or rest <= 1:
            break
        heavy |= more
    light = np.where(heavy, 0.0, weight)
    step = np.floor(np.cumsum(light) / share * (1.0 - 1e-12))
    ends = step[1:] > step[:-1]
    ends |= heavy[1:] | heavy[:-1]
    last = np.append(np.flatnonzero(ends), len(weight) - 1)
    if len(last) > n_bins:
        last = last[np.linspace(0, len(last) - 1, n_bins).round().astype(np.int64)]
    return last


def _mixed_bins(
    distinct: NDArray[np.float32], weight: NDArray[np.float64], n_bins: int
) -> NDArray[np.int64]:
    """Last value of each bin such that no bin is heavy and no bin is wide.

    Robust splits lie in sparse stretches, which quantiles pass over; half of the bins follow the
    distance between values.
    """
    share = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
    place = distinct.astype(np.float64)
    place = (place - place[0]) / (place[-1] - place[0])
    slot = np.minimum(np.floor(0.5 * (share + place) * n_bins), n_bins - 1)
    return np.append(np.flatnonzero(slot[1:] > slot[:-1]), len(distinct) - 1)


def _entries(
    codes: list[NDArray[np.uint32]], usual: list[int], first_bins: list[int], n_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Bins of every row but the usual ones, and where each row's start."""
    entry_start = np.zeros(n_rows + 1, dtype=np.int64)
    for column, left_out in zip(codes, usual, strict=True):
        entry_start[1:] += column != left_out
    np.cumsum(entry_start, out=entry_start)
    entries = np.empty(int(entry_start[-1]), dtype=np.uint32)
    matrix = np.array(codes, dtype=np.uint32).reshape(len(codes), n_rows)
    fill_entries(
        matrix,
        np.array(usual, dtype=np.int64),
        np.array(first_bins, dtype=np.int64),
        entry_start[:-1].copy(),
        entries,
    )
    return entry_start, entries
