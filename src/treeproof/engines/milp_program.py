"""Linear programs with whole-number columns, solved by HiGHS; what its answers may be used for.

HiGHS computes in doubles with tolerances. Its bound is used only beyond a margin that covers them,
its points are only suggestions, and any ending other than the ones named here counts as a failure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treeproof.model.ensemble import FloatArray

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
