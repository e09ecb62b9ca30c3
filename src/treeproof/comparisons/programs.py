"""Linear programs with whole-number columns over restricted ensembles, solved by HiGHS.

HiGHS computes in doubles with tolerances. Its bound is used only beyond a margin that covers them,
its points are only suggestions, and any ending other than the ones named here counts as a failure.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treeproof.engines.instance import cells_of, rounded_distances
from treeproof.engines.restricted import Cells, Restricted
from treeproof.engines.row_by_row import RowSearch
from treeproof.engines.spaces import rank_space
from treeproof.kernels.core.cells import FIXED
from treeproof.model.cuts import cuts_of
from treeproof.model.ensemble import CATEGORICAL, ZERO_IS_MISSING, Ensemble, FloatArray, IntArray
from treeproof.results.verdict import UnknownReason

Level = tuple[float, bool]
"""A distance, rounded down to a double, and whether it must be exceeded (False: attained)."""

HERE: Level = (0.0, False)
FAR = 1e9
"""In units of a distance that is known: what is farther away is all the same."""

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

    No point has a cost below the bound, up to the margin: minus infinity when there is no bound,
    infinity when no point satisfies all rows.
    """

    bound: float
    point: FloatArray | None = None  # (n_columns,); the best that it found
    is_out_of_time: bool = False
    row_multiplier: FloatArray | None = None  # (n_rows,); dual values, without whole columns


def solve(
    program: Program, *, time_limit_s: float, target: float | None = None, relaxed: bool = False
) -> Answer:
    """Run HiGHS on a program, until a cost is good enough where there is a target.

    Relaxed, columns need not be whole.
    """
    # Without whole columns HiGHS runs no search, and the bound of a search that it reports is
    # none; the cost of the linear program is.
    relaxed = relaxed or not any(program.is_whole)
    options: dict[str, Any] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
    }
    forms: list[dict[str, Any]] = [{}]
    if not relaxed:
        options |= {
            "mip_rel_gap": 0.0,
            "mip_abs_gap": TOLERANCE,
            "mip_feasibility_tolerance": TOLERANCE,
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        }
    elif len(program.cost) > _LARGE:
        # Any multipliers will do, so the corner that the last phase looks for is not needed. Trees
        # make more rows than columns, so the dual program is the smaller one; now and then one of
        # the two is too ill-conditioned to end.
        options |= {"solver": "ipm", "run_crossover": "off"}
        forms = [{"ipx_dualize_strategy": 1}, {"ipx_dualize_strategy": 0}]
    if target is not None:
        options["objective_target"] = target
    answer, deadline = Answer(-math.inf), time.perf_counter() + time_limit_s
    for form in forms:
        left = {"time_limit": min(max(deadline - time.perf_counter(), 1e-3), 1e9)}
        answer = _solve_with(options | form | left, program, relaxed)
        if answer.row_multiplier is not None or answer.is_out_of_time or answer.bound == math.inf:
            break  # multipliers, no time, or no point at all: the other form would say the same
    return answer


def _solve_with(options: dict[str, Any], program: Program, relaxed: bool) -> Answer:
    import highspy

    solver = highspy.Highs()
    for name, value in options.items():
        solver.setOptionValue(name, value)
    failed = highspy.HighsStatus.kError
    if solver.passModel(_model(program, relaxed)) == failed or solver.run() == failed:
        return Answer(-math.inf)
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
        return Answer(math.inf)
    ended_well = {
        HighsModelStatus.kOptimal,
        HighsModelStatus.kTimeLimit,
        HighsModelStatus.kObjectiveTarget,
        HighsModelStatus.kSolutionLimit,
        HighsModelStatus.kIterationLimit,
    }
    if status not in ended_well:
        return Answer(-math.inf)
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
    return Answer(bound, point, is_out_of_time, multiplier)


def safe_bound(program: Program, row_multiplier: FloatArray) -> float:
    """Lower bound of the relaxed program's cost from any multipliers of its rows.

    Sound: ``cost · x = y · A x + (cost - A' y) · x``, and each term is bounded by the row's or the
    column's bounds. Multipliers that would need an infinite bound are taken as 0. The reduced cost
    of a column with n entries errs by at most n + 2 times 2**-53 times the sum of the magnitudes,
    each product and each of the last sums by 2**-53 of its own; four times as much is subtracted.
    No solver is trusted.
    """
    y = np.array(row_multiplier, dtype=np.float64)
    row_low, row_high = np.array(program.row_low), np.array(program.row_high)
    y[~np.isfinite(y)] = 0.0
    y[(y > 0.0) & ~np.isfinite(row_low)] = 0.0
    y[(y < 0.0) & ~np.isfinite(row_high)] = 0.0
    of_row = y * np.where(y > 0.0, row_low, np.where(y < 0.0, row_high, 0.0))
    row_number = np.repeat(np.arange(len(y)), np.diff(program.start))
    index, value = np.array(program.index, dtype=np.int64), np.array(program.value)
    products = value * y[row_number]
    n_columns = len(program.cost)
    reduced = np.array(program.cost) - np.bincount(index, products, n_columns)
    magnitude = np.abs(program.cost) + np.bincount(index, np.abs(products), n_columns)
    low, high = np.array(program.column_low), np.array(program.column_high)
    of_column = np.minimum(reduced * low, reduced * high)
    largest = magnitude * np.maximum(np.abs(low), np.abs(high))
    # Interior points have multipliers of all sizes that cancel in the columns: an error by the
    # number of all entries instead of a column's own would exceed small distances.
    n_roundings = np.bincount(index, minlength=n_columns) + 8
    error = math.fsum(n_roundings * largest) + 8.0 * math.fsum(np.abs(of_row))
    return math.fsum(of_row) + math.fsum(of_column) - 2.0**-51 * error


