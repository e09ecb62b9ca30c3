"""Follows columns through the steps of a fitted pipeline.

A `Flow` knows for every transformed column the one raw column behind it and the steps between. It
sends chosen values forward (categories, a missing value) and tests of splits backward.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.pipelines.sides import (
    Apply,
    Output,
    Request,
    Sides,
    joined,
    pull_back,
)
from treeproof.loaders.sklearn.shared import LARGEST_CATEGORY, UNKNOWN_TEXT
from treeproof.model.ensemble import Ensemble, FloatArray

REFUSED = object()
"""What a step makes of a value that it does not accept."""


@dataclass(eq=False, slots=True)
class Column:
    """A column on its way through a pipeline."""

    raw: int
    """The user's column behind it."""
    step: "Step | None" = None
    """What made it; None for a raw column."""
    place: int = 0
    """Place among the outputs of the step."""
    is_encoded: bool = False
    """Whether an encoder has turned categories into numbers on the way."""
    is_plain: bool = True
    """Whether all numbers are still those of the raw column."""
    base: Any = 1.0
    """What it holds in the row that every step accepts."""
    values: list[Any] = field(default_factory=list)
    """What becomes of the raw column's `Flow.special` values here, or `REFUSED`."""


@dataclass(eq=False, slots=True)
class Step:
    """A fitted transformer that makes each of its outputs out of one of its inputs."""

    name: str
    apply: Apply
    inputs: list[Column]
    outputs: list[Output]
    objects: set[int]
    """Raw columns that encoders know as columns of objects."""
    columns: list[Column] = field(default_factory=list)
    """The outputs as columns."""

    @property
    def base(self) -> NDArray[Any]:
        """Row that the step accepts."""
        return self.matrix([[column.base for column in self.inputs]])[0]

    def matrix(self, rows: Any) -> NDArray[Any]:
        """Rows of the step as an array: of numbers, if it takes only such."""
        takes_objects = any(c.raw in self.objects and not c.is_encoded for c in self.inputs)
        cells = np.array(rows, dtype=object)
        takes_objects = takes_objects or _has_text(cells.ravel().tolist())
        return cells if takes_objects else cells.astype(np.float64)


