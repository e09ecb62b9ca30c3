"""Axes and atoms: what a question with costs or a domain is asked over.

An axis is a number, a category, or a group of columns that is one choice. Its atoms are what the
model can tell apart and the domain knows: cells of a number, codes, choices of a group; missing is
the last one. A point is one atom of every axis, and every test of the trees is about one axis: it
sends a set of its atoms left.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.model import evaluate
from treeproof.model.cuts import Cuts, cuts_of
from treeproof.model.ensemble import (
    MISSING_LEFT,
    ZERO_IS_MISSING,
    Ensemble,
    FloatArray,
    IntArray,
)
from treeproof.model.folded import choices_of
from treeproof.query.domain import ColumnTypes, known_codes

NUMERIC, CHOICE = 0, 1
"""Kinds of axes: cells of one column, or listed values of one or more columns."""


class Axis(NamedTuple):
    """One axis and its atoms."""

    columns: tuple[int, ...]  # one, but for groups
    # Values of the columns at each atom of a choice; of a numeric axis, those of no atom.
    choices: FloatArray  # (n_choices, n_columns)
    has_missing: bool  # of a numeric axis: whether its last atom is a missing value
    kind: int
    n_known: int = 0  # of a group: choices that the domain knows; others are of rows that break it

    @property
    def is_group(self) -> bool:
        """Whether columns are one choice, rather than categories of one column."""
        return self.n_known > 0


class Cells(NamedTuple):
    """The cells of all numeric axes, one after another; their axes are counted as numeric ones."""

    axis: NDArray[np.int64]  # (n_numeric,) number of each axis
    column: NDArray[np.int64]  # (n_numeric,) its feature
    first: NDArray[np.int64]  # (n_numeric + 1,) where its cells begin
    missing: NDArray[np.int64]  # (n_numeric,) its atom of a missing value; -1 where there is none
    owner: NDArray[np.int64]  # (n_cells,) axis of each cell
    feature: NDArray[np.int64]  # (n_cells,) feature of each cell
    atom: NDArray[np.int64]  # (n_cells,) atom of each cell, numbered through
    number: NDArray[np.int64]  # (n_cells,) of each cell within its axis
    start: FloatArray  # (n_cells,) least number of each cell
    end: FloatArray  # (n_cells,) least number above each cell

    def of(self, feature: int) -> slice:
        """Where the cells of a feature are; nowhere, if it is no number."""
        place = int(np.searchsorted(self.column, feature))
        if place == len(self.column) or self.column[place] != feature:
            return slice(0, 0)
        return slice(int(self.first[place]), int(self.first[place + 1]))

    def homes(self, rows: FloatArray) -> NDArray[np.int32]:
        """Atoms, within their axes, at which rows lie: (n_rows, n_numeric)."""
        if len(self.axis) == 0:
            return np.zeros((len(rows), 0), dtype=np.int32)
        begun = rows[:, self.feature] >= self.start
        count = np.add.reduceat(begun, self.first[:-1], axis=1, dtype=np.int32)
        return np.where(np.isnan(rows[:, self.column]), self.missing, count - 1).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Axes:
    """The axes of a question; the same object for all questions with the same atoms.

    Atoms are numbered through; those of axis a are ``atom_start[a]`` to ``atom_start[a + 1] - 1``.
    Elsewhere an atom is counted from the first of its axis.
    """

    axes: tuple[Axis, ...]
    axis_of: IntArray  # (n_features,) axis of each feature
    kind: NDArray[np.int8]  # (n_axes,)
    atom_start: NDArray[np.int64]  # (n_axes + 1,)
    # Atoms that each node sends left, as runs (first, last) without gaps or overlap, in order.
    node_axis: IntArray  # (n_nodes,) axis that a node tests; -1 at leaves
    left_start: NDArray[np.int64]  # (n_nodes + 1,)
    left_runs: IntArray  # (n_runs, 2)
    cuts: Cuts
    cells: Cells

    @property
    def n_axes(self) -> int:
        """Number of axes."""
        return len(self.axes)

    @property
    def n_atoms(self) -> int:
        """Number of atoms of all axes."""
        return int(self.atom_start[-1])

    def atoms_of(self, axis: int) -> slice:
        """Where the atoms of an axis are."""
        return slice(int(self.atom_start[axis]), int(self.atom_start[axis + 1]))

    def missing_atom(self, axis: int) -> int:
        """Number of the atom of a missing value; -1 where there is none."""
        found = self.axes[axis]
        n_atoms = int(self.atom_start[axis + 1] - self.atom_start[axis])
        if found.kind == NUMERIC:
            return n_atoms - 1 if found.has_missing else -1
        missing = np.flatnonzero(np.isnan(found.choices).all(axis=1))
        return int(missing[0]) if len(missing) else -1

    def atom_of(self, axis: int, values: FloatArray) -> NDArray[np.int64]:
        """Atoms at which columns have values (n, n_columns); -1 where there is no such atom."""
        found = self.axes[axis]
        if found.kind == NUMERIC:
            value = values[:, 0]
            cells = np.searchsorted(self.cuts.of(found.columns[0]), value, side="right")
            return np.where(np.isnan(value), self.missing_atom(axis), cells)
        same = values[:, np.newaxis, :] == found.choices
        same |= np.isnan(values[:, np.newaxis, :]) & np.isnan(found.choices)
        matches = same.all(axis=2)
        return np.where(matches.any(axis=1), matches.argmax(axis=1), -1)


def axes_of(ensemble: Ensemble, types: ColumnTypes, rows: FloatArray) -> Axes:
    """Return the axes of a model in a domain, with atoms for what the rows themselves have."""
    found = []
    groups = {columns[0]: (columns, exactly) for columns, exactly in types.groups}
    grouped = {column for columns, _ in types.groups for column in columns}
    is_code = ensemble.is_categorical
    for feature in range(ensemble.n_features):
        if feature in grouped and feature not in groups:
            continue
        if feature in groups:
            columns, exactly = groups[feature]
            found.append(_group_axis(columns, exactly, rows))
        elif is_code[feature] or feature in types.may_become:
            found.append(_category_axis(ensemble, types, feature, rows[:, feature]))
        else:
            has_missing = bool(types.may_miss[feature] or np.isnan(rows[:, feature]).any())
            found.append(Axis((feature,), np.zeros((0, 1)), has_missing, NUMERIC))
    digest = hashlib.sha256()
    for axis in found:
        digest.update(
            repr((axis.columns, axis.choices.shape, axis.has_missing, axis.n_known)).encode()
        )
        digest.update(axis.choices.tobytes())
    key = ("axes", digest.digest())
    if key not in ensemble._cache:
        ensemble._cache[key] = _assembled(ensemble, tuple(found))
    axes: Axes = ensemble._cache[key]
    return axes


def _group_axis(columns: tuple[int, ...], exactly: bool, rows: FloatArray) -> Axis:
    choices = choices_of((columns, exactly))
    # Rows of another domain have choices of their own, which nobody else may take.
    own = np.unique(rows[:, columns], axis=0)
    is_known = (own[:, np.newaxis, :] == choices).all(axis=2).any(axis=1)
    return Axis(columns, np.vstack([choices, own[~is_known]]), False, CHOICE, len(choices))


def _category_axis(
    ensemble: Ensemble, types: ColumnTypes, feature: int, values: FloatArray
) -> Axis:
    codes = [values[~np.isnan(values)]]
    if ensemble.is_categorical[feature]:
        codes.append(known_codes(ensemble, feature))
    allowed = types.may_become.get(feature)
    if isinstance(allowed, dict):
        codes += [np.array(list(allowed)), *allowed.values()]
    elif allowed is not None:
        codes.append(allowed)
    choices = np.unique(np.concatenate(codes))
    if types.may_miss[feature] or np.isnan(values).any():
        choices = np.append(choices, np.nan)
    return Axis((feature,), choices[:, np.newaxis], False, CHOICE)


def _assembled(ensemble: Ensemble, found: tuple[Axis, ...]) -> Axes:
    trees, cuts = ensemble.trees, cuts_of(ensemble)
    axis_of = np.zeros(ensemble.n_features, dtype=np.int32)
    for number, axis in enumerate(found):
        axis_of[list(axis.columns)] = number
    sizes = [
        len(cuts.of(axis.columns[0])) + 1 + axis.has_missing
        if axis.kind == NUMERIC
        else len(axis.choices)
        for axis in found
    ]
    is_inner = trees.feature >= 0
    node_axis = np.where(is_inner, axis_of[trees.feature], -1).astype(np.int32)
    runs = [np.zeros((0, 3), dtype=np.int64)]
    order = np.flatnonzero(is_inner)
    order = order[np.argsort(node_axis[order], kind="stable")]
    bounds = np.searchsorted(node_axis[order], np.arange(len(found) + 1))
    for number, axis in enumerate(found):
        nodes = order[bounds[number] : bounds[number + 1]]
        if len(nodes) == 0:
            continue
        if axis.kind == NUMERIC:
            runs += left_runs_of_numbers(ensemble, cuts, axis, nodes)
        else:
            position = np.array([axis.columns.index(f) for f in trees.feature[nodes].tolist()])
            values = axis.choices[:, position].T
            left = evaluate.goes_left(
                ensemble, np.repeat(nodes, values.shape[1]), np.ascontiguousarray(values).ravel()
            )
            runs.append(runs_of(nodes, left.reshape(values.shape)))
    flat = np.concatenate(runs)
    flat = flat[np.lexsort((flat[:, 1], flat[:, 0]))]
    count = np.bincount(flat[:, 0], minlength=len(node_axis))
    return Axes(
        axes=found,
        axis_of=axis_of,
        kind=np.array([axis.kind for axis in found], dtype=np.int8),
        atom_start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        node_axis=node_axis,
        left_start=np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        left_runs=np.ascontiguousarray(flat[:, 1:]).astype(np.int32),
        cuts=cuts,
        cells=_cells(found, cuts, np.concatenate([[0], np.cumsum(sizes)])),
    )


def _cells(found: tuple[Axis, ...], cuts: Cuts, atom_start: NDArray[np.int64]) -> Cells:
    numeric = np.array([n for n, axis in enumerate(found) if axis.kind == NUMERIC], dtype=np.int64)
    column = np.array([found[n].columns[0] for n in numeric], dtype=np.int64)
    count = cuts.start[column + 1] - cuts.start[column] + 1
    first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    owner = np.repeat(np.arange(len(numeric)), count)
    number = np.arange(first[-1]) - first[owner]
    place = cuts.start[column[owner]] + number
    start, end = np.full(len(owner), -np.inf), np.full(len(owner), np.inf)
    inner = number > 0
    start[inner] = cuts.cut[place[inner] - 1]
    inner = number < count[owner] - 1
    end[inner] = cuts.cut[place[inner]]
    has_missing = np.array([found[n].has_missing for n in numeric], dtype=bool)
    return Cells(
        axis=numeric,
        column=column,
        first=first,
        missing=np.where(has_missing, count, -1),
        owner=owner,
        feature=column[owner],
        atom=atom_start[numeric[owner]] + number,
        number=number,
        start=start,
        end=end,
    )


def left_runs_of_numbers(
    ensemble: Ensemble, cuts: Cuts, axis: Axis, nodes: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Runs of cells, and of missing, that numeric nodes of one feature send left."""
    feature, flags = axis.columns[0], ensemble.trees.flags[nodes]
    n_cells = len(cuts.of(feature)) + 1
    last = cuts.node_cut[nodes].astype(np.int64)
    is_banded = (flags & ZERO_IS_MISSING) > 0
    plain = ~is_banded
    found = [np.stack([nodes, np.zeros_like(last), last], axis=1)[plain]]
    if axis.has_missing:
        gone = nodes[plain & ((flags & MISSING_LEFT) > 0)]
        found.append(np.stack([gone, np.full_like(gone, n_cells), np.full_like(gone, n_cells)], 1))
    if is_banded.any():
        cell = np.arange(n_cells + axis.has_missing)
        left = cell <= last[is_banded, np.newaxis]
        in_band = (cuts.zero_low[feature] <= cell) & (cell <= cuts.zero_high[feature])
        in_band |= cell == n_cells
        missing_left = ((flags[is_banded] & MISSING_LEFT) > 0)[:, np.newaxis]
        found.append(runs_of(nodes[is_banded], np.where(in_band, missing_left, left)))
    return found


def runs_of(nodes: NDArray[np.int64], left: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Runs of True in each row, as (node, first, last)."""
    padded = np.zeros((len(left), left.shape[1] + 2), dtype=np.int8)
    padded[:, 1:-1] = left
    step = np.diff(padded, axis=1)
    row, first = np.nonzero(step == 1)
    _, after = np.nonzero(step == -1)
    return np.stack([nodes[row], first, after - 1], axis=1).astype(np.int64)
