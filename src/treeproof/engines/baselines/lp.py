"""`lp`: lower bounds from linear relaxations of the integer programs, solved by HiGHS.

Two programs are relaxed: the decision over the restricted ensemble, and the paper's program for the
distance over the whole model. A bound is computed afresh from the solver's multipliers, with its
rounding error; multipliers of any quality give a valid one, so the solver is not trusted.
"""

import warnings
from dataclasses import InitVar, dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from treeproof.engines.base import Budget, for_each_row
from treeproof.engines.baselines.milp import Encoding, RowSearch, encode, safe_bound, solve
from treeproof.engines.instance import cells_of
from treeproof.engines.outcomes import (
    is_broken_unchanged,
    mark_broken,
    mark_unknown,
    mark_verified,
)
from treeproof.engines.restricted import Level, restricted_to
from treeproof.errors import InvalidInput, require_backend
from treeproof.model.ensemble import IntArray
from treeproof.query.query import Query
from treeproof.query.rounding import round_down
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict

_SCALING_ERROR = 1e-12
"""Numbers of a program are rounded once when they are scaled to the order of 1."""


@dataclass(frozen=True, slots=True)
class LpEngine:
    """Bounds by linear relaxation; proves rows, never falsifies them.

    The budget's nodes are programs.

    Parameters
    ----------
    relaxation : {"decision", "distance"}
        What is relaxed: whether a set holds a violation, over the leaves that it reaches; or the
        paper's baseline, how near one is, over the whole model (boxes have no distance, so they
        are decided).
    of : optional
        Old name of `relaxation`.
    """

    relaxation: Literal["decision", "distance"] = "decision"
    of: InitVar[str | None] = None

    name: ClassVar[str] = "lp"
    is_complete: ClassVar[bool] = False

    def __post_init__(self, of: str | None) -> None:
        """Refuse unknown programs, and name the package that brings the solver."""
        if of is not None:
            warnings.warn(
                "The option 'of' of lp is called 'relaxation' now, and the old name will go away.",
                DeprecationWarning,
                stacklevel=3,
            )
            object.__setattr__(self, "relaxation", of)
        if self.relaxation not in ("decision", "distance"):
            raise InvalidInput(
                f"'relaxation' of lp must be 'decision' or 'distance'. Got {self.relaxation!r}."
            )
        require_backend("highspy", "milp")

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; rows that a point does break stay unknown."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Prove every row whose relaxation has no violation in the query's own set."""
        low, high = query.reach.box(query.rows, query.reach.radius or 0.0)

        def solve_row(row: int, outcomes: Results) -> None:
            if is_broken_unchanged(query, row):
                mark_broken(query, outcomes, row)
                return
            search = RowSearch(query, row, budget)
            if self.relaxation == "decision" or not query.reach.is_ball:
                is_proved = _excludes(search, *cells_of(query, row, low[row], high[row]))
            else:
                level = _nearest_possible(search)
                radius = query.reach.radius or 0.0
                is_proved = level is None or level > (Fraction(radius), False)
                # A level that is only exceeded is beyond the closed ball of its own distance.
            if is_proved:
                mark_verified(query, outcomes, row)
            else:
                mark_unknown(query, outcomes, row, _reason(search))

        return for_each_row(query, n_jobs, solve_row)

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Bound the minimal perturbation of every row from below."""

        def solve_row(row: int, outcomes: Results) -> None:
            if query.already_broken[row]:
                mark_broken(query, outcomes, row)
                return
            search = RowSearch(query, row, budget)
            is_decision = self.relaxation == "decision"
            level = _largest_excluded(search) if is_decision else _nearest_possible(search)
            outcomes.lower[row] = np.inf if level is None else round_down(level[0])
            if level is None:
                outcomes.verdict[row] = Verdict.VERIFIED
                outcomes.exact[row] = True
            else:
                outcomes.reason[row] = _reason(search)

        return for_each_row(query, n_jobs, solve_row)


def _reason(search: RowSearch) -> UnknownReason:
    is_known = search.reason is not UnknownReason.NONE
    return search.reason if is_known else UnknownReason.LOOSE_BOUND


def _excludes(search: RowSearch, low_cell: IntArray, high_cell: IntArray) -> bool:
    """Whether the relaxations of all alternatives exclude a violation in a box."""
    alternatives = search.query.alternatives.of_group(int(search.query.group[search.row]))
    return all(_is_excluded(search, c, low_cell, high_cell) for c in alternatives)


def _is_excluded(
    search: RowSearch, constraints: range, low_cell: IntArray, high_cell: IntArray
) -> bool:
    restricted = restricted_to(search.query, search.row, constraints, low_cell, high_cell)
    if restricted.is_hopeless():
        return True
    encoding = encode(restricted)
    encoding.ask_margin()
    return _relaxed_bound(search, encoding) > _SCALING_ERROR


def _relaxed_bound(search: RowSearch, encoding: Encoding) -> float:
    """Lower bound of the relaxed program's cost; minus infinity without one."""
    if search.seconds_left <= 0.0 or search.programs >= search.budget.node_limit:
        is_late = search.seconds_left <= 0.0
        search.reason = UnknownReason.TIME_LIMIT if is_late else UnknownReason.NODE_LIMIT
        return -np.inf
    answer = solve(encoding.program, time_limit_s=search.seconds_left, relaxed=True)
    search.programs += 1
    if answer.row_multiplier is None:
        is_late = answer.is_out_of_time
        search.reason = UnknownReason.TIME_LIMIT if is_late else UnknownReason.SOLVER_FAILED
        return -np.inf
    return safe_bound(encoding.program, answer.row_multiplier)


def _largest_excluded(search: RowSearch) -> Level | None:
    """First level that is not excluded, by doubling and halving; None when all are.

    Doubling the number of the level first keeps the programs small.
    """
    levels = search.all_levels()
    proved, refused, step = -1, len(levels), 1
    while refused - proved > 1:
        is_open = refused == len(levels)
        middle = min(proved + step, refused - 1) if is_open else (proved + refused) // 2
        if _excludes(search, *search.box_below(levels[middle], inclusive=True)):
            proved = middle
            step *= 2
        else:
            refused = middle
    return levels[refused] if refused < len(levels) else None


def _nearest_possible(search: RowSearch) -> Level | None:
    """First level that the relaxed distance does not rule out; None when no level is left."""
    levels = search.all_levels()
    if not levels:
        return None
    box = search.box_below(levels[-1], inclusive=True)
    scale = levels[-1][0] if levels[-1][0] > 0 else Fraction(1)
    nearest = np.inf
    for constraints in search.query.alternatives.of_group(int(search.query.group[search.row])):
        restricted = restricted_to(search.query, search.row, constraints, *box)
        if restricted.is_hopeless():
            continue
        encoding = encode(restricted, search.query.ensemble)
        encoding.ask_distance(search.query, search.row, scale, _SCALING_ERROR)
        bound = _relaxed_bound(search, encoding)
        if bound == -np.inf and _is_excluded(search, constraints, *box):
            continue  # the relaxation has no point at all, and the other program shows it
        nearest = min(nearest, bound - _SCALING_ERROR)
    if nearest == np.inf:
        return None
    distance = Fraction(max(nearest, 0.0)) * scale
    # Only an exact argument could exclude the last distance, too.
    return next((level for level in levels if level[0] >= distance), levels[-1])
