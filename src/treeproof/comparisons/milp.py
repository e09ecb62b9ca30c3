"""`milp`: exact answers by mixed-integer programs, solved by HiGHS; every witness is replayed."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from treeproof.comparisons.priced_programs import CheapestSearch
from treeproof.comparisons.programs import HERE, Encoding, Level, ProgramSearch, encode
from treeproof.engines.base import Budget
from treeproof.engines.instance import point_in_cells
from treeproof.engines.outcomes import breaks, record_witness
from treeproof.engines.restricted import Cells, restricted_to
from treeproof.engines.row_by_row import RowEngine, RowSearch
from treeproof.errors import check_choice, require_backend
from treeproof.model.ensemble import FloatArray
from treeproof.query.prices import Pricing
from treeproof.query.query import Query
from treeproof.query.rounding import double_below
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict

_GROWTH = 1.5
"""By what factor balls grow until one is broken."""
_NARROW = 1.1
"""Where the nearest witness is at most this factor away from what is proved, it is searched for by
its distance; before, balls between the two are asked, which are smaller and so much easier."""


@dataclass(slots=True)
class MilpSearch(ProgramSearch):
    """A row while integer programs are asked about it."""

    best: FloatArray | None = None  # (n_features,); the nearest violation so far, replayed
    level: Level = (np.inf, False)  # distance of its cells

    def find(self, constraints: range, cells: Cells) -> Verdict:
        """Decide whether a box of cells holds a violation of one alternative.

        FALSIFIED with a new best witness, UNKNOWN with a reason.
        """
        encoding = self._encoded(constraints, cells)
        if encoding is None:
            return Verdict.VERIFIED
        encoding.ask_margin()
        while True:
            margin = encoding.program.margin
            answer = self.solve(encoding.program, target=-margin)
            if answer is None:
                return Verdict.UNKNOWN
            # The cost is minus the margin of the constraints, which violations have at least 0.
            if answer.bound > margin:
                return Verdict.VERIFIED
            if answer.point is None:
                self.note_failure(answer)
                return Verdict.UNKNOWN
            if self._take(encoding, answer.point):
                return Verdict.FALSIFIED

    def find_nearest(self, constraints: range, cells: Cells, *, by_node: bool = False) -> None:
        """Look for the nearest violation of one alternative in a box; nothing is proved."""
        encoding = self._encoded(constraints, cells, by_node=by_node)
        if encoding is None:
            return
        farthest = max((v for levels in self.levels for v in levels.values()), default=HERE)
        scale = (farthest if self.best is None else self.level)[0] or 1.0
        encoding.ask_distance(self.levels, self.home, scale, encoding.program.margin)
        reason = self.reason
        while (answer := self.solve(encoding.program)) is not None and answer.point is not None:
            if self._take(encoding, answer.point):
                break
        self.reason = reason  # what is only a suggestion leaves nothing open

    def is_excluded(self, constraints: range, cells: Cells) -> bool:
        """Whether the best leaves of all trees in a box are not enough for an alternative."""
        return restricted_to(self.query, self.row, constraints, cells).is_excluded_by_eq6()

    def _encoded(
        self, constraints: range, cells: Cells, *, by_node: bool = False
    ) -> Encoding | None:
        """Return the program of a box; None when the best leaves of all trees are not enough."""
        restricted = restricted_to(self.query, self.row, constraints, cells, fixes_label=True)
        if restricted.is_excluded_by_eq6():
            return None
        return encode(restricted, self.query.ensemble if by_node else None)

    def _take(self, encoding: Encoding, point: FloatArray) -> bool:
        """Replay a solver's point; if it breaks nothing, its leaves are excluded."""
        cells = encoding.cells_of(point, self.home)
        replayed = point_in_cells(self.query, self.row, cells, cells)
        if breaks(self.query, self.row, replayed):
            level = HERE
            if self.query.reach.radius is None and self.query.reach.is_ball:
                moved = np.flatnonzero(cells != self.home)
                level = max((self.levels[f][int(cells[f])] for f in moved), default=HERE)
            if self.best is None or level < self.level:
                self.best, self.level = replayed, level
            return True
        # Sound: the leaves fix the library's sums and its label, and those break nothing.
        encoding.forbid(encoding.restricted.leaves_at(cells))
        self.excluded += 1
        return False


