"""Linear programs with whole-number columns, solved by HiGHS; what its answers may be used for.

HiGHS computes in doubles with tolerances. Its bound is used only beyond a margin that covers them,
its points are only suggestions, and any ending other than the ones named here counts as a failure.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, for_each_row
from treeproof.engines.instance import cells_of, point_in_cells, rank_space
from treeproof.engines.outcomes import (
    breaks,
    is_broken_unchanged,
    mark_broken,
    mark_falsified,
    mark_unknown,
    mark_verified,
    record_witness,
)
from treeproof.engines.restricted import (
    HERE,
    Level,
    Restricted,
    home_cells,
    level_of,
    level_of_cells,
    restricted_to,
)
from treeproof.errors import InvalidInput, require_backend
from treeproof.kernels.core.cells import CUT, FIXED
from treeproof.model.ensemble import CATEGORICAL, ZERO_IS_MISSING, Ensemble, FloatArray, IntArray
from treeproof.query.query import Query
from treeproof.query.rounding import round_down
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict

TOLERANCE = 1e-9
"""Feasibility and gap tolerances given to HiGHS; near the smallest that it takes."""
_LARGE = 5000
"""Columns from which interior points beat the simplex method."""


@dataclass(slots=True)
class Program:
    """Minimise ``cost · x`` with ``low <= A x <= high`` and columns between bounds.

    All bounds of columns are finite and of the order of 1, so that tolerances mean the same
    everywhere and every multiplier of the rows gives a bound.
    """

    cost: list[float] = field(default_factory=list)
    column_low: list[float] = field(default_factory=list)
    column_high: list[float] = field(default_factory=list)
    is_whole: list[bool] = field(default_factory=list)
    row_low: list[float] = field(default_factory=list)
    row_high: list[float] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def add_columns(
        self, count: int, *, low: float = 0.0, high: float = 1.0, is_whole: bool = False
    ) -> int:
        """Add columns without cost; returns the number of the first."""
        first = len(self.cost)
        self.cost += [0.0] * count
        self.column_low += [low] * count
        self.column_high += [high] * count
        self.is_whole += [is_whole] * count
        return first

    def add_row(
        self, index: Sequence[int], value: Sequence[float], low: float, high: float
    ) -> None:
        """Add a row from its entries."""
        self.index += index
        self.value += value
        self.start.append(len(self.index))
        self.row_low.append(low)
        self.row_high.append(high)

    @property
    def margin(self) -> float:
        """How far HiGHS's bound may be from the truth.

        With reduced costs that err by the tolerance, a bound over columns between -1 and 1 errs by
        at most their number times it; the rest is for presolving and cuts.
        """
        return 1e-6 + 2.0 * TOLERANCE * len(self.cost)


@dataclass(frozen=True, slots=True)
class Answer:
    """What HiGHS said.

    Attributes
    ----------
    bound : float
        No point has a smaller cost, up to the margin; minus infinity when there is no bound.
    point : float64 (n_columns,) or None
        The best point it found.
    is_infeasible : bool
        No point satisfies all rows, up to the tolerances.
    is_out_of_time : bool
        The time limit was reached.
    row_multiplier : float64 (n_rows,) or None
        Dual values, of programs without whole-number columns.
    """

    bound: float
    point: FloatArray | None
    is_infeasible: bool
    is_out_of_time: bool
    row_multiplier: FloatArray | None = None


def solve(
    program: Program,
    *,
    time_limit_s: float,
    node_limit: int = 2**31 - 1,
    target: float | None = None,
    relaxed: bool = False,
) -> Answer:
    """Run HiGHS on a program.

    Parameters
    ----------
    program : Program
        What to minimise.
    time_limit_s : float
        Wall-clock seconds.
    node_limit : int
        Branching nodes.
    target : float, optional
        A cost that is good enough: the search may end there.
    relaxed : bool
        Leave out that columns are whole.
    """
    import highspy

    # Without whole columns HiGHS runs no search, and the bound of a search that it reports is
    # none; the cost of the linear program is.
    relaxed = relaxed or not any(program.is_whole)
    solver = highspy.Highs()
    options: dict[str, Any] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "time_limit": min(max(time_limit_s, 1e-3), 1e9),
        "mip_max_nodes": min(node_limit, 2**31 - 1),
    }
    if not relaxed:
        options |= {
            "mip_rel_gap": 0.0,
            "mip_abs_gap": TOLERANCE,
            "mip_feasibility_tolerance": TOLERANCE,
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        }
    elif len(program.cost) > _LARGE:
        # Any multipliers will do, so the corner that the last phase looks for is not needed.
        options |= {"solver": "ipm", "run_crossover": "off"}
    if target is not None:
        options["objective_target"] = target
    for name, value in options.items():
        solver.setOptionValue(name, value)
    if solver.passModel(_model(program, relaxed)) == highspy.HighsStatus.kError:
        return Answer(-math.inf, None, False, False)
    if solver.run() == highspy.HighsStatus.kError:
        return Answer(-math.inf, None, False, False)
    return _answer(solver, program, relaxed)


def _model(program: Program, relaxed: bool) -> Any:
    import highspy

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.cost), len(program.row_low)
    model.col_cost_ = np.array(program.cost)
    model.col_lower_ = np.array(program.column_low)
    model.col_upper_ = np.array(program.column_high)
    model.row_lower_ = np.array(program.row_low)
    model.row_upper_ = np.array(program.row_high)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.array(program.start, dtype=np.int32)
    model.a_matrix_.index_ = np.array(program.index, dtype=np.int32)
    model.a_matrix_.value_ = np.array(program.value, dtype=np.float64)
    if not relaxed:
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if w else kinds.kContinuous for w in program.is_whole]
    return model


def _answer(solver: Any, program: Program, relaxed: bool) -> Answer:
    """Map the solver's state; whatever is not known to be a result is none."""
    from highspy import HighsModelStatus, kSolutionStatusFeasible

    status, information = solver.getModelStatus(), solver.getInfo()
    if status == HighsModelStatus.kInfeasible:
        return Answer(math.inf, None, True, False)
    ended_well = {
        HighsModelStatus.kOptimal,
        HighsModelStatus.kTimeLimit,
        HighsModelStatus.kObjectiveTarget,
        HighsModelStatus.kSolutionLimit,
        HighsModelStatus.kIterationLimit,
    }
    if status not in ended_well:
        return Answer(-math.inf, None, False, False)
    point, multiplier = None, None
    if information.primal_solution_status == kSolutionStatusFeasible:
        point = np.array(solver.getSolution().col_value)
        if not np.all(np.isfinite(point)) or len(point) != len(program.cost):
            point = None
    bound = -math.inf
    if relaxed:
        if status == HighsModelStatus.kOptimal:
            bound = float(information.objective_function_value)
        if solver.getSolution().dual_valid:
            multiplier = np.array(solver.getSolution().row_dual)
    elif math.isfinite(information.mip_dual_bound):
        bound = float(information.mip_dual_bound)
    is_out_of_time = status == HighsModelStatus.kTimeLimit
    return Answer(bound, point, False, is_out_of_time, multiplier)


