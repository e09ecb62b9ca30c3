"""The self-test at load: the model here and the source library must agree, bit for bit.

The rows are made to tell apart the mistakes that a translation can make: a strict comparison taken
for a non-strict one, a threshold rounded the wrong way, a missing cast to float32, a wrong
direction for missing values, sums in another order or precision, another tie rule.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import SelfTestFailed, TreeproofError
from treeproof.loaders.base import CannotAnswer, Loaded, Reference
from treeproof.model import evaluate
from treeproof.model.ensemble import CATEGORICAL, Ensemble, FloatArray

_WORK = 150_000
"""Rows times trees that a self-test aims at."""

_CELLS = 1 << 23
"""Rows times features that a self-test stays below, but for a few rows of very wide models."""

_TINY = (0.0, -0.0, 1e-35, -1e-35, 9.9e-36, 1.1e-35, 1e-38, 1e-40, -1e-45, 5e-324, -1e-310)


@dataclass(frozen=True, slots=True)
class TestRows:
    """Rows for a self-test and, for each, what is special about it."""

    __test__ = False  # a class of the product, whatever pytest may think of its name

    values: FloatArray
    kinds: tuple[str, ...]


def run_self_test(loaded: Loaded) -> Ensemble:
    """Compare margins and labels with the source library, bit for bit.

    Returns the model with the outcome in its provenance; raises `SelfTestFailed` when some margin
    or label differs.
    """
    ensemble, reference = loaded.ensemble, loaded.reference
    rows = self_test_rows(ensemble)
    if reference.feedable is not None:
        rows = replace(rows, values=reference.feedable(rows.values))
    try:
        expected, expected_labels = _answers(ensemble, reference, rows.values)
    except ImportError:
        library = ensemble.provenance.library
        return ensemble.with_provenance(self_test=f"not run: {library} cannot be imported")
    except CannotAnswer as error:
        return ensemble.with_provenance(self_test=f"not run: {error}")
    margins = evaluate.margins(ensemble, rows.values)
    shown = margins if reference.shown is None else reference.shown(margins)
    _compare_margins(ensemble, rows, shown, expected)
    outcome = f"passed: margins of {len(margins):,} rows bit-equal"
    if expected_labels is not None:
        labels = evaluate.label_indices(ensemble, margins)
        _compare_labels(ensemble, rows, labels, expected_labels)
        outcome += ", labels equal"
    return ensemble.with_provenance(self_test=outcome)


def _answers(
    ensemble: Ensemble, reference: Reference, values: FloatArray
) -> tuple[NDArray[np.floating], NDArray[np.int64] | None]:
    """Margins and labels as the library gives them."""
    labels = None
    # Copies, because some libraries write to what they are given.
    try:
        margins = np.asarray(reference.margins(values.copy())).reshape(len(values), -1)
        if reference.labels is not None and ensemble.decision.kind != "score":
            labels = np.asarray(reference.labels(values.copy())).reshape(len(values))
    except (ImportError, CannotAnswer, TreeproofError):
        raise
    except Exception as error:
        # Whatever a foreign library raises, it has not confirmed the model.
        raise SelfTestFailed(
            f"{_library(ensemble)} could not answer the self-test:"
            f" {type(error).__name__}: {str(error)[:300]}"
        ) from error
    return margins, labels


def _compare_margins(
    ensemble: Ensemble,
    rows: TestRows,
    margins: NDArray[np.floating],
    expected: NDArray[np.floating],
) -> None:
    if margins.dtype != expected.dtype or margins.shape != expected.shape:
        raise SelfTestFailed(
            f"{_library(ensemble)} gives {expected.shape[1]} scores per row in {expected.dtype},"
            f" but the model here {margins.shape[1]} in {margins.dtype}. Please report it."
        )
    bits = np.int32 if margins.dtype == np.float32 else np.int64
    equal = np.ascontiguousarray(margins).view(bits) == np.ascontiguousarray(expected).view(bits)
    # Sums of huge leaves may give NaN on both sides, whose sign and payload mean nothing.
    equal |= np.isnan(margins) & np.isnan(expected)
    if not equal.all():
        row, output = (int(i) for i in np.argwhere(~equal)[0])
        raise SelfTestFailed(
            f"{int((~equal).any(axis=1).sum())} of {len(equal)} rows of the self-test disagree with"
            f" {_library(ensemble)}. Row {row} ({rows.kinds[row]}), output {output}: got"
            f" {margins[row, output]!r}, expected {expected[row, output]!r}."
            " The model is refused; please report it."
        )


def _compare_labels(
    ensemble: Ensemble,
    rows: TestRows,
    labels: NDArray[np.int64],
    expected: NDArray[np.int64],
) -> None:
    wrong = np.flatnonzero(labels != expected)
    if wrong.size:
        row = int(wrong[0])
        raise SelfTestFailed(
            f"{wrong.size} of {len(labels)} labels of the self-test disagree with"
            f" {_library(ensemble)} although all margins agree. Row {row} ({rows.kinds[row]}): got"
            f" class index {labels[row]}, expected {expected[row]}."
            " The model is refused; please report it."
        )


def _library(ensemble: Ensemble) -> str:
    return f"{ensemble.provenance.library} {ensemble.provenance.library_version}"


def self_test_rows(ensemble: Ensemble, *, seed: int = 0) -> TestRows:
    """Rows on and beside sampled thresholds, extreme, missing and odd values.

    NaN and infinities appear only where the model allows them.
    """
    random = np.random.default_rng(seed)
    n = int(np.clip(_WORK // ensemble.n_trees, 240, 2_000))
    # A file may claim a million features; the rows must fit into memory all the same.
    n = max(min(n, _CELLS // ensemble.n_features), 10) // 10 * 10
    numeric = _NumericColumns(ensemble)
    sampled = numeric.sampled(n, random)
    values = numeric.uniform(n, random)
    kinds = np.full(n, "random", dtype=object)
    blocks = {
        "on thresholds": sampled,
        "one step below thresholds": _step(ensemble, sampled, -np.inf),
        "one step above thresholds": _step(ensemble, sampled, np.inf),
        "one float64 below thresholds": np.nextafter(sampled, -np.inf),
        "where the input cast turns over": _turning_points(ensemble, sampled, random),
        "zero and tiny values": random.choice(_TINY, size=values.shape),
        "huge values": random.choice(_huge(ensemble), size=values.shape),
    }
    for number, (kind, special) in enumerate(blocks.items(), start=2):
        part = slice(n * number // 10, n * (number + 1) // 10)
        # Some columns stay random, so that nodes deep in the trees are reached, too.
        keep = random.random(values[part].shape) < 0.3
        values[part] = np.where(keep, values[part], special[part])
        kinds[part] = kind
    if not ensemble.infinite_allowed:
        largest = float(np.finfo(ensemble.input_precision).max)
        values = np.clip(values, -largest, largest)
    rows = np.tile(random.normal(size=ensemble.n_features), (n, 1))
    rows[:, numeric.features] = values
    _fill_categories(ensemble, rows, random)
    if ensemble.missing_allowed:
        part = slice(n * 9 // 10, n)
        optional = [f for f in range(ensemble.n_features) if f not in ensemble.required]
        holes = np.zeros(rows[part].shape, dtype=bool)
        holes[:, optional] = random.random((len(holes), len(optional))) < 0.3
        holes[-1, optional] = True
        rows[part][holes] = np.nan
        kinds[part] = "missing values"
    return TestRows(rows, tuple(kinds.tolist()))


class _NumericColumns:
    """Thresholds of every feature that some numeric node tests, side by side."""

    def __init__(self, ensemble: Ensemble) -> None:
        trees = ensemble.trees
        numeric = (trees.feature >= 0) & ((trees.flags & CATEGORICAL) == 0)
        numeric &= np.isfinite(trees.threshold)
        feature, threshold = trees.feature[numeric], trees.threshold[numeric]
        order = np.lexsort((threshold, feature))
        self.features, first, self._count = np.unique(
            feature[order], return_index=True, return_counts=True
        )
        self._first = first
        self._sorted = threshold[order]

    def sampled(self, n: int, random: np.random.Generator) -> FloatArray:
        """One threshold of its own feature in every cell: float64 (n, number of features)."""
        choice = (random.random((n, len(self.features))) * self._count).astype(np.int64)
        return self._sorted[self._first + choice]

    def uniform(self, n: int, random: np.random.Generator) -> FloatArray:
        """Values around the range of each feature's thresholds: float64 (n, number of features)."""
        low = self._sorted[self._first] if len(self.features) else np.zeros(0)
        high = self._sorted[self._first + self._count - 1] if len(self.features) else np.zeros(0)
        # Halves first: thresholds of both signs may be as large as floats get.
        width = 1.2 * (high / 2 - low / 2) + 0.1
        middle = high / 2 + low / 2
        return middle + width * random.uniform(-1.0, 1.0, (n, len(self.features)))


