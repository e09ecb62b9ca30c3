"""Rows that provoke every rounding, tie and missing-value rule of a loaded model."""

import numpy as np
from numpy.typing import NDArray

from treeproof.model.ensemble import CATEGORICAL, Ensemble

FloatArray = NDArray[np.float64]

_SMALL = [0.0, -0.0, 1e-35, -1e-35, 1e-36, 1.2e-35, 1e-40, -1e-40, 1e-45, 5e-324, 1e-310]


def stress_rows(
    ensemble: Ensemble, n: int = 10_000, seed: int = 0, *, odd_categories: bool = True
) -> FloatArray:
    """Rows on thresholds, one float beside them, tiny, huge, missing and infinite, mixed.

    Parameters
    ----------
    ensemble : Ensemble
        Its thresholds are hit; NaN and infinities appear only where it allows them.
    n : int
        Number of rows.
    seed : int
        Seed of the random numbers.
    odd_categories : bool
        Whether categorical columns also hold unseen, negative and fractional codes.

    Returns
    -------
    float64 (n, n_features)
    """
    random = np.random.default_rng(seed)
    trees = ensemble.trees
    rows = np.empty((n, ensemble.n_features))
    categorical = np.unique(trees.feature[(trees.flags & CATEGORICAL) > 0])
    for feature in np.setdiff1d(np.arange(ensemble.n_features), categorical):
        thresholds = np.unique(trees.threshold[trees.feature == feature])
        thresholds = thresholds[np.isfinite(thresholds)]
        rows[:, feature] = _numbers(ensemble, thresholds, n, random)
    if not ensemble.infinite_allowed:
        largest = float(np.finfo(ensemble.input_precision).max)
        rows = np.clip(rows, -largest, largest)
    _scatter(rows, _extremes(ensemble), 0.02, random)
    for feature in categorical:
        rows[:, feature] = _categories(ensemble, int(feature), n, random, odd_categories)
    # The first tenth stays plain, so that common cases are among the rows, too.
    plain = rows[: n // 10]
    plain[~np.isfinite(plain)] = 0.5
    if ensemble.missing_allowed:
        hard = rows[n // 10 :]
        hard[random.random(hard.shape) < 0.05] = np.nan
        rows[-1] = np.nan
        for feature in ensemble.required:
            rows[np.isnan(rows[:, feature]), feature] = 0.5
    for feature, codes in ensemble.required.items():
        if codes:
            rows[:, feature] = random.choice(codes, size=n)
    return rows


def _numbers(
    ensemble: Ensemble, thresholds: FloatArray, n: int, random: np.random.Generator
) -> FloatArray:
    """Values of one numeric column; half of them at or next to a threshold."""
    if thresholds.size == 0:
        return random.normal(size=n)
    low, high = thresholds[0], thresholds[-1]
    margin = 0.2 * (high - low) + 0.1
    values = random.uniform(low - margin, high + margin, size=n)
    chosen = random.choice(thresholds, size=n)
    kind = random.integers(0, 12, size=n)
    for number, near in enumerate(_neighbours(ensemble, chosen)):
        values = np.where(kind == number, near, values)
    return values


def _neighbours(ensemble: Ensemble, values: FloatArray) -> list[FloatArray]:
    """Threshold, its neighbours in both precisions, and where a cast to float32 turns over."""
    near = [
        values,
        np.nextafter(values, -np.inf),
        np.nextafter(values, np.inf),
    ]
    if ensemble.input_precision == "float32":
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
            below = np.nextafter(single, np.float32(-np.inf)).astype(np.float64)
            above = np.nextafter(single, np.float32(np.inf)).astype(np.float64)
        middle = (below + single.astype(np.float64)) / 2
        near += [below, above, middle]
        near += [np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)]
    return near


def _categories(
    ensemble: Ensemble, feature: int, n: int, random: np.random.Generator, odd: bool
) -> FloatArray:
    """Codes of one categorical column: seen ones, and odd ones in a quarter of the rows."""
    trees = ensemble.trees
    sets = np.unique(trees.category_set[(trees.feature == feature) & (trees.category_set >= 0)])
    largest = int(max(32 * (trees.set_offset[s + 1] - trees.set_offset[s]) for s in sets))
    values = random.integers(0, max(largest, 2), size=n).astype(np.float64)
    if odd:
        strange = [-1.0, -0.5, -7.0, 0.7, 1.9, largest, largest + 1.0, largest - 0.5, 1e6, 1e30]
        if ensemble.infinite_allowed:
            strange += [np.inf, -np.inf]
        values = np.where(random.random(n) < 0.25, random.choice(strange, size=n), values)
    return values


def _extremes(ensemble: Ensemble) -> FloatArray:
    largest = float(np.finfo(ensemble.input_precision).max)
    values = [*_SMALL, largest, -largest, 1e30, -1e30]
    if ensemble.infinite_allowed:
        values += [np.inf, -np.inf, 1e300, -1e300]
    return np.array(values)


def _scatter(
    rows: FloatArray, values: FloatArray, share: float, random: np.random.Generator
) -> None:
    """Put extreme values into single cells, and into a few full rows."""
    hit = random.random(rows.shape) < share
    rows[hit] = random.choice(values, size=int(hit.sum()))
    for number, value in enumerate(values[: len(rows) // 20]):
        rows[-2 - number] = value