def safe_bound(program: Program, row_multiplier: FloatArray) -> float:
    """Lower bound of the relaxed program's cost from any multipliers of its rows.

    Sound: ``cost · x = y · A x + (cost - A' y) · x``, and each term is bounded by the row's or the
    column's bounds. Multipliers that would need an infinite bound are taken as 0. Sums of doubles
    err by at most their number times 2**-53 times the sum of the magnitudes, which is subtracted
    twice over. No solver is trusted.
    """
    y = np.array(row_multiplier, dtype=np.float64)
    row_low, row_high = np.array(program.row_low), np.array(program.row_high)
    y[~np.isfinite(y)] = 0.0
    y[(y > 0.0) & ~np.isfinite(row_low)] = 0.0
    y[(y < 0.0) & ~np.isfinite(row_high)] = 0.0
    side = np.where(y > 0.0, row_low, np.where(y < 0.0, row_high, 0.0))
    row_number = np.repeat(np.arange(len(y)), np.diff(program.start))
    index, value = np.array(program.index, dtype=np.int64), np.array(program.value)
    products = value * y[row_number]
    n_columns = len(program.cost)
    reduced = np.array(program.cost) - np.bincount(index, products, n_columns)
    magnitude = np.abs(program.cost) + np.bincount(index, np.abs(products), n_columns)
    low, high = np.array(program.column_low), np.array(program.column_high)
    largest = np.maximum(np.abs(low), np.abs(high))
    terms = np.minimum(reduced * low, reduced * high)
    gross = math.fsum(np.abs(y * side)) + math.fsum(magnitude * largest)
    n_terms = len(index) + len(y) + n_columns + 8
    return math.fsum(y * side) + math.fsum(terms) - n_terms * 2.0**-51 * gross


