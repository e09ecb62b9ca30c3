"""Programs over atoms with prices, solved by HiGHS: the cheapest violation of a row.

Every axis chooses one of its affordable atoms, every tree one of its leaves, and a leaf below a
node needs an atom that the node sends there. Sums of prices are one more row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.comparisons.programs import Answer, Program, solve
from treeproof.engines.outcomes import breaks
from treeproof.engines.restricted import gains_of
from treeproof.engines.row_by_row import RowSearch
from treeproof.model.ensemble import FloatArray
from treeproof.query.axes import Axes
from treeproof.query.prices import Prices, Pricing
from treeproof.results.verdict import UnknownReason, Verdict

Total = tuple[Fraction, bool]
"""A cost, squared for L2, and whether it is only approached."""

_ROOM = 1.0 + 2e-9
"""How far beyond a cost the row of prices goes: more than what rounding and tolerances take."""


@dataclass(slots=True)
class AtomProgram:
    """The program of one alternative over the affordable atoms of a row."""

    axes: Axes
    affordable: NDArray[np.bool_]  # (n_atoms,)
    program: Program = field(default_factory=Program)
    atom_column: dict[int, int] = field(default_factory=dict)  # by atom, of axes with a choice
    leaf_column: dict[int, int] = field(default_factory=dict)  # by row of ``leaf_value``
    margin_column: int = -1

    def sides(self, node: int) -> tuple[list[int], list[int]]:
        """Affordable atoms that a node sends left, and right."""
        axes = self.axes
        atoms = axes.atoms_of(int(axes.node_axis[node]))
        left = np.zeros(atoms.stop - atoms.start, dtype=bool)
        for first, last in axes.left_runs[axes.left_start[node] : axes.left_start[node + 1]]:
            left[first : last + 1] = True
        alive = self.affordable[atoms]
        start = atoms.start
        return (
            (np.flatnonzero(alive & left) + start).tolist(),
            (np.flatnonzero(alive & ~left) + start).tolist(),
        )

    def add_tree(self, trees: Any, root: int) -> list[int]:
        """Add the rows of a tree; returns its leaves that are reached."""
        found = self._add_node(trees, root)
        columns = [self.leaf_column[leaf] for leaf in found]
        self.program.add_row(columns, [1.0] * len(columns), 1.0, 1.0)
        return found

    def _add_node(self, trees: Any, node: int) -> list[int]:
        if trees.feature[node] < 0:
            leaf = int(trees.leaf[node])
            self.leaf_column[leaf] = self.program.add_columns(1)
            return [leaf]
        left, right = self.sides(node)
        found = []
        for atoms, others, child in (
            (left, right, node + 1),
            (right, left, int(trees.right[node])),
        ):
            if not atoms:
                continue
            below = self._add_node(trees, child)
            found += below
            if others:  # otherwise every point goes there
                columns = [self.leaf_column[leaf] for leaf in below]
                chosen = [self.atom_column[atom] for atom in atoms]
                values = [1.0] * len(columns) + [-1.0] * len(chosen)
                self.program.add_row([*columns, *chosen], values, -np.inf, 0.0)
        return found

    def choose(self, point: FloatArray) -> NDArray[np.int64]:
        """The atom of each axis at a solver's point, counted from the first of the axis."""
        chosen = []
        for axis in range(self.axes.n_axes):
            atoms = self.axes.atoms_of(axis)
            alive = np.flatnonzero(self.affordable[atoms])
            if len(alive) > 1:
                weights = [point[self.atom_column[int(atom) + atoms.start]] for atom in alive]
                alive = alive[[int(np.argmax(weights))]]
            chosen.append(int(alive[0]))
        return np.array(chosen, dtype=np.int64)


