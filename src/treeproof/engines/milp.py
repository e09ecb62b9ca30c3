"""`milp`: exact answers by mixed-integer programs (Kantchelian et al.), solved by HiGHS.

A fixed set is decided by maximising the margin over the restricted ensemble. For the radius, a
first violation is found in growing balls, a nearer one by minimising the distance as in the paper,
and the last step is a decision again: nothing breaks the claim nearer than the witness. Distances
come from the cells of replayed witnesses, never from the solver's numbers.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, for_each_row
from treeproof.engines.instance import cells_of, distance
from treeproof.engines.milp_restricted import HERE, Level
from treeproof.engines.milp_search import RowSearch
from treeproof.engines.settling import (
    is_broken_unchanged,
    settle_broken,
    settle_falsified,
    settle_unknown,
    settle_verified,
)
from treeproof.errors import InvalidInput, require_backend
from treeproof.query import Query
from treeproof.results.outcomes import Outcomes
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.spec.rounding import round_down

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

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Decide every row at the query's own radius or box."""
        low, high = query.reach.box(query.rows, query.reach.radius or 0.0)
        counts = np.zeros((len(query), 2), dtype=np.int64)

        def solve_row(row: int, outcomes: Outcomes) -> None:
            if is_broken_unchanged(query, row):
                settle_broken(query, outcomes, row)
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
                settle_falsified(query, outcomes, row, search.best.point)
            elif is_open:
                settle_unknown(query, outcomes, row, search.reason)
            else:
                settle_verified(query, outcomes, row)

        return _counted(for_each_row(query, n_jobs, solve_row), counts)

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Find the minimal perturbation of every row."""
        counts = np.zeros((len(query), 2), dtype=np.int64)

        def solve_row(row: int, outcomes: Outcomes) -> None:
            if query.already_broken[row]:
                settle_broken(query, outcomes, row)
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


def _write_radius(search: RowSearch, lower: Level | None, outcomes: Outcomes) -> None:
    row, best = search.row, search.best
    outcomes.lower[row] = np.inf if lower is None else round_down(lower[0])
    if best is not None:
        outcomes.upper[row] = round_down(best.level[0])
        is_double = Fraction(float(outcomes.upper[row])) == best.level[0]
        outcomes.attained[row] = is_double and not best.level[1]
        outcomes.witness[row] = best.point
        outcomes.witness_distance[row] = distance(search.query, row, best.point)
    if lower is None or (best is not None and lower == best.level):
        outcomes.exact[row] = True
        outcomes.verdict[row] = Verdict.VERIFIED
    else:
        is_known = search.reason is not UnknownReason.NONE
        outcomes.reason[row] = search.reason if is_known else UnknownReason.SOLVER_FAILED


def _counted(outcomes: Outcomes, counts: NDArray[np.int64]) -> Outcomes:
    outcomes.statistics["programs"] = counts[:, 0]
    outcomes.statistics["excluded"] = counts[:, 1]
    return outcomes


def milp(form: Literal["restricted", "whole"] = "restricted") -> MilpEngine:
    """Options of the engine 'milp', to be passed as ``engine=``.

    Parameters
    ----------
    form : {"restricted", "whole"}
        Where the radius is first looked for: in balls that grow, over the leaves that they reach,
        or in one program over the whole model, as in the paper. Both end with the same proof.

    Returns
    -------
    MilpEngine
        The engine with these options.
    """
    return MilpEngine(form=form)