@dataclass(frozen=True, slots=True)
class Encoding:
    """A program over a restricted ensemble, and where its columns are.

    Attributes
    ----------
    program : Program
        Minimises nothing yet; see `ask_margin` and `ask_distance`.
    restricted : Restricted
        What it encodes.
    boundaries : dict of int to list of int
        Cells at which each feature is cut, in order; a column each, from `boundary_column` on.
    boundary_column : dict of int to int
        First boundary column of each feature.
    leaf_column : int
        First leaf column.
    margin_column : int
        Least margin of the constraints: at least 0 at every violation.
    """

    program: Program
    restricted: Restricted
    boundaries: dict[int, list[int]]
    boundary_column: dict[int, int]
    leaf_column: int
    margin_column: int

    def ask_margin(self) -> None:
        """Maximise the margin: no violation is in the box if it stays below 0."""
        self.program.cost[self.margin_column] = -1.0

    def ask_distance(self, query: Query, row: int, scale: Fraction, margin: float) -> int:
        """Minimise the distance among points with a margin; returns the distance's column.

        Parameters
        ----------
        query, row
            The question.
        scale : Fraction
            Distance that becomes 1.
        margin : float
            How far below 0 the margin may be, for the solver's tolerances.
        """
        program = self.program
        program.column_low[self.margin_column] = -margin
        column = program.add_columns(1)
        program.cost[column] = 1.0
        home = home_cells(query, row)
        for feature, cells in self.boundaries.items():
            first = self.boundary_column[feature]
            # Moving outwards, each boundary adds the step from the one before it.
            up = [(c, first + i) for i, c in enumerate(cells) if c >= home[feature]]
            down = [(c, first + i) for i, c in enumerate(cells) if c < home[feature]][::-1]
            for side, is_up in ((up, True), (down, False)):
                if side:
                    steps = _steps(query, row, feature, [c for c, _ in side], is_up, scale)
                    sign = 1.0 if is_up else -1.0
                    columns = [number for _, number in side]
                    weights = [sign * step for step in steps]
                    low = sum(steps) if is_up else 0.0
                    program.add_row([column, *columns], [1.0, *weights], low, np.inf)
        return column

    def forbid(self, leaves: list[int]) -> None:
        """Exclude one combination of leaves."""
        columns = [self.leaf_column + leaf for leaf in leaves]
        self.program.add_row(columns, [1.0] * len(columns), -np.inf, len(columns) - 1.0)

    def cells_of(self, point: FloatArray, home: IntArray) -> IntArray:
        """Cells of a solver's point, as near to the home cells as its boundaries allow."""
        low_cell, high_cell = self.restricted.low_cell, self.restricted.high_cell
        cells: IntArray = np.minimum(np.maximum(home, low_cell), high_cell)
        for feature, boundaries in self.boundaries.items():
            first = self.boundary_column[feature]
            below = point[first : first + len(boundaries)] > 0.5
            number = int(np.argmax(below)) if below.any() else len(boundaries)
            least = boundaries[number - 1] + 1 if number > 0 else low_cell[feature]
            most = boundaries[number] if number < len(boundaries) else high_cell[feature]
            cells[feature] = min(max(cells[feature], least), most)
        return cells