def encode_atoms(
    search: RowSearch, axes: Axes, constraints: range, affordable: NDArray[np.bool_]
) -> AtomProgram | None:
    """Write an alternative as a program; None where an axis has no affordable atom."""
    ensemble, table = search.query.ensemble, search.query.alternatives
    trees = ensemble.trees
    encoding = AtomProgram(axes, affordable)
    program = encoding.program
    for axis in range(axes.n_axes):
        atoms = axes.atoms_of(axis)
        alive = (np.flatnonzero(affordable[atoms]) + atoms.start).tolist()
        if not alive:
            return None
        if len(alive) > 1:
            first = program.add_columns(len(alive), is_whole=True)
            encoding.atom_column |= {atom: first + i for i, atom in enumerate(alive)}
            columns = list(range(first, first + len(alive)))
            program.add_row(columns, [1.0] * len(columns), 1.0, 1.0)
    coefficient = table.coefficient[constraints.start : constraints.stop]
    matters = np.any(coefficient != 0.0, axis=0)
    leaf_start, leaf_row = [0], list[int]()
    for tree in range(ensemble.n_trees):
        output = int(trees.tree_output[tree])
        if output < 0 or matters[output]:
            leaf_row += encoding.add_tree(trees, int(trees.root[tree]))
        leaf_start.append(len(leaf_row))
    rows = np.array(leaf_row, dtype=np.int32)
    gains = gains_of(search.query, constraints, np.array(leaf_start, dtype=np.int64), rows)
    encoding.margin_column = program.add_columns(1, low=-4.0, high=4.0)
    columns = [encoding.leaf_column[leaf] for leaf in leaf_row]
    scaled = (gains.gain / gains.scale[:, np.newaxis]).tolist()
    missing = ((gains.floor - gains.base) / gains.scale).tolist()
    for gain, least in zip(scaled, missing, strict=True):
        program.add_row([*columns, encoding.margin_column], [*gain, -1.0], least, np.inf)
    return encoding