class Flow:
    """Columns of a pipeline, from raw ones to those that its model sees."""

    def __init__(self, n_raw: int) -> None:
        self.raw = [Column(raw) for raw in range(n_raw)]
        self.steps: list[Step] = []
        self.known: dict[int, list[Any]] = {}
        """Categories that encoders know, by raw column."""
        self.special: list[list[Any]] = [[np.nan] for _ in range(n_raw)]
        """Values of each raw column that are sent forward: its categories, if it has such, an
        unknown one, and last a missing value."""
        self.codes: dict[int, list[int]] = {}
        """Code of each known category of raw columns that are categorical."""
        self.refused: list[set[int]] = [set() for _ in range(n_raw)]
        """Places in `special` of values that some step does not accept."""
        self.objects: set[int] = set()
        """Raw columns that encoders know as columns of objects, be they numbers."""
        self._listed: set[int] = set()
        self._missing_listed: set[int] = set()
        self._numbers: set[int] = set()
        self._taken: set[int] = set()
        self._nones: set[int] = set()
        self._nans: set[int] = set()

    def add_step(
        self,
        name: str,
        apply: Apply,
        inputs: list[Column],
        outputs: list[Output],
        *,
        encodes: bool = False,
    ) -> list[Column]:
        """Columns that a transformer makes."""
        step = Step(name, apply, inputs, outputs, self.objects)
        for place, output in enumerate(outputs):
            source = inputs[output.source]
            step.columns.append(
                Column(
                    source.raw,
                    step,
                    place,
                    is_encoded=source.is_encoded or encodes,
                    is_plain=source.is_plain and output.is_plain,
                )
            )
        self.steps.append(step)
        return step.columns

    def use_as_numbers(self, columns: Iterable[Column]) -> None:
        """Note that columns are computed with, so that they must hold numbers."""
        self._numbers.update(column.raw for column in columns if not column.is_encoded)

    def use_as_categories(self, column: Column, categories: Iterable[Any]) -> None:
        """Note the categories that an encoder knows of a column."""
        if column.is_encoded:
            return
        if not column.is_plain:
            self.use_as_numbers([column])
            return
        known = self.known.setdefault(column.raw, [])
        seen = set(known)
        for value in categories:
            if value is None:
                self._nones.add(column.raw)
            elif _is_missing(value):
                self._nans.add(column.raw)
            elif value not in seen:
                known.append(value)
                seen.add(value)

    def settle(self, names: tuple[str, ...]) -> None:
        """Decide which raw columns hold categories, then send special values forward."""
        for raw, known in self.known.items():
            is_number = all(isinstance(value, Real) for value in known)
            if not is_number and raw in self._numbers:
                raise UnsupportedModel(
                    f"Column {_named(raw, names)} must hold either categories or numbers. Got a"
                    " pipeline that encodes its text and also computes with it."
                )
            if is_number and (raw in self._numbers or not _are_codes(known)):
                self.raw[raw].base = float(known[0]) if known else 1.0
                continue
            self.codes[raw] = [int(value) for value in known] if is_number else [*range(len(known))]
            if not is_number:
                self._listed.add(raw)
            unknown = float(max(self.codes[raw], default=0) + 1) if is_number else UNKNOWN_TEXT
            self.special[raw] = [*known, unknown, self._missing_value(raw, names)]
            self.raw[raw].base = known[0] if known else unknown
        for column in self.raw:
            column.values = list(self.special[column.raw])
        for step in self.steps:
            self._send_forward(step)

    def _missing_value(self, raw: int, names: tuple[str, ...]) -> Any:
        """What stands for a missing category: NaN, or None where the encoder knows that alone."""
        if raw in self._nones and raw in self._nans:
            raise UnsupportedModel(
                f"Column {_named(raw, names)} must have one kind of missing value. Got an encoder"
                " that tells None and NaN apart. Replace one by the other, and fit again."
            )
        return None if raw in self._nones else np.nan

    def accept(self, columns: list[Column], model: Ensemble) -> None:
        """Note which special values the model does not accept."""
        self._taken = {column.raw for column in columns}
        for number, column in enumerate(columns):
            seen = numbers_of(column, model.categories.get(number))
            codes = model.required.get(number)
            wrong = np.isnan(seen) & ((not model.missing_allowed) or (codes is not None))
            if codes:
                wrong |= ~np.isin(seen, codes)
            self.refused[column.raw].update(np.flatnonzero(wrong).tolist())
        for raw in self._listed:
            *_, unknown, missing = range(len(self.special[raw]))
            if missing in self.refused[raw]:
                continue
            own = [column.values for column in columns if column.raw == raw]
            if unknown in self.refused[raw] or not all(_same(v[unknown], v[missing]) for v in own):
                self._missing_listed.add(raw)

    def is_never_missing(self, raw: int) -> bool:
        """Whether a raw column of numbers must not have missing values."""
        return len(self.special[raw]) - 1 in self.refused[raw]

    def lists_missing(self, raw: int) -> bool:
        """Whether a missing value is one of the categories of a raw column, the last one."""
        return raw in self._missing_listed

    @property
    def categories(self) -> dict[int, tuple[Any, ...]]:
        """Raw categories in code order, of columns whose categories are not their own codes.

        Columns that nothing looks at have none: they may hold anything.
        """
        used = {column.raw for step in self.steps for column in step.inputs} | self._taken
        unused = {raw: () for raw in range(len(self.raw)) if raw not in used}
        return unused | {
            raw: (*self.special[raw][:-2], *self.special[raw][-1:][: self.lists_missing(raw)])
            for raw in sorted(self._listed)
        }

    @property
    def required(self) -> dict[int, tuple[int, ...]]:
        """Raw columns that must not be missing, with the codes of the only categories they take."""
        result: dict[int, tuple[int, ...]] = {}
        for raw, places in enumerate(self.refused):
            if raw not in self.codes:
                if places:
                    result[raw] = ()
                continue
            n_codes = len(self.codes[raw])
            if n_codes in places and (raw in self._listed or n_codes + 1 in places):
                codes = [c for k, c in enumerate(self.codes[raw]) if k not in places]
                result[raw] = (*codes, *([n_codes] if self.lists_missing(raw) else []))
        return result

    def _send_forward(self, step: Step) -> None:
        try:
            given = step.apply(step.base[None, :])
        except (ValueError, TypeError) as error:
            raise UnsupportedModel(
                f"{step.name} does not accept what the steps before it make of a usual row:"
                f" {str(error).splitlines()[0][:120]}. Fit the pipeline again as a whole."
            ) from error
        if given.shape != (1, len(step.outputs)):
            raise BrokenModelFile(
                f"{step.name} must give {len(step.outputs)} columns. Got shape {given.shape}."
            )
        for column, base in zip(step.columns, given[0].tolist(), strict=True):
            column.base = base
            column.values = [REFUSED] * len(self.special[column.raw])
        n_rows = max((len(column.values) for column in step.inputs), default=0)
        everything = [(place, row) for place in range(len(step.inputs)) for row in range(n_rows)]
        if not self._try_values(step, everything):
            for place, row in everything:
                self._try_values(step, [(place, row)])

    def _try_values(self, step: Step, cells: list[tuple[int, int]]) -> bool:
        """Send special values (column of the step, place in its list) through; whether it went."""
        cells = [
            (place, row)
            for place, row in cells
            if row < len(step.inputs[place].values)
            and step.inputs[place].values[row] is not REFUSED
        ]
        if not cells:
            return True
        rows = np.array([row for _, row in cells])
        matrix = np.tile(step.base.astype(object), (int(rows.max()) + 1, 1))
        for place, row in cells:
            matrix[row, place] = step.inputs[place].values[row]
        try:
            given = step.apply(step.matrix(matrix))
        except (ValueError, TypeError):
            if len(cells) == 1:
                place, row = cells[0]
                self.refused[step.inputs[place].raw].add(row)
            return False
        sent = {(place, row) for place, row in cells}
        for column, output in zip(step.columns, step.outputs, strict=True):
            for row in range(len(column.values)):
                if (output.source, row) in sent:
                    column.values[row] = given[row, column.place]
        return True

    def pull_back(self, tests: list[tuple[Column, Sides]]) -> list[Sides]:
        """Tests of transformed columns as tests of the raw columns behind them."""
        waiting: dict[Column, list[tuple[int, Sides]]] = {}
        for number, (column, sides) in enumerate(tests):
            waiting.setdefault(column, []).append((number, sides))
        for step in reversed(self.steps):
            asked = [column for column in step.columns if column in waiting]
            if not asked:
                continue
            of_missing = self._of_missing(step)
            requests = [
                Request(
                    step.outputs[column.place],
                    column.place,
                    joined([sides for _, sides in waiting[column]]),
                    of_missing[column.place],
                )
                for column in asked
            ]
            pulled = pull_back(step.name, step.apply, step.base, requests)
            for column, sides in zip(asked, pulled, strict=True):
                source = step.inputs[step.outputs[column.place].source]
                waiting.setdefault(source, []).extend(_split(sides, waiting.pop(column)))
        results = dict(pair for column in self.raw for pair in waiting.get(column, ()))
        return [results[number] for number in range(len(tests))]

    @staticmethod
    def _of_missing(step: Step) -> list[float]:
        """What a step makes of a missing value, by output; NaN where it does not accept one."""
        rows = np.tile(step.base, (len(step.inputs), 1))
        np.fill_diagonal(rows, np.nan)
        sources = [output.source for output in step.outputs]
        try:
            given = step.apply(rows)
        except (ValueError, TypeError):
            given = np.full((len(rows), len(sources)), np.nan)
            for row in range(len(rows)):
                with contextlib.suppress(ValueError, TypeError):
                    given[row] = step.apply(rows[row : row + 1])[0]
        return [float(given[source, place]) for place, source in enumerate(sources)]