def _steps(
    query: Query, row: int, feature: int, cells: list[int], is_up: bool, scale: Fraction
) -> list[float]:
    before, steps = Fraction(0), []
    for cell in cells:
        beyond = cell + 1 if is_up else cell
        distance = level_of(query, row, feature, beyond)[0]
        steps.append(float((distance - before) / scale))
        before = distance
    return steps


def encode(restricted: Restricted, ensemble: Ensemble | None = None) -> Encoding:
    """Write the restricted ensemble as a program.

    Parameters
    ----------
    restricted : Restricted
        The leaves of a box.
    ensemble : Ensemble, optional
        Write the rows of a tree node by node, as the paper does, instead of boundary by boundary:
        the leaves below a child weigh at most what the node's boundary allows.
    """
    program = Program()
    boundaries = _boundaries(restricted)
    boundary_column: dict[int, int] = {}
    for feature, cells in boundaries.items():
        first = program.add_columns(len(cells), is_whole=True)
        boundary_column[feature] = first
        for number in range(first, first + len(cells) - 1):
            program.add_row([number, number + 1], [1.0, -1.0], -np.inf, 0.0)
    leaf_column = program.add_columns(restricted.gain.shape[1])
    margin_column = program.add_columns(1, low=-4.0, high=4.0)
    encoding = Encoding(
        program, restricted, boundaries, boundary_column, leaf_column, margin_column
    )
    for tree in range(restricted.n_trees):
        if ensemble is None or not _add_nodes(encoding, ensemble, tree):
            _add_tree(encoding, tree)
    leaves = list(range(leaf_column, margin_column))
    for gain, excess in zip(restricted.gain.tolist(), restricted.excess.tolist(), strict=True):
        program.add_row([*leaves, margin_column], [*gain, -1.0], -excess, np.inf)
    return encoding


def _boundaries(restricted: Restricted) -> dict[int, list[int]]:
    """Cells after which some leaf of a feature ends or begins."""
    found: dict[int, set[int]] = {}
    low_cell, high_cell = restricted.low_cell, restricted.high_cell
    columns = (restricted.feature.tolist(), restricted.low.tolist(), restricted.high.tolist())
    for feature, low, high in zip(*columns, strict=True):
        cells = found.setdefault(feature, set())
        if low > low_cell[feature]:
            cells.add(low - 1)
        if high < high_cell[feature]:
            cells.add(high)
    return {feature: sorted(cells) for feature, cells in sorted(found.items()) if cells}


def _add_tree(encoding: Encoding, tree: int) -> None:
    """Weights of a tree's leaves: they add up to 1 and respect every boundary."""
    restricted, program = encoding.restricted, encoding.program
    first, last = int(restricted.leaf_start[tree]), int(restricted.leaf_start[tree + 1])
    if first == last:
        return
    columns = range(encoding.leaf_column + first, encoding.leaf_column + last)
    program.add_row(list(columns), [1.0] * len(columns), 1.0, 1.0)
    ranges: dict[int, list[tuple[int, int, int]]] = {}
    for leaf, column in zip(range(first, last), columns, strict=True):
        for entry in range(restricted.range_start[leaf], restricted.range_start[leaf + 1]):
            span = (column, int(restricted.low[entry]), int(restricted.high[entry]))
            ranges.setdefault(int(restricted.feature[entry]), []).append(span)
    for feature, spans in ranges.items():
        own = {high for _, _, high in spans} | {low - 1 for _, low, _ in spans}
        start = encoding.boundary_column.get(feature)
        for number, cell in enumerate(encoding.boundaries.get(feature, [])):
            if cell not in own or start is None:
                continue
            below = [column for column, _, high in spans if high <= cell]
            above = [column for column, low, _ in spans if low > cell]
            if below:
                program.add_row([*below, start + number], [1.0] * len(below) + [-1.0], -np.inf, 0.0)
            if above:
                program.add_row([*above, start + number], [1.0] * (len(above) + 1), -np.inf, 1.0)