def _step(ensemble: Ensemble, values: FloatArray, direction: float) -> FloatArray:
    """Neighbours in the model's input precision."""
    if ensemble.input_precision == "float64":
        return np.nextafter(values, direction)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
        stepped = np.nextafter(single, np.float32(direction))
    return np.where(np.isfinite(stepped), stepped, single).astype(np.float64)


def _turning_points(
    ensemble: Ensemble, values: FloatArray, random: np.random.Generator
) -> FloatArray:
    """Middles between a threshold and the float32 below it, and their float64 neighbours."""
    if ensemble.input_precision == "float64":
        return np.nextafter(values, np.inf)
    middle = (_step(ensemble, values, -np.inf) + values) / 2
    kind = random.integers(0, 3, size=values.shape)
    near = np.where(kind == 0, np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf))
    return np.where(kind == 2, middle, near)


def _huge(ensemble: Ensemble) -> FloatArray:
    largest = float(np.finfo(ensemble.input_precision).max)
    values = [1e30, -1e30, largest, -largest, 2.0**53, -(2.0**53)]
    if ensemble.infinite_allowed:
        values += [np.inf, -np.inf, 1e300, -1e300]
    return np.array(values)


def _fill_categories(ensemble: Ensemble, rows: FloatArray, random: np.random.Generator) -> None:
    """Codes in the columns of categorical features; a third of them unseen or no code at all.

    Columns whose encoder refuses what is unseen hold none, whether a tree tests them or not.
    """
    trees = ensemble.trees
    for feature, accepted in ensemble.required.items():
        if accepted:
            rows[:, feature] = random.choice(np.array(accepted, dtype=np.float64), size=len(rows))
    nodes = np.flatnonzero((trees.flags & CATEGORICAL) > 0)
    for feature in np.unique(trees.feature[nodes]):
        if ensemble.required.get(int(feature)):
            continue
        sets = trees.category_set[nodes[trees.feature[nodes] == feature]]
        codes = trees.categories_in(np.unique(sets))
        known = ensemble.categories.get(int(feature))
        if known or not codes.size:
            codes = np.arange(max(len(known or ()), 1))
        column = random.choice(codes.astype(np.float64), size=len(rows))
        last = int(codes[-1])
        beyond = [last + 1, last + 40, last + 0.5, 31.0, 32.0, 1e6, 1e30]
        strange = [*beyond, -1.0, -0.5, -7.0, 0.7, 1.9]
        mixed = random.random(len(rows)) < 0.3
        rows[:, feature] = np.where(mixed, random.choice(strange, size=len(rows)), column)