@dataclass(frozen=True, slots=True)
class MilpEngine(RowEngine):
    """The engine 'milp': exact by mixed-integer programming, as far as HiGHS keeps its tolerances.

    To be passed as ``engine=``. The budget's nodes are programs.

    Parameters
    ----------
    form : {"restricted", "whole"}
        Where the radius is first looked for: in balls that grow, over the leaves that they reach,
        or in one program over the whole model, as in the paper. Both end with the same proof.
    """

    form: Literal["restricted", "whole"] = "restricted"

    name: ClassVar[str] = "milp"
    is_complete: ClassVar[bool] = True
    answers_prices: ClassVar[bool] = True
    counted: ClassVar[tuple[str, ...]] = ("programs", "excluded")
    search_type: ClassVar[type[RowSearch]] = MilpSearch

    def __post_init__(self) -> None:
        """Refuse unknown forms, and name the package that brings the solver."""
        check_choice("form", self.form, ("restricted", "whole"), of="milp")
        require_backend("highspy", "milp")

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Decide every row at the query's own radius or box, or within its budget."""
        if query.pricing is None:
            return RowEngine.verify(self, query, budget, n_jobs=n_jobs)
        return self.each_row(query, budget, n_jobs, partial(_decide_by_price, query.pricing))

    def decide(self, search: Any, constraints: range, cells: Cells) -> Verdict:
        """Look for a violation of an alternative."""
        verdict: Verdict = search.find(constraints, cells)
        if verdict is Verdict.FALSIFIED:
            search.falsify(search.best)
        return verdict

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Find the minimal perturbation of every row."""
        if query.pricing is None:
            return self.each_row(query, budget, n_jobs, self._find_radius)
        return self.each_row(query, budget, n_jobs, partial(_find_cheapest, query.pricing))

    def _find_radius(self, search: MilpSearch) -> None:
        row, outcomes = search.row, search.outcomes
        lower = self._nearest(search)
        outcomes.lower[row] = lower[0]
        if search.best is not None:
            outcomes.upper[row] = search.level[0]
            outcomes.attained[row] = not search.level[1]
            record_witness(search.query, outcomes, row, search.best)
        if lower == search.level:
            outcomes.exact[row] = True
            outcomes.verdict[row] = Verdict.VERIFIED
        else:
            outcomes.reason[row] = search.reason or UnknownReason.SOLVER_FAILED

    def _nearest(self, search: MilpSearch) -> Level:
        """Find the nearest violation; returns the level below which none is, infinite too."""
        levels = search.all_levels()
        proved = HERE
        if self.form == "whole" and levels:
            box = search.box_below(levels[-1], inclusive=True)
            for constraints in search.alternatives:
                search.find_nearest(constraints, box, by_node=True)
        if search.best is None:
            proved = _grow(search, levels)
            if search.best is None:
                return proved
        # Sound: each alternative has nothing below its own level, so none has below the least. One
        # that is closed has the level of the witness known then, which later ones only lower.
        each = [_close_in(search, a, levels, proved) for a in search.alternatives]
        return min([search.level, *each])


def _decide_by_price(pricing: Pricing, search: MilpSearch) -> None:
    """Decide whether a row has a violation that its budget allows."""
    limit = None if pricing.limit is None else (pricing.limit, False)
    cheapest = CheapestSearch(search, pricing, pricing.prices([search.row]), limit, is_closed=True)
    verdicts = []
    for constraints in search.alternatives:
        verdicts.append(cheapest.close(constraints))
        if cheapest.best is not None and search.falsify(cheapest.best):
            return
        if Verdict.UNKNOWN in verdicts and search.limit is not UnknownReason.NONE:
            break
    if Verdict.UNKNOWN in verdicts:
        search.mark_unknown()
    else:
        search.mark_verified()


def _find_cheapest(pricing: Pricing, search: MilpSearch) -> None:
    """Find the least cost of a violation of a row."""
    row, outcomes = search.row, search.outcomes
    cheapest = CheapestSearch(search, pricing, pricing.prices([row]), None, is_closed=False)
    verdicts = [cheapest.close(constraints) for constraints in search.alternatives]
    is_closed = all(verdict is Verdict.VERIFIED for verdict in verdicts)
    outcomes.lower[row] = np.inf if is_closed else 0.0
    if cheapest.best is not None and cheapest.limit is not None:
        least, is_open = cheapest.limit
        outcomes.upper[row] = upper = pricing.rounded_down(least)
        is_exact = Fraction(upper) ** (2 if pricing.is_square else 1) == least
        outcomes.attained[row] = is_exact and not is_open
        # Sums are compared within a tolerance: what only approaches its cost is no proof that
        # nothing attains it.
        is_tied = is_exact and is_open and pricing.total == "sum"
        outcomes.lower[row] = (double_below(upper) if is_tied else upper) if is_closed else 0.0
        record_witness(search.query, outcomes, row, cheapest.best)
    outcomes.exact[row] = is_closed
    if is_closed:
        outcomes.verdict[row] = Verdict.VERIFIED
    else:
        outcomes.reason[row] = search.reason or UnknownReason.SOLVER_FAILED


def _grow(search: MilpSearch, levels: list[Level]) -> Level:
    """Ask at growing radii until one is broken; returns the level below which nothing is."""
    number = _first_open(search, levels)
    # Sound: the best leaves of all trees rule out the box of the level before, and smaller ones.
    proved = levels[number] if number else HERE
    while levels:
        number = min(number, len(levels) - 1)
        box = search.box_below(levels[number], inclusive=True)
        verdicts = []
        for constraints in search.alternatives:
            verdicts.append(search.find(constraints, box))
            if verdicts[-1] is Verdict.FALSIFIED:
                return proved
        if Verdict.UNKNOWN in verdicts:
            return proved
        if number == len(levels) - 1:
            break
        proved = levels[number + 1]
        farther = (_GROWTH * levels[number][0], False)
        number += 1  # also from a distance of 0, which does not grow
        while number < len(levels) - 1 and levels[number] < farther:
            number += 1
    return np.inf, False


def _first_open(search: MilpSearch, levels: list[Level]) -> int:
    """Number of the first level that the best leaves of all trees do not rule out."""
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        box = search.box_below(levels[middle], inclusive=True)
        if all(search.is_excluded(constraints, box) for constraints in search.alternatives):
            low = middle + 1
        else:
            high = middle
    return low


def _close_in(search: MilpSearch, constraints: range, levels: list[Level], proved: Level) -> Level:
    """Search nearer than the best witness; returns the level below which nothing is.

    That of the witness itself, when there is provably nothing nearer.
    """
    while proved < search.level:
        # Sound: what is nearer than the witness is in the cells of the levels before its own.
        number = last = bisect_left(levels, search.level) - 1
        if search.level[0] > _NARROW * proved[0] > 0.0:
            middle = math.sqrt(proved[0]) * math.sqrt(search.level[0])
            number = max(bisect_left(levels, (middle, False)), bisect_left(levels, proved))
            number = min(number, last)
        box = search.box_below(levels[number] if number >= 0 else HERE, inclusive=True)
        verdict = search.find(constraints, box)
        if verdict is Verdict.UNKNOWN:
            break
        if verdict is Verdict.VERIFIED:
            # Sound: nothing is in the box, whose levels end before the next one.
            proved = levels[number + 1]
        elif number == last and proved < search.level:
            search.find_nearest(constraints, search.box_below(search.level, inclusive=False))
    return min(proved, search.level)