def _add_nodes(encoding: Encoding, ensemble: Ensemble, tree: int) -> bool:
    """Add the rows of a tree node by node; False, with nothing added, where zero is missing."""
    restricted, program, trees = encoding.restricted, encoding.program, ensemble.trees
    nodes = range(int(trees.root[tree]), int(trees.root[tree + 1]))
    if any(trees.flags[node] & ZERO_IS_MISSING for node in nodes if trees.feature[node] >= 0):
        return False
    first, last = int(restricted.leaf_start[tree]), int(restricted.leaf_start[tree + 1])
    if first == last:
        return True
    column_of = {int(restricted.leaf_row[i]): encoding.leaf_column + i for i in range(first, last)}
    program.add_row(list(column_of.values()), [1.0] * len(column_of), 1.0, 1.0)
    node_cut = rank_space(ensemble).nodes[:, CUT]
    below: dict[int, list[int]] = {}
    for node in reversed(nodes):  # preorder: children come after their parents
        feature = int(trees.feature[node])
        if feature < 0:
            column = column_of.get(int(trees.leaf[node]))
            below[node] = [] if column is None else [column]
            continue
        left, right = below[node + 1], below[int(trees.right[node])]
        below[node] = left + right
        if not left or not right or trees.flags[node] & CATEGORICAL:
            continue  # the box, or the row's own category, decides here
        number = encoding.boundaries[feature].index(int(node_cut[node]))
        boundary = encoding.boundary_column[feature] + number
        program.add_row([*left, boundary], [1.0] * len(left) + [-1.0], -np.inf, 0.0)
        program.add_row([*right, boundary], [1.0] * (len(right) + 1), -np.inf, 1.0)
    return True


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


_GROWTH = Fraction(3, 2)