def _split(sides: Sides, parts: list[tuple[int, Sides]]) -> list[tuple[int, Sides]]:
    """Undo `joined`: the tests of each part by themselves, with the part's number."""
    result, start = [], 0
    for number, part in parts:
        stop = start + len(part.first)
        low, high = np.searchsorted(sides.owner, [start, stop])
        own = Sides(
            sides.first[start:stop],
            sides.missing[start:stop],
            sides.owner[low:high] - start,
            sides.cut[low:high],
        )
        result.append((number, own))
        start = stop
    return result


def numbers_of(column: Column, known: tuple[Any, ...] | None) -> FloatArray:
    """Special values of a column as a model sees them: numbers, or codes of its `known` ones."""
    if known is None:
        return np.array([np.nan if value is REFUSED else value for value in column.values], float)
    code = {None if _is_missing(value) else value: float(k) for k, value in enumerate(known)}
    keys = [None if _is_missing(value) else value for value in column.values]
    return np.array([code.get(key, np.nan) for key in keys])


def _same(first: Any, second: Any) -> bool:
    """Whether a model sees the same number twice."""
    if first is REFUSED or second is REFUSED:
        return first is second
    return bool(first == second) or (_is_missing(first) and _is_missing(second))


def _are_codes(known: list[Any]) -> bool:
    return all(0 <= value <= LARGEST_CATEGORY and value == int(value) for value in known)


def _is_missing(value: Any) -> bool:
    return value is None or value != value  # noqa: PLR0124 - true for NaN only


def _has_text(values: list[Any]) -> bool:
    return not all(isinstance(value, Real) for value in values)


def _named(raw: int, names: tuple[str, ...]) -> str:
    return repr(names[raw]) if names else str(raw)
