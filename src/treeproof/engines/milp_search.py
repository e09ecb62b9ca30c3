"""How a row is decided with programs: boxes of cells, candidates that are replayed, proofs."""

import time
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from treeproof.engines.base import Budget
from treeproof.engines.instance import point_in_cells, rank_space
from treeproof.engines.milp_model import Encoding, encode
from treeproof.engines.milp_program import solve
from treeproof.engines.milp_restricted import (
    HERE,
    Level,
    home_cells,
    level_of,
    level_of_cells,
    restricted_to,
)
from treeproof.engines.settling import breaks
from treeproof.kernels.rank_space import FIXED
from treeproof.model.ensemble import FloatArray, IntArray
from treeproof.query import Query
from treeproof.results.verdict import UnknownReason


@dataclass(frozen=True, slots=True)
class Witness:
    """A point that breaks the claim, replayed, with its cells and the distance of these."""

    point: FloatArray
    cells: IntArray
    level: Level


@dataclass(slots=True)
class RowSearch:
    """Everything known about one row while programs are asked about it.

    Attributes
    ----------
    query, row
        The question.
    budget : Budget
        Limits of the row, over all programs.
    best : Witness or None
        The nearest violation so far.
    reason : UnknownReason
        Why the last question stayed open.
    programs, excluded : int
        How many programs were solved, and how many leaf combinations were excluded because the
        solver's tolerances could not, but the model's own arithmetic did, tell them from
        violations.
    """

    query: Query
    row: int
    budget: Budget
    best: Witness | None = None
    reason: UnknownReason = UnknownReason.NONE
    programs: int = 0
    excluded: int = 0
    home: IntArray = field(init=False)
    levels: list[list[Level]] = field(init=False)
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock and collect the distances of all cells."""
        self.deadline = time.perf_counter() + self.budget.time_limit_s
        self.home = home_cells(self.query, self.row)
        if self.query.reach.is_ball:
            self.levels = [self._levels(f) for f in range(len(self.home))]

    @property
    def seconds_left(self) -> float:
        """Time until the limit."""
        return self.deadline - time.perf_counter()

    def _levels(self, feature: int) -> list[Level]:
        """Level of every cell that the feature can reach: downwards, then upwards."""
        query, reach, home = self.query, self.query.reach, int(self.home[feature])
        value = float(query.rows[self.row, feature])
        if home == FIXED or not np.isfinite(value):
            return []
        space = rank_space(query.ensemble)
        cuts = space.cut[space.cut_start[feature] : space.cut_start[feature + 1]]
        found = []
        if reach.down[feature] > 0.0:
            low = float(reach.low[self.row, feature])
            found = [level_of(query, self.row, feature, c) for c in range(home) if low < cuts[c]]
        if reach.up[feature] > 0.0:
            high = float(reach.high[self.row, feature])
            cells = range(home + 1, len(cuts) + 1)
            found += [level_of(query, self.row, feature, c) for c in cells if high >= cuts[c - 1]]
        return found

    def all_levels(self) -> list[Level]:
        """Sorted distinct levels of all features."""
        return sorted({level for levels in self.levels for level in levels})

    def box_below(self, limit: Level, *, inclusive: bool) -> tuple[IntArray, IntArray]:
        """Cells that are reached before a level, or at it."""
        low_cell, high_cell = self.home.copy(), self.home.copy()
        for feature, levels in enumerate(self.levels):
            near = [v for v in levels if v < limit or (inclusive and v == limit)]
            # Downwards levels are exceeded, upwards attained; near cells come before far ones.
            n_down = sum(1 for v in near if v[1])
            low_cell[feature] -= n_down
            high_cell[feature] += len(near) - n_down
        return low_cell, high_cell

    def find(self, constraints: range, low_cell: IntArray, high_cell: IntArray) -> bool | None:
        """Decide whether a box of cells holds a violation of one alternative.

        Returns
        -------
        bool or None
            True with a new best witness; False when there is provably none; None with a reason.
        """
        encoding = self._encoded(constraints, low_cell, high_cell)
        if encoding is None:
            return False
        encoding.ask_margin()
        while True:
            if (left := self.seconds_left) <= 0.0:
                self.reason = UnknownReason.TIME_LIMIT
                return None
            if self.programs >= self.budget.node_limit:
                self.reason = UnknownReason.NODE_LIMIT
                return None
            margin = encoding.program.margin
            answer = solve(encoding.program, time_limit_s=left, target=-margin)
            self.programs += 1
            # The cost is minus the margin of the constraints, which violations have at least 0.
            if answer.bound > margin:
                return False
            if answer.point is None:
                self.reason = (
                    UnknownReason.TIME_LIMIT
                    if answer.is_out_of_time
                    else UnknownReason.SOLVER_FAILED
                )
                return None
            if self._take(encoding, answer.point):
                return True

    def find_nearest(
        self, constraints: range, low_cell: IntArray, high_cell: IntArray, *, by_node: bool = False
    ) -> bool:
        """Look for the nearest violation of one alternative in a box; nothing is proved.

        Returns
        -------
        bool
            Whether a violation was found.
        """
        encoding = self._encoded(constraints, low_cell, high_cell, by_node=by_node)
        if encoding is None:
            return False
        farthest = max((v for levels in self.levels for v in levels), default=HERE)
        scale = (farthest if self.best is None else self.best.level)[0]
        margin = encoding.program.margin
        encoding.ask_distance(self.query, self.row, scale if scale > 0 else Fraction(1), margin)
        while self.seconds_left > 0.0 and self.programs < self.budget.node_limit:
            answer = solve(encoding.program, time_limit_s=self.seconds_left)
            self.programs += 1
            if answer.point is None:
                return False
            if self._take(encoding, answer.point):
                return True
        return False

    def is_hopeless(self, constraints: range, low_cell: IntArray, high_cell: IntArray) -> bool:
        """Whether the best leaves of all trees in a box are not enough for an alternative."""
        restricted = restricted_to(self.query, self.row, constraints, low_cell, high_cell)
        return restricted.is_hopeless()

    def _encoded(
        self, constraints: range, low_cell: IntArray, high_cell: IntArray, *, by_node: bool = False
    ) -> Encoding | None:
        """Return the program of a box; None when the best leaves of all trees are not enough."""
        restricted = restricted_to(self.query, self.row, constraints, low_cell, high_cell)
        if restricted.is_hopeless():
            return None
        return encode(restricted, self.query.ensemble if by_node else None)

    def _take(self, encoding: Encoding, point: FloatArray) -> bool:
        """Replay a solver's point; if it breaks nothing, its leaves are excluded."""
        cells = encoding.cells_of(point, self.home)
        replayed = point_in_cells(self.query, self.row, cells, cells)
        if breaks(self.query, self.row, replayed):
            level = HERE
            if self.query.reach.is_ball:
                level = level_of_cells(self.query, self.row, cells, self.home)
            if self.best is None or level < self.best.level:
                self.best = Witness(replayed, cells, level)
            return True
        # Sound: the leaves fix the library's sums, and those break nothing.
        encoding.forbid(encoding.restricted.leaves_at(cells))
        self.excluded += 1
        return False
