"""Training data that is small and hard: magnitudes side by side, ties, zeros, neighbours, holes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Random = np.random.Generator


def _steps(random: Random, n: int) -> FloatArray:
    """Distinct whole numbers around zero, or from zero up."""
    return np.arange(n) - float(random.choice([0, 0, n // 2]))


def column_levels(random: Random, kind: str, n: int, precision: Any) -> FloatArray:
    """Values of a column, sorted, all of them numbers of a precision.

    Parameters
    ----------
    random : Generator
        Where choices come from.
    kind : str
        One of `COLUMN_KINDS`.
    n : int
        How many, at most.
    precision : type
        np.float32 or np.float64.
    """
    single = precision is np.float32
    steps = _steps(random, n)
    with np.errstate(over="ignore"):
        if kind == "halves":
            levels = steps / 2.0
        elif kind == "thirds":
            levels = steps / 3.0
        elif kind == "tenths":
            levels = steps * 0.1
        elif kind == "nanoseconds":
            levels = 1.7e18 + abs(steps) * (2.0**37 if single else 256.0)
        elif kind == "whole":
            levels = (2.0**24 if single else 2.0**53) + 2.0 * steps
        elif kind == "tiny":
            levels = steps * 1e-30
        elif kind == "subnormal":
            levels = steps * (1.5e-45 if single else 5e-324) * float(random.choice([1, 3, 1000]))
        elif kind == "huge":
            levels = steps * (3e37 if single else 3e307) / 2.0
        elif kind == "ladder":
            top, low = (1e30, 1e-30) if single else (1e300, 1e-300)
            rungs = [-top, -1.0, -low, 0.0, low, 1.0, 3.0, 1e10, top]
            levels = random.choice(rungs, size=n)
        elif kind == "neighbours":
            start = precision(random.choice([1.0, -1.0, 0.1, 1e10, 3e-20]))
            levels = [start]
            for _ in range(n - 1):
                levels.append(np.nextafter(levels[-1], precision(np.inf)))
            levels = np.array(levels, dtype=np.float64)
        elif kind == "band":
            rungs = [-2e-35, -1e-35, -1e-36, 0.0, 1e-36, float(np.float32(1e-35)), 1e-35, 2e-35]
            levels = random.choice(rungs, size=n)
        elif kind == "spread":
            exponent = random.uniform(-30, 30, size=n)
            levels = random.choice([-1.0, 1.0], size=n) * 10.0**exponent
        elif kind == "zeros":
            levels = np.array([-1.0, -0.0, 0.0, 1.0])[:n]
        else:
            levels = random.normal(size=n)
        return np.unique(np.asarray(levels, dtype=precision).astype(np.float64))


COLUMN_KINDS = (
    *("halves", "thirds", "tenths", "nanoseconds", "whole", "tiny", "subnormal", "huge"),
    *("ladder", "neighbours", "band", "spread", "zeros", "normal"),
)


THEMES = (
    COLUMN_KINDS,
    ("halves", "thirds", "tenths", "nanoseconds", "whole", "neighbours", "zeros"),
    ("halves", "tenths", "nanoseconds", "whole"),
    ("halves", "tiny", "subnormal", "band", "ladder", "zeros"),
)
"""Columns side by side: of any kind, of units that floats blur, of zeros that cancel."""


@dataclass
class Data:
    """Training data and what its columns are.

    Attributes
    ----------
    rows : float64 (n, n_features)
        Codes in columns of categories.
    levels : list of arrays
        Values of each column.
    categories : dict of int to int
        Columns of categories, and how many there are.
    missing : set of int
        Columns with missing values.
    """

    rows: FloatArray
    levels: list[FloatArray]
    categories: dict[int, int] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)


def random_data(
    random: Random, precision: Any, *, categories: bool = False, missing: bool = False
) -> Data:
    """Rows of one to four columns with few values each."""
    n_features = int(random.choice([1, 2, 3, 3, 3, 4]))
    most = {1: 12, 2: 8, 3: 6, 4: 5}[n_features]
    n_rows = int(random.integers(12, 250))
    columns, levels = [], []
    data = Data(np.zeros((0, 0)), levels)
    kinds = THEMES[int(random.integers(len(THEMES)))]
    shared = str(random.choice(kinds))
    for feature in range(n_features):
        if categories and random.random() < 0.4:
            count = int(random.integers(2, 5))
            data.categories[feature] = count
            values = np.arange(count, dtype=np.float64)
        else:
            kind = shared if random.random() < 0.3 else str(random.choice(kinds))
            values = column_levels(random, kind, int(random.integers(2, most + 1)), precision)
        levels.append(values)
        column = random.choice(values, size=n_rows)
        if n_features > 1 and feature not in data.categories and random.random() < 0.08:
            column[:] = values[0]  # no tree tests it, though rows of questions differ in it
        if missing and feature not in data.categories and random.random() < 0.5:
            data.missing.add(feature)
            column = np.where(random.random(n_rows) < 0.2, np.nan, column)
        columns.append(column)
    data.rows = np.stack(columns, axis=1)
    return data


def _ranks(data: Data) -> FloatArray:
    """Columns as whole numbers of comparable size, so that targets depend on all of them."""
    ranks = [np.searchsorted(v, data.rows[:, f]) for f, v in enumerate(data.levels)]
    return np.stack(ranks, axis=1).astype(np.float64)


def class_target(random: Random, data: Data, n_classes: int) -> tuple[FloatArray, NDArray[Any]]:
    """Rows and classes: noisy, or every row with all classes so that leaves tie exactly."""
    kind = random.choice(["linear", "linear", "table", "ties", "ties"])
    ranks, rows = _ranks(data), data.rows
    if kind == "ties":
        base = np.unique(rows, axis=0, equal_nan=True)[: max(3, 60 // n_classes)]
        parts, target = [], []
        uneven = float(random.choice([0.0, 0.1, 0.5]))
        for row in base:
            chosen = np.arange(n_classes)
            if random.random() < uneven:
                chosen = chosen[random.random(n_classes) < 0.6]
            if random.random() < 0.3:
                chosen = np.append(chosen, random.integers(n_classes))
            parts += [row] * len(chosen)
            target += chosen.tolist()
        # Every class has to occur, or libraries number them otherwise.
        parts += [base[0]] * n_classes
        target += list(range(n_classes))
        return np.array(parts), np.array(target, dtype=np.int64)
    if kind == "linear":
        score = ranks @ random.normal(size=ranks.shape[1]) + 0.5 * random.normal(size=len(ranks))
        target = np.argsort(np.argsort(score)) * n_classes // len(score)
    else:
        weights = random.integers(1, 100, size=ranks.shape[1])
        answers = random.integers(n_classes, size=17)
        target = answers[(ranks @ weights).astype(np.int64) % 17]
    rows = np.concatenate([rows, rows[:1].repeat(n_classes, axis=0)])
    return rows, np.concatenate([target, np.arange(n_classes)]).astype(np.int64)


TARGET_KINDS = ("even", "even", "whole", "thirds", "normal", "constant", "tiny", "huge", "steps")


def number_target(random: Random, data: Data, *, positive: bool = False) -> FloatArray:
    """Targets of regression: on a grid, tied, constant, tiny or huge."""
    ranks = _ranks(data)
    whole = np.rint(ranks @ random.integers(-3, 4, size=ranks.shape[1])) + random.integers(-2, 3)
    kind = str(random.choice(TARGET_KINDS))
    if kind == "even":
        target = 2.0 * whole
    elif kind == "thirds":
        target = whole / 3.0
    elif kind == "normal":
        target = whole + random.normal(size=len(whole))
    elif kind == "constant":
        target = np.full(len(whole), float(random.choice([0.0, 1.0, 0.1])))
    elif kind == "tiny":
        target = whole * 1e-30
    elif kind == "huge":
        target = whole * 1e25
    elif kind == "steps":
        target = 4.0 * (whole > np.median(whole))
    else:
        target = whole
    return np.abs(target) % 1e3 + 1.0 if positive else target