@dataclass(frozen=True, slots=True)
class Encoding:
    """A program over a restricted ensemble, and where its columns are."""

    program: Program  # minimises nothing yet; see `ask_margin` and `ask_distance`
    restricted: Restricted
    boundaries: dict[int, list[int]]  # cells at which each feature is cut, in order
    boundary_column: dict[int, int]  # the first of each feature, one per cut
    leaf_column: int  # the first
    margin_column: int  # least margin of the constraints, at least 0 at every violation

    def ask_margin(self) -> None:
        """Maximise the margin: no violation is in the box if it stays below 0."""
        self.program.cost[self.margin_column] = -1.0

    def ask_distance(
        self, levels: list[dict[int, Level]], home: IntArray, scale: float, margin: float
    ) -> None:
        """Minimise the distance, in units of a scale, among points with a margin.

        The margin may be below 0 by some tolerance of the solver.
        """
        program = self.program
        program.column_low[self.margin_column] = -margin
        column = program.add_columns(1)
        program.cost[column] = 1.0
        for feature, cells in self.boundaries.items():
            first = self.boundary_column[feature]
            # Moving outwards, each boundary adds the step from the one before it.
            up = [(c + 1, first + i) for i, c in enumerate(cells) if c >= home[feature]]
            down = [(c, first + i) for i, c in enumerate(cells) if c < home[feature]][::-1]
            for side, sign in ((up, 1.0), (down, -1.0)):
                if side:
                    # Sound: distances that are cut off are smaller, so the least one is no larger;
                    # and steps between them are numbers, even where a quotient overflows.
                    reached = [min(levels[feature][cell][0] / scale, FAR) for cell, _ in side]
                    steps = np.diff([0.0, *reached]).tolist()
                    columns = [number for _, number in side]
                    weights = [sign * step for step in steps]
                    low = sum(steps) if side is up else 0.0
                    program.add_row([column, *columns], [1.0, *weights], low, np.inf)

    def forbid(self, leaves: list[int]) -> None:
        """Exclude one combination of leaves."""
        columns = [self.leaf_column + leaf for leaf in leaves]
        self.program.add_row(columns, [1.0] * len(columns), -np.inf, len(columns) - 1.0)

    def cells_of(self, point: FloatArray, home: IntArray) -> IntArray:
        """Cells of a solver's point, as near to the home cells as its boundaries allow."""
        low_cell, high_cell = self.restricted.cells
        cells: IntArray = np.minimum(np.maximum(home, low_cell), high_cell)
        for feature, boundaries in self.boundaries.items():
            first = self.boundary_column[feature]
            below = point[first : first + len(boundaries)] > 0.5
            number = int(np.argmax(below)) if below.any() else len(boundaries)
            least = boundaries[number - 1] + 1 if number > 0 else low_cell[feature]
            most = boundaries[number] if number < len(boundaries) else high_cell[feature]
            cells[feature] = min(max(cells[feature], least), most)
        return cells


def encode(restricted: Restricted, ensemble: Ensemble | None = None) -> Encoding:
    """Write the restricted ensemble as a program.

    With the ensemble, the rows of a tree are written node by node, as the paper does, instead of
    boundary by boundary: the leaves below a child weigh at most what the node's boundary allows.
    """
    program = Program()
    boundaries = _boundaries(restricted)
    boundary_column: dict[int, int] = {}
    for feature, cells in boundaries.items():
        first = program.add_columns(len(cells), is_whole=True)
        boundary_column[feature] = first
        for number in range(first, first + len(cells) - 1):
            program.add_row([number, number + 1], [1.0, -1.0], -np.inf, 0.0)
    leaf_column = program.add_columns(len(restricted.leaf_row))
    margin_column = program.add_columns(1, low=-4.0, high=4.0)
    encoding = Encoding(
        program, restricted, boundaries, boundary_column, leaf_column, margin_column
    )
    for tree in range(restricted.n_trees):
        if ensemble is None or not _add_nodes(encoding, ensemble, tree):
            _add_tree(encoding, tree)
    leaves = list(range(leaf_column, margin_column))
    gains = (restricted.leaves.gain / restricted.scale[:, np.newaxis]).tolist()
    missing = ((restricted.floor - restricted.base) / restricted.scale).tolist()
    for gain, least in zip(gains, missing, strict=True):
        program.add_row([*leaves, margin_column], [*gain, -1.0], least, np.inf)
    return encoding