@dataclass(slots=True)
class CheapestSearch:
    """A row while programs look for its cheapest violation."""

    search: RowSearch
    pricing: Pricing
    prices: Prices  # of this row alone
    limit: Total | None  # what a violation may cost: less, or at most this where `is_closed`
    is_closed: bool
    best: FloatArray | None = None

    def close(self, constraints: range) -> Verdict:
        """Search below the limit until there is provably nothing, lowering it with what is found.

        VERIFIED where nothing is left below the limit; with a closed limit, FALSIFIED at the first
        violation; otherwise UNKNOWN, with a reason.
        """
        while True:
            encoding = encode_atoms(self.search, self.pricing.axes, constraints, self._affordable())
            if encoding is None:
                return Verdict.VERIFIED
            if not self.is_closed:
                self._look_nearby(encoding)
                encoding = encode_atoms(
                    self.search, self.pricing.axes, constraints, self._affordable()
                )
                if encoding is None:
                    return Verdict.VERIFIED
            verdict = self._prove(encoding)
            if verdict is not Verdict.FALSIFIED or self.is_closed:
                return verdict  # otherwise the limit is lower now

    def _prove(self, encoding: AtomProgram) -> Verdict:
        program = encoding.program
        self._add_prices(encoding)
        program.cost = [0.0] * len(program.cost)
        program.cost[encoding.margin_column] = -1.0
        while True:
            margin = program.margin
            answer = self._solve(program, target=-margin)
            if answer is None:
                return Verdict.UNKNOWN
            # The cost is minus the margin of the constraints, which violations have at least 0.
            if answer.bound > margin:
                return Verdict.VERIFIED
            if answer.point is None:
                is_late = answer.is_out_of_time
                reason = UnknownReason.TIME_LIMIT if is_late else UnknownReason.SOLVER_FAILED
                self.search.reason = reason
                return Verdict.UNKNOWN
            if self._take(encoding, answer.point):
                return Verdict.FALSIFIED

    def _look_nearby(self, encoding: AtomProgram) -> None:
        """Look for a cheap violation; nothing is proved."""
        program, cost = encoding.program, self.prices.cost[0]
        program.column_low[encoding.margin_column] = -program.margin
        finite = cost[encoding.affordable]
        scale = float(finite.max(initial=0.0)) or 1.0
        if self.pricing.total == "max":
            column = program.add_columns(1)
            program.cost[column] = 1.0
            for columns, prices in self._prices_of_axes(encoding):
                weights = [-price / scale for price in prices]
                program.add_row([column, *columns], [1.0, *weights], 0.0, np.inf)
        else:
            for columns, prices in self._prices_of_axes(encoding):
                for column, price in zip(columns, prices, strict=True):
                    program.cost[column] = price / scale
        reason = self.search.reason
        while (answer := self._solve(program)) is not None and answer.point is not None:
            if self._take(encoding, answer.point):
                break
        self.search.reason = reason  # what is only a suggestion leaves nothing open

    def _prices_of_axes(self, encoding: AtomProgram) -> Iterator[tuple[list[int], list[float]]]:
        axes, cost = self.pricing.axes, self.prices.cost[0]
        for axis in range(axes.n_axes):
            atoms = axes.atoms_of(axis)
            chosen = [a for a in range(atoms.start, atoms.stop) if a in encoding.atom_column]
            yield [encoding.atom_column[a] for a in chosen], cost[chosen].tolist()

    def _add_prices(self, encoding: AtomProgram) -> None:
        """Add the row that keeps sums of prices below the limit."""
        limit = None if self.limit is None else float(self.limit[0])
        if self.pricing.total == "max" or not limit:
            return
        columns, weights = [], []
        for own, prices in self._prices_of_axes(encoding):
            columns += own
            weights += [price / limit for price in prices]
        encoding.program.add_row(columns, weights, -np.inf, _ROOM)

    def _affordable(self) -> NDArray[np.bool_]:
        cost = self.prices.cost[0]
        affordable: NDArray[np.bool_] = np.isfinite(cost)
        if self.limit is None:
            return affordable
        total, is_open = self.limit
        if self.pricing.total == "sum" or self.is_closed:
            return affordable & (cost <= float(total) * _ROOM)
        # For a maximum each atom on its own must be below; doubles are rounded down.
        limit = self.pricing.rounded_down(total)
        is_same = cost == limit
        if Fraction(limit) == total:
            is_same &= ~self.prices.is_beyond[0] & is_open
        return affordable & ((cost < limit) | is_same)

    def _take(self, encoding: AtomProgram, point: FloatArray) -> bool:
        """Replay a solver's point; its leaves are excluded where they hold nothing cheap enough."""
        row = self.search.row
        atoms, leaves = self._cheapest_alike(encoding, encoding.choose(point))
        found = self.prices.point(0, atoms)
        least = self.pricing.least_cost(row, found)
        total = least, not self.pricing.attains(row, found)
        if self._is_below(total) and breaks(self.search.query, row, found):
            self.best = found
            if not self.is_closed:
                self.limit = total
            return True
        # Sound: the leaves fix the library's sums, and no point of them costs less than this one.
        columns = [encoding.leaf_column[leaf] for leaf in leaves]
        encoding.program.add_row(columns, [1.0] * len(columns), -np.inf, len(columns) - 1.0)
        self.search.excluded += 1
        return False

    def _is_below(self, total: Total) -> bool:
        if self.limit is None:
            return True
        return total <= self.limit if self.is_closed else total < self.limit

    def _cheapest_alike(
        self, encoding: AtomProgram, atoms: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[int]]:
        """The cheapest atoms that reach the same leaves as some, and these leaves."""
        axes, trees = self.pricing.axes, self.search.query.ensemble.trees
        alike, leaves = encoding.affordable.copy(), []
        for root in trees.root[:-1].tolist():
            node, passed = root, list[list[int]]()
            while trees.feature[node] >= 0:
                axis = int(axes.node_axis[node])
                left, right = encoding.sides(node)
                is_left = int(atoms[axis] + axes.atom_start[axis]) in left
                passed.append(right if is_left else left)
                node = node + 1 if is_left else int(trees.right[node])
            leaf = int(trees.leaf[node])
            if leaf in encoding.leaf_column:  # other trees do not matter
                leaves.append(leaf)
                alike[[atom for others in passed for atom in others]] = False
        cost = np.where(alike, self.prices.cost[0], np.inf)
        best = [int(np.argmin(cost[axes.atoms_of(axis)])) for axis in range(axes.n_axes)]
        return np.array(best, dtype=np.int64), leaves

    def _solve(self, program: Program, **options: Any) -> Answer | None:
        if not self.search.spend():
            return None
        return solve(program, time_limit_s=self.search.seconds_left, **options)