@dataclass(frozen=True, slots=True)
class MilpEngine:
    """Exact by mixed-integer programming; as far as HiGHS keeps its tolerances.

    The budget's nodes are programs.

    Parameters
    ----------
    form : {"restricted", "whole"}
        Where the radius is first looked for: in balls that grow, over the leaves that they reach,
        or in one program over the whole model, as in the paper. Both end with the same proof.
    """

    form: Literal["restricted", "whole"] = "restricted"

    name: ClassVar[str] = "milp"
    is_complete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse unknown forms, and name the package that brings the solver."""
        if self.form not in ("restricted", "whole"):
            raise InvalidInput(
                f"'form' of milp must be 'restricted' or 'whole'. Got {self.form!r}."
            )
        require_backend("highspy", "milp")

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; only the budget limits the answer."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Decide every row at the query's own radius or box."""
        low, high = query.reach.box(query.rows, query.reach.radius or 0.0)
        counts = np.zeros((len(query), 2), dtype=np.int64)

        def solve_row(row: int, outcomes: Results) -> None:
            if is_broken_unchanged(query, row):
                mark_broken(query, outcomes, row)
                return
            search = RowSearch(query, row, budget)
            cells = cells_of(query, row, low[row], high[row])
            is_open = False
            for constraints in query.alternatives.of_group(int(query.group[row])):
                answer = search.find(constraints, *cells)
                is_open |= answer is None
                if answer:
                    break
            counts[row] = search.programs, search.excluded
            if search.best is not None:
                mark_falsified(query, outcomes, row, search.best.point)
            elif is_open:
                mark_unknown(query, outcomes, row, search.reason)
            else:
                mark_verified(query, outcomes, row)

        return _counted(for_each_row(query, n_jobs, solve_row), counts)

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Find the minimal perturbation of every row."""
        counts = np.zeros((len(query), 2), dtype=np.int64)

        def solve_row(row: int, outcomes: Results) -> None:
            if query.already_broken[row]:
                mark_broken(query, outcomes, row)
                return
            search = RowSearch(query, row, budget)
            lower = self._nearest(search)
            counts[row] = search.programs, search.excluded
            _write_radius(search, lower, outcomes)

        return _counted(for_each_row(query, n_jobs, solve_row), counts)

    def _nearest(self, search: RowSearch) -> Level | None:
        """Find the nearest violation; returns what is proved: no violation below a level.

        None stands for infinity.
        """
        alternatives = search.query.alternatives.of_group(int(search.query.group[search.row]))
        levels = search.all_levels()
        proved = HERE
        if self.form == "whole" and levels:
            box = search.box_below(levels[-1], inclusive=True)
            for constraints in alternatives:
                search.find_nearest(constraints, *box, by_node=True)
        if search.best is None:
            proved, is_decided = _grow(search, alternatives, levels)
            if search.best is None:
                return None if is_decided else proved
        is_closed = all(_close_in(search, constraints) for constraints in alternatives)
        return search.best.level if is_closed else proved


def _grow(search: RowSearch, alternatives: list[range], levels: list[Level]) -> tuple[Level, bool]:
    """Ask at growing radii until one is broken; returns what was proved, and whether all was."""
    proved = HERE
    number = _cheap_start(search, alternatives, levels)
    while levels:
        number = min(number, len(levels) - 1)
        box = search.box_below(levels[number], inclusive=True)
        answers = []
        for constraints in alternatives:
            answers.append(search.find(constraints, *box))
            if answers[-1]:
                return proved, True
        if None in answers:
            return proved, False
        if number == len(levels) - 1:
            break
        proved = levels[number + 1]
        farther = (_GROWTH * levels[number][0], False)
        number += 1  # also from a distance of 0, which does not grow
        while number < len(levels) - 1 and levels[number] < farther:
            number += 1
    return proved, True


def _cheap_start(search: RowSearch, alternatives: list[range], levels: list[Level]) -> int:
    """Number of the first level that the best leaves of all trees do not rule out."""
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        box = search.box_below(levels[middle], inclusive=True)
        if all(search.is_hopeless(constraints, *box) for constraints in alternatives):
            low = middle + 1
        else:
            high = middle
    return low


def _close_in(search: RowSearch, constraints: range) -> bool:
    """Search nearer than the best witness until there is provably nothing; False when open."""
    while True:
        if search.best is None or search.best.level == HERE:
            return True
        answer = search.find(constraints, *search.box_below(search.best.level, inclusive=False))
        if answer is None:
            return False
        if not answer:
            return True
        search.find_nearest(constraints, *search.box_below(search.best.level, inclusive=False))


def _write_radius(search: RowSearch, lower: Level | None, outcomes: Results) -> None:
    row, best = search.row, search.best
    outcomes.lower[row] = np.inf if lower is None else round_down(lower[0])
    if best is not None:
        outcomes.upper[row] = round_down(best.level[0])
        is_double = Fraction(float(outcomes.upper[row])) == best.level[0]
        outcomes.attained[row] = is_double and not best.level[1]
        record_witness(search.query, outcomes, row, best.point)
    if lower is None or (best is not None and lower == best.level):
        outcomes.exact[row] = True
        outcomes.verdict[row] = Verdict.VERIFIED
    else:
        is_known = search.reason is not UnknownReason.NONE
        outcomes.reason[row] = search.reason if is_known else UnknownReason.SOLVER_FAILED


def _counted(outcomes: Results, counts: NDArray[np.int64]) -> Results:
    outcomes.statistics["programs"] = counts[:, 0]
    outcomes.statistics["excluded"] = counts[:, 1]
    return outcomes