def _boundaries(restricted: Restricted) -> dict[int, list[int]]:
    """Cells after which some leaf of a feature ends or begins."""
    found: dict[int, set[int]] = {}
    (low_cell, high_cell), leaves = restricted.cells, restricted.leaves
    columns = (leaves.feature.tolist(), leaves.low.tolist(), leaves.high.tolist())
    for feature, low, high in zip(*columns, strict=True):
        cells = found.setdefault(feature, set())
        if low > low_cell[feature]:
            cells.add(low - 1)
        if high < high_cell[feature]:
            cells.add(high)
    return {feature: sorted(cells) for feature, cells in sorted(found.items()) if cells}


def _add_tree(encoding: Encoding, tree: int) -> None:
    """Weights of a tree's leaves: they add up to 1 and respect every boundary."""
    leaves, program = encoding.restricted.leaves, encoding.program
    first, last = int(leaves.leaf_start[tree]), int(leaves.leaf_start[tree + 1])
    if first == last:
        return
    columns = range(encoding.leaf_column + first, encoding.leaf_column + last)
    program.add_row(list(columns), [1.0] * len(columns), 1.0, 1.0)
    ranges: dict[int, list[tuple[int, int, int]]] = {}
    for leaf, column in zip(range(first, last), columns, strict=True):
        for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
            span = (column, int(leaves.low[entry]), int(leaves.high[entry]))
            ranges.setdefault(int(leaves.feature[entry]), []).append(span)
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
    first, last = (int(leaf) for leaf in restricted.leaves.leaf_start[tree : tree + 2])
    if first == last:
        return True
    column_of = {int(restricted.leaf_row[i]): encoding.leaf_column + i for i in range(first, last)}
    program.add_row(list(column_of.values()), [1.0] * len(column_of), 1.0, 1.0)
    node_cut = cuts_of(ensemble).node_cut
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


@dataclass(slots=True)
class ProgramSearch(RowSearch):
    """A row while programs are solved for it, and the distances of its cells."""

    home: IntArray = field(init=False)
    _levels: list[dict[int, Level]] | None = None

    def __post_init__(self) -> None:
        """Find the cells of the row itself; FIXED for features that keep their value."""
        values = self.query.rows[self.row]
        self.home, _ = cells_of(self.query, self.row, values, values)

    @property
    def levels(self) -> list[dict[int, Level]]:
        """Level of every cell that each feature can reach, but its own."""
        if self._levels is None:
            self._levels = [self._levels_of(f, int(cell)) for f, cell in enumerate(self.home)]
        return self._levels

    def _levels_of(self, feature: int, home: int) -> dict[int, Level]:
        reach, value = self.query.reach, float(self.query.rows[self.row, feature])
        if home == FIXED or not np.isfinite(value):
            return {}
        space = rank_space(self.query.ensemble)
        own = slice(*space.cut_start[feature : feature + 2].tolist())
        cuts, below = space.cut[own], space.below[own]
        found = {}
        if reach.down[feature] > 0.0:
            distance, is_exact = rounded_distances(value, below, float(reach.down[feature]))
            low = reach.low[self.row, feature]
            is_beyond = space.is_real | ~is_exact
            found = {
                c: (float(distance[c]), bool(is_beyond[c]))
                for c in range(home)
                if low < cuts[c] and np.isfinite(distance[c])
            }
        if reach.up[feature] > 0.0:
            distance, is_exact = rounded_distances(value, cuts, float(reach.up[feature]))
            high = reach.high[self.row, feature]
            for c in range(home, len(cuts)):
                if cuts[c] <= high:
                    found[c + 1] = float(distance[c]), not is_exact[c]
        return found

    def all_levels(self) -> list[Level]:
        """Sorted distinct levels of all features."""
        return sorted({level for levels in self.levels for level in levels.values()})

    def box_below(self, limit: Level, *, inclusive: bool) -> Cells:
        """Cells that are reached before a level, or at it."""
        low_cell, high_cell = self.home.copy(), self.home.copy()
        for feature, levels in enumerate(self.levels):
            for cell, level in levels.items():
                if level < limit or (inclusive and level == limit):
                    low_cell[feature] = min(low_cell[feature], cell)
                    high_cell[feature] = max(high_cell[feature], cell)
        return low_cell, high_cell

    def solve(self, program: Program, **options: Any) -> Answer | None:
        """Run HiGHS within the limits of the row; None, with the reason, when none is left."""
        if not self.spend():
            return None
        return solve(program, time_limit_s=self.seconds_left, **options)

    def note_failure(self, answer: Answer) -> None:
        """Remember why an answer was of no use."""
        is_late = answer.is_out_of_time
        self.reason = UnknownReason.TIME_LIMIT if is_late else UnknownReason.SOLVER_FAILED
